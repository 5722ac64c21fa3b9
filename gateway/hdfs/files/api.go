package files

import (
	"io/fs"
	"log/slog"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
)

// Config is what a Table is made of. The zero value of a field that is not needed stands
// for its default.
type Config struct {
	// Users has the sessions; needed. Those of writers have the Hadoop client's name.
	Users *users.Table
	// Open is how many files may be open for write at once; each has up to two blocks
	// of the library in memory while bytes arrive. 0: DefaultOpen.
	Open int
	// Key signs tokens of blocks. Gateways that have the same understand each other's;
	// empty: one is made, and nobody else does.
	Key []byte
	// Now is the time of day, by which tokens end; nil: time.Now.
	Now func() time.Time
	// Logger gets what an operator should know of; nil: nothing is logged.
	Logger *slog.Logger
}

// DefaultOpen is how many files may be open for write at once.
const DefaultOpen = 1024

// Block is a range of a file, as a client of HDFS takes it for a block.
type Block struct {
	ID     int64 // not negative
	Stamp  int64 // the generation stamp; not negative
	Offset int64 // in the file, in bytes; 0 if the client told of it
	Length int64 // in bytes; what the client believes it to be if it told of it

	cut      uint64 // the file's when this was made: see client.Reader.Cut
	snapshot uint64 // in which the file is; 0: none
}

// Opened is a file that was opened for write.
type Opened struct {
	Info *client.FileInfo
	Attr hadoop.Attr
	// Last is the last block if it has room, and Append was not asked for a new one.
	Last *Block
}

// Create says how to make a file.
type Create struct {
	Mode         fs.FileMode // before the client's umask
	Umask        fs.FileMode // what that takes away, unless a default ACL is inherited
	Create       bool        // make it if it is missing; else NotFound
	Overwrite    bool        // replace it, whoever writes it
	CreateParent bool        // make missing directories
	Attr         hadoop.Attr // 0: the default
}

// Located is where a file's bytes are.
type Located struct {
	Info   *client.FileInfo
	Attr   hadoop.Attr
	Length int64  // that readers see
	Blocks Blocks // those that the range touches; MaxLocated at most, from its beginning
	Last   *Block // the last block of the file; nil if it is empty
	Open   bool   // somebody writes it
}

// Blocks are neighbours in a file. However many they are, they take no memory.
type Blocks struct {
	inode        uint64
	stamp        int64
	cut          uint64
	first, n     int64 // the first one's number in the file, and how many there are
	length, size int64 // of the file, and of a block, in bytes
}

// MaxLocated is how many blocks Locate returns.
const MaxLocated = 10_000

// Grant is what a token allows.
type Grant struct {
	User    string
	Client  string // of Write
	Block   Block  // with Offset and Length
	Write   bool   // else read
	Expires time.Time
}

// TokenKind is the kind of a block's token.
const TokenKind = "leasefs.block"
