package tables

import (
	"slices"
	"testing"
)

// TestTrashMemory: who fills the trash is refused while there is still room for others, and is
// not refused for ever: his oldest go, and nobody else's.
func TestTrashMemory(t *testing.T) {
	trash := NewTrash()
	trash.most = 1000 * TrashOverhead
	next := InodeID(1)
	put := func(user string) bool {
		e := &Trashed{Inode: next, User: user, Owner: "owner", Path: "/f", At: int64(next), Due: int64(next)}
		if !trash.Fits(user, e.Memory(), false) {
			return false
		}
		next++
		trash.Put(e)
		return true
	}
	for range 5 {
		put("bob")
	}
	check := func() {
		t.Helper()
		trash.Check(t.Errorf, next, int64(next))
	}
	for range 3 {
		for put("ann") {
		}
		if !put("bob") || !trash.Fits("root", trash.most/5, true) {
			t.Fatal("ann has filled the trash for all")
		}
		before, oldest := trash.Use("bob"), InodeID(0)
		for {
			ids := trash.Crowded(7)
			if len(ids) == 0 {
				break
			}
			if len(ids) > 7 || ids[0] <= oldest || !slices.IsSorted(ids) {
				t.Fatalf("%v go after %d", ids, oldest)
			}
			oldest = ids[len(ids)-1]
			for _, id := range ids {
				if !trash.Take(id) {
					t.Fatalf("%d is not there", id)
				}
			}
		}
		if trash.Use("bob") != before || trash.Use("ann").Entries == 0 {
			t.Fatalf("bob has %+v, ann %+v", trash.Use("bob"), trash.Use("ann"))
		}
		check()
	}
	if c := trash.Clone(); c.Len() != trash.Len() || c.Fits("ann", trash.most, true) {
		t.Error("a clone is not the same")
	}
}
