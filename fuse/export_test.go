package fuse

import (
	"fmt"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// WithoutEpochs mounts as if the kernel had none.
func (o Options) WithoutEpochs() Options {
	o.test.noEpochs = true
	return o
}

// WithQuiet is for how long no names are given after an epoch has begun.
func (o Options) WithQuiet(d time.Duration) Options {
	o.test.quiet = &d
	return o
}

// WithDraftTime is for how long a new file that stays open is a draft.
func (o Options) WithDraftTime(d time.Duration) Options {
	o.test.draft = &d
	return o
}

// WithLinger takes RELEASE for the last close instead of asking /proc, and gives the
// lease back so much later.
func (o Options) WithLinger(d time.Duration) Options {
	o.test.linger = &d
	return o
}

// Behind puts something between the kernel and the mount.
func (o Options) Behind(f func(fuse.RawFileSystem) fuse.RawFileSystem) Options {
	o.test.raw = f
	return o
}

// WithLooked calls f when a name was looked up, before go-fuse learns what it found.
func (o Options) WithLooked(f func(name string)) Options {
	o.test.looked = f
	return o
}

// WithMoved calls f when a hold on a file moves: "from ──by──▶ to", with a star after
// what begins a generation, and without an end if it is not drawn.
func (o Options) WithMoved(f func(inode uint64, move string)) Options {
	o.test.moved = f
	return o
}

// Moves are all that there are.
func Moves() (all []string) {
	for _, m := range moves {
		star := ""
		if m.renew {
			star = "*"
		}
		all = append(all, fmt.Sprintf("%s ──%s%s──▶ %s", m.from, m.by, star, m.to))
	}
	return all
}

// HasEpochs tells whether the kernel has them.
func (m *Mounted) HasEpochs() bool {
	m.kernel.names.mu.Lock()
	defer m.kernel.names.mu.Unlock()
	return m.kernel.names.next != nil
}

// Group is the process that a thread is of: as it is found, and as /proc has it.
func Group(thread uint32) (found, byProc uint32) { return process(thread), groupByProc(thread) }

// InProcess tells whether a thread is of a process.
var InProcess = inProcess

// Uses is how many handles and requests have an inode.
func (m *Mounted) Uses(ino uint64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[ino]; f != nil {
		return f.uses
	}
	return 0
}
