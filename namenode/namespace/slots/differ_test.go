package slots

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TestDiffer changes a table and its clones at random, over pages, branches and levels that the
// one has and the other has not, and compares what Differ tells, by pieces, with a look at all.
func TestDiffer(t *testing.T) {
	ids := []tables.InodeID{1, 2, 63, 64, 65, 8191, 8192, 8193, 1 << 20, 1<<20 + 64, 1 << 27, 1<<34 + 5}
	rapid.Check(t, func(t *rapid.T) {
		a := New(func(*string) string { return "" })
		var was Table[string]
		change := func(label string) {
			for range rapid.IntRange(0, 12).Draw(t, label) {
				id := rapid.SampledFrom(ids).Draw(t, "id")
				if n, _ := a.Get(id); n != nil && rapid.Bool().Draw(t, "drop") {
					a.Drop(id)
					continue
				}
				var x *string
				if rapid.Bool().Draw(t, "extra") {
					s := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "x")
					x = &s
				}
				a.Put(id, &Node{Type: rapid.SampledFrom([]uint8{1, 2}).Draw(t, "type")}, x)
			}
		}
		change("before")
		was = a.Clone()
		change("after")
		for _, two := range [][2]*Table[string]{{&was, &a}, {&a, &was}, {&a, &a}} {
			want := make(map[tables.InodeID]bool)
			for _, id := range ids {
				n, x := two[0].Get(id)
				m, y := two[1].Get(id)
				want[id] = (n == nil) != (m == nil) || n != nil && (*n != *m || x != y)
			}
			last := tables.InodeID(0)
			from := rapid.SampledFrom(append(ids, 0)).Draw(t, "from")
			for next, calls := from, 0; calls == 0 || next != 0; calls++ {
				if calls > 100 {
					t.Fatal("it does not end")
				}
				limit := rapid.IntRange(1, 3).Draw(t, "limit")
				next = Differ(two[0], two[1], next, rapid.IntRange(1, 4).Draw(t, "budget"), func(id tables.InodeID, p Pair[string]) bool {
					n, x := two[0].Get(id)
					m, y := two[1].Get(id)
					if id <= last || id < from || n != p.Old || m != p.New || x != p.OldX || y != p.NewX {
						t.Fatalf("inode %d after %d: %+v", id, last, p)
					}
					last = id
					delete(want, id)
					limit--
					return limit > 0
				})
			}
			for id, differs := range want {
				if differs && id >= from {
					t.Fatalf("inode %d differs", id)
				}
			}
		}
		if two := Memory(&a, &a, func(*string) int64 { return 1 }); two != 0 {
			t.Fatalf("a table takes %d bytes besides itself", two)
		}
	})
}

// TestTableMemory: what a snapshot takes grows with what changes, and not with what there is.
func TestTableMemory(t *testing.T) {
	tab := New(func(*string) string { return "" })
	const many = 100_000
	for id := tables.InodeID(1); id <= many; id++ {
		n := Node{Parent: 1}
		n.NameLen = uint8(copy(n.Name[:], fmt.Sprint(id))) //nolint:gosec // a few digits
		tab.Put(id, &n, nil)
		if id > 1 {
			tab.Link(1, fmt.Sprint(id), id)
		}
	}
	size := func(*string) int64 { return 0 }
	was := tab.Clone()
	if b := Memory(&was, &tab, size); b != 0 {
		t.Fatalf("nothing changed, but %d bytes", b)
	}
	looked := 0
	for i := range tables.InodeID(10) {
		id := 1 + i*1000
		n, x := tab.Get(id)
		m := *n
		m.MTime++
		tab.Put(id, &m, x)
	}
	Differ(&was, &tab, 0, math.MaxInt, func(tables.InodeID, Pair[string]) bool { looked++; return true })
	if b := Memory(&was, &tab, size); b < 10*48 || b > 10*8192 || looked > 10*pageSize {
		t.Fatalf("10 changes take %d bytes, and %d inodes were looked at", b, looked)
	}
}
