package namespace

// OpSafeMode enters or leaves safe mode by hand.
type OpSafeMode struct{ On bool }

func (*OpSafeMode) opType() uint8 { return 19 }

func (op *OpSafeMode) fields(c coder) { c.Bool(&op.On) }

func (op *OpSafeMode) apply(t applier) (Result, error) {
	t.safeMode = op.On
	t.touch(safeModeChange)
	return Result{}, nil
}

func (*OpSafeMode) affects(a affected) affected { return a }
func (*OpSafeMode) events(n news) news          { return n }
