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
	Block   Block // with Offset and Length
	Write   bool  // else read
	Expires time.Time
}

// All methods of Table are safe for concurrent use. u is who asks; client is the name of
// the Hadoop client. Errors are those of package client; besides what is said:
//
//   - Held: another holder writes the file, or the same client already does
//     (AlreadyBeingCreatedException; RecoveryInProgressException if TakeableIn is not positive).
//   - LeaseLost, LeaseLostGone: the client does not write that file, any more or at all
//     (LeaseExpiredException).
//   - InvalidArgument: a block that is none of the file's, or not the last.
//
// The inode (fileId) counts where it is not 0, and path is only for errors then, so a
// rename does not disturb a writer.
type API interface {
	// Create makes a file and opens it for write. Exists, NotFound, IsDirectory.
	Create(ctx context.Context, u *users.User, client, path string, c Create) (Opened, error)
	// Append opens a file for write at its end. A holder past its soft limit is replaced.
	Append(ctx context.Context, u *users.User, client, path string, newBlock bool) (Opened, error)
	// AddBlock begins a block after previous, which is nil if there is none. Asked again
	// with the same previous, it answers the same block while that is empty.
	AddBlock(ctx context.Context, u *users.User, client, path string, inode uint64, previous *Block) (Block, error)
	// AbandonBlock gives up the last block, of which nothing was written.
	AbandonBlock(ctx context.Context, u *users.User, client, path string, inode uint64, b Block) error
	// UpdateBlockForPipeline gives the last block a new Stamp: its older data connections end.
	UpdateBlockForPipeline(ctx context.Context, u *users.User, client string, b Block) (Block, error)
	// UpdatePipeline takes note that the client continues under the new stamp.
	UpdatePipeline(ctx context.Context, u *users.User, client string, old, new Block) error
	// Fsync makes durable what has arrived. lastLength is of the last block, -1: not told.
	Fsync(ctx context.Context, u *users.User, client, path string, inode uint64, lastLength int64) error
	// Complete closes the file. last is its last block, nil: none. It waits as long as the
	// call lasts, so it never answers false without an error.
	Complete(ctx context.Context, u *users.User, client, path string, inode uint64, last *Block) (bool, error)
	// Renew notes that a user's client lives.
	Renew(u *users.User, client string)
	// Recover closes a file at what was flushed, whoever writes it. NotFound, also for a
	// directory.
	Recover(ctx context.Context, u *users.User, path string) (done bool, err error)
	// Truncate cuts a closed file. InvalidArgument: it is shorter already.
	Truncate(ctx context.Context, u *users.User, client, path string, size int64) (done bool, err error)
	// IsClosed tells whether nobody writes the file. NotFound, also for a directory.
	IsClosed(ctx context.Context, u *users.User, path string) (bool, error)
	// Locate returns where bytes are. NotFound; IsDirectory.
	Locate(ctx context.Context, u *users.User, path string, offset, length int64) (Located, error)
	// VisibleLength is how much of a block readers see, in bytes.
	VisibleLength(ctx context.Context, u *users.User, b Block) (int64, error)
	// Token lets its bearer read or write a block, for ten hours: the two byte strings
	// of a TokenProto, whose kind is TokenKind.
	Token(u *users.User, b Block, write bool) (identifier, password []byte)
}

// TokenKind is the kind of a block's token.
const TokenKind = "leasefs.block"

var _ API = (*Table)(nil)
