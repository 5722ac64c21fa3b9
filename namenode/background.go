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

func (s *Server) wake(ch *chan struct{}) {
	select {
	case *ch <- struct{}{}:
	default:
	}
}

func (s *Server) startBackground() {
	if s.grpcSrv == nil { // one alone answers nothing before
		s.serve()
	}
	// All is durable; a watch that begins now must not be told of what was before.
	s.events.Publish(min(s.applied.Load(), s.journal.Durable()))
	if !s.private() {
		s.loops.Run("word to the block store", s.tellStore)
	}
	s.loops.Run("lease monitor", s.leases.Watch)
	s.loops.Run("events", s.publishLoop)
	s.loops.Run("watchers", s.wakeLoop)
	// Oftener than the ages are journalled, or one just below the step is late by
	// nearly a whole one more.
	s.loops.Every("lease ages", min(s.cfg.AgesEvery, time.Second), nil, s.leases.CheckpointAges)
	s.loops.Every("cache sessions", time.Second, nil, s.endCaching)
	s.loops.Every("lease repair", 10*time.Second, nil, s.leases.RepairPass())
	s.loops.Every("checkpoint", 5*time.Second, s.images.Wanted(), s.images.CheckpointIfDue)
	s.loops.Every("reclaim", 5*time.Second, s.reclaimWake, s.reclaim)
	s.loops.Every("seal", time.Second, nil, s.blocks.SealPass())
	s.loops.Every("collect", s.cfg.CollectEvery, s.blocks.Due, s.blocks.CollectPass)
	s.loops.Every("sweep", s.cfg.SweepEvery, nil, s.blocks.SweepPass)
	if err := s.measurePressure(s.loops.Context()); err != nil { // before the first call comes in
		s.log.Error("the room that is left could not be measured; it will be tried again", "cause", err)
	}
	s.loops.Every("pressure", time.Second, nil, s.measurePressure)
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
	why, err := s.dir.Shortage(s.cfg.Reserve)
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
