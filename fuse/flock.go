package fuse

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/internal/lowlevel"
)

// Setlk is flock(2) that does not wait.
func (h *handle) Setlk(ctx context.Context, _ uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	return h.flock(ctx, lk, flags, false)
}

// Setlkw is flock(2) that waits.
func (h *handle) Setlkw(ctx context.Context, _ uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	return h.flock(ctx, lk, flags, true)
}

// flock takes or drops a lock. Between processes of this mount a table decides;
// the first lock takes the lease on the file, so other mounts have none of any
// kind: a shared lock is shared within one mount only.
func (h *handle) flock(raw context.Context, lk *fuse.FileLock, flags uint32, wait bool) syscall.Errno {
	if flags&fuse.FUSE_LK_FLOCK == 0 {
		return syscall.ENOTSUP // record locks stay within the kernel
	}
	if lk.Typ == syscall.F_UNLCK {
		return h.funlock(raw)
	}
	if e := h.mayLock(raw); e != 0 {
		return e
	}
	exclusive := lk.Typ == syscall.F_WRLCK
	ctx, stop := h.n.m.impatient(raw, raw)
	defer stop()
	for {
		e, freed := h.tryFlock(raw, exclusive, wait)
		if e != syscall.EWOULDBLOCK || !wait || freed == nil {
			return e
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return syscall.EINTR
		}
	}
}

// mayLock refuses who could not open the file for write: a lock keeps its writers
// out. (The kernel lets lock who can read.)
func (h *handle) mayLock(raw context.Context) syscall.Errno {
	if h.write {
		return 0
	}
	ctx, end := h.n.m.op(raw)
	defer end()
	return inodeErrno(h.n.m.fs.Access(ctx, lowlevel.Inode(h.n.ino), lowlevel.MayWrite))
}

// tryFlock takes the lock. EWOULDBLOCK with a channel: another handle of this
// mount has it, and freed is closed when that may be over.
func (h *handle) tryFlock(raw context.Context, exclusive, wait bool) (e syscall.Errno, freed <-chan struct{}) {
	f := h.f
	ctx, end := h.n.m.op(raw)
	defer end()
	patient, stop := h.n.m.impatient(ctx, raw)
	defer stop()
	unlock, e := lockFor(patient, f, wait)
	if e == syscall.EBUSY {
		return syscall.EWOULDBLOCK, nil
	}
	if e != 0 {
		return e, nil
	}
	defer unlock()
	f.mu.Lock()
	conflict := false
	for other, x := range f.flocks {
		conflict = conflict || other != h && (x || exclusive)
	}
	if conflict {
		f.unflock(h) // as flock(2) does: else two that share a lock could wait for each other
		freed = f.unlock
	}
	f.mu.Unlock()
	if freed != nil {
		return syscall.EWOULDBLOCK, freed
	}
	e = f.take(ctx, raw, h.n, wait)
	if e == syscall.EBUSY {
		e = syscall.EWOULDBLOCK
	}
	if e != 0 {
		return e, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flocks[h] = exclusive
	return 0, nil
}

// funlock drops the lock, and the lease with it if nothing else needs it.
func (h *handle) funlock(raw context.Context) syscall.Errno {
	f := h.f
	f.mu.Lock()
	f.unflock(h)
	f.mu.Unlock()
	ctx, end := h.n.m.op(raw)
	defer end()
	unlock, e := lockFor(ctx, f, false)
	if e != 0 {
		return 0 // it is unlocked; the lease follows with the last close
	}
	defer unlock()
	return f.release(ctx)
}

// unflock: the caller holds mu.
func (f *file) unflock(h *handle) {
	if _, ok := f.flocks[h]; !ok {
		return
	}
	delete(f.flocks, h)
	close(f.unlock)
	f.unlock = make(chan struct{})
}
