package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/share"
)

// aclsOf are the ACLs of an inode, nil if there is none.
func (t *inodes) aclsOf(n *inode) (access, byDefault *acl.ACL) {
	if n.Mode&node.ACLBit == 0 {
		return nil, nil
	}
	return t.acls.Get(n.ID)
}

// defaultOf is the default ACL of a directory, nil if it has none.
func (t *inodes) defaultOf(dir InodeID) *acl.ACL {
	_, byDefault := t.acls.Get(dir)
	return byDefault
}

// countACL counts memory of an ACL for all, and for the user whose file had it first.
func (t *inodes) countACL(user uint16, bytes int64) {
	t.counts.ACLBytes += bytes
	t.Uses.Of(user).ACLs += bytes
}

// addACL marks an inode that has ACLs by an image; false if it cannot have them.
func (t *inodes) addACL(o acl.Of) bool {
	n := t.get(o.Inode)
	if n == nil || n.Type == TypeSymlink || o.Default != nil && n.Type != TypeDir {
		return false
	}
	n.Mark(true)
	t.put(n)
	return true
}

// masked is the mode of what a call makes at a place, or in directories to be made there.
func (v view) masked(mode, less uint16, at place) uint16 {
	if at.node != nil || v.defaultOf(at.dir.ID) == nil {
		mode &^= less
	}
	return mode & node.ModeBits
}

// ACL returns the access ACL and the default ACL of what a Ref leads to; of what has none,
// what the mode says. It takes what Stat takes, with its errors, and Unsupported for a
// symbolic link.
func (t *Tree) ACL(c *Call, r Ref) (posixacl.ACL, error) {
	v, at, err := see(view{t, c, "getacl"}, r)
	if err != nil {
		return nil, err
	}
	n := at.node
	v.lookAttr(n.ID)
	if n.Type == TypeSymlink {
		return nil, v.noACL(at.path)
	}
	access, byDefault := v.aclsOf(n)
	return acl.Join(n.Perm(), access, byDefault), nil
}

func (v view) noACL(path string) error {
	return v.errorf(fserror.Unsupported, path, "a symbolic link has no ACL; name what it leads to")
}

// OpSetACL gives an inode a mode and ACLs.
type OpSetACL struct {
	modest

	Inode InodeID
	Mode  uint16
	acl.Lists
}

func (op *OpSetACL) fields(c coder) {
	c.inode(&op.Inode)
	c.U16(&op.Mode)
	op.Code(c.Coder)
}

// PlanSetACL checks a change of the ACLs of a file or directory, which only its owner may
// change. The permission bits change with it. A nil record without an error: nothing
// changes. Errors: those of ACL, Permission, InvalidArgument (what comes out is no ACL, or a
// default ACL of a file), NoSpace (the different ACLs of all files take too much memory).
func PlanSetACL(t *Tree, c *Call, r Ref, change posixacl.Change) (*OpSetACL, error) {
	v := view{t, c, "setacl"}
	at, err := v.find(r)
	if err != nil {
		return nil, err
	}
	n, path := at.node, at.path
	switch {
	case n.Type == TypeSymlink:
		return nil, v.noACL(path)
	case !c.IsSuper() && !v.isOwner(n):
		return nil, v.errorf(fserror.Permission, path, "user %s may not change its ACL (owner %s)", c.User, t.UserNames.Name(n.User)).Because(calls.NotOwner)
	}
	mode, lists, more, err := t.acls.Plan(n.ID, n.Perm(), n.Type == TypeDir, change)
	switch {
	case err != nil:
		return nil, fserror.With(err, v.op, path)
	case more < 0:
		return nil, nil
	case more > 0 && t.counts.ACLBytes+more > share.Room(acl.MaxMemory, t.Uses.Of(n.User).ACLs, more, c.IsSuper()):
		return nil, v.errorf(fserror.NoSpace, path, "the different ACLs of all files take %d of %d bytes of the namenode's memory, and the room that is left is for owners whose files have few; give more of %s's files equal ACLs, or ACLs that name groups", t.counts.ACLBytes, acl.MaxMemory, t.UserNames.Name(n.User))
	}
	return &OpSetACL{Inode: n.ID, Mode: mode, Lists: lists}, nil
}

func (op *OpSetACL) apply(t applier) (Result, error) {
	n := t.get(op.Inode)
	switch err := op.Check(); {
	case n == nil:
		return Result{}, misfitf("there is no inode %d", op.Inode)
	case err != nil:
		return Result{}, err
	case n.Type == TypeSymlink || n.Type != TypeDir && len(op.Default) > 0:
		return Result{}, misfitf("inode %d cannot have such an ACL", op.Inode)
	}
	n = n.Edit()
	n.Mode = op.Mode
	n.Mark(t.acls.Put(n.ID, op.Lists, n.User, t.countACL))
	t.put(n)
	t.touch(Change{Kind: ChangeAttr, Inode: n.ID})
	return fileResult(n), nil
}

func (op *OpSetACL) affects(a affected) affected { return a.attr(op.Inode) }
func (op *OpSetACL) events(n news) news          { return n.after(EventAttr, op.Inode) }
