package calls

// Counts are sizes of a tree.
type Counts struct {
	Inodes   int // files, directories (the root too) and links, detached ones included
	Files    int
	Dirs     int
	Symlinks int
	Blocks   int // of files, detached ones included; no garbage
	Open     int // files open for write
	// StoredBytes is what the blocks of files take in the block store.
	StoredBytes int64
	// TailBytes is the memory that tails take, spare capacity included.
	TailBytes int64
	// ClosedTailBytes is the part of TailBytes that files have which are not open.
	ClosedTailBytes int64
	Garbage         int // blocks to be deleted from the store
	// GarbageBytes is what they take there.
	GarbageBytes int64
	Detached     int // tops of deleted subtrees whose memory is still to be freed
	Sessions     int // sessions with call results
	Leases       int // granted, those included that have ended and still have files
	Attached     int // files attached to granted leases
	// XattrBytes is the memory that extended attributes take.
	XattrBytes int64
	Passes     int // delegation tokens
}

// AddTail counts what the tail of a file takes that is open or is not; of a negative size
// it is counted no longer.
func (c *Counts) AddTail(size int64, open bool) {
	c.TailBytes += size
	if !open {
		c.ClosedTailBytes += size
	}
}

// AddType counts an inode of a type, or -1 of them.
func (c *Counts) AddType(typ Type, d int) {
	switch typ {
	case TypeFile:
		c.Files += d
	case TypeDir:
		c.Dirs += d
	case TypeSymlink:
		c.Symlinks += d
	}
}
