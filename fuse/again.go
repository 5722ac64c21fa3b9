package fuse

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// againTime is for how long a thread that is about to try again is waited for.
const againTime = time.Minute

// secondTries are the threads that found the file gone which they were about to open.
// For each the kernel looks the name up again, once; what it finds then counts as being
// opened, so that this mount hides it instead of removing it before it is open.
type secondTries struct {
	mu sync.Mutex
	of map[uint32]*secondTry
}

type secondTry struct {
	f   *file // what the thread looked up last; or nil
	end *time.Timer
}

// triesAgain notes that a thread was told that a file is gone. It ends with the
// thread's next open that is not told so, or after againTime.
func (m *Mounted) triesAgain(thread uint32) {
	t := &m.tries
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.of[thread]; s != nil {
		s.end.Reset(againTime)
		return
	}
	if t.of == nil {
		t.of = make(map[uint32]*secondTry)
	}
	t.of[thread] = &secondTry{end: time.AfterFunc(againTime, func() {
		m.goRun(func() { m.hasTried(thread) })
	})}
}

// hasTried ends the second try of a thread, if there is one.
func (m *Mounted) hasTried(thread uint32) {
	t := &m.tries
	t.mu.Lock()
	s := t.of[thread]
	delete(t.of, thread)
	t.mu.Unlock()
	if s == nil {
		return
	}
	s.end.Stop()
	if s.f != nil {
		s.f.unuse()
	}
}

// wants tells whether it is the thread's second try, and the file not counted as
// being opened by it.
func (t *secondTries) wants(thread uint32, ino uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[thread]
	return s != nil && (s.f == nil || s.f.ino != ino)
}

// take makes f, a use of which is the caller's, what the thread looked up last. It
// returns the file whose use is to be ended: the one before, or f; or nil.
func (t *secondTries) take(thread uint32, f *file) *file {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.of[thread]; s != nil {
		s.f, f = f, s.f
	}
	return f
}

// find looks at a name, for a thread that may be about to open what has it.
func (m *Mounted) find(ctx context.Context, thread uint32, at lowlevel.Ref) (*client.FileInfo, bool, error) {
	for {
		i, kept, err := m.fs.LstatKept(ctx, at)
		if err != nil || typeOf(i.Mode()) != syscall.S_IFREG || !m.tries.wants(thread, i.Inode) {
			return i, kept, err
		}
		f := m.file(i.Inode)
		e := f.enter(ctx)
		if old := m.tries.take(thread, f); old != nil {
			old.unuse()
		}
		if e != 0 {
			return nil, false, e
		}
		// It may have been removed before it counted: look again.
	}
}
