package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// What a caller may want of an inode, as permission bits.
const (
	mayRead    = calls.MayRead
	mayWrite   = calls.MayWrite
	mayExecute = calls.MayExecute

	stickyBit uint16 = 0o1000
	setIDBits uint16 = 0o6000
	setGIDBit uint16 = 0o2000
)

var wantNames = [8]string{mayRead: "read", mayWrite: "write", mayExecute: "search", mayWrite | mayExecute: "change", mayRead | mayWrite: "read and write"}

// place is where a Ref leads.
type place struct {
	path string // for errors: of what was asked for
	dir  *inode // the directory that has, or would have, the last component
	name string // the last component; or, with rest, the first that is missing
	node *inode // nil if it is missing
	rest string // what of the path comes after a missing component
	in   view   // what dir and node are in
	// unmeasured: the path of what it leads to may be longer than one that was
	// checked, since a symbolic link was followed, or it began at an inode.
	unmeasured bool
}

// base is where the way of a Ref begins, and the rest of it. root is a place for the root.
func (v view) base(r Ref, root *inode) (at place, rest string, err error) {
	if r.How&^(FollowLast|NoLinks) != 0 {
		return at, "", v.errorf(fserror.InvalidArgument, r.Path, "a reference cannot be followed in the way %#x; the ways are %#x and %#x", uint32(r.How), uint32(FollowLast), uint32(NoLinks))
	}
	if r.Base == 0 {
		if err := fspath.Check(r.Path); err != nil {
			return at, "", fserror.With(err, v.op, r.Path)
		}
		v.slots.Read(RootID, root)
		v.lookAttr(root.ID)
		return place{path: r.Path, dir: root, node: root, in: v}, r.Path[1:], nil
	}
	in, n, err := v.reach(r.Base)
	if err != nil {
		return at, "", err
	}
	at = place{dir: n, node: n, in: in, unmeasured: true, path: in.where(n)}
	if n.Parent != 0 && in.past == nil {
		at.dir, at.name = v.get(n.Parent), n.Name()
	}
	if r.Path == "" {
		return at, "", nil
	}
	at.path = fspath.Join(at.path, r.Path)
	return at, r.Path, fserror.With(fspath.Check("/"+r.Path), v.op, at.path)
}

// resolve is seek for what may be changed: what is in a snapshot is refused (ReadOnly).
func (v view) resolve(r Ref) (place, error) {
	at, err := v.seek(r)
	if err == nil && at.in.past != nil {
		err = changeless(at.in, at.path)
	}
	return at, err
}

// seek finds where a Ref leads. Symbolic links in the middle are followed, one
// at the end only with FollowLast. A component that is missing is no error here,
// unless Expect is set: see place; of what is in a snapshot any is right. Errors are of kind InvalidPath, NameTooLong,
// NotDirectory, Permission (a directory on the way may not be searched), Loop (also
// with NoLinks), NotFound (the base: Gone; or Expect) and InvalidArgument (How).
func (v view) seek(r Ref) (place, error) {
	at, err := v.follow(r)
	if err == nil && r.Expect != 0 && (at.node == nil || at.in.past == nil && at.node.ID != r.Expect) {
		err = v.errorf(fserror.NotFound, at.path, "inode %d does not have this name any more; look again", uint64(r.Expect))
	}
	return at, err
}

func (v view) follow(r Ref) (place, error) {
	var both [2]inode // a directory and its entry, in turn
	at, rest, err := v.base(r, &both[0])
	if err != nil {
		return place{}, err
	}
	cur := at.node
	for links := 0; ; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		for name == "" && rest != "" { // doubled slashes in the target of a link
			name, rest, _ = strings.Cut(rest, "/")
		}
		rest = strings.TrimLeft(rest, "/")
		if name == "" {
			return at, nil
		}
		if cur.Type != TypeDir {
			return place{}, at.in.notDirectory(cur, at.path)
		}
		if err := at.in.require(cur, mayExecute, at.path); err != nil {
			return place{}, err
		}
		child, next := (*inode)(nil), &both[0]
		if cur == next {
			next = &both[1]
		}
		switch name { // both only in the target of a link
		case ".":
			child = cur
		case "..":
			at.in, child = up(at.in, cur)
		default:
			at.in, child = step(at.in, cur, name, next)
		}
		at.dir, at.name, at.node = cur, name, child
		if child == nil {
			at.rest = rest
			return at, nil
		}
		at.in.lookAttr(child.ID)
		if child.Type != TypeSymlink || rest == "" && r.How&FollowLast == 0 {
			cur = child
			continue
		}
		if r.How&NoLinks != 0 {
			return place{}, v.errorf(fserror.Loop, at.path, "%s is a symbolic link, which is not followed here", at.in.where(child))
		}
		if links++; links > MaxLinks {
			return place{}, v.errorf(fserror.Loop, at.path, "the path leads through more than %d symbolic links", MaxLinks)
		}
		target := child.Target()
		if !v.c.Follow(len(target)) {
			return place{}, v.errorf(fserror.Loop, at.path, "the call leads through symbolic links with targets of more than %d bytes in all", calls.MaxLinkBytes)
		}
		if target[0] == '/' {
			at.in = view{present(v.Tree), v.c, v.op}
			cur = at.in.get(RootID)
		}
		at.dir, at.name, at.node, at.unmeasured = cur, "", cur, true
		if rest == "" {
			rest = target
		} else {
			rest = target + "/" + rest
		}
	}
}

// find is resolve for what must exist: else NotFound.
func (v view) find(r Ref) (place, error) {
	at, err := v.resolve(r)
	if err == nil && at.node == nil {
		err = v.missing(at)
	}
	return at, err
}

// see is find for what is only read, in a snapshot or not, with the view of it.
func see(v view, r Ref) (view, place, error) {
	at, err := v.seek(r)
	if err == nil && at.node == nil {
		err = v.missing(at)
	}
	return at.in, at, err
}

func (v view) missing(at place) error {
	if at.rest == "" {
		return v.errorf(fserror.NotFound, at.path, "no such file or directory")
	}
	return v.errorf(fserror.NotFound, at.path, "no such directory: %s", fspath.Join(at.in.where(at.dir), at.name))
}

func (v view) notDirectory(n *inode, path string) error {
	where := v.where(n)
	if where == path {
		return v.errorf(fserror.NotDirectory, path, "not a directory")
	}
	return v.errorf(fserror.NotDirectory, path, "%s is not a directory", where)
}

func isDirectory(op, path string) error {
	return fserror.New(fserror.IsDirectory, op, path, "is a directory")
}

// isOwner reports whether a caller owns an inode.
func (v view) isOwner(n *inode) bool { return v.c.Owns(v.UserNames.Name(n.User)) }

// allowed reports whether a caller has all the permission bits want, by the
// one class of the mode (owner, group, others) that is the caller's, or its ACL.
func (v view) allowed(n *inode, want uint16) bool {
	if v.c.IsSuper() {
		return true
	}
	access, _ := v.aclsOf(n)
	return v.c.Allowed(n.Mode, v.UserNames.Name(n.User), v.GroupNames.Name(n.Group), access, want)
}

// require returns an error of kind Permission unless the caller is allowed.
func (v view) require(n *inode, want uint16, path string) error {
	if v.allowed(n, want) {
		return nil
	}
	access, _ := v.aclsOf(n)
	return v.errorf(fserror.Permission, path, "user %s may not %s %s (owner %s, group %s, mode %04o%s)",
		v.c.User, wantNames[want&7], v.where(n), v.UserNames.Name(n.User), v.GroupNames.Name(n.Group), n.Perm(), access.Note())
}

// requireChange is what adding an entry to a directory takes.
func (v view) requireChange(dir *inode, path string) error {
	return v.require(dir, mayWrite|mayExecute, path)
}

// requireRemove is what taking an entry out of its directory takes; in one with
// the sticky bit only who owns the entry or the directory may.
func (v view) requireRemove(dir, n *inode, path string) error {
	if err := v.requireChange(dir, path); err != nil {
		return err
	}
	if v.stickyAllows(dir, n) {
		return nil
	}
	return v.errorf(fserror.Permission, path, "user %s owns neither it nor %s, whose sticky bit is set", v.c.User, v.where(dir)).Because(calls.NotOwner)
}

func (v view) stickyAllows(dir, n *inode) bool {
	return v.c.IsSuper() || dir.Mode&stickyBit == 0 || v.isOwner(dir) || v.isOwner(n)
}

// requireSearch is what it takes to reach an inode from the root: every
// directory above may be searched. The inode must be reachable.
func (v view) requireSearch(n *inode, path string) error {
	var up inode
	if v.past != nil {
		return requirePast(v, n, path)
	}
	for at := n.Parent; at != 0; at = up.Parent {
		v.slots.Read(at, &up)
		v.lookAttr(at)
		if err := v.require(&up, mayExecute, path); err != nil {
			return err
		}
	}
	return nil
}
