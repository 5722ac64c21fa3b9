package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpCommit makes a block part of an open file, at the end of its blocks.
// The block's first TailCovered bytes were the tail's first; later tail
// bytes stay. With ReplaceLast the block takes the place of the last block,
// whose bytes it begins with (the namenode merging short blocks); Inode may
// then be closed.
type OpCommit struct {
	sparing

	Inode       InodeID
	Offset      int64 // where the block begins in the file
	Block       Block
	TailCovered int64
	ReplaceLast bool
}

func (op *OpCommit) fields(c coder) {
	c.inode(&op.Inode)
	c.I64(&op.Offset)
	c.block(&op.Block)
	c.I64(&op.TailCovered)
	c.Bool(&op.ReplaceLast)
}

// PlanCommit checks that a block may become part of a file: offset, where it
// begins, must be the end of the last block; its first tailCovered bytes are
// the tail's first, which tailCRC (CRC32C) proves; only what goes beyond the
// whole tail may be new. Both results are nil if this very block is there
// already. Errors: LeaseLost, LeaseLostGone, NotAtEnd (with the length of the
// blocks), InvalidArgument (the rest; also a key that is garbage or of another
// file).
func PlanCommit(t *Tree, c *Call, w Writer, offset int64, b Block, tailCovered int64, tailCRC uint32) (*OpCommit, error) {
	v := view{t, c, "write"}
	n, err := v.writable(w)
	if err != nil {
		return nil, err
	}
	if n.Content().HasBlock(offset, b) {
		return nil, nil
	}
	if end := n.BlocksLength(); offset != end {
		err := v.errorf(fserror.NotAtEnd, v.where(n), "a block at offset %d is not at the end of the blocks, which is at %d", offset, end)
		err.Length = end
		return nil, err
	}
	o := &OpCommit{Inode: n.ID, Offset: offset, Block: b, TailCovered: tailCovered}
	if err := checkCommit(t, n, o); err != nil {
		return nil, v.errorf(fserror.InvalidArgument, v.where(n), "the block was refused: %v", err)
	}
	if content.Sum(n.Tail()[:tailCovered]) != tailCRC {
		return nil, v.errorf(fserror.InvalidArgument, v.where(n), "the block's first %d bytes are not what was flushed at offset %d", tailCovered, offset)
	}
	return o, nil
}

// PlanMerge checks that a block which the namenode made of a file's first
// tailCovered tail bytes (and with replaceLast of its last block before them)
// may take their place; last is the last block as it was when that began (nil:
// none). It refuses with kind Retry if the file is gone or its blocks changed
// since. That the tail's bytes are still the same is seen only by their number:
// compare them with TailIs first, since a truncated file may have grown again.
func PlanMerge(t *Tree, id InodeID, b Block, offset int64, tailCovered int64, replaceLast bool, last *Block) (*OpCommit, error) {
	const op = "seal"
	changed := func(why string) error {
		err := fserror.New(fserror.Retry, op, inodeName(id), "%s meanwhile", why)
		err.RetryAfter = tables.RetryMS * 1e6
		return err
	}
	n := t.get(id)
	if n == nil || n.Type != TypeFile || !t.reachable(n, nil) && !inTrash(t, n) {
		return nil, changed("the file was deleted")
	}
	blocks := n.Blocks()
	if (last == nil) != (len(blocks) == 0) || (last != nil && *last != blocks[len(blocks)-1]) {
		return nil, changed("its blocks changed")
	}
	if tailCovered > int64(len(n.Tail())) {
		return nil, changed("its tail became shorter")
	}
	o := &OpCommit{Inode: id, Offset: offset, Block: b, TailCovered: tailCovered, ReplaceLast: replaceLast}
	if err := checkCommit(t, n, o); err != nil {
		return nil, changed(err.Error())
	}
	return o, nil
}

func (op *OpCommit) commit() content.Commit {
	return content.Commit{Offset: op.Offset, Block: op.Block, Covered: op.TailCovered, Replace: op.ReplaceLast}
}

// checkCommit says why a block cannot become part of a file, whoever asks.
func checkCommit(t *Tree, n *inode, op *OpCommit) error {
	key := op.Block.Key
	if err := op.commit().Check(n.Content(), n.Open() != nil); err != nil {
		return err
	}
	switch {
	case t.blocks.Has(key):
		return misfitf("block %d.%d is part of a file", key.Term, key.Seq)
	case t.garbage.Has(key):
		return misfitf("block %d.%d is garbage", key.Term, key.Seq)
	}
	return nil
}

func (op *OpCommit) apply(t applier) (Result, error) {
	old, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if err := checkCommit(t.Tree, old, op); err != nil {
		return Result{}, err
	}
	n := old.Edit()
	x := n.OwnExt()
	changed, lost := op.commit().To(old.Content())
	x.SetContent(changed)
	t.disownBlocks(n.ID, len(old.Blocks())-len(lost), lost)
	t.ownBlock(op.Block)
	t.reigns.Committed(op.Block.Key.Term, op.Block.Key.Seq)
	if n.Length() > old.Length() {
		n.MTime = t.now.Time
	}
	t.store(n)
	return fileResult(n), nil
}

// One that makes the file no longer is written by nobody, so that it adds nothing.
func (op *OpCommit) grows(g growing) { g.Lengthens(op.written(), int64(op.Block.Used)-op.TailCovered) }

func (op *OpCommit) affects(a affected) affected { return a.attr(op.Inode) }

func (op *OpCommit) events(n news) news {
	if !op.lengthens() {
		return n
	}
	return n.after(EventLength, op.Inode)
}

// lengthens reports whether it makes the file longer.
func (op *OpCommit) lengthens() bool {
	return !op.ReplaceLast && int64(op.Block.Used) > op.TailCovered
}

// written is as of an OpAppendTail; a block that makes the file no longer may be
// the namenode's.
func (op *OpCommit) written() InodeID {
	if !op.lengthens() {
		return 0
	}
	return op.Inode
}
