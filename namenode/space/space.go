// Package space is how much room a namenode has on its disk, in the block store and in
// memory, and what is refused for want of it.
package space

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/datadir"
)

// Every is how often the room should be measured.
const Every = time.Second

// Config says what is measured.
type Config struct {
	Log     *slog.Logger
	Dir     *datadir.Dir
	Store   blockstore.Store
	Blocks  *blocks.Blocks // is told when the store has little room
	Reserve int64          // bytes of disk kept free for deleting
	Memory  int64          // bytes that the process may take
}

// Space is the room of one namenode. Its methods are safe for concurrent use, but for
// Measure.
type Space struct {
	Config
	short atomic.Pointer[string] // of what there is too little; nil: of nothing
}

// New returns a Space that was not measured yet.
func New(cfg Config) *Space { return &Space{Config: cfg} }

// Short says of what there is too little; empty: of nothing.
func (s *Space) Short() string {
	if why := s.short.Load(); why != nil {
		return *why
	}
	return ""
}

// Refuse is the answer to what would need more of what is short. What frees some
// is never asked: deleting, truncating, closing, recovering; nor is a commit,
// whose block was let in before and lies in the store.
func (s *Space) Refuse() error {
	if why := s.Short(); why != "" {
		return &fserror.Error{Kind: fserror.NoSpace, Message: why, RetryAfter: time.Second}
	}
	return nil
}

// Measure looks how much room there is.
func (s *Space) Measure(ctx context.Context) error {
	why, err := s.Dir.Shortage(s.Reserve)
	if err != nil {
		return err
	}
	free, total, err := s.Store.Usage(ctx)
	s.Blocks.Hurry(free, total)
	switch {
	case err != nil:
		return err
	case why != "":
	case total > 0 && free <= 0: // its reserve is taken off already
		why = fmt.Sprintf("the block store is full (all but the %d MiB that are kept); delete files or add space", s.Reserve>>20)
	case s.MemoryShort() > 0:
		why = fmt.Sprintf("the namenode's memory is used up (limit %d MiB); delete files or give it more", s.Memory>>20)
	}
	was := s.Short()
	s.short.Store(&why)
	if (was == "") != (why == "") {
		s.Log.Warn("space", "short", why)
	}
	s.Blocks.Expire()
	return nil
}

// MemoryShort is how much memory live objects take (HeapBytes), if that is too much, else 0: the
// rest is for objects that are dead but not yet collected.
func (s *Space) MemoryShort() (heap int64) {
	if heap = HeapBytes(); heap > s.Memory/4*3 {
		return heap
	}
	return 0
}

// LimitMemory has the runtime collect dead objects before the process outgrows
// the limit. It is the whole process's; the smallest that anybody set counts.
func LimitMemory(limit int64) {
	if debug.SetMemoryLimit(-1) > limit {
		debug.SetMemoryLimit(limit)
	}
}

// HeapBytes is what the objects take that the last garbage collection found in
// use; those made since, and dead ones, do not count.
func HeapBytes() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) //nolint:gosec // fits
}
