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
	p, err := t.passes.Issue(op.Pass, t.now.TxID, t.now.Time)
	if err != nil {
		return Result{}, misfitf("%v", err)
	}
	return t.passResult(p), nil
}

func (op *OpPassChange) apply(t applier) (Result, error) {
	p := t.passes.Change(op.ID, op.Cancel, t.now.Time)
	if p == nil {
		return Result{}, misfitf("there is no delegation token %d", op.ID)
	}
	return t.passResult(p), nil
}

func (t applier) passResult(p *tables.Pass) Result {
	t.touch(passesChange)
	return Result{Inode: InodeID(p.ID), Length: p.Until, BlocksLength: p.Issued}
}

// passesChange: some pass changes.
var passesChange = Change{Kind: calls.ChangePasses}

// Passes are the delegation tokens, to be looked at for a call.
func (t *Tree) Passes(c *Call) *tables.Passes {
	t.look(c, passesChange)
	return &t.passes
}
