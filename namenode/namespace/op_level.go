package namespace

import "github.com/leasefs/leasefs/namenode/namespace/levels"

// OpLevel raises the feature level of the namespace, for good.
type OpLevel struct {
	unseen

	levels.State
	First *OpActivate // not nil: the first record of a namespace, which begins at that level
}

func (op *OpLevel) fields(c coder) {
	op.Code(c.Coder)
	first := op.First != nil
	if c.Bool(&first); first && op.First == nil {
		op.First = new(OpActivate)
	}
	if first {
		op.First.fields(c)
	}
}

func (op *OpLevel) apply(t applier) (r Result, err error) {
	switch {
	case op.Level > levels.Newest():
		return r, op.Newer("the namespace")
	case op.Level <= t.at.Level:
		return r, misfitf("its level %d is not above %d", op.Level, t.at.Level)
	case op.First != nil && t.reigns.Term != 0:
		return r, misfit("it is not the first of the namespace")
	}
	if op.First != nil {
		if r, err = op.First.apply(t); err != nil {
			return r, err
		}
	}
	t.at = op.State
	return r, nil
}

// Activation is the beginning of a reign that a record is, or has; nil: none.
func Activation(op Op) *OpActivate {
	switch op := op.(type) {
	case *OpActivate:
		return op
	case *OpLevel:
		return op.First
	}
	return nil
}

// Permit refuses a record that the tree's level does not allow.
func Permit(t *Tree, op Op) error {
	level := t.at.Level
	if raise, ok := op.(*OpLevel); ok {
		level = raise.Level
	}
	for _, part := range append(Parts(op), op) {
		if err := levels.Check(level, opType(part)); err != nil {
			return err
		}
	}
	return nil
}
