package namespace

import "github.com/leasefs/leasefs/internal/blockstore"

// OpCollected says that garbage blocks are gone from the store.
type OpCollected struct {
	unseen

	Keys []blockstore.Key
}

func (op *OpCollected) fields(c coder) { c.keys(&op.Keys) }

// Keys that are no garbage are nothing to forget.
func (op *OpCollected) apply(t applier) (Result, error) {
	for _, k := range op.Keys {
		t.garbage.Remove(k)
	}
	return Result{}, nil
}
