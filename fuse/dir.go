package fuse

import (
	"context"
	"errors"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// Create makes a file and opens it.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*gofs.Inode, gofs.FileHandle, uint32, syscall.Errno) {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return nil, nil, 0, e
	}
	if writes(flags) {
		if i, h, ok := n.createDraft(ctx, raw, at, flags, mode, out); ok {
			return i, h, fuse.FOPEN_DIRECT_IO, 0
		}
	}
	var w *client.Writer
	var ino uint64
	var err error
	if writes(flags) {
		if w, err = n.createWaiting(ctx, raw, at, mode); err == nil {
			ino = w.Inode()
		}
	} else {
		ino, err = n.m.createClosed(ctx, raw, at, mode)
	}
	if errors.Is(err, fserror.Exists) && flags&syscall.O_EXCL == 0 {
		// Somebody made it since the look-up. The kernel looks again, and opens it.
		n.m.triesAgain(threadOf(raw))
		err = syscall.ESTALE
	}
	if err != nil {
		return nil, nil, 0, errno(err)
	}
	i := n.NewInode(ctx, &node{m: n.m, ino: ino}, gofs.StableAttr{Mode: syscall.S_IFREG, Ino: ino})
	child, ok := i.Operations().(*node)
	if !ok {
		return nil, nil, 0, syscall.EIO
	}
	f := n.m.file(ino)
	h := child.newHandle(raw, f, flags)
	f.mu.Lock()
	if w != nil {
		f.begun(w, false)
	}
	f.mu.Unlock()
	f.add(h)
	n.created(raw, out, ino, mode&0o1777&^uint32(umaskOf(mode))|syscall.S_IFREG)
	if w == nil {
		h.pages(true, threadOf(raw))
		return i, h, fuse.FOPEN_NOFLUSH, 0
	}
	return i, h, fuse.FOPEN_DIRECT_IO, 0
}

// createClosed makes an empty file.
func (m *Mounted) createClosed(ctx, raw context.Context, at lowlevel.Ref, mode uint32) (uint64, error) {
	return m.fs.CreateClosed(ctx, at, client.WithMode(filemode.FromUnix(mode)), client.WithUmask(umaskOf(mode)), client.WithOwner(m.callers.group(raw)))
}

// created fills in what is known of a new file without asking; the kernel asks
// when it wants to know, since there is no time-out.
func (n *node) created(ctx context.Context, out *fuse.EntryOut, ino uint64, mode uint32) {
	out.Ino, out.Mode, out.Nlink, out.Blksize = ino, mode, 1, blockSize
	out.Owner = fuse.Owner{Uid: n.m.ids.uid(n.m.fs.Info().User), Gid: n.m.ids.noGroup}
	switch as := n.m.callers.of(ctx); {
	case as != nil && as.Nobody:
		out.Uid = n.m.ids.uid(nobody)
	default:
		if c, ok := fuse.FromContext(ctx); ok {
			out.Owner = c.Owner
		}
	}
	if n.m.ids.asUID != nil {
		out.Uid = *n.m.ids.asUID
	}
	if n.m.ids.asGID != nil {
		out.Gid = *n.m.ids.asGID
	}
	now := time.Now()
	out.SetTimes(&now, &now, &now)
}

// made looks at what was just made, and returns its inode.
func (n *node) made(ctx context.Context, at lowlevel.Ref, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	i, _, err := n.m.fs.LstatKept(ctx, at)
	if err != nil {
		return nil, errno(err)
	}
	return n.child(ctx, i, out), 0
}

// Mkdir makes a directory.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return nil, e
	}
	if _, err := n.m.fs.MkdirFor(ctx, at, filemode.FromUnix(mode), umaskOf(mode), n.m.callers.group(raw)); err != nil {
		return nil, errno(err)
	}
	return n.made(ctx, at, out)
}

// Mknod makes an empty file; there are no devices, pipes and sockets.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	if t := mode & syscall.S_IFMT; t != 0 && t != syscall.S_IFREG {
		return nil, syscall.EPERM
	}
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return nil, e
	}
	if _, err := n.m.createClosed(ctx, raw, at, mode); err != nil {
		return nil, errno(err)
	}
	return n.made(ctx, at, out)
}

// Symlink makes a symbolic link.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return nil, e
	}
	if err := n.m.fs.SymlinkFor(ctx, target, at, n.m.callers.group(raw)); err != nil {
		return nil, errno(err)
	}
	return n.made(ctx, at, out)
}

// Link refuses: a file of the namespace has one name.
func (n *node) Link(context.Context, gofs.InodeEmbedder, string, *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// taken is what has a name that this mount is about to take away.
type taken struct {
	ino    uint64 // 0: the name is free
	file   *file  // if it is open here, or being opened
	thread uint32 // the thread that takes the name away
}

// takeName looks up what has a name and calls do, which removes or replaces that. do says what it
// expects to be there, so it fails with NotFound or Exists if another host was quicker: then
// takeName looks again.
func (m *Mounted) takeName(ctx context.Context, thread uint32, at lowlevel.Ref, do func(taken) error) syscall.Errno {
	var last error
	var expected uint64
	for {
		old, done, e := m.known(ctx, at)
		if e != 0 {
			return e
		}
		if last != nil && old.ino == expected {
			done()
			return errno(last)
		}
		old.thread = thread
		last, expected = do(old), old.ino
		done()
		if !errors.Is(last, fserror.NotFound) && !errors.Is(last, fserror.Exists) {
			return errno(last)
		}
	}
}

// known is what has a name. Until done is called nobody begins to open it here, so
// that none opens what is being taken away. The kernel lets nobody on this mount
// change the name meanwhile, and has just looked it up, so this asks nobody as a
// rule. What go-fuse has of the name does not count: an answer to a look-up can
// reach it late.
func (m *Mounted) known(ctx context.Context, at lowlevel.Ref) (taken, func(), syscall.Errno) {
	none := func() {}
	i, _, err := m.fs.LstatKept(ctx, at)
	switch {
	case errors.Is(err, fserror.NotFound) && !lowlevel.IsGone(err):
		return taken{}, none, 0
	case err != nil:
		return taken{}, none, errno(err)
	case typeOf(i.Mode()) != syscall.S_IFREG:
		return taken{ino: i.Inode}, none, 0
	}
	f := m.file(i.Inode)
	unlock, e := lock(ctx, f.naming)
	if e != 0 {
		f.unuse()
		return taken{}, none, e
	}
	old := taken{ino: i.Inode}
	if f.shared() {
		old.file = f
	}
	return old, func() {
		unlock()
		f.unuse()
	}, 0
}

// shared reports whether others than the caller use the file.
func (f *file) shared() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.uses > 1
}

// enter is called before the file is opened, and waits until a rename or removal by
// this mount that does not know of that is over.
func (f *file) enter(ctx context.Context) syscall.Errno {
	unlock, e := lock(ctx, f.naming)
	if e == 0 {
		unlock()
	}
	return e
}

// Unlink removes a file. One that is open here gets a hidden name, under which it
// can still be used; with its last handle, or with this mount, it is gone.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	thread := threadOf(ctx)
	n.m.hasTried(thread) // a thread that removes a file is not about to open it
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return e
	}
	return n.m.takeName(ctx, thread, at, func(old taken) error {
		if old.ino == 0 {
			return fserror.New(fserror.NotFound, "remove", name, "no such file")
		}
		return n.m.take(ctx, name, old, func(t lowlevel.Taken) (bool, error) { return n.m.fs.RemoveTaken(ctx, at, t) })
	})
}

// Rmdir removes an empty directory. Files that this mount hid in it move to its parent.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	ctx, end := n.m.op(ctx)
	defer end()
	at, e := n.at(ctx, name)
	if e != 0 {
		return e
	}
	keepDir(ctx, n, name)
	err := n.m.fs.RemoveDir(ctx, at)
	if errors.Is(err, fserror.NotEmpty) && n.hiddenUp(ctx, name) {
		err = n.m.fs.RemoveDir(ctx, at)
	}
	return errno(err)
}

// keepDir notes what a directory is like that is about to go: a process may have
// it open, or be in it.
func keepDir(ctx context.Context, n *node, name string) {
	i := n.GetChild(name)
	if i == nil || i.Mode() != syscall.S_IFDIR {
		return
	}
	child, ok := i.Operations().(*node)
	if !ok {
		return
	}
	_ = n.m.settleIn(ctx, child.ino, "") // else it is found to be in use
	if info, _, err := n.m.fs.LstatKept(ctx, n.ref(name)); err == nil && info.Inode == child.ino {
		child.was.Store(info)
	}
}

// Rename gives a file or directory another name.
func (n *node) Rename(ctx context.Context, name string, newParent gofs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok || flags&^unix.RENAME_NOREPLACE != 0 {
		return syscall.EINVAL
	}
	thread := threadOf(ctx)
	n.m.hasTried(thread)
	ctx, end := n.m.op(ctx)
	defer end()
	at1, e := n.at(ctx, name)
	if e != 0 {
		return e
	}
	at2, e := to.at(ctx, newName)
	if e != 0 {
		return e
	}
	overwrite := flags&unix.RENAME_NOREPLACE == 0
	return n.m.takeName(ctx, thread, at2, func(old taken) error {
		if !overwrite || old.ino == 0 {
			_, err := n.m.fs.RenameAt(ctx, at1, at2, false, lowlevel.Taken{})
			return err
		}
		keepDir(ctx, to, newName)
		over := func(t lowlevel.Taken) (bool, error) { return n.m.fs.RenameAt(ctx, at1, at2, true, t) }
		err := n.m.take(ctx, newName, old, over)
		if errors.Is(err, fserror.NotEmpty) && to.hiddenUp(ctx, newName) {
			err = n.m.take(ctx, newName, old, over)
		}
		return err
	})
}

// take lets do take the name from what has it. A file that is open here gets a
// hidden name in the same step, so that those who have it open can use it. It is
// deleted with the last of them, or with this mount.
func (m *Mounted) take(ctx context.Context, name string, old taken, do func(lowlevel.Taken) (bool, error)) error {
	t := lowlevel.Taken{Inode: old.ino}
	if old.file == nil {
		_, err := do(t)
		return err
	}
	id, err := m.fs.ScratchLease(ctx)
	if err != nil {
		return err
	}
	t.Hidden, t.Lease = m.hidden.name(name), uint64(id)
	hidden, err := do(t)
	if !hidden {
		return err
	}
	m.kernel.changes(ctx, old.ino, old.thread)
	m.mu.Lock()
	defer m.mu.Unlock()
	old.file.hidden, old.file.hiddenBy, old.file.was = true, lowlevel.CallerOf(ctx), name
	return nil
}

// hiddenUp moves files that this mount hid in a directory of that name to the one above;
// true if it then is empty.
func (n *node) hiddenUp(ctx context.Context, name string) bool {
	info, _, err := n.m.fs.LstatKept(ctx, n.ref(name))
	if err != nil {
		return false
	}
	entries, more, err := n.m.fs.ListAt(ctx, lowlevel.Inode(info.Inode), "", 100)
	if err != nil || more {
		return false
	}
	for _, i := range entries {
		if !n.m.hidden.has(i.Name()) {
			return false
		}
	}
	for _, i := range entries {
		_, err := n.m.fs.RenameAt(ctx, lowlevel.Ref{Base: info.Inode, Path: i.Name()}, n.ref(i.Name()), false, lowlevel.Taken{})
		if err != nil && !errors.Is(err, fserror.NotFound) { // its last descriptor was closed meanwhile
			return false
		}
	}
	return true
}
