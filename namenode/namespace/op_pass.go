package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// OpPass makes a pass, a delegation token.
type OpPass struct {
	unseen
	tables.Pass // but for what the record's number and time say
}

// OpPassChange renews a pass, or cancels it.
type OpPassChange struct {
	unseen

	ID     uint64
	Cancel bool
}

func (op *OpPass) fields(c coder) { op.Fields(c.Coder) }

func (op *OpPassChange) fields(c coder) {
	c.U64(&op.ID)
	c.Bool(&op.Cancel)
}

func (op *OpPass) apply(t applier) (Result, error) {
	return t.passed(t.passes.Issue(op.Pass, t.now.TxID, t.now.Time))
}

func (op *OpPassChange) apply(t applier) (Result, error) {
	return t.passed(t.passes.Change(op.ID, op.Cancel, t.now.Time))
}

// passed is the result of a record about a pass.
func (t applier) passed(p *tables.Pass, err error) (Result, error) {
	if err != nil {
		return Result{}, misfitf("%v", err)
	}
	t.touch(passesChange)
	return Result{Inode: InodeID(p.ID), Length: p.Until, BlocksLength: p.Issued}, nil
}

// passesChange: some pass changes.
var passesChange = Change{Kind: calls.ChangePasses}

// Passes are the delegation tokens, to be looked at for a call.
func (t *Tree) Passes(c *Call) *tables.Passes {
	t.look(c, passesChange)
	return &t.passes
}
