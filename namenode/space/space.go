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
	"github.com/leasefs/leasefs/namenode/forecast"
	"github.com/leasefs/leasefs/namenode/loops"
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
	Apart   bool           // the store is on another disk than Dir
}

// Space is the room of one namenode. Its methods are safe for concurrent use.
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

// Readings are how much of disk, memory and descriptors is in use.
func (s *Space) Readings() []forecast.Reading {
	all := []forecast.Reading{{Resource: "memory", Used: HeapBytes(), Limit: s.Memory / 4 * 3}}
	if free, total, err := s.Dir.Usage(); err == nil {
		all = append(all, forecast.Reading{Resource: "disk", Used: total - free, Limit: total - s.Reserve})
	}
	used, limit := Descriptors()
	return append(all, forecast.Reading{Resource: "descriptors", Used: used, Limit: limit})
}

// StoreReading is how much of the store is in use, if that is on another disk. It may take as long as the store
// does not answer.
func (s *Space) StoreReading(ctx context.Context) []forecast.Reading {
	if !s.Apart {
		return nil
	}
	left, total, err := s.Store.Usage(ctx) // left is beyond the reserve
	if err != nil {
		return nil
	}
	return []forecast.Reading{{Resource: "store", Used: total - s.Reserve - left, Limit: total - s.Reserve}}
}

// firstLook is how long a reign waits until it knows how much room there is.
const firstLook = 2 * time.Second

// MeasureFirst measures for the first time in a reign. A store that hangs keeps none from beginning.
func (s *Space) MeasureFirst(ctx context.Context) {
	first, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if _, err := loops.Within(first, func(context.Context) (struct{}, error) { return struct{}{}, s.Measure(ctx) }); err != nil {
		s.Log.Error("the room that is left could not be measured; it will be tried again", "cause", err)
	}
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
