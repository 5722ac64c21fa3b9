package node

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Check finds what of an inode cannot be, whatever else there is; txid is the last record.
func (n *Inode) Check(problem tables.Problem, txid uint64) {
	switch x := n.Ext; n.Type {
	case calls.TypeFile:
		n.checkFile(problem, txid)
	case calls.TypeDir:
		if x != nil && (len(x.Blocks) > 0 || len(x.Tail) > 0 || x.Open != nil || x.N < 0) {
			problem("directory %d has the content of a file", n.ID)
		}
	case calls.TypeSymlink:
		if x == nil || len(x.Tail) == 0 || len(x.Blocks) > 0 || x.Open != nil || x.N != 0 {
			problem("link %d has no target, or the content of a file", n.ID)
		}
	default:
		problem("inode %d has the type %d", n.ID, n.Type)
	}
	x := n.Ext
	if x == nil {
		return
	}
	bare := *n
	if bare.DropEmptyExt(); bare.Ext == nil {
		problem("inode %d has an empty extension", n.ID)
	}
	if (x.name != nil) != (n.NameLen > Inline) {
		problem("inode %d has a name in its extension that does not belong there", n.ID)
	}
	if x.Cut > txid || x.Cut != 0 && n.Type != calls.TypeFile {
		problem("inode %d was cut by record %d, which cannot be", n.ID, x.Cut)
	}
}

func (n *Inode) checkFile(problem tables.Problem, txid uint64) {
	sum := int64(0)
	for _, b := range n.Blocks() {
		sum += int64(b.Used)
		if b.Used == 0 || b.Used > b.Stored || b.Key.Seq == 0 {
			problem("file %d has block %d.%d with %d bytes used of %d", n.ID, b.Key.Term, b.Key.Seq, b.Used, b.Stored)
		}
	}
	if sum != n.BlocksLength() {
		problem("file %d has blocks of %d bytes, but counts %d", n.ID, sum, n.BlocksLength())
	}
	switch o := n.Open(); {
	case o == nil:
	case o.Grant == nil || o.Grant.Holder == nil || o.Grant.Epoch == 0 || o.Grant.Epoch > txid:
		problem("file %d is open with a wrong epoch", n.ID)
	case !o.Last.Within(n.Length()):
		problem("file %d is shorter than what was last appended", n.ID)
	}
}
