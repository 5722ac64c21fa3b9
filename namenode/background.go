package namenode

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/namenode/space"
)

func (s *Server) startBackground() {
	s.serve() // one alone has answered nothing before
	s.events.PublishDurable(s.journal)
	s.loops.Run("word to the block store", s.owner.Tell)
	s.loops.Run("lease monitor", s.leases.Watch)
	s.loops.Run("events", func(ctx context.Context) error { return s.events.Show(ctx, s.journal) })
	s.loops.Run("watchers", s.events.WakeWatchers)
	// Oftener than the ages are journalled, or one just below the step is late by
	// nearly a whole one more.
	s.loops.Every("lease ages", min(s.cfg.AgesEvery, time.Second), nil, s.leases.CheckpointAges)
	s.loops.Every("cache sessions", time.Second, nil, s.calls.endCaching)
	s.loops.Every("lease repair", 10*time.Second, nil, s.leases.RepairPass())
	s.loops.Every("checkpoint", 5*time.Second, s.images.Wanted(), s.images.CheckpointIfDue)
	s.loops.Every("reclaim", 5*time.Second, s.blocks.Deleted, s.blocks.Reclaim)
	s.loops.Every("trash", time.Second, nil, s.calls.Pass)
	now := make(chan struct{}, 1)
	now <- struct{}{} // what snapshots take is known soon after a take-over, too
	s.loops.Every("snapshots", time.Minute, now, s.calls.MeasureSnapshots)
	s.loops.Every("seal", time.Second, nil, s.blocks.SealPass())
	s.loops.Every("collect", s.cfg.CollectEvery, s.blocks.Due, s.blocks.CollectPass)
	s.loops.Every("sweep", s.cfg.SweepEvery, nil, s.blocks.SweepPass)
	s.space.MeasureFirst(s.loops.Context()) // before the first call comes in
	s.loops.Run("scrub", s.scrub.Run)
	s.loops.Run("archive", func(ctx context.Context) error { return s.archive.Run(ctx, s.journal) })
	s.loops.Every("pressure", space.Every, nil, s.space.Measure)
}
