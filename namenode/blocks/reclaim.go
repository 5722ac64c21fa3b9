package blocks

import (
	"context"

	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// reclaimSlice is how many inodes of deleted directories one record frees.
const reclaimSlice = 1000

// Reclaim gives back the memory of deleted directories, a slice at a time. Not
// in safe mode: it makes garbage of their blocks.
func (bs *Blocks) Reclaim(ctx context.Context) error {
	for ctx.Err() == nil {
		r, err := bs.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
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

// Wake has Reclaim run soon.
func (bs *Blocks) Wake() {
	select {
	case bs.Deleted <- struct{}{}:
	default:
	}
}
