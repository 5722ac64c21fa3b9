package files

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/users"
)

// Attr is what Hadoop's clients say of a file, and are told again.
type Attr struct{ Replication, BlockSize int64 }

// Attrs keeps the Attr of files.
type Attrs interface {
	// Get returns that of a file, both numbers positive.
	Get(ctx context.Context, u *users.User, i *client.FileInfo) (Attr, error)
	// Keep keeps that of a file that u has just made with WithMode(mode|0o200), unless it
	// is the default, and sets its mode then.
	Keep(ctx context.Context, u *users.User, inode uint64, path string, a Attr, mode fs.FileMode) error
	// Default is that of files for which Keep was never called.
	Default() Attr
}

// Config is what a Table is made of. The zero value of a field that is not needed stands
// for its default.
type Config struct {
	// Users has the sessions; needed. Those of writers have the Hadoop client's name.
	Users *users.Table
	// Attrs keeps block sizes; needed.
	Attrs Attrs
	// Open is how many files may be open for write at once; each has up to two blocks
	// of the library in memory while bytes arrive. 0: DefaultOpen.
	Open int
	// Key signs tokens of blocks. Gateways that have the same understand each other's;
	// empty: one is made, and nobody else does.
	Key []byte
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

	cut uint64 // the file's when this was made: see client.Reader.Cut
}

// Opened is a file that was opened for write.
type Opened struct {
	Info *client.FileInfo
	Attr Attr
	// Last is the last block if it has room, and Append was not asked for a new one.
	Last *Block
}

// Create says how to make a file.
type Create struct {
	Mode         fs.FileMode // as it is to be: the client has applied its umask
	Create       bool        // make it if it is missing; else NotFound
	Overwrite    bool        // replace it, whoever writes it
	CreateParent bool        // make missing directories
	Attr         Attr        // 0: the default
}

// Located is where a file's bytes are.
type Located struct {
	Info   *client.FileInfo
	Attr   Attr
	Length int64   // that readers see
	Blocks []Block // those that the range touches; MaxLocated at most, from its beginning
	Last   *Block  // the last block of the file; nil if it is empty
	Open   bool    // somebody writes it
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
