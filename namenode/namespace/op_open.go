package namespace

// OpOpen opens an existing file for append. If it was open, this takes it
// from its holder: the epoch is new, the bytes stay.
type OpOpen struct {
	modest

	Inode  InodeID
	Holder Holder
	Token  Token
}

func (op *OpOpen) fields(c coder) {
	c.inode(&op.Inode)
	op.Holder.Code(c.Coder)
	c.Raw((*[16]byte)(&op.Token))
}

// PlanOpen checks that a caller may open an existing file for append, and
// returns its attributes; Open of them says who has it now. To resume takes no permission to
// write, but that a process of the caller's client has it open. Errors: NotFound, IsDirectory,
// Permission (write), Loop; to resume, LeaseLost.
func PlanOpen(t *Tree, c *Call, r Ref, resume bool) (Attr, error) {
	v := view{t, c, "append"}
	n, path, err := v.findWritable(r)
	if err = n.MayOpen(c, resume, path, err); err != nil {
		return Attr{}, err
	}
	return v.attr(n), nil
}

func (op *OpOpen) apply(t applier) (Result, error) {
	n, err := t.file(op.Inode)
	if err != nil {
		return Result{}, err
	}
	if !t.reachable(n, nil) {
		return Result{}, misfitf("file %d is deleted", n.ID)
	}
	return t.opened(n, n.Edit(), ReasonTakenOver, op.Holder, op.Token), nil
}

func (op *OpOpen) affects(a affected) affected { return a.attr(op.Inode) }
func (*OpOpen) events(n news) news             { return n }
