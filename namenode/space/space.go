// Package space is how much room a namenode has on its disk, in the block store and in
// memory, and what is refused for want of it.
package space

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
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
	Blocks  Blocks
	Reserve int64 // bytes of disk kept free for deleting
	Memory  int64 // bytes that the process may take
	Apart   bool  // the store is on another disk than Dir
}

// Blocks are those of the store, as blocks.Blocks.
type Blocks interface {
	Hurry(free, total int64) // is told how much room the store has
	Expire()                 // is called with each measurement
}

// Space is the room of one namenode. Its methods are safe for concurrent use.
type Space struct {
	Config
	short  atomic.Pointer[string] // of what there is too little; nil: of nothing
	asking atomic.Bool            // the store is asked how much room it has
	store  atomic.Pointer[usage]  // what it said last; nil: nothing
}

// usage is what a store has said, as by blockstore.Store's Usage.
type usage struct {
	free, total int64
	err         error
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

// patience is how long a measurement waits for the store, which may hang.
const patience = 2 * time.Second

// MeasureFirst measures for the first time in a reign.
func (s *Space) MeasureFirst(ctx context.Context) {
	if err := s.Measure(ctx); err != nil {
		s.Log.Error("the room that is left could not be measured; it will be tried again", "cause", err)
	}
}

// Measure looks how much room there is. Of a disk or a store that fails, or does not answer soon, what it has
// said last counts: neither hides a shortage of something else.
func (s *Space) Measure(ctx context.Context) error {
	why, err := s.Dir.Shortage(s.Reserve) // an error ends nothing: little needs the disk
	store := s.askStore(ctx)
	s.Blocks.Hurry(store.free, store.total)
	switch {
	case why != "":
	case s.MemoryShort() > 0:
		why = fmt.Sprintf("the namenode's memory is used up (limit %d MiB); delete files or give it more", s.Memory>>20)
	case store.total > 0 && store.free <= 0: // its reserve is taken off already
		why = fmt.Sprintf("the block store is full (all but the %d MiB that are kept); delete files or add space", s.Reserve>>20)
	}
	was := s.Short()
	s.short.Store(&why)
	if (was == "") != (why == "") {
		s.Log.Warn("space", "short", why)
	}
	s.Blocks.Expire()
	return errors.Join(err, store.err)
}

// Room is how much the store has free and in all, in bytes, or had when it answered last: it may hang.
func (s *Space) Room(ctx context.Context) (free, total int64) {
	said := s.askStore(context.WithoutCancel(ctx))
	return said.free, said.total
}

// askStore is how much room the store has, or had when it answered last. One question is under way at most.
func (s *Space) askStore(ctx context.Context) usage {
	if s.asking.CompareAndSwap(false, true) {
		soon, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, _ = loops.Within(soon, func(context.Context) (struct{}, error) {
			said := usage{}
			if was := s.store.Load(); was != nil {
				said = *was
			}
			free, total, err := s.Store.Usage(ctx)
			if said.err = err; err == nil {
				said.free, said.total = free, total
			}
			s.store.Store(&said)
			s.asking.Store(false)
			return struct{}{}, nil
		})
	}
	if said := s.store.Load(); said != nil {
		return *said
	}
	return usage{err: fserror.New(fserror.Unavailable, "", "", "the block store has not said yet how much room it has")}
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
