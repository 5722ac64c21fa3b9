package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpReserve sets Count inode numbers aside for a session that may cache, from
// Result.Inode on: no inode gets one of them but by an OpCreateAs of it.
type OpReserve struct {
	unseen

	Session SessionID
	Count   uint32
}

func (op *OpReserve) fields(c coder) {
	c.Raw((*[16]byte)(&op.Session))
	c.U32(&op.Count)
}

func (op *OpReserve) apply(t applier) (Result, error) {
	switch {
	case op.Count == 0 || op.Count > tables.MaxReserve:
		return Result{}, misfitf("it sets %d inode numbers aside; 1 to %d can be", op.Count, tables.MaxReserve)
	case t.nextInode+InodeID(op.Count) > 1<<snapshots.Bits:
		return Result{}, noNumbers
	case t.Caching(op.Session) == 0:
		return Result{}, misfit("inode numbers are set aside only for sessions that may cache")
	}
	first := t.nextInode
	t.nextInode += InodeID(op.Count)
	t.CacherTable.SetAside(op.Session, first, op.Count)
	return Result{Inode: first}, nil
}
