package calls

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// Result is what an applied record did.
type Result struct {
	TxID         uint64
	Inode        tables.InodeID // made, changed or deleted; 0 if the record is about none
	Length       int64          // of the file now, in bytes
	BlocksLength int64          // where its tail begins, in bytes
	// Opened is the file that is now open under a new epoch.
	Opened *OpenFile
	// Closed are the files that are no longer open under the epoch given.
	Closed []ClosedFile
	// Lease is the granted lease that the record is about. Granted is set if
	// the record granted it, LeaseEnded if it ended it.
	Lease      tables.LeaseID
	Granted    *tables.Lease
	LeaseEnded bool
	// LeaseOwner is the user whose lease ended.
	LeaseOwner string
	Ended      *tables.Lease // that lease as it was; not to be changed
	Reason     string        // of the end of the lease, such as LeaseRevoked, or of a recovery
	Deleted    int           // attached files that the end of leases deleted
	// Forgotten are sessions whose results are not kept any more.
	Forgotten []tables.SessionID
	// Flag is that of the CallResult.
	Flag bool
	// Events are what the record did to names, in order, if they are wanted.
	Events []Event
}

// Answer is what the call of a record, of that kind, is answered.
func (r *Result) Answer(kind uint8) tables.CallResult {
	out := tables.CallResult{TxID: r.TxID, Op: kind, Inode: r.Inode, Length: r.Length, BlocksLength: r.BlocksLength, Flag: r.Flag}
	if r.Opened != nil {
		out.Token = r.Opened.Token
	}
	if r.Granted != nil {
		out.Inode = tables.InodeID(r.Lease)
	}
	return out
}

// Counts are sizes of a tree.
type Counts struct {
	Inodes   int // files, directories (the root too) and links, detached ones included
	Files    int
	Dirs     int
	Symlinks int
	Blocks   int // of files, detached ones included; neither garbage nor Held
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
	ACLs       int // inodes that have one, access or default
	// ACLBytes is the memory that different ACLs take.
	ACLBytes int64
	Passes   int // delegation tokens
	Trashed  int // entries of the trash

	Snapshots int // of directories
	Held      int // blocks that only snapshots have, or had before they were deleted
	// HeldBytes is what they take in the block store.
	HeldBytes int64
}

// AddTail counts a tail that takes so many bytes of memory, sign times.
func (c *Counts) AddTail(memory int64, open bool, sign int64) {
	c.TailBytes += sign * memory
	if !open {
		c.ClosedTailBytes += sign * memory
	}
}

// Add counts an inode of a type, or -1 of them.
func (c *Counts) Add(typ Type, d int) {
	switch typ {
	case TypeFile:
		c.Files += d
	case TypeDir:
		c.Dirs += d
	case TypeSymlink:
		c.Symlinks += d
	}
}
