package node

import (
	"math"

	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Joined returns which of files that are to be joined, in this order, have tails that would come
// before other bytes; and how many bytes the whole has, -1 if there cannot be so many.
func Joined(files []*Inode) (tails []tables.InodeID, length int64) {
	last := 0
	for i, n := range files {
		if n.Length() == 0 {
			continue
		}
		if length > math.MaxInt64-n.Length() {
			return tails, -1
		}
		last, length = i, length+n.Length()
	}
	for _, n := range files[:last] {
		if len(n.Tail()) > 0 {
			tails = append(tails, n.ID)
		}
	}
	return tails, length
}

// Bare returns a copy of a file without its bytes, which another file has taken over.
func (n *Inode) Bare() *Inode {
	n = n.Edit()
	x := n.OwnExt()
	x.Blocks, x.Tail, x.N = nil, nil, 0
	n.DropEmptyExt()
	return n
}
