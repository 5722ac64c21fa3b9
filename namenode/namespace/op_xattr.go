package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/share"
)

// OpXattr sets an extended attribute of an inode, or removes it.
type OpXattr struct {
	modest

	Inode  InodeID
	Name   string
	Value  []byte
	Remove bool
}

func (op *OpXattr) fields(c coder) {
	c.inode(&op.Inode)
	c.Text(&op.Name)
	c.Bytes(&op.Value)
	c.Bool(&op.Remove)
}

// PlanXattr checks a change of an extended attribute. It takes permission to
// write the inode, unless the call has made it (Made). A nil record without an error: it has this value already.
// Errors: NotFound, Exists, Permission, Unsupported (a name outside of the user
// namespace), TooLarge (a name or value over its limit), NoSpace (all together
// are), InvalidArgument.
func PlanXattr(t *Tree, c *Call, r Ref, name string, value []byte, action tables.XattrAction) (*OpXattr, error) {
	v := view{t, c, "setxattr"}
	at, err := v.find(r)
	if err != nil {
		return nil, err
	}
	n, path := at.node, at.path
	if n.Type == TypeSymlink {
		return nil, v.errorf(fserror.Permission, path, "a symbolic link has no extended attributes")
	}
	if err := v.require(n, mayWrite, path); err != nil && !c.Made {
		return nil, err
	}
	if n.Type == TypeDir && !v.stickyAllows(n, n) {
		return nil, v.errorf(fserror.Permission, path, "user %s does not own the directory, whose sticky bit is set", c.User).Because(calls.NotOwner)
	}
	if name == tables.TrashXattr {
		if err := mayTrash(v, n, string(value), action, path); err != nil {
			return nil, err
		}
	}
	more, err := t.xattrs.Plan(tables.Xattr{Inode: n.ID, Name: name, Value: string(value)}, action)
	switch {
	case err != nil:
		return nil, fserror.With(err, v.op, path)
	case action == tables.XattrRemove:
		return &OpXattr{Inode: n.ID, Name: name, Remove: true}, nil
	case more < 0:
		return nil, nil
	}
	return &OpXattr{Inode: n.ID, Name: name, Value: value}, xattrRoom(v, n.User, more, path)
}

// xattrRoom is for extended attributes of a user's that take more memory.
func xattrRoom(v view, user uint16, more int64, path string) error {
	if more > tables.XattrOverhead && v.counts.XattrBytes+more > share.Room(MaxXattrMemory, v.Uses.Of(user).Xattrs, more, v.c.IsSuper()) {
		return v.errorf(fserror.NoSpace, path, "the extended attributes of all files take %d of %d bytes of the namenode's memory, and the room that is left is for owners whose files have few; remove some of %s's", v.counts.XattrBytes, MaxXattrMemory, v.UserNames.Name(user))
	}
	return nil
}

func (op *OpXattr) apply(t applier) (Result, error) {
	n := t.get(op.Inode)
	if n == nil {
		return Result{}, misfitf("there is no inode %d", op.Inode)
	}
	if err := tables.CheckXattrName(op.Name); err != nil {
		return Result{}, err
	}
	x, had := t.xattrs.Get(n.ID, op.Name)
	switch {
	case op.Remove && (!had || len(op.Value) > 0):
		return Result{}, misfitf("inode %d has no extended attribute %q to remove", n.ID, op.Name)
	case op.Remove:
		t.countXattrs(n, -t.xattrs.Delete(x))
	default:
		x = tables.Xattr{Inode: n.ID, Name: strings.Clone(op.Name), Value: string(op.Value)}
		if sum, fits := t.xattrs.Fits(x); !fits {
			return Result{}, misfitf("the extended attributes of inode %d would have %d bytes", n.ID, sum)
		}
		t.countXattrs(n, t.xattrs.Put(x))
	}
	t.put(n) // as something that a snapshot may have otherwise
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return fileResult(n), nil
}

func (op *OpXattr) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpXattr) events(n news) news          { return n.after(EventAttr, op.Inode) }
