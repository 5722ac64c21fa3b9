package namespace

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// TrashAction is what a record does with the trash.
type TrashAction uint8

// The actions.
const (
	TrashKeep    TrashAction = iota + 1 // what a record deletes comes into it
	TrashRestore                        // something comes back into the tree
	TrashEmpty                          // something goes for good
)

// TrashKind is the kind of records about the trash.
const TrashKind = 44

// MaxTrashEmpty is how many entries one record removes at most.
const MaxTrashEmpty = 1000

// OpTrash is what happens with the trash: the entries that were deleted below a directory
// which says that they are to be kept (tables.TrashXattr), each whole, by inode. They have no
// place in the tree, so nobody can reach, open or change them.
type OpTrash struct {
	sparing

	Do TrashAction

	// Of TrashKeep: who deletes, under what name it is kept (empty: its own), and the record
	// that deletes or replaces something.
	User, As string
	Op       Op

	Inodes []InodeID // of TrashEmpty; the one of TrashRestore
	Parent InodeID   // where that is restored to
	Name   string
}

func (op *OpTrash) fields(c coder) {
	c.U8((*uint8)(&op.Do))
	switch op.Do {
	case TrashKeep:
		c.owner(&op.User, &op.As)
		c.op(&op.Op, op)
	case TrashRestore:
		c.inodes(&op.Inodes)
		c.entry(&op.Parent, &op.Name)
	case TrashEmpty:
		c.inodes(&op.Inodes)
	default:
		c.Fail("it does nothing known with the trash")
	}
}

// keeper is who deletes something that is to be kept, and under what name; zero: nobody.
type keeper struct{ user, as string }

// trashChange: something comes into the trash, or goes.
var trashChange = Change{Kind: calls.ChangeTrash}

// Trash is the trash, to be looked at for a call.
func (t *Tree) Trash(c *Call) *tables.Trash {
	t.look(c, trashChange)
	return &t.trash
}

// Trashed is what stat would show of an inode in the trash.
func (t *Tree) Trashed(c *Call, id InodeID) (a Attr, ok bool) {
	if t.Trash(c).Get(id) == nil {
		return a, false
	}
	return view{t, c, "trash"}.attr(t.get(id)), true
}

// inTrash reports whether an inode is in the trash, or below a directory that is.
func inTrash(t *Tree, n *inode) bool {
	for n != nil && n.Parent != 0 {
		n = t.get(n.Parent)
	}
	return n != nil && t.trash.Get(n.ID) != nil
}

// FileInTrash is File of one that is in the trash, or below a directory that is.
func (t *Tree) FileInTrash(c *Call, id InodeID) (f calls.FileView, ok bool) {
	t.Trash(c)
	n := t.get(id)
	if n == nil || n.Type != TypeFile || !inTrash(t, n) {
		return f, false
	}
	return fileView(view{t, c, "read"}, n), true
}

// SizeInTrash counts on what an entry has, itself included, about budget inodes, and reports
// whether all are counted; nothing in the trash changes meanwhile. Of an entry that has gone it
// counts nothing more.
func (t *Tree) SizeInTrash(id InodeID, size *node.Size, budget int) (done bool) {
	return t.trash.Get(id) == nil || t.slots.Measure(id, size, budget)
}

// keptFor is for how many milliseconds an inode is kept when it is deleted: as the nearest
// directory says that says something, from itself on.
func (t *inodes) keptFor(id InodeID) int64 { return t.xattrs.KeptFor(id, t.slots.Up) }

// mayTrash checks a change of TrashXattr, which is for the owner of a directory.
func mayTrash(v view, n *inode, value string, action tables.XattrAction, path string) error {
	switch {
	case n.Type != TypeDir:
		return v.errorf(fserror.NotDirectory, path, "only a directory says what becomes of what is deleted in it")
	case !v.c.IsSuper() && !v.isOwner(n):
		return v.errorf(fserror.Permission, path, "user %s may not say what becomes of what is deleted in it (owner %s)", v.c.User, v.UserNames.Name(n.User)).Because(calls.NotOwner)
	case action == tables.XattrRemove:
		return nil
	}
	_, err := tables.TrashKeep(value)
	return fserror.With(err, v.op, path)
}

// PlanKeep makes of a planned record one that keeps in the trash what it deletes or replaces,
// if that is to be kept; else, and if the call skips the trash, it returns op. fits is false if
// the trash has no room for the caller, until older entries are removed.
func PlanKeep(t *Tree, c *Call, op Op) (keeps Op, fits bool) {
	if op == nil || c == nil || c.SkipTrash || !t.xattrs.AnyTrash() {
		return op, true
	}
	more := int64(0)
	for _, part := range Parts(op) {
		if lost := part.takes(); lost != 0 && t.keptFor(lost) > 0 {
			_, size := t.slots.Extent(lost)
			more += tables.TrashOverhead + int64(size)
		}
	}
	if more == 0 {
		return op, true
	}
	if !t.trash.Fits(c.User, more, c.IsSuper()) {
		return nil, false
	}
	return &OpTrash{Do: TrashKeep, User: c.User, As: c.TrashAs, Op: op}, true
}

// keeps is for how many milliseconds an inode that the record takes out of the tree is kept.
func (t applier) keeps(n *inode) int64 {
	if t.keep.user == "" || t.isDead(n) {
		return 0
	}
	return t.keptFor(n.ID)
}

// MayTrash is Call.MayTrash.
func MayTrash(t *Tree, c *Call, id InodeID) error { return c.MayTrash(t.Trash(c), id) }

// PlanRestore checks that an entry of the trash gets a name, which takes what making one takes,
// and of a directory what a rename takes: the permission to write it, and where a lease may delete
// it, to delete all that is below. Errors: those of MayTrash, NotFound (a directory on the way),
// NotDirectory, Permission, Exists, NameTooLong (also of what is below it), TooLarge (more is
// below it than can be looked at).
func PlanRestore(t *Tree, c *Call, id InodeID, r Ref) (*OpTrash, error) {
	v := view{t, c, "restore"}
	if err := MayTrash(t, c, id); err != nil {
		return nil, fserror.With(err, v.op, r.Path)
	}
	at, err := v.resolve(r)
	if err != nil {
		return nil, err
	}
	if at.node != nil {
		return nil, v.errorf(fserror.Exists, at.path, "there is something of that name already; move that away, or restore under another name")
	}
	_, name, err := v.planNew(at, false)
	if err != nil {
		return nil, err
	}
	n := t.get(id)
	if n.Type == TypeDir && !v.allowed(n, mayWrite) {
		return nil, v.errorf(fserror.Permission, at.path, "user %s may not write the directory, which is to be moved (owner %s, mode %04o)", c.User, t.UserNames.Name(n.User), n.Perm())
	}
	if err := mayComeInto(v, at, n, at.path); err != nil {
		return nil, err
	}
	return &OpTrash{Do: TrashRestore, Inodes: []InodeID{id}, Parent: at.dir.ID, Name: name}, nil
}

// throwAway moves an entry into the trash. Of its directory the caller takes care.
func (t applier) throwAway(n *inode, ms int64, reason string) (closed []ClosedFile) {
	e := &tables.Trashed{Inode: n.ID, User: strings.Clone(t.keep.user), Owner: t.UserNames.Name(n.User), Time: t.now.Time, At: t.now.reigned, Due: tables.TrashDue(t.now.reigned, ms)}
	if e.Path, _ = t.Path(n.ID); t.keep.as != "" {
		dir, _ := fspath.Split(e.Path)
		e.Path = fspath.Join(dir, t.keep.as)
	}
	e.Path = strings.Clone(fspath.End(e.Path)) // a rename may have moved it too deep
	if n.Open() != nil {
		closed = []ClosedFile{closedFile(n, reason)}
		t.shut(n.Edit())
		n = t.get(n.ID)
	}
	t.hangOff(n)
	t.trash.Put(e)
	t.touch(trashChange)
	return closed
}

func (op *OpTrash) apply(t applier) (Result, error) {
	switch op.Do {
	case TrashKeep:
		if op.Op == nil || op.User == "" || op.As != "" && fspath.CheckName(op.As) != nil {
			return Result{}, misfit("it does not say who deletes what, or under what name")
		}
		t.keep = keeper{op.User, op.As}
		return op.Op.apply(t)
	case TrashRestore:
		return op.restore(t)
	case TrashEmpty:
		return op.empty(t)
	}
	return Result{}, misfitf("it does %d with the trash, which is nothing known", op.Do)
}

func (op *OpTrash) restore(t applier) (Result, error) {
	if len(op.Inodes) != 1 || t.trash.Get(op.Inodes[0]) == nil {
		return Result{}, misfitf("inodes %d are not one in the trash", op.Inodes)
	}
	if _, err := t.reachableDir(op.Parent); err != nil {
		return Result{}, err
	}
	if err := fspath.CheckName(op.Name); err != nil {
		return Result{}, err
	}
	if t.lookup(op.Parent, op.Name) != nil {
		return Result{}, misfitf("directory %d has an entry %q already", op.Parent, op.Name)
	}
	return t.move(t.get(op.Inodes[0]), op.Parent, op.Name, 1), nil
}

func (op *OpTrash) empty(t applier) (Result, error) {
	seen := make(map[InodeID]bool, len(op.Inodes))
	for _, id := range op.Inodes {
		if t.trash.Get(id) == nil || seen[id] {
			return Result{}, misfitf("inode %d is not in the trash, or comes twice", id)
		}
		seen[id] = true
	}
	for _, id := range op.Inodes {
		t.trash.Take(id)
		if n := t.get(id); n.Type == TypeDir && t.stored(n) > 0 {
			t.detach(id)
		} else {
			t.free(n, ReasonDeleted)
		}
	}
	t.touch(trashChange)
	return Result{Length: int64(len(op.Inodes))}, nil
}

func (op *OpTrash) grows(g growing) {
	switch op.Do {
	case TrashKeep:
		op.Op.grows(g)
	case TrashRestore:
		g.Clears(op.Parent, op.Name)
		g.Moves(op.Inodes[0], 0, op.Parent)
	}
}

func (op *OpTrash) affects(a affected) affected {
	switch {
	case op.Do == TrashKeep && op.Op != nil:
		return op.Op.affects(a)
	case op.Do == TrashRestore && len(op.Inodes) == 1:
		return a.entry(op.Parent, op.Name).attr(op.Inodes[0])
	}
	return a // what goes for good nobody can see
}

func (op *OpTrash) events(n news) news {
	switch {
	case op.Do == TrashKeep && op.Op != nil:
		return op.Op.events(n)
	case op.Do == TrashRestore && len(op.Inodes) == 1:
		return n.taken(op.Parent, op.Name).after(EventCreate, op.Inodes[0])
	}
	return n
}
