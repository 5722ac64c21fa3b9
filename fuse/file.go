package fuse

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/turn"
)

// file is what the mount has of an inode that is open here.
type file struct {
	m   *Mounted
	ino uint64
	// uses is how many handles and requests have it, and hidden whether it got a
	// hidden name when it was removed or replaced while it was in use; both by
	// Mounted.mu.
	uses     int
	hidden   bool
	hiddenBy *lowlevel.Caller // who removed it
	was      string           // the name that it had

	one     turn.Turn      // its holder changes the hold on the lease, or writes
	naming  turn.Turn      // its holder removes the file or gives its name to another
	reading turn.Turn      // its holder opens or refreshes the Reader
	reader  *client.Reader // by reading
	// good, by reading, tells that the Reader's view is kept; it is until there are
	// other revocations than seen.
	good bool
	seen glance
	// dropping: the kernel is about to drop the pages.
	dropping atomic.Bool

	mu        sync.Mutex // over what follows
	handles   map[*handle]struct{}
	flocks    map[*handle]bool // exclusive?
	unlock    chan struct{}    // closed when a flock ends
	elsewhere chan struct{}    // closed while the holder of one waits for another host
	hold
	draftEnds *time.Timer // when a draft becomes a file at the latest
}

// file returns what the mount has of an inode; unuse has to follow.
func (m *Mounted) file(ino uint64) *file {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[ino]
	if f == nil {
		f = &file{
			m: m, ino: ino, one: turn.New(), naming: turn.New(), reading: turn.New(),
			handles: make(map[*handle]struct{}), flocks: make(map[*handle]bool), unlock: make(chan struct{}), elsewhere: make(chan struct{}),
		}
		if m.moved != nil {
			f.trace = func(move string) { m.moved(ino, move) }
		}
		m.files[ino] = f
	}
	f.uses++
	return f
}

// opened is file if the inode has handles, else nil. unuse must not follow.
func (m *Mounted) opened(ino uint64) *file {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[ino]
}

// unuse ends a use. With the last one go the Reader, and the file if it was hidden:
// who begins to open it meanwhile waits, and finds it gone.
func (f *file) unuse() {
	f.m.mu.Lock()
	if f.uses == 1 && f.hidden {
		unlock, _ := f.naming.Lock(context.Background()) // it is free: who holds it uses the file
		f.m.mu.Unlock()
		gone := removeHidden(f)
		unlock()
		f.m.mu.Lock()
		if gone {
			f.hidden = false
		}
	}
	f.uses--
	last := f.uses == 0
	left := last && f.hidden
	if last {
		delete(f.m.files, f.ino)
	}
	f.m.mu.Unlock()
	if last && f.reader != nil {
		_ = f.reader.Close() // there is nothing to lose
	}
	if left {
		f.m.goRun(func() { removeLater(f) }) // else it goes when the mount's lease ends
	}
}

// removeLater removes a hidden file that could not be removed with its last use.
func removeLater(f *file) {
	f.m.log.Warn("leasefs: a removed file could not be removed for good with its last close; it is tried in the background", "name", f.was, "inode", f.ino)
	for wait := time.Second; clock.Pause(f.m.ctx, wait) == nil; wait = min(2*wait, time.Minute) {
		if removeHidden(f) {
			return
		}
	}
}

// removeHidden removes a hidden file for good.
func removeHidden(f *file) (gone bool) {
	_, err := f.m.fs.RemoveTaken(lowlevel.As(f.m.ctx, f.hiddenBy), lowlevel.Inode(f.ino), lowlevel.Taken{Was: f.was})
	return err == nil || errors.Is(err, fserror.NotFound)
}

// opener is one of those who have the file open; false if nobody has.
func (f *file) opener() (as *lowlevel.Caller, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handles {
		return h.as, true
	}
	return nil, false
}

// isHidden tells whether the file has lost its name on this mount.
func (f *file) isHidden() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.hidden
}

// lock takes a turn, a free one even if the context has ended.
func lock(ctx context.Context, t turn.Turn) (unlock func(), e syscall.Errno) {
	if unlock = t.TryLock(); unlock != nil {
		return unlock, 0
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return nil, syscall.EINTR
	}
	return unlock, 0
}

// lockFor is lock of a file's one, which a holder may keep for as long as it waits for another host: EBUSY
// for who does not want to wait for that.
func lockFor(ctx context.Context, f *file, wait bool) (unlock func(), e syscall.Errno) {
	if wait {
		return lock(ctx, f.one)
	}
	if unlock = f.one.TryLock(); unlock != nil {
		return unlock, 0
	}
	f.mu.Lock()
	elsewhere := f.elsewhere
	f.mu.Unlock()
	unlock, err := f.one.LockUnless(ctx, elsewhere)
	switch {
	case errors.Is(err, turn.ErrNot):
		return nil, syscall.EBUSY
	case err != nil:
		return nil, syscall.EINTR
	}
	return unlock, 0
}

// live is the writer if the lease is held. One whose lease was lost is let go
// of here. The caller holds mu.
func (f *file) live() *client.Writer {
	if f.hasLost() {
		f.drop()
	}
	return f.writer
}

// drop ends a hold for good. The caller holds mu.
func (f *file) drop() {
	if w := f.lost(); w != nil {
		f.m.goRun(func() { _ = w.Detach() }) // it is lost, or closed already
	}
}

// current is live for callers that do not hold mu.
func (f *file) current() *client.Writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live()
}

// acquire is take, waiting if the mount does so.
func (f *file) acquire(ctx, raw context.Context, n *node) syscall.Errno {
	return f.take(ctx, raw, n, f.m.wait)
}

// take sees to it that the lease is held. The hold continues if nobody changed
// the file since it was given back; else it is a new one. The caller holds one.
func (f *file) take(ctx, raw context.Context, n *node, wait bool) syscall.Errno {
	if e := f.settle(ctx); e != 0 {
		return e
	}
	if f.current() != nil {
		return 0
	}
	if _, _, err := n.look(ctx); err != nil {
		return inodeErrno(err)
	}
	return f.openWriter(ctx, raw, wait)
}

// openWriter opens the Writer. The caller holds one.
func (f *file) openWriter(ctx, raw context.Context, wait bool, opts ...client.OpenOption) syscall.Errno {
	f.mu.Lock()
	before := len(f.handles) > 0 && f.gen > 0 && f.left != unknown
	same := f.unchanged()
	f.mu.Unlock()
	var w *client.Writer
	var err error
	if before {
		w, err = f.appendTo(ctx, raw, wait, append(same, opts...)...)
	}
	if before = before && err == nil; !before && (err == nil || errors.Is(err, fserror.NotAtEnd)) {
		w, err = f.appendTo(ctx, raw, wait, opts...)
	}
	if err != nil {
		return inodeErrno(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun(w, before)
	return 0
}

// unchanged is the condition that nobody changed the file since the lease was
// given back. The caller holds mu.
func (f *file) unchanged() []client.OpenOption {
	return []client.OpenOption{client.WithExpectedLength(f.length), client.WithExpectedModTime(f.left)}
}

// regain takes the lease again for a handle that writes after it was given
// back: only if the file is as it was then. The caller holds one.
func (f *file) regain(ctx context.Context, n *node, h *handle) (*client.Writer, syscall.Errno) {
	if e := f.settle(ctx); e != 0 {
		return nil, e
	}
	f.mu.Lock()
	w := f.live()
	old, same, stale := h.gen != f.gen, f.unchanged(), f.stale(h.gen)
	f.mu.Unlock()
	switch {
	case old:
		return nil, stale
	case w != nil:
		return w, 0
	}
	if _, _, err := n.look(ctx); err != nil {
		return nil, inodeErrno(err)
	}
	w, err := f.appendTo(ctx, ctx, false, same...)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.begun(w, true)
		return w, 0
	case errors.Is(err, fserror.Held), errors.Is(err, fserror.NotAtEnd), errors.Is(err, fserror.NotFound):
		f.drop()
		return nil, syscall.ESTALE
	}
	return nil, errno(err)
}

// release gives the lease back if no handle needs it. The caller holds one.
func (f *file) release(ctx context.Context) syscall.Errno {
	f.mu.Lock()
	has := f.live() != nil || f.draft != nil
	needed := len(f.flocks) > 0
	for h := range f.handles {
		needed = needed || h.write && !h.closed && h.gen == f.gen
	}
	f.mu.Unlock()
	if !has || needed {
		return 0
	}
	if done, e := f.closeDraft(ctx); done || e != 0 {
		return e
	}
	return f.giveBack(ctx)
}

// giveBack closes the Writer. The caller holds one.
func (f *file) giveBack(ctx context.Context) syscall.Errno {
	left := f.syncedTime(ctx)
	f.mu.Lock()
	w := f.live()
	if w == nil { // a draft that could not be made
		defer f.mu.Unlock()
		return f.stale(f.vanished)
	}
	if f.writes != f.synced {
		left = f.unsynced()
		w.SetModTime(left)
	} else {
		w.KeepModTime()
	}
	f.startClosing()
	f.mu.Unlock()
	err := w.CloseContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.drop()
		return errno(err)
	}
	f.closed(left)
	return 0
}

// syncedTime is the modification time of a file of which all is synced, which only the namenode
// knows: it is asked if a descriptor may be left that wants to write again. Else unknown.
func (f *file) syncedTime(ctx context.Context) time.Time {
	f.mu.Lock()
	ask := false
	for h := range f.handles {
		ask = ask || h.write && h.gen == f.gen && f.writes == f.synced
	}
	f.mu.Unlock()
	if !ask {
		return unknown
	}
	i, _, err := f.m.fs.LstatKept(ctx, lowlevel.Inode(f.ino))
	if err != nil {
		return unknown
	}
	return i.ModTime()
}

// write appends for a handle. off below 0 is the end, wherever that is. The
// caller holds one.
func (f *file) write(ctx context.Context, h *handle, thread uint32, data [][]byte, off int64) (done int, e syscall.Errno) {
	if n, ok := f.writeDraft(h, thread, data, off); ok {
		return n, 0
	}
	w, e := f.regain(ctx, h.n, h)
	if e != 0 {
		return 0, e
	}
	if off >= 0 && off != w.Length() {
		h.n.m.refused.tell(h.n, "a write that is not at the end", "offset", off, "length", w.Length())
		return 0, syscall.EOPNOTSUPP
	}
	f.used(h, thread)
	for _, p := range data {
		k, err := w.WriteContext(ctx, p)
		done += k
		if err != nil {
			if done > 0 && !errors.Is(err, fserror.LeaseLost) {
				return done, 0 // the next one gets the error, if it lasts
			}
			return 0, errno(err)
		}
	}
	return done, 0
}

// used notes that a handle writes: should its owner have closed it, whoever
// uses it is its owner from now on.
func (f *file) used(h *handle, thread uint32) {
	f.mu.Lock()
	f.wrote()
	closed := h.closed
	f.mu.Unlock()
	if !closed {
		return
	}
	owner := process(thread)
	f.mu.Lock()
	defer f.mu.Unlock()
	h.closed, h.owner = false, owner
}

// flush makes durable what was written. The caller does not hold one: should
// the Writer be closed meanwhile, that is waited for, since it is durable then.
func (f *file) flush(ctx context.Context) syscall.Errno {
	for {
		if e := f.settle(ctx); e != 0 {
			return e
		}
		f.mu.Lock()
		w, writes, nowhere, stale := f.live(), f.writes, f.phase == unmade, f.stale(f.vanished)
		f.mu.Unlock()
		if nowhere {
			return stale
		}
		if w == nil {
			return 0
		}
		if w.Durable() == w.Length() {
			f.syncedTo(writes)
			return 0
		}
		err := w.Flush(ctx)
		if err == nil {
			f.syncedTo(writes)
		}
		if !errors.Is(err, fserror.Closed) {
			return errno(err)
		}
		unlock, e := lock(ctx, f.one)
		if e != 0 {
			return e
		}
		same := f.current() == w
		if same { // it was not closed after all, or the client is
			err = w.Flush(ctx)
		}
		unlock()
		if same && err == nil {
			f.syncedTo(writes)
		}
		if same {
			return errno(err)
		}
	}
}

// sync makes durable what was written. The caller holds one.
func (f *file) sync(ctx context.Context, h *handle) syscall.Errno {
	if e := f.settle(ctx); e != 0 {
		return e
	}
	f.mu.Lock()
	w := f.live()
	stale := syscall.Errno(0)
	if h != nil && h.write && h.gen != f.gen {
		stale = f.stale(h.gen)
	}
	writes := f.writes
	f.mu.Unlock()
	switch {
	case stale != 0:
		return stale
	case w == nil:
		return 0
	}
	if err := w.Flush(ctx); err != nil {
		return errno(err)
	}
	f.syncedTo(writes)
	return 0
}

// syncedTo notes that so many writes are durable, and their time the namenode's.
func (f *file) syncedTo(writes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = max(f.synced, writes)
}

// amend puts into attributes what this mount knows better.
func (f *file) amend(out *fuse.Attr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.live(); w != nil {
		setSize(out, w.Length())
		if t := f.unsynced(); !t.IsZero() {
			out.SetTimes(&t, &t, &t)
		}
	}
	if f.isHidden() {
		out.Nlink = 0
	}
}

func (f *file) setModTime(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touched(t)
}

// view is the Reader of a node's file, as fresh as the file is; again: fresher than
// the last one. kept: what it sees is held under the lease.
func (f *file) view(ctx context.Context, n *node, again bool) (r *client.Reader, kept bool, e syscall.Errno) {
	if e := f.flush(ctx); e != 0 {
		return nil, false, e
	}
	unlock, e := lock(ctx, f.reading)
	if e != 0 {
		return nil, false, e
	}
	defer unlock()
	seen := f.m.kernel.glance(inKernel{n})
	if f.reader != nil && !again && f.good && f.seen == seen && f.m.fs.CacheRemaining() > 0 {
		return f.reader, true, 0
	}
	var err error
	f.seen, f.good = seen, false
	if f.reader != nil {
		f.good, err = f.reader.RefreshKept(ctx)
	} else if r, kept, oerr := f.m.fs.OpenInode(ctx, f.ino, f.name()); oerr == nil {
		f.reader, f.good = r, kept
	} else {
		err = oerr
	}
	if err != nil {
		return nil, false, inodeErrno(err)
	}
	return f.reader, f.good, 0
}

// name is for errors.
func (f *file) name() string { return "inode " + strconv.FormatUint(f.ino, 10) }
