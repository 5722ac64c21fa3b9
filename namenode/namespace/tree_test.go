package namespace

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// The sizes on which the memory for millions of files depends.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct{ have, want uintptr }{
		"inode":     {unsafe.Sizeof(inode{}), 64},
		"ext":       {unsafe.Sizeof(node.Ext{}), 80},
		"openState": {unsafe.Sizeof(node.Open{}), 24},
		"Block":     {unsafe.Sizeof(Block{}), 32},
	} {
		if c.have != c.want {
			t.Errorf("%s has %d bytes, should have %d", name, c.have, c.want)
		}
	}
	r := newRig(t)
	for _, id := range []InodeID{r.create(t, "/d/f", ""), r.mkdir(t, "/e")} {
		if r.tree.get(id).Ext != nil {
			t.Errorf("empty inode %d has an extension", id)
		}
	}
}

// Looking up must not allocate for each name on the way.
func TestStatAllocates(t *testing.T) {
	r := newRig(t)
	path := "/a/b/c/" + longName
	r.create(t, path, "")
	c := &Call{User: "u"}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.tree.Stat(c, Follow(path)) }); n > 1 {
		t.Errorf("stat allocates %v times", n)
	}
}

// A clone is read without a lock while the tree changes (run with -race).
func TestCloneIsIndependent(t *testing.T) {
	r := rich(t)
	w := r.open(t, "/log", "client")
	var wg sync.WaitGroup
	for i := range 20 {
		clone := r.tree.Clone()
		if clone.Clone() != clone {
			t.Fatal("a clone of a clone is another")
		}
		if _, err := clone.Apply(Entry{TxID: clone.txid + 1, Time: r.now, Op: &OpSafeMode{}}); err == nil {
			t.Fatal("a clone was changed")
		}
		before := imageOf(t, clone)
		wg.Go(func() {
			for range 3 {
				if !bytes.Equal(before, imageOf(t, clone)) || len(clone.Check()) > 0 {
					t.Error("a clone changed")
				}
			}
			_, _, _ = clone.CallResult(CallID{Session: SessionID{1, 9}, Seq: 100})
			_ = clone.Counts()
		})
		n := r.tree.get(w.Inode).Length()
		for j := range 50 {
			r.write(t, w, n, "0123456789")
			n += 10
			r.create(t, fmt.Sprintf("/new%d/f%d", i, j), "x")
			if _, err := r.apply(CallID{Session: SessionID{byte(j % 3), 9}, Seq: uint64(1000 + i*100 + j)}, &OpSetAttr{Inode: RootID, User: fmt.Sprintf("user%d-%d", i, j)}); err != nil {
				t.Fatal(err)
			}
		}
		r.commit(t, w, strings.Repeat("0123456789", 20))
	}
	wg.Wait()
	same(t, r.tree, replay(t, r.journal))
}

// What FileView returned stays as it is, whatever is done to the file.
func TestViewsStay(t *testing.T) {
	r := newRig(t)
	w := r.open(t, "/f", "c")
	r.write(t, w, 0, "abcdef")
	r.commit(t, w, "abc")
	r.commit(t, w, "def")
	r.write(t, w, 6, "ghi")
	v, err := r.tree.File(nil, Follow("/f"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, tail := append([]Block(nil), v.Blocks...), string(v.Tail)
	r.write(t, w, 9, "jkl")
	r.close(t, w)
	r.must(t, &OpTruncate{Inode: w.Inode, Length: 7})
	r.must(t, &OpTruncate{Inode: w.Inode, Length: 5})
	w = r.open(t, "/f", "c")
	r.write(t, w, 5, "XYZ")
	r.commit(t, w, "XYZ")
	r.commit(t, w, "more")
	for i, b := range blocks {
		if v.Blocks[i] != b {
			t.Errorf("block %d became %v, was %v", i, v.Blocks[i], b)
		}
	}
	if string(v.Tail) != tail {
		t.Errorf("the tail became %q, was %q", v.Tail, tail)
	}
	if got := r.content(t, r.tree, w.Inode); got != "abcdeXYZmore" {
		t.Errorf("content is %q", got)
	}
}

// Both ways to find the open files below a directory find the same ones.
func TestDeleteFindsOpenFiles(t *testing.T) {
	for _, files := range []int{3, 2000} {
		r := newRig(t)
		var want []InodeID
		for i := range files {
			r.create(t, fmt.Sprintf("/top/d%d/e/closed%d", i%50, i), "")
			r.create(t, fmt.Sprintf("/top/big/f%d", i), "")
		}
		for i := range 30 {
			want = append(want, r.open(t, fmt.Sprintf("/top/d%d/e/open%d", i%10, i), "c").Inode)
			r.open(t, fmt.Sprintf("/elsewhere/e%d/open", i), "c")
		}
		op, err := PlanDelete(r.tree, nil, At("/top"), true, TypeDir)
		if err != nil {
			t.Fatal(err)
		}
		res := r.must(t, op)
		if len(res.Closed) != len(want) || r.tree.Counts().Open != 30 {
			t.Fatalf("%d of %d closed", len(res.Closed), len(want))
		}
		for i, c := range res.Closed {
			if c.Inode != want[i] || c.Reason != ReasonDeleted {
				t.Fatalf("closed %+v, want inode %d", c, want[i])
			}
		}
		sound(t, r.tree)
		same(t, r.tree, replay(t, r.journal))
	}
}

// A tree deeper than any stack should bear.
func TestDeepTree(t *testing.T) {
	r := newRig(t)
	const depth = 3000
	dir := RootID
	for range depth {
		dir = r.must(t, &OpMkdir{Parent: dir, Names: []string{"d"}, Mode: 0o755}).Inode
	}
	open := r.must(t, &OpCreate{Parent: dir, Name: "f", Holder: Holder{Client: "c"}})
	if p, ok := r.tree.Path(open.Inode); !ok || len(p) != 2*depth+2 {
		t.Fatalf("path of %d bytes", len(p))
	}
	seen := 0
	if err := r.tree.Walk(RootID, func([]byte, Attr) error { seen++; return nil }); err != nil || seen != depth+2 {
		t.Fatal(seen, err)
	}
	roundTrip(t, r.tree)
	op, err := PlanDelete(r.tree, nil, At("/d"), true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if res := r.must(t, op); len(res.Closed) != 1 {
		t.Fatalf("%+v", res)
	}
	roundTrip(t, r.tree)
	for r.tree.Counts().Detached > 0 {
		before := r.tree.Counts().Inodes
		r.must(t, &OpReclaim{Limit: 1000})
		if freed := before - r.tree.Counts().Inodes; freed == 0 || freed > 1001 {
			t.Fatalf("%d freed", freed)
		}
	}
	if c := r.tree.Counts(); c.Inodes != 1 {
		t.Fatalf("%+v", c)
	}
	sound(t, r.tree)
}

func TestOwnersLimit(t *testing.T) {
	r := newRig(t)
	id := r.create(t, "/f", "")
	for r.tree.UserNames.Len() <= tables.MaxOwners {
		r.must(t, &OpSetAttr{Inode: id, User: "user" + strconv.Itoa(r.tree.UserNames.Len())})
	}
	_, err := PlanCreate(r.tree, &Call{User: "one more", Super: true}, CreateRequest{At: At("/g")})
	wantKind(t, err, fserror.NoSpace)
	_, err = PlanSetAttr(r.tree, nil, Follow("/f"), OpSetAttr{User: "one more"})
	wantKind(t, err, fserror.NoSpace)
	if _, err := r.apply(CallID{}, &OpSetAttr{Inode: id, User: "one more"}); err == nil {
		t.Fatal("applied")
	}
	if _, err := PlanCreate(r.tree, &Call{User: "user77", Super: true}, CreateRequest{At: At("/g")}); err != nil {
		t.Fatal(err)
	}
	back := roundTrip(t, r.tree)
	if a, err := back.Stat(nil, Follow("/f")); err != nil || a.User != "user"+strconv.Itoa(tables.MaxOwners) {
		t.Fatal(a, err)
	}
}

func TestPlanMergeSeesChanges(t *testing.T) {
	r := newRig(t)
	w := r.open(t, "/f", "c")
	r.write(t, w, 0, "abc")
	seal := func(covered int64, last *Block) error {
		n := r.tree.get(w.Inode)
		_, err := PlanMerge(r.tree, w.Inode, r.block("abc"), n.BlocksLength(), covered, false, last)
		return err
	}
	if err := seal(3, nil); err != nil {
		t.Fatal(err)
	}
	if !r.tree.TailIs(w.Inode, 1, []byte("bc")) || r.tree.TailIs(w.Inode, 1, []byte("bd")) || r.tree.TailIs(w.Inode, 1, []byte("bcd")) || r.tree.TailIs(w.Inode, 1<<62, []byte("b")) {
		t.Fatal("TailIs")
	}
	r.close(t, w)
	r.must(t, &OpTruncate{Inode: w.Inode, Length: 2})
	wantKind(t, seal(3, nil), fserror.Retry)
	w = r.open(t, "/f", "c")
	b := r.commit(t, w, "abXYZ")
	r.write(t, w, 5, "abc")
	wantKind(t, seal(3, nil), fserror.Retry)
	other := b
	other.Used--
	wantKind(t, seal(3, &other), fserror.Retry)
	if err := seal(3, &b); err != nil {
		t.Fatal(err)
	}
	op, _ := PlanDelete(r.tree, nil, At("/f"), false, 0)
	r.must(t, op)
	_, err := PlanMerge(r.tree, w.Inode, r.block("abc"), 5, 3, false, &b)
	wantKind(t, err, fserror.Retry)
}

// A repeated append is known though the namenode sealed the tail meanwhile.
func TestAppendRepeatedAfterSeal(t *testing.T) {
	r := newRig(t)
	w := r.open(t, "/f", "c")
	r.write(t, w, 0, "abc")
	r.write(t, w, 3, "def")
	op, err := PlanMerge(r.tree, w.Inode, r.block("abcdef"), 0, 6, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	again, n, err := PlanAppendTail(r.tree, nil, w, 3, []byte("def"), testMaxTail)
	if again != nil || n != 6 || err != nil {
		t.Fatal(again, n, err)
	}
	_, _, err = PlanAppendTail(r.tree, nil, w, 3, []byte("dex"), testMaxTail)
	wantKind(t, err, fserror.NotAtEnd)
	// So does one that was taken over know nothing of what the other appended.
	w = r.open(t, "/f", "d")
	_, _, err = PlanAppendTail(r.tree, nil, w, 3, []byte("def"), testMaxTail)
	wantKind(t, err, fserror.NotAtEnd)
}

func TestIterators(t *testing.T) {
	r := rich(t)
	second := r.open(t, "/second", "c").Inode
	var open []InodeID
	r.tree.OpenFiles(func(o OpenFile) bool { open = append(open, o.Inode); return true })
	if len(open) != 2 || open[1] != second {
		t.Fatal(open)
	}
	r.tree.OpenFilesAfter(open[0], func(o OpenFile) bool {
		if o.Inode != second {
			t.Fatal(o)
		}
		return true
	})
	if o, ok := r.tree.OpenFile(second); !ok || o.Holder.Client != "c" || o.Since != r.now {
		t.Fatal(o, ok)
	}
	refs := map[blockstore.Key]bool{}
	r.tree.Referenced(0, func(_ InodeID, b Block) bool { refs[b.Key] = true; return true })
	if len(refs) != r.tree.Counts().Blocks {
		t.Fatal(refs)
	}
	tails := 0
	r.tree.Tails(func(id InodeID, n int, last *Block, isOpen bool, _ int64) bool {
		tails++
		if isOpen != (last != nil) || n == 0 {
			t.Errorf("inode %d: %d %v %v", id, n, last, isOpen)
		}
		return true
	})
	if tails != 9 {
		t.Fatal(tails)
	}
	if keys := r.tree.Garbage().Oldest(r.tree.Reigned(), 1, math.MaxInt64); len(keys) != 1 || !r.tree.IsGarbage(keys[0]) || r.tree.HasBlock(keys[0]) {
		t.Fatal(keys)
	}
	if keys := r.tree.Garbage().Oldest(-1, 10, math.MaxInt64); len(keys) != 0 {
		t.Fatal(keys)
	}
}

// TestCheckFinds damages a tree in several ways.
func TestCheckFinds(t *testing.T) {
	for name, damage := range map[string]func(r *rig){
		"no longer open":    func(r *rig) { r.tree.open.Delete(r.tree.lookup(r.tree.lookup(RootID, "a").ID, "open").ID) },
		"lost entry":        func(r *rig) { r.tree.slots.UnlinkInode(r.tree.lookup(RootID, "link")) },
		"lost inode":        func(r *rig) { r.tree.drop(r.tree.lookup(RootID, "link")) },
		"block not indexed": func(r *rig) { k, _ := r.tree.blocks.Min(); r.tree.blocks.Delete(k) },
		"block is garbage":  func(r *rig) { k, _ := r.tree.blocks.Min(); r.tree.garbage.Add(tables.StoredBlock{Key: k}, 0) },
		"wrong count":       func(r *rig) { r.tree.counts.Files++ },
		"wrong sum": func(r *rig) {
			n := r.tree.lookup(r.tree.lookup(RootID, "a").ID, "open").Edit()
			n.OwnExt().N++
			r.tree.put(n)
		},
		"circle": func(r *rig) {
			a := r.tree.lookup(RootID, "a")
			b := r.tree.lookup(a.ID, "b")
			r.tree.slots.UnlinkInode(a)
			a = a.Edit()
			a.Parent = b.ID
			r.tree.put(a)
			r.tree.slots.LinkInode(a)
		},
		"block of garbage": func(r *rig) {
			k := r.tree.Garbage().Oldest(math.MaxInt64, 1, 1)[0]
			r.tree.blocks.ReplaceOrInsert(k)
		},
		"age of a closed file":  func(r *rig) { r.tree.AgeTable.Put(Age{AgeKey: AgeKey{Inode: RootID}, MS: 1}) },
		"age of an ended lease": func(r *rig) { r.tree.AgeTable.Put(Age{AgeKey: AgeKey{Lease: 2}, MS: 1}) },
		"numbers to come":       func(r *rig) { r.tree.CacherTable.SetAside(SessionID{7}, 1<<40, 5) },
		"attached directory":    func(r *rig) { r.tree.Grants.Attach(1, RootID, RootID, false) },
	} {
		r := rich(t)
		sound(t, r.tree)
		damage(r)
		if len(r.tree.Check()) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestFirstRecord(t *testing.T) {
	tree := New()
	sound(t, tree)
	if _, err := tree.Apply(Entry{TxID: 1, Op: &OpSafeMode{}}); err == nil {
		t.Fatal("a namespace began without an activation")
	}
	if _, err := tree.Apply(Entry{TxID: 77, Time: 5, Op: &OpActivate{Term: 1}}); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]Entry{
		"gap":      {TxID: 79, Time: 5, Op: &OpSafeMode{}},
		"again":    {TxID: 77, Time: 5, Op: &OpSafeMode{}},
		"earlier":  {TxID: 78, Time: 4, Op: &OpSafeMode{}},
		"old term": {TxID: 78, Time: 5, Op: &OpActivate{Term: 1}},
		"no op":    {TxID: 78, Time: 5},
	} {
		if _, err := tree.Apply(e); fserror.KindOf(err) != fserror.Internal || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
