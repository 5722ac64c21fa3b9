package namespace

import "github.com/leasefs/leasefs/internal/blockstore"

// OpCollected says that garbage blocks are gone from the store.
type OpCollected struct{ Keys []blockstore.Key }

func (*OpCollected) opType() uint8 { return typeCollected }

func (op *OpCollected) fields(c *coder) { c.keys(&op.Keys) }

// collected forgets garbage; keys that are none are nothing to forget.
func (t *Tree) collected(op *OpCollected) (Result, error) {
	for _, k := range op.Keys {
		t.removeGarbage(k)
	}
	return Result{}, nil
}
