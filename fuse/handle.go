package fuse

import (
	"context"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// handle is one opening of a file: what descriptors of open(2), its duplicates
// and those of children share.
type handle struct {
	n     *node
	f     *file
	as    *lowlevel.Caller // who opened it, and has the rights that it gives
	write bool
	exec  bool // it is being run
	paged bool // the kernel reads through pages

	gen    uint64 // of the hold on the lease; by file.mu
	owner  uint32 // the process that opened it, or wrote when that had closed it; by file.mu
	closed bool   // the owner has no descriptor of it any more; by file.mu

	end atomic.Int64 // where the last read ended
}

var (
	_ gofs.FileReader   = (*handle)(nil)
	_ gofs.FileWritever = (*handle)(nil)
	_ gofs.FileFlusher  = (*handle)(nil)
	_ gofs.FileFsyncer  = (*handle)(nil)
	_ gofs.FileReleaser = (*handle)(nil)
	_ gofs.FileSetlker  = (*handle)(nil)
	_ gofs.FileSetlkwer = (*handle)(nil)
)

func writes(flags uint32) bool { return flags&syscall.O_ACCMODE != syscall.O_RDONLY }

// Open opens a file. For write it takes the lease, or shares the one that the
// mount has.
func (n *node) Open(ctx context.Context, flags uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	h, how, e := n.open(ctx, flags)
	if e == syscall.ESTALE {
		n.m.triesAgain(threadOf(ctx))
	} else {
		n.m.hasTried(threadOf(ctx))
	}
	return h, how, e
}

func (n *node) open(ctx context.Context, flags uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	f := n.m.file(n.ino)
	e := f.enter(ctx)
	if e == 0 {
		e = f.settle(ctx)
	}
	if e == 0 {
		e = may(ctx, n, wanted(flags))
	}
	if e != 0 {
		f.unuse()
		return nil, 0, e
	}
	h := n.newHandle(raw, f, flags)
	if flags&syscall.O_TRUNC != 0 {
		defer n.m.kernel.cut(n.ino, threadOf(raw))
	}
	if writes(flags) {
		if e := h.openWriter(ctx, raw, flags&syscall.O_TRUNC != 0); e != 0 {
			f.unuse()
			return nil, 0, e
		}
		return h, fuse.FOPEN_DIRECT_IO, 0
	}
	how, e := h.openReader(ctx, raw, flags&syscall.O_TRUNC != 0)
	if e != 0 {
		f.unuse()
		return nil, 0, e
	}
	return h, how | fuse.FOPEN_NOFLUSH, 0
}

// wanted are the permission bits that an open needs.
func wanted(flags uint32) (bits uint32) {
	if flags&syscall.O_ACCMODE != syscall.O_WRONLY {
		bits |= lowlevel.MayRead
	}
	if writes(flags) || flags&syscall.O_TRUNC != 0 {
		bits |= lowlevel.MayWrite
	}
	if flags&fuse.FMODE_EXEC != 0 {
		bits |= lowlevel.MayExecute
	}
	return bits
}

func (n *node) newHandle(ctx context.Context, f *file, flags uint32) *handle {
	h := &handle{
		n: n, f: f, as: n.m.callers.of(ctx), write: writes(flags),
		exec: flags&fuse.FMODE_EXEC != 0,
	}
	if h.write {
		h.owner = process(threadOf(ctx))
	}
	return h
}

// threadOf is the thread that makes a request; 0 if it cannot be seen.
func threadOf(ctx context.Context) uint32 {
	if c, ok := fuse.FromContext(ctx); ok {
		return c.Pid
	}
	return 0
}

// add makes the handle one of the file's.
func (f *file) add(h *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.gen = f.gen
	f.handles[h] = struct{}{}
}

func (h *handle) openWriter(ctx, raw context.Context, truncate bool) syscall.Errno {
	n, f := h.n, h.f
	wait, stop := n.m.impatient(ctx, raw)
	defer stop()
	unlock, e := lockFor(wait, f, n.m.wait)
	if e != 0 {
		return e
	}
	defer unlock()
	if truncate {
		e = f.cut(ctx, raw, 0, true)
	} else {
		e = f.acquire(ctx, raw, n)
	}
	if e == 0 {
		f.add(h)
	}
	return e
}

// openReader opens for reading: through pages, unless somebody writes.
func (h *handle) openReader(ctx, raw context.Context, truncate bool) (uint32, syscall.Errno) {
	n := h.n
	if truncate {
		// The kernel asks whether it is being run only after this.
		if h.f.runs() {
			return 0, syscall.ETXTBSY
		}
		if e := n.truncate(ctx, raw, nil, 0); e != 0 {
			return 0, e
		}
	}
	h.pages(true, threadOf(raw))
	seen := n.m.kernel.glance(inKernel{n})
	i, kept, err := n.look(ctx)
	if err != nil {
		h.pages(false, 0)
		return 0, inodeErrno(err)
	}
	h.f.add(h)
	if i.Open != nil || h.f.current() != nil {
		h.pages(false, 0)
		return fuse.FOPEN_DIRECT_IO, 0
	}
	return n.m.kernel.pages(inKernel{n}, seen, kept), 0
}

// pages notes whether the kernel reads through pages.
func (h *handle) pages(are bool, thread uint32) {
	if h.paged == are {
		return
	}
	h.paged = are
	if are {
		h.n.m.kernel.opened(inKernel{h.n}, thread)
	} else {
		h.n.m.kernel.closed(h.n.ino)
	}
}

// runs tells whether the file is a program that runs on this machine.
func (f *file) runs() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handles {
		if h.exec {
			return true
		}
	}
	return false
}

// truncate cuts the file.
func (n *node) truncate(ctx, raw context.Context, h *handle, size uint64) syscall.Errno {
	if n.Mode() != syscall.S_IFREG {
		return syscall.EISDIR
	}
	if size > math.MaxInt64 {
		return syscall.EFBIG
	}
	f := n.m.file(n.ino)
	defer f.unuse()
	if e := f.settle(ctx); e != 0 {
		return e
	}
	wait, stop := n.m.impatient(ctx, raw)
	defer stop()
	unlock, e := lockFor(wait, f, n.m.wait)
	if e != 0 {
		return e
	}
	defer unlock()
	if h != nil && h.write {
		ctx = lowlevel.As(ctx, h.as)
		if _, e := f.regain(ctx, n, h); e != 0 {
			return e
		}
		f.used(h, threadOf(raw))
	}
	e = f.cut(ctx, raw, int64(size), false)
	if e == syscall.EOPNOTSUPP {
		n.m.refused.tell(n, "a truncate to more than the file has", "size", size)
	}
	if re := f.release(ctx); e == 0 {
		e = re
	}
	return e
}

// Allocate refuses: a file grows by writing only.
func (n *node) Allocate(_ context.Context, _ gofs.FileHandle, off, size uint64, _ uint32) syscall.Errno {
	n.m.refused.tell(n, "fallocate", "offset", off, "size", size)
	return syscall.EOPNOTSUPP
}

// aheadWindow is how far from the end of the last read another may begin, and
// still be one of a sequence: the kernel sends several at once.
const aheadWindow = 8 << 20

// truncations is how often a read begins again because the file was truncated
// under it.
const truncations = 10

// Read reads from the file as it is now, what this mount has written included.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	ctx, end := h.n.m.opAs(ctx, h.as)
	defer end()
	last := h.end.Load()
	ahead := off > 0 && off-last <= aheadWindow && last-off <= aheadWindow
	var n int
	var err error
	for again := range truncations {
		r, kept, e := h.f.view(ctx, h.n, again > 0)
		if e != 0 {
			return nil, e
		}
		if !kept || !h.paged {
			h.unkept()
		}
		n, err = r.ReadAtContext(ctx, dest, off, ahead)
		if !errors.Is(err, fserror.Truncated) {
			break
		}
		// The whole read again, of the file as it is now.
	}
	h.end.Store(off + int64(n))
	if err != nil && err != io.EOF { //nolint:errorlint // a reader returns io.EOF itself
		return nil, inodeErrno(err)
	}
	if n < len(dest) {
		h.n.m.kernel.shrinks(h.n.ino, off+int64(n))
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// unkept sees to it that the kernel drops the pages that it makes of an answer which nobody will
// revoke, when they are as old as attributes may become. (Where it reads without pages, sendfile
// and private mappings make some all the same.)
func (h *handle) unkept() {
	f := h.f
	if !f.dropping.CompareAndSwap(false, true) {
		return // later: dropping waits for READs that are under way
	}
	f.m.goRun(func() {
		_ = clock.Pause(f.m.ctx, maxAttrTime) // or the mount ends, and its pages with it
		f.dropping.Store(false)
		f.m.kernel.tell(inKernel{h.n}, true)
	})
}

// Writev appends. An offset of appendAt is the end, wherever that is.
func (h *handle) Writev(ctx context.Context, data [][]byte, off int64) (uint32, syscall.Errno) {
	thread := threadOf(ctx)
	ctx, end := h.n.m.opAs(ctx, h.as)
	defer end()
	if !h.write {
		return 0, syscall.EBADF
	}
	unlock, e := lockFor(ctx, h.f, false)
	if e == syscall.EBUSY { // somebody here waits for the lease, so another host has it
		h.f.mu.Lock()
		h.gen = math.MaxUint64 // no hold's: what this handle writes later would have a hole before it
		h.f.mu.Unlock()
		return 0, syscall.ESTALE
	}
	if e != 0 {
		return 0, e
	}
	defer unlock()
	if off == appendAt {
		off = -1
	}
	n, e := h.f.write(ctx, h, thread, data, off)
	if e != 0 {
		return 0, e
	}
	return uint32(n), 0 //nolint:gosec // at most what the kernel sent
}

// Flush is each close of a descriptor: what was written is durable then, and
// the lease given back if no descriptor is left.
func (h *handle) Flush(ctx context.Context) syscall.Errno {
	if !h.write {
		return 0
	}
	thread := threadOf(ctx)
	ctx, end := h.n.m.opAs(ctx, h.as)
	defer end()
	f := h.f
	f.mu.Lock()
	lost, w := h.gen != f.gen, f.live()
	lost = lost || h.gen != f.gen // live may have found out
	has, stale := w != nil || f.draft != nil, f.stale(h.gen)
	f.mu.Unlock()
	switch {
	case lost:
		return stale
	case !has:
		return 0 // given back, and nothing written since
	}
	// It is finished also if the closer stops waiting: the kernel has taken the descriptor
	// away, so nobody can close it again, and what was written may be nowhere else.
	done := make(chan syscall.Errno)
	f.m.closing.Go(func() {
		e := h.close(thread)
		select {
		case done <- e:
		case <-ctx.Done():
			if e != 0 {
				f.m.log.Warn("leasefs: closing a file failed after a signal had ended the wait for it", "inode", f.ino, "err", e)
			}
		}
	})
	select {
	case e := <-done:
		return e
	case <-ctx.Done():
		return syscall.EINTR
	}
}

// close is Flush of a file that is open for write, whoever waits for that.
func (h *handle) close(thread uint32) syscall.Errno {
	f := h.f
	ctx, end := f.m.opAs(context.Background(), h.as)
	defer end()
	unlock, e := lockFor(ctx, f, false)
	if e == syscall.EBUSY { // another close has given the lease back, and somebody here waits for it
		f.mu.Lock()
		defer f.mu.Unlock()
		if h.gen != f.gen {
			e = f.stale(h.gen)
		} else {
			e = 0
		}
	}
	if e != 0 || unlock == nil {
		return e
	}
	defer unlock()
	f.mayClose(h, thread)
	if e := f.release(ctx); e != 0 {
		return e
	}
	return f.sync(ctx, h)
}

// mayClose notes that a descriptor of the handle is being closed by a thread,
// which may be the last: not if another process opened it (that has it still),
// nor if the same one has another descriptor of the file.
func (f *file) mayClose(h *handle, thread uint32) {
	f.mu.Lock()
	owner := h.owner
	f.mu.Unlock()
	if f.m.linger != nil || !inProcess(owner, thread) || f.m.holds(thread, f.ino) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for other := range f.handles {
		if other == h || other.owner == owner && owner != 0 {
			other.closed = true
		}
	}
}

// Fsync makes durable what was written, through whatever handle.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	ctx, end := h.n.m.opAs(ctx, h.as)
	defer end()
	if e := h.f.flush(ctx); e != 0 {
		return e
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.f.live()
	if h.write && h.gen != h.f.gen {
		return h.f.stale(h.gen)
	}
	return 0
}

// Release is the end of the last descriptor. Its errors reach nobody, and nobody waits for it.
func (h *handle) Release(context.Context) syscall.Errno {
	h.pages(false, 0)
	h.n.m.closing.Go(h.release)
	return 0
}

func (h *handle) release() {
	ctx := lowlevel.As(h.n.m.ctx, h.as)
	f := h.f
	if h.n.m.linger != nil {
		_ = clock.Pause(ctx, *h.n.m.linger) // or the mount ends
	}
	f.mu.Lock()
	delete(f.handles, h)
	_, locked := f.flocks[h]
	f.unflock(h)
	f.mu.Unlock()
	if h.write || locked {
		if unlock, e := lockFor(ctx, f, false); e == 0 { // else there is no lease to be given back
			if e := f.release(ctx); e != 0 {
				h.n.m.log.Warn("leasefs: closing a file failed after its last descriptor was gone", "inode", f.ino, "err", e)
			}
			unlock()
		}
	}
	f.unuse()
}

// cut truncates the file to size. With keep the lease is held afterwards, else
// only if it was before, or had to be waited for. The caller holds one.
func (f *file) cut(ctx, raw context.Context, size int64, keep bool) syscall.Errno {
	switch w := f.current(); {
	case w == nil && keep:
		return f.takeCut(ctx, raw, size)
	case w == nil:
		err := f.m.fs.TruncateInode(ctx, f.ino, f.name(), size)
		if f.m.wait && errors.Is(err, fserror.Held) {
			return f.takeCut(ctx, raw, size)
		}
		if err == nil {
			f.mu.Lock()
			f.length, f.left = size, time.Time{}
			f.mu.Unlock()
		}
		return inodeErrno(err)
	case w.Length() == size:
		return 0
	case w.Length() < size:
		return syscall.EOPNOTSUPP // a file does not grow but by writing
	default:
		return f.cutHeld(ctx, w, size)
	}
}

// takeCut takes the lease and cuts the file, in one step.
func (f *file) takeCut(ctx, raw context.Context, size int64) syscall.Errno {
	return f.openWriter(ctx, raw, f.m.wait, client.WithCut(size))
}

// cutHeld cuts a file whose lease is held, without letting go of it.
func (f *file) cutHeld(ctx context.Context, w *client.Writer, size int64) syscall.Errno {
	f.mu.Lock()
	f.startClosing()
	f.mu.Unlock()
	next, err := w.Cut(ctx, size)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.kept()
		return errno(err)
	}
	f.begun(next, true)
	return 0
}
