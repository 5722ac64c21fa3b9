package fuse

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// node is an inode of the namespace that the kernel knows.
type node struct {
	gofs.Inode
	m   *Mounted
	ino uint64
	// target is where a symbolic link points to, for good.
	target string
	// was is, of a directory that this mount removed or replaced, or tried to,
	// what it was like.
	was atomic.Pointer[client.FileInfo]
}

var (
	_ gofs.NodeLookuper       = (*node)(nil)
	_ gofs.NodeGetattrer      = (*node)(nil)
	_ gofs.NodeAccesser       = (*node)(nil)
	_ gofs.NodeSetattrer      = (*node)(nil)
	_ gofs.NodeReadlinker     = (*node)(nil)
	_ gofs.NodeStatfser       = (*node)(nil)
	_ gofs.NodeAllocater      = (*node)(nil)
	_ gofs.NodeGetxattrer     = (*node)(nil)
	_ gofs.NodeSetxattrer     = (*node)(nil)
	_ gofs.NodeRemovexattrer  = (*node)(nil)
	_ gofs.NodeListxattrer    = (*node)(nil)
	_ gofs.NodeOnForgetter    = (*node)(nil)
	_ gofs.NodeOpener         = (*node)(nil)
	_ gofs.NodeCreater        = (*node)(nil)
	_ gofs.NodeMkdirer        = (*node)(nil)
	_ gofs.NodeMknoder        = (*node)(nil)
	_ gofs.NodeSymlinker      = (*node)(nil)
	_ gofs.NodeLinker         = (*node)(nil)
	_ gofs.NodeUnlinker       = (*node)(nil)
	_ gofs.NodeRmdirer        = (*node)(nil)
	_ gofs.NodeRenamer        = (*node)(nil)
	_ gofs.NodeOpendirHandler = (*node)(nil)
)

// ref is a name in the directory.
func (n *node) ref(name string) lowlevel.Ref { return lowlevel.Ref{Base: n.ino, Path: name} }

// path is where the kernel believes the node, or a name in it, to be: for messages.
func (n *node) path(name string) string { return path.Join(n.m.root, n.Path(nil), name) }

// at is ref of a name that is about to be made or taken. A draft that has it becomes
// a file before.
func (n *node) at(ctx context.Context, name string) (lowlevel.Ref, syscall.Errno) {
	if err := fspath.CheckName(name); err != nil {
		return lowlevel.Ref{}, errno(err)
	}
	return n.ref(name), n.m.settleIn(ctx, n.ino, name)
}

// look describes the node, and tells whether that is kept.
func (n *node) look(ctx context.Context) (i *client.FileInfo, kept bool, err error) {
	if e := n.settleNode(ctx); e != 0 {
		return nil, false, e
	}
	i, kept, err = n.m.fs.LstatKept(ctx, lowlevel.Inode(n.ino))
	if n.m.callers.each && errors.Is(err, fserror.Permission) {
		// Who has a descriptor of it may ask what it is like, whatever leads to it.
		if f := n.m.opened(n.ino); f != nil {
			if as, ok := f.opener(); ok {
				i, kept, err = n.m.fs.LstatKept(lowlevel.As(ctx, as), lowlevel.Inode(n.ino))
			}
		}
	}
	return i, kept, err
}

// Lookup finds a name in a directory.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	thread := threadOf(ctx)
	ctx, end := n.m.op(ctx)
	defer end()
	if e := n.m.settleIn(ctx, n.ino, name); e != 0 {
		return nil, e
	}
	at := n.ref(name)
	i, kept, err := n.m.find(ctx, thread, at)
	if n.m.looked != nil {
		n.m.looked(name)
	}
	if err == nil && i.IsDir() && len(n.m.drafts.in(i.Inode, "")) > 0 {
		if e := n.m.settleIn(ctx, i.Inode, ""); e != 0 {
			return nil, e
		}
		i, kept, err = n.m.fs.LstatKept(ctx, at)
	}
	if errors.Is(err, fserror.InvalidPath) {
		return nil, syscall.ENOENT // nothing can have such a name; making it says more
	}
	if err != nil {
		n.m.tellNoRule(ctx, err)
		return nil, errno(err)
	}
	if !n.m.notes(thread, i) || kept && i.Open == nil {
		askAttrs(out)
	}
	if kept && i.Open == nil {
		if i.IsDir() && !n.m.callers.each { // else another's walk would not be checked
			out.SetEntryTimeout(n.m.kernel.name(client.RevokedName{Dir: n.ino, Name: name}, func() bool {
				again, kept, err := n.m.fs.LstatKept(ctx, at)
				return err == nil && kept && again.Inode == i.Inode
			}))
		}
	}
	return n.child(ctx, i, out), 0
}

// child is the inode of an entry of the directory n, with its attributes.
func (n *node) child(ctx context.Context, i *client.FileInfo, out *fuse.EntryOut) *gofs.Inode {
	n.m.fill(&out.Attr, i)
	if f := n.m.opened(i.Inode); f != nil {
		f.amend(&out.Attr)
	}
	return n.NewInode(ctx, &node{m: n.m, ino: i.Inode, target: i.LinkTarget}, gofs.StableAttr{Mode: typeOf(i.Mode()), Ino: i.Inode})
}

// Getattr describes the node.
func (n *node) Getattr(ctx context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	e := n.getattr(ctx, threadOf(raw), out)
	if e == syscall.ESTALE {
		n.m.triesAgain(threadOf(raw)) // if it is about to open the file
	}
	return e
}

func (n *node) getattr(ctx context.Context, thread uint32, out *fuse.AttrOut) syscall.Errno {
	seen := n.m.kernel.glance(inKernel{n})
	if f := n.m.opened(n.ino); f != nil && f.draftAttr(&out.Attr) {
		out.SetTimeout(n.m.kernel.attrs(inKernel{n}, seen, n.m.draftTime/20))
		return 0
	}
	i, kept, e := n.answer(ctx, thread, &out.Attr)
	if e == 0 && kept && i.Open == nil {
		out.SetTimeout(n.m.kernel.attrs(inKernel{n}, seen, maxAttrTime))
	}
	return e
}

// answer is attrs for a thread that asks, when the kernel takes the size from the answer.
func (n *node) answer(ctx context.Context, thread uint32, out *fuse.Attr) (i *client.FileInfo, kept bool, e syscall.Errno) {
	file := n.Mode() == syscall.S_IFREG
	var q question
	if file {
		q = n.m.kernel.asks(n.ino, thread)
	}
	for {
		i, kept, e = n.attrs(ctx, out)
		if e != 0 || !file || n.m.kernel.says(ctx, inKernel{n}, &q, int64(out.Size)) { //nolint:gosec // as the namenode has it
			return i, kept, e
		}
	}
}

// notes notes that a thread is about to be told the attributes of an entry; false if
// it must not be told them unless it asks.
func (m *Mounted) notes(thread uint32, i *client.FileInfo) bool {
	return typeOf(i.Mode()) != syscall.S_IFREG || m.kernel.notes(i.Inode, thread, i.Length)
}

// attrs fills in the attributes, and tells whether they are kept.
func (n *node) attrs(ctx context.Context, out *fuse.Attr) (i *client.FileInfo, kept bool, e syscall.Errno) {
	i, kept, err := n.look(ctx)
	f := n.m.opened(n.ino)
	gone := false
	if errors.Is(err, fserror.NotFound) {
		i = n.was.Load()
		gone, kept = i != nil, false
	}
	if i == nil {
		n.m.tellNoRule(ctx, err)
		return nil, false, inodeErrno(err)
	}
	n.m.fill(out, i)
	if gone {
		out.Nlink = 0
	}
	if f != nil {
		f.amend(out)
	}
	return i, kept, 0
}

// Setattr is chmod, chown, truncate and utimes.
func (n *node) Setattr(ctx context.Context, fh gofs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	if size, ok := in.GetSize(); ok {
		h, _ := fh.(*handle)
		if h == nil || !h.write {
			if e := may(ctx, n, lowlevel.MayWrite); e != 0 {
				return e
			}
		}
		if e := n.truncate(ctx, raw, h, size); e != 0 {
			return e
		}
	}
	var c client.AttrChange
	if mode, ok := in.GetMode(); ok {
		c.SetMode, c.Mode = true, filemode.FromUnix(mode)
	}
	if uid, ok := in.GetUID(); ok {
		c.User = n.m.ids.user(uid)
	}
	if gid, ok := in.GetGID(); ok {
		c.Group = n.m.ids.groupName(gid)
	}
	c.SetMTime, c.MTime = mtimeOf(in)
	if y := c.MTime.Year(); y < 1 || y > 9999 { // not to be written down as RFC 3339 has it
		return syscall.EINVAL
	}
	if in.Valid&fuse.FATTR_ATIME != 0 && !c.SetMTime { // it is not kept; but not everybody may set it
		e := may(ctx, n, lowlevel.MayOwn)
		if e != 0 && in.Valid&fuse.FATTR_ATIME_NOW != 0 {
			e = may(ctx, n, lowlevel.MayWrite)
		}
		if e != 0 {
			return e
		}
	}
	if c.SetMode || c.User != "" || c.Group != "" || c.SetMTime {
		if e := n.settleNode(ctx); e != 0 {
			return e
		}
		if err := n.m.fs.SetAttrInode(ctx, n.ino, "", c); err != nil {
			if c == (client.AttrChange{SetMTime: true}) && client.IsNotOwner(err) {
				return syscall.EACCES // to write would be enough
			}
			return inodeErrno(err)
		}
		if c.SetMTime {
			if f := n.m.opened(n.ino); f != nil {
				f.setModTime(c.MTime)
			}
		}
	}
	// There is no time-out: the kernel takes this answer in whatever it was told
	// meanwhile.
	_, _, e := n.answer(ctx, threadOf(raw), &out.Attr)
	n.m.kernel.changes(ctx, n.ino, threadOf(raw))
	return e
}

// mtimeOf is the modification time that is to be set; the zero time is now.
func mtimeOf(in *fuse.SetAttrIn) (bool, time.Time) {
	switch {
	case in.Valid&fuse.FATTR_MTIME == 0:
		return false, time.Time{}
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		return true, time.Time{}
	}
	t := time.Unix(int64(in.Mtime), int64(in.Mtimensec)) //nolint:gosec // as the kernel means it
	if t.UnixMilli() == 0 {
		t = t.Add(time.Millisecond) // on the wire 0 means now
	}
	return true, t
}

// Readlink is what a symbolic link points to, also if it is gone since it was looked up.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	return []byte(n.target), 0
}

// Statfs tells how much room there is: below quotas, at most what these leave.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	ctx, end := n.m.op(ctx)
	defer end()
	s, err := n.m.status.get(ctx, n.m.fs.FS)
	if err != nil {
		return errno(err)
	}
	total, free := max(s.DiskTotal, 0), max(s.DiskFree, 0)
	files, names := int64(s.Inodes), int64(freeInodes) //nolint:gosec // a count
	above, err := quota.AboveInode(ctx, n.m.fs.FS, n.ino)
	gone := errors.Is(err, fserror.NotFound) || errors.Is(err, fserror.Permission) // a draft, open and deleted, or where the caller may not look any more
	if err != nil && !gone {
		return inodeErrno(err)
	}
	for _, q := range above {
		n, b := q.Left()
		if b < free {
			total, free = q.UsedBytes+b, b
		}
		if n < names {
			files, names = q.UsedNames, n
		}
	}
	const unit = 4096
	out.Bsize, out.Frsize, out.NameLen = unit, unit, fspath.MaxName
	out.Blocks = uint64(total) / unit
	out.Bfree = uint64(free) / unit
	out.Bavail = out.Bfree
	out.Files = uint64(files + names) //nolint:gosec // counts
	out.Ffree = uint64(names)         //nolint:gosec // a count
	return 0
}

// freeInodes is how many more files there can be, as far as statfs says:
// memory is the limit.
const freeInodes = 1 << 32

// OnForget is called when the kernel does not know the inode any more.
func (n *node) OnForget() {
	if n.m != nil {
		n.m.kernel.forget(inKernel{n})
	}
}
