package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// OpCut cuts a file to Length bytes and opens it for append, as OpOpen does.
// If it was open it is taken from its holder, who may be the same one: the
// epoch is new, so that nothing sent before the cut comes after it.
type OpCut struct {
	modest

	Inode  InodeID
	Length int64
	Holder Holder
	Token  Token
}

func (op *OpCut) fields(c coder) {
	c.inode(&op.Inode)
	c.I64(&op.Length)
	op.Holder.Code(c.Coder)
	c.Raw((*[16]byte)(&op.Token))
}

// PlanCut checks that a caller, who may open a file for append, also may cut it
// to length bytes with that: see PlanOpen. Errors: InvalidArgument (a length
// below 0), Unsupported (a length above the file's).
func PlanCut(t *Tree, a Attr, length int64, h Holder, token Token) (*OpCut, error) {
	const op = "truncate"
	n := t.get(a.ID)
	path, _ := t.Path(a.ID)
	switch {
	case length < 0:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the length %d is below 0", length)
	case length > n.Length():
		return nil, noLonger(op, path, n)
	}
	return &OpCut{Inode: a.ID, Length: length, Holder: h, Token: token}, nil
}

func (op *OpCut) apply(t applier) (Result, error) {
	n, err := t.file(op.Inode)
	switch {
	case err != nil:
		return Result{}, err
	case !t.reachable(n, nil):
		return Result{}, misfitf("file %d is deleted", n.ID)
	}
	short := n
	if op.Length != n.Length() {
		if short, err = t.shortened(n, op.Length); err != nil {
			return Result{}, err
		}
	}
	why := ReasonTakenOver
	if n.Open() != nil && n.Ext.Open.Grant.Holder.Session == op.Holder.Session {
		why = ReasonClosed // by the same, who continues under a new epoch
	}
	return t.opened(n, short.Edit(), why, op.Holder, op.Token), nil
}

func (op *OpCut) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpCut) events(n news) news          { return n.length(op.Inode, op.Length) }
