package client

// Calls is how many call ids are in use, or kept behind one that is.
func (f *FS) Calls() uint64 {
	return f.ids.Under()
}
