package namespace

import (
	"cmp"
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// DefaultList is how many entries List returns if it is not told.
const DefaultList = 1000

// maxDeadLook is how many dead entries a call of List looks at.
const maxDeadLook = 10_000

// attr is the public form of an inode.
func (v view) attr(n *inode) Attr {
	a := Attr{
		ID: n.ID, Parent: n.Parent, Name: n.Name(), Type: n.Type, Mode: n.Perm(),
		User: v.UserNames.Name(n.User), Group: v.GroupNames.Name(n.Group), MTime: n.MTime, Lease: v.LeaseOf(n.ID),
	}
	a.Xattrs, a.Xattr = v.xattrs.Look(n.ID, v.c.Wants(func() bool { return v.allowed(n, mayRead) }))
	a.Access, a.Default = v.aclsOf(n)
	switch n.Type {
	case TypeFile:
		a.Length = n.Length()
		a.Blocks = len(n.Blocks())
		a.TailLength = int64(len(n.Tail()))
		if n.Open() != nil {
			o := n.OpenFile()
			a.Open = &o
		}
	case TypeDir:
		a.Entries, a.Snapshots = int(n.Entries()), v.snaps.IsAllowed(n.ID)
	case TypeSymlink:
		a.LinkTarget = n.Target()
		a.Length = n.Length()
	}
	if v.past != nil {
		v.past.shown(&a)
	}
	return a
}

// Stat returns the attributes of what a Ref leads to. It takes permission to
// search the directories on the way. Errors: NotFound, NotDirectory, Permission,
// Loop, and those of a bad path.
func (t *Tree) Stat(c *Call, r Ref) (Attr, error) {
	v, at, err := see(view{t, c, "stat"}, r)
	if err != nil {
		return Attr{}, err
	}
	v.lookShown(at.node)
	return v.attr(at.node), nil
}

// Gone is the Reason of an error that says that the inode with which a Ref begins is not
// in the tree any more, as opposed to a name below it.
const Gone = "gone"

// reach returns an inode by number if it is in the tree and the caller may
// search all directories above it.
func (v view) reach(id InodeID) (view, *inode, error) {
	path := inodeName(id)
	if id>>snapshots.Bits != 0 {
		return reachPast(v, id)
	}
	n := v.get(id)
	v.lookAttr(id)
	if v.c != nil && id >= v.nextInode {
		// It may be made one day, which Affects does not tell of.
		v.c.Collect, v.c.Looks = false, nil
	}
	if n == nil || !v.reachable(n, v.lookAttr) {
		err := v.errorf(fserror.NotFound, path, "it was deleted, or never was")
		err.Reason = Gone
		return v, nil, err
	}
	return v, n, v.requireSearch(n, path)
}

// MaySearch reports whether a caller may look for names in a directory: it is
// in the tree, and it and all directories above may be searched.
func (t *Tree) MaySearch(c *Call, dir InodeID) bool { return mayIn(t, c, dir, mayExecute) }

// MayList reports whether a caller may learn the names in a directory: it may be read, too.
func MayList(t *Tree, c *Call, dir InodeID) bool { return mayIn(t, c, dir, mayRead|mayExecute) }

func mayIn(t *Tree, c *Call, dir InodeID, want uint16) bool {
	v, n, err := view{t, c, ""}.reach(dir)
	return err == nil && n.Type == TypeDir && v.allowed(n, want)
}

// MayName reports whether a caller may learn the path of an inode: he may list its directory.
func MayName(t *Tree, c *Call, id InodeID) bool {
	_, n, err := view{t, c, ""}.reach(id)
	return err == nil && MayList(t, c, n.Parent)
}

// inodeName names an inode in an error message.
func inodeName(id InodeID) string { return fmt.Sprintf("inode %d", uint64(id)) }

// List returns a directory's attributes and those of up to limit of its
// entries (0: DefaultList), in the order of the bytes of their names, whose
// names are greater than after. Unless that were all, next is the name after which to
// continue; then there may be no entries at all, since the call looks at a limited number
// of entries that went with an ended lease. It takes permission to read the directory.
// Of what the call collects, the first DirLooks are of the directory itself.
// A file is an error of kind NotDirectory.
func (t *Tree) List(c *Call, r Ref, after string, limit int) (dir Attr, entries []Attr, next string, err error) {
	v, at, err := see(view{t, c, "ls"}, r)
	if err != nil {
		return Attr{}, nil, "", err
	}
	n := at.node
	v.lookShown(n)
	if n.Type != TypeDir {
		return v.attr(n), nil, "", v.notDirectory(n, at.path)
	}
	if err := v.require(n, mayRead, at.path); err != nil {
		return Attr{}, nil, "", err
	}
	limit = cmp.Or(max(limit, 0), DefaultList)
	if v.past != nil && v.past.snap == nil {
		entries, next = listPast(v, after, limit)
		return v.attr(n), entries, next, nil
	}
	entries = make([]Attr, 0, min(int64(limit), n.Entries()))
	if c != nil {
		c.DirLooks = len(c.Looks)
	}
	last, dead := (*inode)(nil), 0
	v.slots.Children(n.ID, after, func(e *inode) bool {
		if len(entries) == limit || dead == maxDeadLook {
			next = last.Name()
			return false
		}
		if last = e; v.isDead(e) {
			dead++
			return true
		}
		v.lookShown(e)
		entries = append(entries, v.attr(e))
		return true
	})
	return v.attr(n), entries, next, nil
}

// File returns attributes, blocks and tail of a file as one state. It takes
// permission to read the file. Errors as for Stat, and IsDirectory.
func (t *Tree) File(c *Call, r Ref) (calls.FileView, error) {
	v, at, err := see(view{t, c, "read"}, r)
	if err != nil {
		return calls.FileView{}, err
	}
	n := at.node
	switch n.Type {
	case TypeDir:
		return calls.FileView{}, isDirectory("read", at.path)
	case TypeSymlink:
		return calls.FileView{}, fserror.New(fserror.InvalidArgument, "read", at.path, "it is a symbolic link")
	}
	if err := v.require(n, mayRead, at.path); err != nil {
		return calls.FileView{}, err
	}
	return fileView(v, n), nil
}

func fileView(v view, n *inode) calls.FileView {
	blocks, tail := n.Blocks(), n.Tail()
	return calls.FileView{Attr: v.attr(n), Blocks: blocks[:len(blocks):len(blocks)], Tail: tail[:len(tail):len(tail)], Cut: n.Cut()}
}
