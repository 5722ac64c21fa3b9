package namenode

import (
	"context"

	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// SpareBlocks is how many full blocks garbage may take besides as much as files.
const SpareBlocks = blocks.SpareBlocks

// CollectGarbage is one round of the collector.
func (s *Server) CollectGarbage(ctx context.Context) (deleted, waiting int, err error) {
	return s.blocks.Collect(ctx, false)
}

// NoteFull says that the store has refused something for want of room.
func (s *Server) NoteFull() { s.blocks.NoteFull() }

// SweepPass is the search for orphans that happens by itself.
func (s *Server) SweepPass(ctx context.Context) error { return s.blocks.SweepPass(ctx) }

// Reclaim frees deleted directories.
func (s *Server) Reclaim(ctx context.Context) error { return s.blocks.Reclaim(ctx) }

// SealAll is one round of sealing under pressure: all tails that nobody writes.
func (s *Server) SealAll(ctx context.Context) error { return s.blocks.SealCold(ctx, true, 1<<40) }

// SealPasses is the sealing that happens by itself each second.
func (s *Server) SealPasses() func(context.Context) error { return s.blocks.SealPass() }

// Detached is how many deleted directories wait to be freed.
func (s *Server) Detached() int {
	return s.engine.Facts().Detached
}

// DeleteAndEnterSafeMode deletes a directory and enters safe mode before the
// background can free it.
func (s *Server) DeleteAndEnterSafeMode(path string) error {
	return s.engine.Update(func(tx *engine.Tx) error {
		op, err := namespace.PlanDelete(tx.Tree, &namespace.Call{Super: true}, namespace.At(path), true, 0)
		if err == nil {
			_, err = tx.Apply(namespace.CallID{}, op, new(engine.Recall))
		}
		if err == nil {
			_, err = tx.Apply(namespace.CallID{}, &namespace.OpSafeMode{On: true}, new(engine.Recall))
		}
		return err
	})
}
