package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// OpCreate makes a file, its missing parent directories first. If Replace
// is not 0 it is the inode of that name, which the new file replaces.
type OpCreate struct {
	Parent      InodeID
	Dirs        []string // missing parents, outermost first, with DirMode
	Name        string
	Mode        uint16
	DirMode     uint16
	User, Group string
	Replace     InodeID
	MTime       int64 // 0: the record's time
	Closed      bool  // created whole: Data is all of it, Holder and Token are zero
	Holder      Holder
	Token       Token
	Data        []byte  // first bytes of the tail
	Lease       LeaseID // the granted lease that it is attached to; 0: none
}

func (op *OpCreate) fields(c coder) {
	c.inode(&op.Parent)
	c.strings(&op.Dirs)
	c.Text(&op.Name)
	c.U16(&op.Mode)
	c.U16(&op.DirMode)
	c.owner(&op.User, &op.Group)
	c.inode(&op.Replace)
	c.I64(&op.MTime)
	c.Bool(&op.Closed)
	if !op.Closed {
		op.Holder.Code(c.Coder)
		c.Raw((*[16]byte)(&op.Token))
	}
	c.Bytes(&op.Data)
	c.lease(&op.Lease)
}

// PlanCreate checks the making of a file. If it replaces one, Replace of the
// record says which; whether that one may be taken from a holder is for the
// caller to find out (OpenFile). Replacing takes write permission on the file
// and all that removing it takes. Errors: as of PlanMkdir, and IsDirectory.
func PlanCreate(t *Tree, c *Call, r CreateRequest) (*OpCreate, error) {
	v := view{t, c, "create"}
	at, err := v.resolve(r.At)
	if err != nil {
		return nil, err
	}
	path := at.path
	if r.Lease != 0 {
		if err := v.checkLease(r.Lease); err != nil {
			return nil, fserror.With(err, v.op, path)
		}
	}
	fileLess, dirLess := c.Less()
	o := &OpCreate{
		Lease: r.Lease,
		Mode:  v.masked(r.Mode, fileLess, at), DirMode: v.masked(r.DirMode, dirLess, at), User: v.caller(),
		MTime: r.MTime, Closed: r.Close, Data: r.Data,
	}
	if !r.Close {
		o.Holder, o.Token = r.Holder, r.Token
	}
	if n := at.node; n != nil {
		switch {
		case !r.Overwrite:
			return nil, calls.Exists(v.op, path, n.Type)
		case n.Type == TypeDir:
			return nil, isDirectory(v.op, path)
		}
		if err := v.require(n, mayWrite, path); err != nil {
			return nil, err
		}
		if err := v.requireRemove(at.dir, n, path); err != nil {
			return nil, err
		}
		if err := v.checkOwners(path, o.User, v.groupIn(at.dir)); err != nil {
			return nil, err
		}
		o.Replace, o.Name = n.ID, at.name
		if r.KeepMode {
			o.Mode = n.Perm()
		}
	} else if o.Dirs, o.Name, err = v.planNew(at, r.Parents); err != nil {
		return nil, err
	}
	o.Parent, o.Group = at.dir.ID, v.groupIn(at.dir)
	dir := o.Parent
	if len(o.Dirs) > 0 {
		dir = 0 // a new one
	}
	return o, v.checkRoom(r.Lease, path, dir)
}

func (op *OpCreate) apply(t applier) (Result, error) { return op.create(t, 0) }

// create makes the file, with a number that was set aside unless that is 0.
func (op *OpCreate) create(t applier, id InodeID) (Result, error) {
	leaf := &inode{ID: id, Type: TypeFile, Mode: op.Mode & node.ModeBits, MTime: op.MTime}
	c := chain{
		parent: op.Parent, dirs: op.Dirs, name: op.Name, dirMode: op.DirMode,
		leaf: leaf, user: op.User, group: op.Group,
	}
	old, err := t.checkChain(&c, op.Replace)
	if err != nil {
		return Result{}, err
	}
	if old != nil && old.Type != TypeFile {
		return Result{}, misfitf("inode %d, which it replaces, is no file", old.ID)
	}
	if op.Lease != 0 {
		if _, err := t.liveLease(op.Lease); err != nil {
			return Result{}, err
		}
	}
	if leaf.MTime == 0 {
		leaf.MTime = t.now.Time
	}
	if len(op.Data) > 0 || !op.Closed {
		leaf.Ext = &node.Ext{Tail: content.CopyTail(op.Data)}
	}
	if !op.Closed {
		leaf.Ext.Open = &node.Open{Grant: t.grant(op.Holder, op.Token)}
	}

	var r Result
	if old != nil {
		c.kept, _ = t.aclsOf(old)
		r.Closed = t.takeOut(old, ReasonReplaced)
	}
	t.makeChain(&c, old)
	if op.Lease != 0 {
		t.attachTo(op.Lease, leaf)
	}
	r.Inode, r.Length = leaf.ID, leaf.Length()
	if !op.Closed {
		t.open.ReplaceOrInsert(leaf.ID)
		o := leaf.OpenFile()
		r.Opened = &o
	}
	return r, nil
}

// makes is the number of the file that it makes in a tree.
func (op *OpCreate) makes(t *Tree) InodeID { return t.nextInode + InodeID(len(op.Dirs)) }

func (op *OpCreate) takes() InodeID { return op.Replace }

func (op *OpCreate) grows(g growing) {
	g.Adds(op.Parent, len(op.Dirs)+1, int64(len(op.Data)))
	g.Loses(op.Replace, op.Parent)
	g.Clears(op.Parent, top(op.Dirs, op.Name))
}

func (op *OpCreate) affects(a affected) affected {
	return a.newEntry(op.Parent, op.Dirs, op.Name).attr(op.Replace)
}

func (op *OpCreate) events(n news) news {
	return n.gone(op.Replace).made(op.Parent, append(slices.Clone(op.Dirs), op.Name)...)
}
