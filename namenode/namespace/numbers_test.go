package namespace

import (
	"bytes"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

func caching(t *testing.T, r *rig, ids ...SessionID) {
	t.Helper()
	for _, id := range ids {
		r.must(t, &OpCaching{Session: id, Term: 10})
	}
}

func numbered(id SessionID, n InodeID, name string) *OpCreateAs {
	return &OpCreateAs{Session: id, Inode: n, OpCreate: OpCreate{Parent: RootID, Name: name, Closed: true}}
}

// TestNumbers: numbers are set aside for one session, which has eight ranges of
// them, until it caches no more; nobody else gets one.
func TestNumbers(t *testing.T) {
	r := newRig(t)
	a, b := SessionID{1}, SessionID{2}
	caching(t, r, a, b)
	const maxRanges = 8
	var firsts []InodeID
	for i := range maxRanges + 1 {
		firsts = append(firsts, r.must(t, &OpReserve{Session: a, Count: 10}).Inode)
		if i == 4 {
			firsts[i] = 0 // one of b's is between
			r.must(t, &OpReserve{Session: b, Count: 1})
		}
	}
	last := firsts[maxRanges]
	if free := r.must(t, &OpCreate{Parent: RootID, Name: "other", Closed: true}).Inode; free != last+10 {
		t.Fatalf("the next number is %d, the last range began at %d", free, last)
	}
	for n, want := range map[InodeID]bool{firsts[0]: false, firsts[0] + 9: false, firsts[1]: true, last: true, last + 9: true, last + 10: false, firsts[5] - 1: false, RootID: false} {
		if r.tree.Reserved(a, n) != want {
			t.Errorf("%d is set aside: %v", n, !want)
		}
	}
	if r.tree.Reserved(b, last) || !r.tree.Reserved(b, firsts[5]-1) {
		t.Error("one session has another's numbers")
	}
	if got := r.must(t, numbered(a, last+3, "f")); got.Inode != last+3 || r.tree.Reserved(a, last+3) {
		t.Fatal(got.Inode)
	}
	for name, op := range map[string]Op{
		"used":         numbered(a, last+3, "g"),
		"another's":    numbered(b, last, "g"),
		"dropped":      numbered(a, firsts[0], "g"),
		"never":        numbered(a, last+1000, "g"),
		"name taken":   numbered(a, last, "f"),
		"with parents": &OpCreateAs{Session: a, Inode: last, OpCreate: OpCreate{Parent: RootID, Dirs: []string{"d"}, Name: "g", Closed: true}},
		"replaces":     &OpCreateAs{Session: a, Inode: last, OpCreate: OpCreate{Parent: RootID, Name: "f", Replace: last + 3, Closed: true}},
		"none":         &OpReserve{Session: a},
		"too many":     &OpReserve{Session: a, Count: tables.MaxReserve + 1},
		"no session":   &OpReserve{Session: SessionID{3}, Count: 1},
	} {
		if _, err := r.apply(CallID{}, op); err == nil {
			t.Errorf("%s: applied", name)
		}
	}
	image, err := ReadImage(bytes.NewReader(imageOf(t, r.tree)))
	if err != nil {
		t.Fatal(err)
	}
	same(t, r.tree, image)
	r.must(t, &OpCaching{Session: a})
	if r.tree.Reserved(a, last) || r.tree.CacherTable.Ranges() != 1 {
		t.Fatal("a session that has gone has numbers, or another lost its own")
	}
}

// TestNumbersAreSeen: who has cached that there is no inode of a number hears
// that it is made.
func TestNumbersAreSeen(t *testing.T) {
	r := newRig(t)
	a := SessionID{1}
	caching(t, r, a)
	n := r.must(t, &OpReserve{Session: a, Count: 2}).Inode
	c := &Call{Super: true, Collect: true}
	if _, err := r.tree.Stat(c, Inode(n)); fserror.KindOf(err) != fserror.NotFound {
		t.Fatal(err)
	}
	if !c.Collect || len(c.Looks) == 0 {
		return // then it is not cached
	}
	affects := r.tree.Affects(numbered(a, n, "f"))
	for _, l := range c.Looks {
		if slices.Contains(affects, l) {
			return
		}
	}
	t.Fatalf("an answer that depends on %v outlives a record that affects %v", c.Looks, affects)
}

// TestNumbersAreUsedOnce: a number is not free again when its file is deleted, in
// whatever order files are made and deleted, nor after an image was read.
func TestNumbersAreUsedOnce(t *testing.T) {
	r := newRig(t)
	a := SessionID{1}
	caching(t, r, a)
	first := r.must(t, &OpReserve{Session: a, Count: 20}).Inode
	for _, i := range []InodeID{19, 3, 0, 8, 7} {
		r.must(t, numbered(a, first+i, "f"))
		r.must(t, &OpDelete{Parent: RootID, Name: "f", Inode: first + i})
		if _, err := r.apply(CallID{}, numbered(a, first+i, "g")); err == nil || r.tree.Reserved(a, first+i) {
			t.Fatalf("number %d is given to a second file", i)
		}
	}
	image, err := ReadImage(bytes.NewReader(imageOf(t, r.tree)))
	if err != nil {
		t.Fatal(err)
	}
	same(t, r.tree, image)
	for i := range InodeID(20) {
		if used := i == 19 || i == 3 || i == 0 || i == 8 || i == 7; image.Reserved(a, first+i) == used {
			t.Errorf("number %d can be used: %v", i, used)
		}
	}
	sound(t, r.tree)
}
