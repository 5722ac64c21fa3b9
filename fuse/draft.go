package fuse

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// draftTime is for how long a new file that stays open is a draft. After that
// others see it.
const draftTime = 200 * time.Millisecond

// draftSet are the drafts of a mount by directory and name. See
// docs/adr/0013-directory-delegations.md.
type draftSet struct {
	mu sync.Mutex
	of map[uint64]map[string]*file
}

func (s *draftSet) add(dir uint64, name string, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[uint64]map[string]*file)
	}
	if s.of[dir] == nil {
		s.of[dir] = make(map[string]*file)
	}
	s.of[dir][name] = f
}

func (s *draftSet) remove(dir uint64, name string, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[dir][name] == f {
		delete(s.of[dir], name)
	}
	if len(s.of[dir]) == 0 {
		delete(s.of, dir)
	}
}

// in are the drafts of a directory; with a name only that one.
func (s *draftSet) in(dir uint64, name string) (out []*file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		if f := s.of[dir][name]; f != nil {
			out = append(out, f)
		}
		return out
	}
	for _, f := range s.of[dir] {
		out = append(out, f)
	}
	return out
}

// settleIn makes files of the drafts in a directory, or of the one of that name,
// before anybody looks at them or changes them.
func (m *Mounted) settleIn(ctx context.Context, dir uint64, name string) syscall.Errno {
	for _, f := range m.drafts.in(dir, name) {
		if e := f.settle(ctx); e != 0 {
			return e
		}
	}
	return 0
}

// endDrafts makes files of all drafts of a mount that ends, for a minute at most.
// (The client closes what is open.)
func (m *Mounted) endDrafts() error {
	ctx, cancel := context.WithTimeout(m.ctx, client.DefaultTimeout)
	defer cancel()
	m.drafts.mu.Lock()
	var all []*file
	for _, names := range m.drafts.of {
		for _, f := range names {
			all = append(all, f)
		}
	}
	m.drafts.mu.Unlock()
	var errs []error
	for _, f := range all {
		e := f.settle(ctx)
		if e == 0 && f.current() == nil {
			f.mu.Lock()
			e = f.stale(f.vanished)
			f.mu.Unlock()
		}
		if e != 0 {
			errs = append(errs, fserror.Wrap(fserror.Internal, "unmount", f.name(), e))
		}
	}
	return errors.Join(errs...)
}

// settleNode is settleIn for what hangs on a node: its own draft, or those in it.
func (n *node) settleNode(ctx context.Context) syscall.Errno {
	if f := n.m.opened(n.ino); f != nil {
		return f.settle(ctx)
	}
	return n.m.settleIn(ctx, n.ino, "")
}

// createDraft makes a file without a call; false if that cannot be.
func (n *node) createDraft(ctx, raw context.Context, at lowlevel.Ref, flags, mode uint32, out *fuse.EntryOut) (*gofs.Inode, *handle, bool) {
	d, ok := n.m.fs.Draft(ctx, at, n.path(at.Path), client.WithMode(filemode.FromUnix(mode)), client.WithUmask(umaskOf(mode)), client.WithOwner(n.m.callers.group(raw)))
	if !ok {
		return nil, nil, false
	}
	f := n.m.file(d.Inode())
	i := n.NewInode(raw, &node{m: n.m, ino: d.Inode()}, gofs.StableAttr{Mode: syscall.S_IFREG, Ino: d.Inode()})
	child, ok := i.Operations().(*node)
	if !ok { // never: the number is new
		f.unuse()
		return nil, nil, false
	}
	f.mu.Lock() // until all is set: whoever finds the draft may end it at once
	f.drafting(d)
	n.m.drafts.add(d.Dir(), d.Name(), f)
	f.draftEnds = time.AfterFunc(n.m.draftTime, func() {
		n.m.goRun(func() { _ = f.settle(n.m.ctx) }) // whoever uses the file is told
	})
	f.mu.Unlock()
	h := child.newHandle(raw, f, flags)
	f.add(h)
	n.m.fill(&out.Attr, n.m.fs.DraftInfo(d))
	askAttrs(out)
	return i, h, true
}

// createWaiting is Create, which waits, if the mount does so, while another makes
// the file without having said so.
func (n *node) createWaiting(ctx, raw context.Context, at lowlevel.Ref, mode uint32) (*client.Writer, error) {
	m := n.m
	var w *client.Writer
	create := func() (err error) {
		w, err = m.fs.CreateAt(ctx, at, n.path(at.Path), client.WithMode(filemode.FromUnix(mode)), client.WithUmask(umaskOf(mode)), client.WithOwner(m.callers.group(raw)))
		return err
	}
	err := create()
	if !m.wait || !errors.Is(err, fserror.Held) {
		return w, err
	}
	patient, stop := m.impatient(ctx, raw)
	defer stop()
	tick := time.NewTicker(draftTime / 4)
	defer tick.Stop()
	for errors.Is(err, fserror.Held) {
		select {
		case <-tick.C:
		case <-patient.Done():
			return nil, syscall.EINTR
		}
		err = create()
	}
	return w, err
}

// settle makes a file of a draft, open for write, and waits until that is done, as
// long as for a call (then EIO). It continues when the caller does not wait: the
// bytes are others'. If it cannot be made the handles get ESTALE, or EDQUOT
// or ENOSPC if there was no room for it.
func (f *file) settle(ctx context.Context) syscall.Errno {
	f.mu.Lock()
	if begun := f.hold.settle(); begun != nil && !f.m.goRun(func() { f.open(begun) }) {
		f.mu.Unlock()
		f.open(begun) // the mount ends
		return 0
	}
	d, done := f.draft, f.settled
	f.mu.Unlock()
	if done == nil {
		return 0
	}
	enough := time.NewTimer(f.m.timeout)
	defer enough.Stop()
	select {
	case <-done:
		return 0
	case <-ctx.Done():
		return syscall.EINTR
	case <-enough.C:
		return errno(fserror.New(fserror.Unavailable, "create", d.Path(), "no namenode has made the file within %s", f.m.timeout))
	}
}

// open is the making of a draft that others want to see.
func (f *file) open(d *lowlevel.Draft) {
	f.m.kernel.takeAttrs(f.ino) // there are no pages of a draft
	w, err := d.Open(f.m.ctx)
	if err != nil {
		f.m.log.Warn("leasefs: a new file could not be made after it was opened", "path", d.Path(), "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended(d)
	if err != nil {
		f.draftFailed(errno(err), false)
		return
	}
	f.made(w)
}

// ended notes that there is no draft any more. The caller holds mu.
func (f *file) ended(d *lowlevel.Draft) {
	f.draftEnds.Stop()
	f.m.drafts.remove(d.Dir(), d.Name(), f)
}

// drafted is the draft, if the file is one and not about to be made.
func (f *file) drafted() *lowlevel.Draft {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != drafted {
		return nil
	}
	return f.draft
}

// closeDraft makes the file whole, with one call. False if it is no draft, or not
// any more. The caller holds one.
func (f *file) closeDraft(ctx context.Context) (bool, syscall.Errno) {
	f.mu.Lock()
	d := f.hold.settle()
	if d == nil {
		f.mu.Unlock()
		return false, f.settle(ctx)
	}
	left := d.Begun() // what fstat has said
	if !f.mtime.IsZero() {
		left = f.mtime
	}
	f.mu.Unlock()
	f.m.kernel.takeAttrs(f.ino) // there are no pages of a draft
	err := d.Close(ctx, left.UnixMilli())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended(d)
	if err != nil {
		f.draftFailed(errno(err), true)
		return true, errno(err)
	}
	f.draftClosed(left)
	return true, 0
}

// writeDraft is write for a draft; false if it is none, or these bytes are too
// many for one. The caller holds one.
func (f *file) writeDraft(h *handle, thread uint32, data [][]byte, off int64) (n int, ok bool) {
	d := f.drafted()
	if d == nil || off >= 0 && off != d.Length() {
		return 0, false
	}
	before := d.Length()
	if !d.Write(data) {
		return 0, false
	}
	f.used(h, thread)
	return int(d.Length() - before), true
}

// draftAttr are the attributes of a draft, which nobody but this mount knows, nor
// can change.
func (f *file) draftAttr(out *fuse.Attr) bool {
	d := f.drafted()
	if d == nil {
		return false
	}
	f.m.fill(out, f.m.fs.DraftInfo(d))
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.mtime; !t.IsZero() {
		out.SetTimes(&t, &t, &t)
	}
	return true
}
