package namespace

import "github.com/leasefs/leasefs/namenode/namespace/codec"

// OpAges keeps how old leases are that have missed renewals (0: renewed
// since), so that a namenode that takes over continues counting. A record of a
// writer (WriterOf), or that opens a file, forgets those of its session and file.
type OpAges struct{ Ages []Age }

func (*OpAges) opType() uint8 { return 25 }

func (op *OpAges) fields(c coder) { codec.List(c.Coder, &op.Ages, ageSize, c.age) }

// Ages are counted without the tree, so what one is of may be over by now: then
// it is dropped, for an id that is granted again must not be born old.
func (op *OpAges) apply(t *Tree, _ stamp) (Result, error) {
	for _, a := range op.Ages {
		if !a.names() || a.MS < 0 {
			return Result{}, misfit("it has an age of nothing, of more than one thing, or below zero")
		}
	}
	for _, a := range op.Ages {
		if a.MS == 0 || !t.canAge(a.AgeKey) {
			t.ages.Delete(a)
		} else {
			t.ages.ReplaceOrInsert(a)
		}
	}
	return Result{}, nil
}

func (*OpAges) affects(a affected) affected { return a }
func (*OpAges) events(n news) news          { return n }
