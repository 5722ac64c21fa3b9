package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpAges keeps how old leases are that have missed renewals (0: renewed
// since), so that a namenode that takes over continues counting. A record of a
// writer (WriterOf), or that opens a file, forgets those of its session and file.
// One without ages changes nothing but what is known of calls: see package cancels.
type OpAges struct {
	unseen

	Ages []Age
}

func (op *OpAges) fields(c coder) {
	codec.List(c.Coder, &op.Ages, tables.AgeSize, func(a *Age) { a.Code(c.Coder) })
}

// Ages are counted without the tree, so what one is of may be over by now: then
// it is dropped, for an id that is granted again must not be born old.
func (op *OpAges) apply(t applier) (Result, error) {
	for _, a := range op.Ages {
		if !a.Good() {
			return Result{}, misfit("it has an age of nothing, of more than one thing, or below zero")
		}
	}
	for _, a := range op.Ages {
		if !t.canAge(a.AgeKey) {
			a.MS = 0
		}
		t.AgeTable.Put(a)
	}
	return Result{}, nil
}

// canAge reports whether there is a lease that can have an age: of a file that
// is open, or a granted one that lives. Which sessions there are the tree does
// not know.
func (t *Tree) canAge(k AgeKey) bool {
	switch {
	case k.Inode != 0:
		return t.open.Has(k.Inode)
	case k.Lease != 0:
		_, err := t.liveLease(k.Lease)
		return err == nil
	}
	return true
}
