package namespace

// OpSafeMode enters or leaves safe mode by hand.
type OpSafeMode struct {
	unseen

	On bool
}

func (op *OpSafeMode) fields(c coder) { c.Bool(&op.On) }

func (op *OpSafeMode) apply(t applier) (Result, error) {
	t.safeMode = op.On
	t.touch(safeModeChange)
	return Result{}, nil
}
