package blocks

import (
	"context"

	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// reclaimSlice is how many inodes of deleted directories one record frees.
const reclaimSlice = 1000

// Reclaim gives back the memory of deleted directories and the blocks of deleted snapshots, a slice at a time. Not
// in safe mode: it makes garbage of their blocks.
func (bs *Blocks) Reclaim(ctx context.Context) error {
	for ctx.Err() == nil {
		r, err := bs.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			if tx.Tree.Counts().Detached == 0 || tx.Tree.SafeMode() {
				return nil, nil
			}
			return &namespace.OpReclaim{Limit: reclaimSlice}, nil
		}})
		if err != nil {
			return err
		}
		if r.TxID == 0 {
			return reclaimSnapshots(ctx, bs.Engine)
		}
	}
	return nil
}

// snapshotSlice is how many blocks of deleted snapshots one record looks for in the others.
const snapshotSlice = 1000

// reclaimSnapshots makes garbage of the blocks that only deleted snapshots had, a slice at a time.
func reclaimSnapshots(ctx context.Context, e *engine.Engine) error {
	for ctx.Err() == nil {
		r, err := e.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			if tx.Tree.SafeMode() || !tx.Tree.SnapshotTable().Dying() {
				return nil, nil
			}
			return &namespace.OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: snapshotSlice}}, nil
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
