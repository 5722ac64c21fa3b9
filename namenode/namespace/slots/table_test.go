package slots

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// extra is what only some inodes have in these tests.
type extra struct{ rest string }

// model is what a table should have.
type model map[tables.InodeID]entry

type entry struct {
	dir   tables.InodeID
	name  string
	mtime int64
	extra bool
}

func newTable() Table[extra] { return New(func(x *extra) string { return x.rest }) }

func (e entry) node() (n *Node, x *extra) {
	n = &Node{Parent: e.dir, MTime: e.mtime, Type: 1, NameLen: uint8(len(e.name))}
	if e.extra {
		x = new(extra)
	}
	if copy(n.Name[:], e.name) < len(e.name) {
		x = &extra{e.name[Inline:]}
	}
	return n, x
}

// compare compares a table with its model, by number, by name and in order.
func (m model) compare(t *testing.T, tab *Table[extra]) {
	t.Helper()
	tab.Check(func(format string, args ...any) { t.Errorf(format, args...) })
	byID := slices.Sorted(maps.Keys(m))
	tab.Each(0, func(id tables.InodeID, n *Node, x *extra) bool {
		if len(byID) == 0 || byID[0] != id {
			t.Fatalf("inode %d comes where %v are left", id, byID[:min(3, len(byID))])
		}
		e := m[id]
		if wantN, wantX := e.node(); *n != *wantN || (x == nil) != (wantX == nil) {
			t.Fatalf("inode %d is %+v, not %+v", id, n, e)
		}
		byID = byID[1:]
		return true
	})
	if len(byID) > 0 || tab.Len() != len(m) {
		t.Fatalf("%d of %d inodes are missing, %d were counted", len(byID), len(m), tab.Len())
	}
	var names []tables.InodeID
	for id, e := range m {
		if e.dir == 0 {
			continue
		}
		names = append(names, id)
		if got := tab.Find(e.dir, e.name); got != id {
			t.Fatalf("entry %q of %d is %d, not %d", e.name, e.dir, got, id)
		}
	}
	slices.SortFunc(names, func(a, b tables.InodeID) int {
		return cmp.Or(cmp.Compare(m[a].dir, m[b].dir), strings.Compare(m[a].name, m[b].name))
	})
	for _, from := range []int{0, len(names) / 3, len(names)} {
		rest, dir, name := names[from:], tables.InodeID(1<<63), ""
		if len(rest) > 0 {
			dir, name = m[rest[0]].dir, m[rest[0]].name
		}
		tab.Ascend(dir, name, func(id tables.InodeID) bool {
			if len(rest) == 0 || id != rest[0] {
				t.Fatalf("entry %d is out of order", id)
			}
			rest = rest[1:]
			return true
		})
		if len(rest) > 0 {
			t.Fatalf("%d entries are missing", len(rest))
		}
	}
}

// put, rename and drop do the same to both.
func (m model) put(tab *Table[extra], id tables.InodeID, e entry) {
	n, x := e.node()
	tab.Put(id, n, x)
	tab.Link(e.dir, e.name, id)
	m[id] = e
}

func (m model) drop(tab *Table[extra], id tables.InodeID) bool {
	ok := tab.Unlink(m[id].dir, m[id].name, id)
	tab.Drop(id)
	delete(m, id)
	return ok
}

// TestModel makes, changes, renames and drops inodes at random, in growing and shrinking
// tables, and compares the table and its clones with models of them.
func TestModel(t *testing.T) {
	long := strings.Repeat("n", Inline)
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab, m := newTable(), model{}
		type snapshot struct {
			tab Table[extra]
			m   model
		}
		var clones []snapshot
		next, taken := tables.InodeID(1), map[string]bool{}
		fresh := func() entry {
			for {
				e := entry{dir: tables.InodeID(1 + r.IntN(5)), mtime: r.Int64(), extra: r.IntN(4) == 0}
				e.name = []string{"", "file", long[1:], long, long + "x"}[r.IntN(5)] + fmt.Sprint(r.IntN(1000))
				if k := fmt.Sprint(e.dir, e.name); !taken[k] {
					taken[k] = true
					return e
				}
			}
		}
		for step := range 4000 {
			grow := step%2000 < 1300
			ids := slices.Sorted(maps.Keys(m))
			switch n := r.IntN(10); {
			case len(m) == 0 || grow && n < 6 || n < 2:
				next += tables.InodeID(1 + r.Uint64N(1<<(seed*3)))
				m.put(&tab, next, fresh())
			case n < 8:
				id := ids[r.IntN(len(ids))]
				delete(taken, fmt.Sprint(m[id].dir, m[id].name))
				if !m.drop(&tab, id) {
					t.Fatalf("entry %d is not there", id)
				}
			default:
				id := ids[r.IntN(len(ids))]
				e := m[id]
				if n == 8 {
					if !tab.Unlink(e.dir, e.name, id) || tab.Unlink(e.dir, e.name, id) {
						t.Fatalf("entry %d is not there once", id)
					}
					delete(taken, fmt.Sprint(e.dir, e.name))
					m.put(&tab, id, fresh())
					continue
				}
				e.mtime, e.extra = r.Int64(), !e.extra
				node, x := e.node()
				if tab.Put(id, node, x) {
					t.Fatalf("inode %d was not there", id)
				}
				m[id] = e
			}
			if step%500 == 0 {
				clones = append(clones, snapshot{tab.Clone(), maps.Clone(m)})
			}
			if step%1000 == 999 {
				m.compare(t, &tab)
			}
		}
		for _, c := range clones {
			c.m.compare(t, &c.tab)
			// A clone may also be changed, for itself.
			c.m.put(&c.tab, 1<<63, entry{dir: 1 << 62, name: "last"})
			c.m.compare(t, &c.tab)
		}
		m.compare(t, &tab)
	}
}

// TestFind: names that are alike, and names that are not there.
func TestFind(t *testing.T) {
	tab, m := newTable(), model{}
	name := strings.Repeat("a", Inline)
	for i, n := range []string{name, name[1:], name + "a", name + "b", name + strings.Repeat("c", 200)} {
		m.put(&tab, tables.InodeID(i+2), entry{dir: 1, name: n})
	}
	m.compare(t, &tab)
	for _, n := range []string{"", "a", name + "c", name[2:], name + "aa"} {
		if id := tab.Find(1, n); id != 0 {
			t.Errorf("%q is %d", n, id)
		}
	}
	if id := tab.Find(2, name); id != 0 {
		t.Errorf("a name in another directory is %d", id)
	}
	if n, _ := tab.Get(1 << 62); n != nil {
		t.Error("a number that nothing has is there")
	}
}

// memory is how many bytes the lists of a table take, and how many leaves it has.
func memory(tab *Table[extra]) (bytes, leaves int) {
	var walk func(b *branch[extra])
	walk = func(b *branch[extra]) {
		bytes += int(unsafe.Sizeof(*b)) + branchSize*8
		if b.leaf == nil {
			for _, sub := range b.subs {
				if sub != nil {
					walk(sub)
				}
			}
			return
		}
		for _, p := range b.leaf {
			if p != nil {
				bytes += int(unsafe.Sizeof(*p)) + cap(p.nodes)*int(unsafe.Sizeof(Node{})) + cap(p.extras)*8
			}
		}
	}
	walk(tab.root)
	tab.leaves.Ascend(func(it leafItem) bool {
		leaves++
		bytes += int(unsafe.Sizeof(it)+unsafe.Sizeof(*it.leaf)) + len(it.name) + cap(it.ids)*8
		return true
	})
	return bytes, leaves
}

// TestBytesPerFile: a file takes at most 64 bytes if files come in order, and what is left after
// most files are gone takes at most as much as it would alone, several times.
func TestBytesPerFile(t *testing.T) {
	if size := unsafe.Sizeof(Node{}); size != 48 {
		t.Errorf("a node has %d bytes", size)
	}
	const files = 1 << 16
	tab, m := newTable(), model{}
	for i := range tables.InodeID(files) {
		m.put(&tab, i+2, entry{dir: 1, name: fmt.Sprintf("file%09d", i)})
	}
	if bytes, _ := memory(&tab); bytes > 64*files {
		t.Errorf("a file takes %d bytes", bytes/files)
	}
	for i := range tables.InodeID(files) {
		if i%64 != 0 {
			m.drop(&tab, i+2)
		}
	}
	m.compare(t, &tab)
	if bytes, leaves := memory(&tab); bytes > 320*len(m) || leaves > len(m)/8 {
		t.Errorf("one file of 64 takes %d bytes; %d leaves have %d entries", bytes/len(m), leaves, len(m))
	}
	for id := range maps.Clone(m) {
		m.drop(&tab, id)
	}
	if bytes, leaves := memory(&tab); bytes > 16<<10 || leaves > 1 || tab.Entries() != 0 {
		t.Errorf("nothing takes %d bytes and %d leaves", bytes, leaves)
	}
}

// TestInterleaved: directories that grow at the same time leave leaves that are full enough.
func TestInterleaved(t *testing.T) {
	tab, m := newTable(), model{}
	for i := range tables.InodeID(1 << 15) {
		m.put(&tab, i+100, entry{dir: 1 + i%32, name: fmt.Sprintf("file%09d", i)})
	}
	m.compare(t, &tab)
	if _, leaves := memory(&tab); leaves > len(m)/(leafSize*3/4) {
		t.Errorf("%d entries take %d leaves", len(m), leaves)
	}
}

// TestLoad reads a table in the order of an image, and finds a number that comes twice.
func TestLoad(t *testing.T) {
	want := model{}
	load := func(ids []tables.InodeID, dense bool) (*Table[extra], tables.InodeID, bool) {
		tab, count := newTable(), uint64(1)
		if dense {
			count = uint64(len(ids))
		}
		l := tab.Load(count, uint64(len(ids)))
		for i, id := range ids {
			e := entry{name: fmt.Sprintf("a name that is a bit long %06d", i), mtime: int64(i)}
			if e.dir = tables.InodeID(i/1000) + 1; i == 0 {
				e = entry{}
			}
			want[id] = e
			n, x := e.node()
			l.Add(id, n, x)
		}
		twice, is := l.Finish()
		return &tab, twice, is
	}
	ids := make([]tables.InodeID, 5000)
	for i, p := range rand.New(rand.NewPCG(1, 1)).Perm(len(ids)) {
		ids[i] = tables.InodeID(p + 1)
	}
	for _, dense := range []bool{true, false} {
		tab, _, twice := load(ids, dense)
		if twice {
			t.Fatal("a number came twice")
		}
		want.compare(t, tab)
		m := maps.Clone(want)
		m.put(tab, 1<<40, entry{dir: 3, name: "b"})
		m.compare(t, tab)
	}
	ids[4000] = ids[7]
	if _, id, twice := load(ids, true); !twice || id != ids[7] {
		t.Errorf("number %d came twice: %v, %d", ids[7], twice, id)
	}
}

// Names that come in descending order behind a full leaf, or between the full ones of an
// image, fill leaves as others do.
func TestDescendingNames(t *testing.T) {
	tab, m := newTable(), model{}
	l := tab.Load(1<<14, 1<<14)
	for i := range tables.InodeID(1 << 13) {
		e := entry{dir: 1, name: fmt.Sprintf("f%09d", i*1000)}
		n, x := e.node()
		l.Add(i+100, n, x)
		m[i+100] = e
	}
	l.Finish()
	const behind, between = 1 << 13, 900
	for i := range tables.InodeID(behind) {
		m.put(&tab, i+20_000, entry{dir: 2, name: fmt.Sprintf("f%09d", behind-i)})
	}
	for i := range tables.InodeID(between) {
		m.put(&tab, i+40_000, entry{dir: 1, name: fmt.Sprintf("f%09d", 127*1000+999-i)})
	}
	m.compare(t, &tab)
	if _, leaves := memory(&tab); leaves > len(m)/32 {
		t.Errorf("%d entries take %d leaves", len(m), leaves)
	}
}
