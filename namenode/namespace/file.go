package namespace

import "github.com/leasefs/leasefs/namenode/namespace/content"

// fileResult is the result of a record about one file.
func fileResult(n *inode) Result {
	return Result{Inode: n.id, Length: n.length(), BlocksLength: n.blocksLength()}
}

// store puts a changed file in the place of the old one.
func (t applier) store(n *inode) {
	n.dropEmptyExt()
	t.put(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.id})
}

// shut closes the copy n of an open file, gives its lists their exact size and
// stores it.
func (t applier) shut(n *inode) {
	x := n.ownExt()
	x.open = nil
	x.tail = content.ExactTail(x.tail)
	x.blocks = content.ExactBlocks(x.blocks)
	t.open.Delete(n.id)
	t.AgeTable.Forget(AgeKey{Inode: n.id})
	t.store(n)
}

// openForWrite returns an open file.
func (t applier) openForWrite(id InodeID) (*inode, error) {
	n, err := t.file(id)
	if err != nil {
		return nil, err
	}
	if n.open() == nil {
		return nil, misfitf("file %d is not open", id)
	}
	return n, nil
}

// opened opens next, a copy of n that is to take its place, for append; why is
// the reason for who had n open.
func (t applier) opened(n, next *inode, why string, h Holder, token Token) Result {
	var closed []ClosedFile
	if n.open() != nil {
		closed = []ClosedFile{closedFile(n, why)}
	}
	next.ownExt().open = &openState{grant: t.grant(h, token)}
	t.open.ReplaceOrInsert(next.id)
	t.AgeTable.Forget(AgeKey{Inode: next.id})
	t.store(next)
	r := fileResult(next)
	o := next.openFile()
	r.Opened, r.Closed = &o, closed
	r.Flag = closed != nil && why == ReasonTakenOver
	return r
}

// shortened returns a copy of a file, cut to length bytes, to be stored.
func (t applier) shortened(n *inode, length int64) (*inode, error) {
	if length < 0 || length > n.length() {
		return nil, misfitf("length %d is not within the file's %d bytes", length, n.length())
	}
	n = n.edit()
	n.mtime = t.now.Time
	if length == n.length() {
		return n, nil
	}
	x := n.ownExt()
	x.cut = t.now.TxID
	short, lost := n.content().Cut(length)
	x.setContent(short)
	t.disownBlocks(lost)
	return n, nil
}
