package namespace

// OpReserve sets Count inode numbers aside for a session that may cache, from
// Result.Inode on: no inode gets one of them but by an OpCreateAs of it.
type OpReserve struct {
	Session SessionID
	Count   uint32
}

func (*OpReserve) opType() uint8 { return 30 }

func (op *OpReserve) fields(c coder) {
	c.id16((*[16]byte)(&op.Session))
	c.U32(&op.Count)
}

func (op *OpReserve) apply(t *Tree, _ stamp) (Result, error) {
	switch {
	case op.Count == 0 || op.Count > MaxReserve:
		return Result{}, misfitf("it sets %d inode numbers aside; 1 to %d can be", op.Count, MaxReserve)
	case t.Caching(op.Session) == 0:
		return Result{}, misfit("inode numbers are set aside only for sessions that may cache")
	}
	n := numbers{session: op.Session, first: t.nextInode, count: op.Count}
	t.nextInode += InodeID(op.Count)
	have := t.numbersOf(op.Session)
	if len(have) == maxRanges {
		t.numbers.Delete(have[0])
	}
	t.numbers.ReplaceOrInsert(n)
	return Result{Inode: n.first}, nil
}

func (*OpReserve) affects(a affected) affected { return a }
func (*OpReserve) events(n news) news          { return n }
