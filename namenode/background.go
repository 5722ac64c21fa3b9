package namenode

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

type (
	backupMessage = pb.BackupResponse
	blockKey      = blockstore.Key
)

// run starts one background loop; it ends with the namenode.
func (s *Server) run(name string, loop func(ctx context.Context) error) {
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		if err := loop(s.stopping); err != nil && s.stopping.Err() == nil {
			s.stepDown(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// every calls fn each period, first after one. An error of fn is logged: the
// next round tries again.
func (s *Server) every(name string, period time.Duration, wake <-chan struct{}, fn func(ctx context.Context) error) {
	s.run(name, func(ctx context.Context) error {
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			case <-wake:
			}
			if err := fn(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("background work failed; it will be tried again", "work", name, "cause", err)
			}
		}
	})
}

func (s *Server) wake(ch *chan struct{}) {
	select {
	case *ch <- struct{}{}:
	default:
	}
}

func (s *Server) startBackground() {
	s.run("journal", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-s.journal.Failed():
			return fmt.Errorf("the journal cannot be written: %w", s.journal.Err())
		}
	})
	// All is durable; a watch that begins now must not be told of what was before.
	s.events.Publish(min(s.applied.Load(), s.journal.Durable()))
	if !s.private() {
		s.run("word to the block store", s.tellStore)
	}
	s.run("lease monitor", s.leases.Watch)
	s.run("events", s.publishLoop)
	s.run("watchers", s.wakeLoop)
	// Oftener than the ages are journalled, or one just below the step is late by
	// nearly a whole one more.
	s.every("lease ages", min(s.cfg.AgesEvery, time.Second), nil, s.leases.CheckpointAges)
	s.every("cache sessions", time.Second, nil, s.endCaching)
	s.every("lease repair", 10*time.Second, nil, s.leases.RepairPass())
	s.every("checkpoint", 5*time.Second, s.images.Wanted(), s.images.CheckpointIfDue)
	s.every("reclaim", 5*time.Second, s.reclaimWake, s.reclaim)
	s.every("seal", time.Second, nil, s.blocks.SealPass())
	s.every("collect", s.cfg.CollectEvery, s.blocks.Due, s.blocks.CollectPass)
	s.every("sweep", s.cfg.SweepEvery, nil, s.blocks.SweepPass)
	if err := s.measurePressure(s.stopping); err != nil { // before the first call comes in
		s.log.Error("the room that is left could not be measured; it will be tried again", "cause", err)
	}
	s.every("pressure", time.Second, nil, s.measurePressure)
}

// reclaimSlice is how many inodes of deleted directories one record frees.
const reclaimSlice = 1000

// reclaim gives back the memory of deleted directories, a slice at a time. Not
// in safe mode: it makes garbage of their blocks.
func (s *Server) reclaim(ctx context.Context) error {
	for ctx.Err() == nil {
		r, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			if tx.Tree.Counts().Detached == 0 || tx.Tree.SafeMode() {
				return nil, nil
			}
			return &namespace.OpReclaim{Limit: reclaimSlice}, nil
		}})
		if err != nil || r.TxID == 0 {
			return err
		}
	}
	return nil
}

// pressure is the measured shortage of disk and memory.
type pressure struct{ why atomic.Pointer[string] }

// refuse is the answer to what would need more of what is short. What frees some
// is never asked: deleting, truncating, closing, recovering; nor is a commit,
// whose block was let in before and lies in the store.
func (p *pressure) refuse() error {
	why := p.why.Load()
	if why == nil {
		return nil
	}
	return &fserror.Error{Kind: fserror.NoSpace, Message: *why, RetryAfter: time.Second}
}

// limitMemory has the runtime collect dead objects before the process outgrows
// the limit. It is the whole process's; the smallest that anybody set counts.
func limitMemory(limit int64) {
	if debug.SetMemoryLimit(-1) > limit {
		debug.SetMemoryLimit(limit)
	}
}

func (s *Server) measurePressure(ctx context.Context) error {
	why, err := s.diskShortage()
	if err != nil {
		return err
	}
	bfree, btotal, err := s.store.Usage(ctx)
	s.blocks.Hurry(bfree, btotal)
	switch {
	case err != nil:
		return err
	case why != "":
	case btotal > 0 && bfree <= 0: // its reserve is taken off already
		why = fmt.Sprintf("the block store is full (all but the %d MiB that are kept); delete files or add space", s.cfg.Reserve>>20)
	case heapBytes() > s.cfg.MemoryLimit/4*3: // the rest is for objects that are dead but not yet collected
		why = fmt.Sprintf("the namenode's memory is used up (limit %d MiB); delete files or give it more", s.cfg.MemoryLimit>>20)
	}
	old := s.pressure.why.Load()
	if why == "" {
		s.pressure.why.Store(nil)
	} else {
		s.pressure.why.Store(&why)
	}
	if (old == nil) != (why == "") {
		s.log.Warn("space", "short", why)
	}
	s.blocks.Expire()
	return nil
}
