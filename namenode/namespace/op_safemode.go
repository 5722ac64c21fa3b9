package namespace

// OpSafeMode enters or leaves safe mode by hand.
type OpSafeMode struct{ On bool }

func (*OpSafeMode) opType() uint8 { return typeSafeMode }

func (op *OpSafeMode) fields(c *coder) { c.bool(&op.On) }
