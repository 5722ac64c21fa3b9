package namenode

import (
	"context"

	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// Change carries out what is planned on the tree.
func (s *Server) Change(ctx context.Context, plan func(*namespace.Tree) (namespace.Op, error)) error {
	_, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) { return plan(tx.Tree) }})
	return err
}
