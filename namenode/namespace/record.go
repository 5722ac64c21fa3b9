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

type (
	// OpActivate begins a reign.
	OpActivate struct {
		Term        uint64
		NamespaceID [16]byte // set in the first record of a namespace
		User, Group string   // the superuser and supergroup, owner of the root
		Nonce       [16]byte // tells it from a reign of that term in another history
	}

	// OpMkdir makes one directory or, for -p, a chain of them: Names[1:] each
	// inside the one before.
	OpMkdir struct {
		Parent      InodeID
		Names       []string
		Mode        uint16
		User, Group string
	}

	// OpCreate makes a file, its missing parent directories first. If Replace
	// is not 0 it is the inode of that name, which the new file replaces.
	OpCreate struct {
		Parent      InodeID
		Dirs        []string // missing parents, outermost first, with DirMode
		Name        string
		Mode        uint16
		DirMode     uint16
		User, Group string
		Replace     InodeID
		MTime       int64 // 0: the record's time
		Closed      bool  // created whole: Data is all of it, Holder and Token are zero
		Holder      Holder
		Token       Token
		Data        []byte  // first bytes of the tail
		Lease       LeaseID // the granted lease that it is attached to; 0: none
	}

	// OpReserve sets Count inode numbers aside for a session that may cache, from
	// Result.Inode on: no inode gets one of them but by an OpCreateAs of it.
	OpReserve struct {
		Session SessionID
		Count   uint32
	}

	// OpCreateAs is an OpCreate, without missing parents and replacing nothing,
	// of a file whose number was set aside for the session.
	OpCreateAs struct {
		Session SessionID
		Inode   InodeID
		OpCreate
	}

	// OpOpen opens an existing file for append. If it was open, this takes it
	// from its holder: the epoch is new, the bytes stay.
	OpOpen struct {
		Inode  InodeID
		Holder Holder
		Token  Token
	}

	// OpAppendTail adds flushed bytes at the end of an open file.
	OpAppendTail struct {
		Inode  InodeID
		Offset int64 // the file's length before
		Data   []byte
	}

	// OpCommit makes a block part of an open file, at the end of its blocks.
	// The block's first TailCovered bytes were the tail's first; later tail
	// bytes stay. With ReplaceLast the block takes the place of the last block,
	// whose bytes it begins with (the namenode merging short blocks); Inode may
	// then be closed.
	OpCommit struct {
		Inode       InodeID
		Offset      int64 // where the block begins in the file
		Block       Block
		TailCovered int64
		ReplaceLast bool
	}

	// OpClose ends writing; Data are last bytes for the tail.
	OpClose struct {
		Inode InodeID
		Data  []byte
		MTime int64 // 0: the record's time
	}

	// OpRecover closes an abandoned file at its flushed length. It makes a new
	// epoch (its txid), so the old writer is fenced.
	OpRecover struct {
		Inode  InodeID
		Reason string // "soft limit", "hard limit", "forced", "same client", "repair"
	}

	// OpRename moves (FromParent, FromName) to (ToParent, ToName). If Replace is
	// not 0 it is the inode there now, a file or an empty directory.
	OpRename struct {
		FromParent InodeID
		FromName   string
		ToParent   InodeID
		ToName     string
		Replace    InodeID
		Detach     bool // take the file from the granted lease that it is attached to
	}

	// OpDelete takes an inode out of the tree. A directory is detached with all
	// that is below it; files open below it are no longer open. OpReclaim gives
	// the memory back afterwards.
	OpDelete struct {
		Parent InodeID
		Name   string
		Inode  InodeID
	}

	// OpReclaim frees up to Limit inodes of detached subtrees.
	OpReclaim struct{ Limit uint32 }

	// OpSetAttr changes attributes; what is not Set stays.
	OpSetAttr struct {
		Inode       InodeID
		SetMode     bool
		Mode        uint16
		User, Group string // empty: unchanged
		SetMTime    bool
		MTime       int64
	}

	// OpSymlink makes a symbolic link.
	OpSymlink struct {
		Parent      InodeID
		Dirs        []string
		DirMode     uint16
		Name        string
		Target      string
		User, Group string
	}

	// OpTruncate shrinks a closed file.
	OpTruncate struct {
		Inode  InodeID
		Length int64
	}

	// OpConcat moves the blocks (and the last one's tail) of the sources, in
	// order, to the end of the target, and deletes the sources. All but the last
	// non-empty one have no tail.
	OpConcat struct {
		Target  InodeID
		Sources []InodeID
	}

	// OpTombstone declares blocks that no file has as garbage.
	OpTombstone struct{ Blocks []StoredBlock }

	// OpCollected says that garbage blocks are gone from the store.
	OpCollected struct{ Keys []blockstore.Key }

	// OpImage publishes an image that holds the state up to TxID.
	OpImage struct {
		TxID uint64
		Name string
		Size int64
		CRC  uint32
	}

	// OpSafeMode enters or leaves safe mode by hand.
	OpSafeMode struct{ On bool }

	// OpGrant grants a lease with a time to live of its own.
	OpGrant struct {
		ID    LeaseID
		TTL   int64 // milliseconds
		Owner Owner
	}

	// OpEndLease ends a granted lease. It deletes a few of the files attached;
	// if there are more, the lease stays, ended, until OpReap has deleted them.
	OpEndLease struct {
		ID     LeaseID
		Reason string // LeaseExpired or LeaseRevoked
	}

	// OpReap deletes up to Limit files of a lease that has ended.
	OpReap struct {
		ID    LeaseID
		Limit uint32
	}

	// OpAttach attaches a file to a granted lease: it is deleted at its end.
	OpAttach struct {
		ID    LeaseID
		Inode InodeID
	}

	// OpDetach takes a file from its granted lease.
	OpDetach struct{ Inode InodeID }

	// OpAges keeps how old leases are that have missed renewals (0: renewed
	// since), so that a namenode that takes over continues counting. A record of a
	// writer (WriterOf), or that opens a file, forgets those of its session and file.
	OpAges struct{ Ages []Age }

	// OpCaching notes that a session may have read-cache leases, or (Term 0) may
	// not any more.
	OpCaching struct {
		Session SessionID
		Term    int64 // milliseconds that one lasts at most after each renewal
	}

	// OpCut cuts a file to Length bytes and opens it for append, as OpOpen does.
	// If it was open it is taken from its holder, who may be the same one: the
	// epoch is new, so that nothing sent before the cut comes after it.
	OpCut struct {
		Inode  InodeID
		Length int64
		Holder Holder
		Token  Token
	}

	// OpHide takes the name (Parent, Name) from a file: it gets the name Hidden
	// in the same directory and is attached to a granted lease. If FromParent is
	// not 0 then (FromParent, FromName), no directory, gets the name that became
	// free, as by OpRename.
	OpHide struct {
		Parent     InodeID
		Name       string
		Inode      InodeID
		Hidden     string
		Lease      LeaseID
		FromParent InodeID
		FromName   string
		Detach     bool
	}

	// OpXattr sets an extended attribute of an inode, or removes it.
	OpXattr struct {
		Inode  InodeID
		Name   string
		Value  []byte
		Remove bool
	}
)
