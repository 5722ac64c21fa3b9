package namespace

import "github.com/leasefs/leasefs/internal/blockstore"

// InodeID names an inode for ever: ids are never reused. The root is RootID.
type InodeID uint64

// RootID is the root directory.
const RootID InodeID = 1

// SessionID is a client process.
type SessionID [16]byte

// Token is the unguessable part of a writer's identity.
type Token [16]byte

// Holder is who a file open for write belongs to.
type Holder struct {
	User    string
	Client  string // client name
	Session SessionID
	Host    string
	PID     int64
	// TTL is the session's own soft limit in milliseconds; 0: the namenode's.
	TTL int64
}

// Type is what an inode is.
type Type uint8

// The types of inodes.
const (
	TypeFile Type = iota + 1
	TypeDir
	TypeSymlink
)

// CallID makes a request happen at most once. The zero value means that the
// record has none (it is the namenode's own).
type CallID struct {
	Session SessionID
	Seq     uint64
	Acked   uint64 // results of calls up to this one may be forgotten
	Hash    uint64 // of the request, to tell a retry from a reused number
}

// Block is one entry of a file's block list.
type Block struct {
	Key    blockstore.Key
	Stored uint32 // bytes of the object: data and checksum table
	Used   uint32 // bytes of its data that belong to the file
	CRC    uint32 // CRC32C of the whole object
}

// StoredBlock is a block in the store that is part of no file.
type StoredBlock struct {
	Key    blockstore.Key
	Stored uint32 // bytes of the object
}

// Entry is one journal record, decoded.
type Entry struct {
	TxID uint64
	Time int64 // Unix milliseconds
	Call CallID
	Op   Op

	reigned int64 // what Tree.Reigned is with it; Apply sets it
}

// Op is one kind of change. The list is closed; each has a number that is never
// reused and a layout that never changes (a new layout is a new number).
//
// Ops name inodes by id, never by path, so that replay is independent of names.
type Op interface{ opType() uint8 }
