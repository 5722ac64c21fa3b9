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

func (op *OpCreateAs) fields(c coder) {
	c.Raw((*[16]byte)(&op.Session))
	c.inode(&op.Inode)
	op.OpCreate.fields(c)
}

// NoNumber is the Reason of an error that says that an inode number is not set
// aside for who wants to use it.
const NoNumber = "no number"

// PlanCreateAs checks the making of a file with an inode number that was set
// aside for the holder's session. Errors: as of PlanCreate without Overwrite and
// Parents, and InvalidArgument (the number).
func PlanCreateAs(t *Tree, c *Call, id InodeID, r CreateRequest) (*OpCreateAs, error) {
	r.Overwrite, r.Parents, r.DirMode, r.Lease = false, false, 0, 0
	op, err := PlanCreate(t, c, r)
	if err != nil {
		return nil, err
	}
	if !t.Reserved(r.Holder.Session, id) {
		v := view{t, c, "create"}
		return nil, v.errorf(fserror.InvalidArgument, fspath.Join(v.where(t.get(op.Parent)), op.Name), "inode number %d is not set aside for this session, or is used; create the file without a number", uint64(id)).Because(NoNumber)
	}
	return &OpCreateAs{Session: r.Holder.Session, Inode: id, OpCreate: *op}, nil
}

func (op *OpCreateAs) apply(t applier) (Result, error) {
	switch {
	case len(op.Dirs) > 0 || op.Replace != 0:
		return Result{}, misfit("a file with a number set aside is made in a directory that exists, and replaces nothing")
	case !t.Reserved(op.Session, op.Inode):
		return Result{}, misfitf("inode number %d is not set aside for its session, or is used", op.Inode)
	}
	r, err := op.create(t, op.Inode)
	if err == nil {
		t.CacherTable.Use(op.Session, op.Inode)
	}
	return r, err
}

func (op *OpCreateAs) affects(a affected) affected {
	// That there is no inode of this number may have been cached.
	return a.entry(op.Parent, op.Name).attr(op.Inode)
}

func (op *OpCreateAs) events(n news) news {
	return n.taken(op.Parent, op.Name).after(EventCreate, op.Inode)
}
