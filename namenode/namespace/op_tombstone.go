package namespace

import (
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpTombstone declares blocks that no file has as garbage.
type OpTombstone struct {
	unseen

	Blocks []tables.StoredBlock
}

func (op *OpTombstone) fields(c coder) {
	codec.List(c.Coder, &op.Blocks, 3, func(b *tables.StoredBlock) { b.Code(c.Coder) })
}

// PlanTombstone returns the record that declares those of blocks garbage that no
// file has and that are no garbage yet; nil if none is left. Blocks found in the
// store that may still be committed are the caller's care.
func PlanTombstone(t *Tree, blocks []tables.StoredBlock) *OpTombstone {
	op := new(OpTombstone)
	seen := make(map[blockstore.Key]bool, len(blocks))
	for _, b := range blocks {
		if k := b.Key; k.Seq != 0 && !seen[k] && !t.blocks.Has(k) && !t.garbage.Has(k) {
			seen[k] = true
			op.Blocks = append(op.Blocks, b)
		}
	}
	if len(op.Blocks) == 0 {
		return nil
	}
	return op
}

func (op *OpTombstone) apply(t applier) (Result, error) {
	for _, b := range op.Blocks {
		if t.blocks.Has(b.Key) {
			return Result{}, misfitf("block %d.%d is part of a file", b.Key.Term, b.Key.Seq)
		}
	}
	for _, b := range op.Blocks {
		t.garbage.Add(b, t.now.reigned)
	}
	return Result{}, nil
}
