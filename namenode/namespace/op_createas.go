package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// OpCreateAs is an OpCreate, without missing parents and replacing nothing,
// of a file whose number was set aside for the session.
type OpCreateAs struct {
	Session SessionID
	Inode   InodeID
	OpCreate
}

func (*OpCreateAs) opType() uint8 { return 31 }

func (op *OpCreateAs) fields(c coder) {
	c.Raw((*[16]byte)(&op.Session))
	c.inode(&op.Inode)
	op.OpCreate.fields(c)
}

// NoNumber is the Reason of an error that says that an inode number is not set
// aside for who wants to use it.
const NoNumber = "no number"

// PlanCreateAs checks the making of a file with an inode number that was set
// aside for the holder's session, in a directory by inode; of the request's path
// only the last component counts. Errors: Exists, NotFound (the directory), NotDirectory, Permission,
// NoSpace (MaxOwners), InvalidArgument (the number), and those of a bad name.
func (t *Tree) PlanCreateAs(c *Call, id, dir InodeID, r CreateRequest) (*OpCreateAs, error) {
	const op = "create"
	_, name := fspath.Split(r.Path)
	if err := fspath.CheckName(name); err != nil {
		return nil, fserror.With(err, op, r.Path)
	}
	d, err := t.reach(c, dir, op)
	if err != nil {
		return nil, err
	}
	if d.typ != TypeDir {
		return nil, t.notDirectory(d, op, r.Path)
	}
	if err := t.requireChange(c, d, op, r.Path); err != nil {
		return nil, err
	}
	t.lookName(c, dir, name)
	if n := t.lookup(dir, name); n != nil {
		return nil, exists(op, r.Path, n)
	}
	if depth, size := t.extent(d); !fits(depth+1, size+1+len(name)) {
		return nil, tooLong(op, r.Path, "its path")
	}
	if !t.Reserved(r.Holder.Session, id) {
		err := fserror.New(fserror.InvalidArgument, op, r.Path, "inode number %d is not set aside for this session, or is used; create the file without a number", uint64(id))
		err.Reason = NoNumber
		return nil, err
	}
	o := &OpCreateAs{Session: r.Holder.Session, Inode: id, OpCreate: OpCreate{
		Parent: dir, Name: name, Mode: r.Mode & modeBits, User: t.caller(c), Group: t.groupIn(c, d),
		MTime: r.MTime, Closed: r.Close, Data: r.Data,
	}}
	if !r.Close {
		o.Holder, o.Token = r.Holder, r.Token
	}
	return o, t.checkOwners(c, op, r.Path, o.User, o.Group)
}

func (op *OpCreateAs) apply(t *Tree, e stamp) (Result, error) {
	switch {
	case len(op.Dirs) > 0 || op.Replace != 0:
		return Result{}, misfit("a file with a number set aside is made in a directory that exists, and replaces nothing")
	case !t.Reserved(op.Session, op.Inode):
		return Result{}, misfitf("inode number %d is not set aside for its session, or is used", op.Inode)
	}
	r, err := op.create(t, op.Inode, e)
	if err == nil {
		t.cachers.Use(op.Session, op.Inode)
	}
	return r, err
}

func (op *OpCreateAs) affects(a affected) affected {
	// That there is no inode of this number may have been cached.
	return a.entry(op.Parent, op.Name).attr(op.Inode)
}

func (op *OpCreateAs) events(n news) news { return n.after(EventCreate, op.Inode) }
