package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// fileResult is the result of a record about one file.
func fileResult(n *inode) Result {
	return Result{Inode: n.ID, Length: n.Length(), BlocksLength: n.BlocksLength()}
}

// store puts a changed file in the place of the old one.
func (t applier) store(n *inode) {
	n.DropEmptyExt()
	t.put(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
}

// shut closes the copy n of an open file, gives its lists their exact size and
// stores it.
func (t applier) shut(n *inode) {
	x := n.OwnExt()
	x.Open = nil
	x.Tail = content.ExactTail(x.Tail)
	x.Blocks = content.ExactBlocks(x.Blocks)
	t.open.Delete(n.ID)
	t.AgeTable.Forget(AgeKey{Inode: n.ID})
	t.store(n)
}

// openForWrite returns an open file.
func (t applier) openForWrite(id InodeID) (*inode, error) {
	n, err := t.file(id)
	if err != nil {
		return nil, err
	}
	if n.Open() == nil {
		return nil, misfitf("file %d is not open", id)
	}
	return n, nil
}

// opened opens next, a copy of n that is to take its place, for append; why is
// the reason for who had n open.
func (t applier) opened(n, next *inode, why string, h Holder, token Token) Result {
	var closed []ClosedFile
	if n.Open() != nil {
		closed = []ClosedFile{closedFile(n, why)}
	}
	next.OwnExt().Open = &node.Open{Grant: t.grant(h, token)}
	t.open.ReplaceOrInsert(next.ID)
	t.AgeTable.Forget(AgeKey{Inode: next.ID})
	t.store(next)
	r, o := fileResult(next), next.OpenFile()
	r.Opened, r.Closed = &o, closed
	r.Flag = closed != nil && why == ReasonTakenOver
	return r
}

// shortened returns a copy of a file, cut to length bytes, to be stored.
func (t applier) shortened(n *inode, length int64) (*inode, error) {
	if length < 0 || length > n.Length() {
		return nil, misfitf("length %d is not within the file's %d bytes", length, n.Length())
	}
	n = n.Edit()
	n.MTime = t.now.Time
	if length == n.Length() {
		return n, nil
	}
	x := n.OwnExt()
	x.Cut = t.now.TxID
	short, lost := n.Content().Cut(length)
	x.SetContent(short)
	t.disownBlocks(n.ID, len(short.Blocks), lost)
	return n, nil
}
