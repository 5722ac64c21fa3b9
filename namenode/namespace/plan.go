package namespace

import (
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// CreateRequest asks for a new file.
type CreateRequest struct {
	Path string
	Mode uint16 // permission bits of the file
	// KeepMode makes a file that replaces one take its mode over instead.
	KeepMode bool
	DirMode  uint16 // of directories made on the way
	// Overwrite replaces an existing file. A symbolic link at the end of the
	// path is then followed, as open(2) with O_TRUNC does; else it is in the way.
	Overwrite bool
	Parents   bool // make missing directories
	Close     bool // the file is whole: Holder and Token do not count
	Holder    Holder
	Token     Token
	Data      []byte
	MTime     int64   // Unix milliseconds; 0: now
	Lease     LeaseID // granted, to attach the file to; 0: none
}

// caller is who owns what a call makes.
func (t *Tree) caller(c *Call) string {
	switch {
	case c == nil:
		return t.superUser
	case c.ForUser != "":
		return c.ForUser
	}
	return c.User
}

// groupIn is that of what a call makes in a directory: the directory's (HDFS, BSD).
func (t *Tree) groupIn(c *Call, dir *inode) string {
	if c != nil && c.ForGroup != "" {
		return c.ForGroup
	}
	return t.groups.name(dir.group)
}

// planNew is what making an inode where a path leads takes: that nothing is
// there, that its directory may be changed, and with parents which directories
// are to be made first.
func (t *Tree) planNew(c *Call, op, path string, at place, parents bool) (dirs []string, name string, err error) {
	if at.rest != "" && !parents {
		return nil, "", t.missing(at, op, path)
	}
	dirs, name, err = at.newNames(op, path)
	if err != nil {
		return nil, "", err
	}
	if at.dir.typ != TypeDir {
		return nil, "", t.notDirectory(at.dir, op, path)
	}
	if err := t.requireChange(c, at.dir, op, path); err != nil {
		return nil, "", err
	}
	if at.linked {
		depth, size := t.extent(at.dir)
		for _, d := range dirs {
			depth, size = depth+1, size+1+len(d)
		}
		if !fits(depth+1, size+1+len(name)) {
			return nil, "", tooLong(op, path, "its path")
		}
	}
	return dirs, name, t.checkOwners(c, op, path, t.caller(c), t.groupIn(c, at.dir))
}

func exists(op, path string, n *inode) error {
	switch n.typ {
	case TypeDir:
		return fserror.New(fserror.Exists, op, path, "a directory of this name exists")
	case TypeSymlink:
		return fserror.New(fserror.Exists, op, path, "a symbolic link of this name exists")
	}
	return fserror.New(fserror.Exists, op, path, "the file exists")
}

// PlanMkdir checks the making of a directory, with parents of all that are
// missing on the way. Both results are nil if parents is set and the directory
// is there already. Errors: Exists, NotFound (a parent), NotDirectory,
// Permission (write and search on the deepest directory that exists), Loop,
// NoSpace (MaxOwners), and those of a bad path.
func (t *Tree) PlanMkdir(c *Call, path string, mode uint16, parents bool) (*OpMkdir, error) {
	const op = "mkdir"
	at, err := t.resolve(c, op, path, false)
	if err != nil {
		return nil, err
	}
	if at.node != nil {
		n := at.node
		if parents && n.typ == TypeSymlink {
			if to, err := t.resolve(c, op, path, true); err == nil && to.node != nil {
				n = to.node
			}
		}
		if parents && n.typ == TypeDir {
			return nil, nil
		}
		return nil, exists(op, path, at.node)
	}
	dirs, name, err := t.planNew(c, op, path, at, parents)
	if err != nil {
		return nil, err
	}
	return &OpMkdir{
		Parent: at.dir.id, Names: append(dirs, name), Mode: mode & modeBits,
		User: t.caller(c), Group: t.groupIn(c, at.dir),
	}, nil
}

// PlanCreate checks the making of a file. If it replaces one, Replace of the
// record says which; whether that one may be taken from a holder is for the
// caller to find out (OpenFile). Replacing takes write permission on the file
// and all that removing it takes. Errors: as of PlanMkdir, and IsDirectory.
func (t *Tree) PlanCreate(c *Call, r CreateRequest) (*OpCreate, error) {
	const op = "create"
	at, err := t.resolve(c, op, r.Path, r.Overwrite)
	if err != nil {
		return nil, err
	}
	if r.Lease != 0 {
		if err := t.CheckLease(c, op, r.Lease); err != nil {
			return nil, fserror.With(err, op, r.Path)
		}
	}
	o := &OpCreate{
		Lease: r.Lease,
		Mode:  r.Mode & modeBits, DirMode: r.DirMode & modeBits, User: t.caller(c),
		MTime: r.MTime, Closed: r.Close, Data: r.Data,
	}
	if !r.Close {
		o.Holder, o.Token = r.Holder, r.Token
	}
	if n := at.node; n != nil {
		switch {
		case !r.Overwrite:
			return nil, exists(op, r.Path, n)
		case n.typ == TypeDir:
			return nil, isDirectory(op, r.Path)
		}
		if err := t.require(c, n, mayWrite, op, r.Path); err != nil {
			return nil, err
		}
		if err := t.requireRemove(c, at.dir, n, op, r.Path); err != nil {
			return nil, err
		}
		if err := t.checkOwners(c, op, r.Path, o.User, t.groupIn(c, at.dir)); err != nil {
			return nil, err
		}
		o.Replace, o.Name = n.id, at.name
		if r.KeepMode {
			o.Mode = n.mode & modeBits
		}
	} else if o.Dirs, o.Name, err = t.planNew(c, op, r.Path, at, r.Parents); err != nil {
		return nil, err
	}
	o.Parent, o.Group = at.dir.id, t.groupIn(c, at.dir)
	return o, nil
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

// PlanSymlink checks the making of a symbolic link. The target, 1 to MaxTarget
// bytes without NUL, is taken as it is. Errors: as of PlanMkdir, and
// InvalidArgument.
func (t *Tree) PlanSymlink(c *Call, path, target string, parents bool) (*OpSymlink, error) {
	const op = "symlink"
	switch {
	case target == "":
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the target of a symbolic link must not be empty")
	case len(target) > MaxTarget:
		return nil, fserror.New(fserror.NameTooLong, op, path, "target of %d bytes is over the limit of %d", len(target), MaxTarget)
	case strings.IndexByte(target, 0) >= 0:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the target contains a NUL byte")
	}
	at, err := t.resolve(c, op, path, false)
	if err != nil {
		return nil, err
	}
	if at.node != nil {
		return nil, exists(op, path, at.node)
	}
	dirs, name, err := t.planNew(c, op, path, at, parents)
	if err != nil {
		return nil, err
	}
	return &OpSymlink{
		Parent: at.dir.id, Dirs: dirs, DirMode: 0o755, Name: name, Target: target,
		User: t.caller(c), Group: t.groupIn(c, at.dir),
	}, nil
}

// PlanRename checks a rename by the rules of rename(2): a link at either end is
// itself renamed or replaced; with overwrite a file may replace a file or link,
// a directory an empty directory. Both results are nil if both paths name the
// same inode. Errors: NotFound, Exists, NotEmpty, IsDirectory, NotDirectory,
// InvalidArgument (the root, or a directory into itself), Permission, Loop,
// NameTooLong (also of a path below a directory, as far as that is looked at).
func (t *Tree) PlanRename(c *Call, from, to string, overwrite, detach bool) (*OpRename, error) {
	const op = "rename"
	src, err := t.find(c, op, from, false)
	if err != nil {
		return nil, err
	}
	dst, err := t.resolve(c, op, to, false)
	if err != nil {
		return nil, err
	}
	n, old := src.node, dst.node
	switch {
	case n.id == RootID || (old != nil && old.id == RootID):
		return nil, fserror.New(fserror.InvalidArgument, op, from, "the root directory can be neither renamed nor replaced")
	case old == nil && dst.rest != "":
		return nil, t.missing(dst, op, to)
	case old == n:
		return nil, nil
	case n.typ == TypeDir && t.isBelow(dst.dir, n.id):
		return nil, fserror.New(fserror.InvalidArgument, op, from, "%s is inside it", to)
	case old != nil && !overwrite:
		return nil, exists(op, to, old)
	case old != nil && old.typ == TypeDir && n.typ != TypeDir:
		return nil, isDirectory(op, to)
	case old != nil && old.typ != TypeDir && n.typ == TypeDir:
		return nil, fserror.New(fserror.NotDirectory, op, to, "not a directory: a directory cannot replace it")
	}
	if err := t.requireRemove(c, src.dir, n, op, from); err != nil {
		return nil, err
	}
	if n.typ == TypeDir && src.dir != dst.dir {
		// Its entry ".." changes: it must itself be writable (POSIX, Linux).
		if err := t.require(c, n, mayWrite, op, from); err != nil {
			return nil, err
		}
	}
	if detach {
		if err := t.attachable(n.id); err != nil {
			return nil, fserror.New(fserror.NotFound, op, from, "%v, it is being deleted", err)
		}
	}
	if n.typ == TypeDir && t.deepens(c, n, dst) {
		return nil, tooLong(op, to, "the path of something in it")
	}
	o := &OpRename{FromParent: src.dir.id, FromName: src.name, ToParent: dst.dir.id, ToName: dst.name, Detach: detach}
	if old == nil {
		if _, _, err := t.planNew(c, op, to, dst, false); err != nil {
			return nil, err
		}
		return o, nil
	}
	o.Replace = old.id
	if err := t.requireRemove(c, dst.dir, old, op, to); err != nil {
		return nil, err
	}
	if old.typ == TypeDir {
		t.lookShown(c, old)
		if old.entries() > 0 {
			return nil, fserror.New(fserror.NotEmpty, op, to, "the directory is not empty")
		}
	}
	return o, nil
}

// Loses returns the inode that a planned rename replaces or a delete removes; 0 if
// there is none.
func Loses(op Op) InodeID {
	switch p := op.(type) {
	case *OpRename:
		return p.Replace
	case *OpDelete:
		return p.Inode
	}
	return 0
}

// Hide says that a file that loses its name gets another one in its directory,
// attached to a granted lease of the caller's. If it is not this inode any more
// that loses the name, it is deleted as usual.
type Hide struct {
	Inode InodeID
	Name  string
	Lease LeaseID
}

// PlanHide makes of a checked rename or delete one that hides the file which it
// would delete; or returns op itself if that is not the inode of h, or not a file
// that the caller may attach to a lease. Errors:
// those of a bad name; Exists, NotFound (the lease), Permission (likewise).
func (t *Tree) PlanHide(c *Call, op Op, h Hide) (Op, error) {
	const name = "hide"
	if h.Inode == 0 {
		return op, nil // no inode has this number; it is what stands for none
	}
	if Loses(op) != h.Inode {
		return op, nil
	}
	o := &OpHide{Inode: h.Inode, Hidden: h.Name, Lease: h.Lease}
	switch p := op.(type) {
	case *OpRename:
		o.Parent, o.Name, o.FromParent, o.FromName, o.Detach = p.ToParent, p.ToName, p.FromParent, p.FromName, p.Detach
	case *OpDelete:
		o.Parent, o.Name = p.Parent, p.Name
	}
	n := t.get(h.Inode)
	path, _ := t.Path(n.id)
	if n.typ != TypeFile {
		return nil, fserror.New(fserror.InvalidArgument, name, path, "only a file can be hidden")
	}
	if !t.mayAttach(c, n) {
		return op, nil
	}
	if err := fspath.CheckName(h.Name); err != nil {
		return nil, fserror.With(err, name, path)
	}
	if err := t.CheckLease(c, name, h.Lease); err != nil {
		return nil, fserror.With(err, name, path)
	}
	t.lookName(c, o.Parent, h.Name)
	if old := t.lookup(o.Parent, h.Name); old != nil {
		at, _ := t.Path(old.id)
		return nil, exists(name, at, old)
	}
	if t.attachable(n.id) != nil {
		return nil, fserror.New(fserror.NotFound, name, path, "lease %x of the file has ended, it is being deleted", uint64(t.attachedTo(n.id)))
	}
	return o, nil
}

// PlanDelete checks a delete. A link at the end is itself deleted. A directory
// with entries takes recursive; that its subtree may be emptied by a caller
// other than the superuser is for CanRemoveAll. If only is not 0 an inode of
// another type is refused (a link counts as a file). Errors: NotFound,
// NotEmpty, IsDirectory, NotDirectory, InvalidArgument (the root), Permission.
func (t *Tree) PlanDelete(c *Call, path string, recursive bool, only Type) (*OpDelete, error) {
	const op = "rm"
	at, err := t.find(c, op, path, false)
	if err != nil {
		return nil, err
	}
	n := at.node
	switch {
	case n.id == RootID:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the root directory cannot be deleted")
	case only == TypeDir && n.typ != TypeDir:
		return nil, fserror.New(fserror.NotDirectory, op, path, "not a directory")
	case only != 0 && only != TypeDir && n.typ == TypeDir:
		return nil, isDirectory(op, path)
	case only == TypeSymlink && n.typ != TypeSymlink:
		return nil, fserror.New(fserror.InvalidArgument, op, path, "not a symbolic link")
	}
	if err := t.requireRemove(c, at.dir, n, op, path); err != nil {
		return nil, err
	}
	if n.typ == TypeDir && !recursive {
		t.lookShown(c, n)
		if n.entries() > 0 {
			return nil, fserror.New(fserror.NotEmpty, op, path, "the directory is not empty; delete it recursively to delete all that is in it")
		}
	}
	return &OpDelete{Parent: at.dir.id, Name: at.name, Inode: n.id}, nil
}

// PlanSetAttr checks a change of attributes; op.Inode is filled in. Mode and
// mtime are for the owner (an mtime of now also for who may write), the user
// for the superuser, the group for the owner if in it. As in POSIX, a change
// of group by the owner takes the set-id bits from a file, and set-group-id
// cannot be set for a group that the caller is not in. Both results are nil if
// there is nothing to change. Errors: NotFound, Permission, NoSpace (MaxOwners).
func (t *Tree) PlanSetAttr(c *Call, at Target, follow bool, op OpSetAttr) (*OpSetAttr, error) {
	const name = "setattr"
	n, path, err := t.aim(c, name, at, follow)
	if err != nil {
		return nil, err
	}
	op.Inode, op.Mode = n.id, op.Mode&modeBits
	if !op.SetMode && !op.SetMTime && op.User == "" && op.Group == "" {
		return nil, nil
	}
	if err := t.checkOwners(c, name, path, op.User, op.Group); err != nil {
		return nil, err
	}
	if c.isSuper() {
		return &op, nil
	}
	owner := t.isOwner(c, n)
	denied := func(what string) error {
		return fserror.New(fserror.Permission, name, path, "user %s may not change its %s (owner %s)", c.User, what, t.users.name(n.user))
	}
	switch {
	case op.SetMode && !owner:
		return nil, denied("mode")
	case op.SetMTime && !owner && (op.MTime != 0 || !t.allowed(c, n, mayWrite)):
		return nil, denied("mtime")
	case op.User != "" && (!owner || op.User != c.User):
		return nil, denied("owner")
	case op.Group != "" && !owner:
		return nil, denied("group")
	case op.Group != "" && op.Group != t.groups.name(n.group) && !slices.Contains(c.Groups, op.Group):
		return nil, fserror.New(fserror.Permission, name, path, "user %s is not in group %s", c.User, op.Group)
	}
	if op.Group != "" && !op.SetMode && n.typ == TypeFile && n.mode&setIDBits != 0 {
		op.SetMode, op.Mode = true, n.mode&^setIDBits
	}
	group := op.Group
	if group == "" {
		group = t.groups.name(n.group)
	}
	if op.SetMode && n.typ == TypeFile && !slices.Contains(c.Groups, group) {
		op.Mode &^= setGIDBit
	}
	return &op, nil
}
