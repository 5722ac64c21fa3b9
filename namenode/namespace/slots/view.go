package slots

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// View is the inodes of adjacent numbers in a table, as long as that does not change. Equal views
// have the same inodes.
type View[X any] struct{ p *page[X] }

// PageOf is the number of the page that an inode is on.
func PageOf(id tables.InodeID) uint64 { return uint64(id) >> pageBits }

// View returns the inodes on the page of a number.
func (t *Table[X]) View(id tables.InodeID) View[X] { return View[X]{t.page(id)} }

// Get is Table.Get for an inode on the page.
func (v View[X]) Get(id tables.InodeID) (*Node, *X) {
	if v.p == nil {
		return nil, nil
	}
	return v.p.get(id)
}
