// Package lowlevel has the calls of a client.FS that the mount, the copies and the
// commands need and that no other program should: files by inode, answers together
// with whether they are kept, names that are taken from what is known to have them,
// files begun without a call. Package client implements them and shows them to
// nobody else (see package door).
package lowlevel

import (
	"context"
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/delegation"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FS is a client.FS with the calls of this package.
type FS struct {
	*client.FS
	Calls
}

// Of returns the calls of fs, together with its own.
func Of(f *client.FS) FS {
	return FS{FS: f, Calls: door.Calls(f).(Calls)} //nolint:errcheck // package client has no other
}

// Taken says from what RenameAt and RemoveTaken take a name, and what becomes of it.
type Taken = door.Taken

// Draft is a new file for which no call was made yet: see Calls.Draft.
type Draft = delegation.Draft[*client.Writer]

// Ref names what a call is about: a name in a directory of that inode, an inode, or what
// has an absolute path.
type Ref = door.Ref

// Caller is for whom calls are made, if another than the FS's user.
type Caller = door.Caller

// NewCaller returns a Caller: of a user with groups (nil: those that the namenode knows), or
// of somebody of whom nothing is known, who has the rights of others and makes what is user's.
func NewCaller(user string, groups []string, nobody bool) *Caller {
	return door.NewCaller(user, groups, nobody)
}

// OwnCaller is the FS's own user as a Caller whose rights nobody has checked before a call.
func OwnCaller(user string) *Caller { return door.Own(user) }

// As returns a context of calls for another, in the FS's session: what they open is held
// by the FS's user. Nil: for that user himself, whatever ctx says.
func As(ctx context.Context, c *Caller) context.Context { return door.As(ctx, c) }

// CallerOf is for whom calls under ctx are; nil: for the FS's user.
func CallerOf(ctx context.Context) *Caller { c, _ := door.CallerOf(ctx); return c }

// What Calls.Access may want.
const (
	MayOwn     = door.MayOwn // to do what only the owner may
	MayRead    = door.MayRead
	MayWrite   = door.MayWrite
	MayExecute = door.MayExecute
)

// At is what has an absolute path.
func At(path string) Ref { return door.At(path) }

// Inode is an inode, wherever it is.
func Inode(inode uint64) Ref { return door.Inode(inode) }

// IsGone tells whether an error says that the inode with which a Ref begins is not in the
// tree any more, as opposed to a name in it. It is of kind NotFound.
func IsGone(err error) bool { return fserror.Has(err, fserror.NotFound, "gone") }

// Calls are implemented by package client. A path beside an inode is for errors. A
// call by inode means the file wherever it is: NotFound if it is not in the tree
// any more.
type Calls interface {
	// LstatKept is Lstat that also tells whether the answer, that there is nothing
	// of that name included, is kept: then it is good for CacheRemaining, or until
	// Config.OnRevoke says otherwise.
	// The FileInfo's path is that of the Ref.
	LstatKept(ctx context.Context, at Ref) (i *client.FileInfo, kept bool, err error)
	// Access returns nil if the caller has the permission bits want (MayRead and so on) on what is there.
	Access(ctx context.Context, at Ref, want uint32) error
	// ListAt is List.
	ListAt(ctx context.Context, dir Ref, after string, limit int) (entries []*client.FileInfo, more bool, err error)
	// CacheRemaining is for how long what was kept is certainly good, by this
	// machine's clocks; 0: not at all, or there is no cache.
	CacheRemaining() time.Duration
	// Locate is Stat, but FileInfo.Path is where the file or directory is: it has no
	// symbolic link in it.
	Locate(ctx context.Context, at Ref) (*client.FileInfo, error)
	// OpenInode is Open for an inode. kept tells whether its view of the file is: as
	// long as it is, Refresh would not change it.
	OpenInode(ctx context.Context, inode uint64, path string) (r *client.Reader, kept bool, err error)
	// AttachInode is Leases.Attach for an inode, or Leases.Detach if lease is 0.
	AttachInode(ctx context.Context, inode uint64, lease client.LeaseID) error
	// XattrsInode is Xattrs for an inode.
	XattrsInode(inode uint64) *client.Xattrs

	// Draft begins a new file without a call, if the directory is delegated to this
	// client (Config.Drafts), and it knows that nothing has the name; else, and with any
	// other option than WithMode and WithOwner, false: Create it.
	Draft(ctx context.Context, at Ref, path string, opts ...client.OpenOption) (*Draft, bool)
	// DraftInfo is what the file will be like if it is made now.
	DraftInfo(d *Draft) *client.FileInfo
	// CreateAt is Create; path is the Writer's, and as in Draft only for errors.
	CreateAt(ctx context.Context, at Ref, path string, opts ...client.OpenOption) (*client.Writer, error)
	// CreateSeen is Create, and describes the file, mostly by the same call.
	CreateSeen(ctx context.Context, path string, opts ...client.OpenOption) (*client.Writer, *client.FileInfo, error)
	// CreateClosed makes an empty file, as Create and Close do, and returns its
	// inode. Options as of Create.
	CreateClosed(ctx context.Context, at Ref, opts ...client.OpenOption) (inode uint64, err error)
	// MkdirFor is Mkdir for another, see WithOwner, and with a umask as of WithUmask. It
	// returns the inode of the new directory.
	MkdirFor(ctx context.Context, at Ref, mode, umask fs.FileMode, owner client.Owner) (inode uint64, err error)
	// MkdirMasked is Mkdir, or with parents MkdirAll, with a umask as of WithUmask.
	MkdirMasked(ctx context.Context, path string, mode, umask fs.FileMode, parents bool) error
	// SymlinkFor is Symlink for another, see WithOwner.
	SymlinkFor(ctx context.Context, target string, at Ref, owner client.Owner) error
	// AppendInode is Append for an inode; path is the Writer's, too. To resume continues what an
	// earlier process of this user and client name has open, and takes no permission to write;
	// LeaseLost: it has it open no longer.
	AppendInode(ctx context.Context, inode uint64, path string, resume bool, opts ...client.OpenOption) (*client.Writer, error)
	// CloseOrKeep is CloseContext of a Writer of this FS, which stays open as if it had not been
	// called if the store or the namenode does not answer in time, or has no room for the moment
	// (fserror.Transient): nothing is dropped, its lease is renewed, and it can be closed
	// again. That call may find that the first one was carried out: LeaseLost.
	CloseOrKeep(ctx context.Context, w *client.Writer) error
	// ScratchLease is the granted lease of this FS for what is to be gone when the FS is: it is
	// granted at its first use, kept alive, and revoked by Close. Should this process die, it
	// ends two minutes later.
	ScratchLease(ctx context.Context) (client.LeaseID, error)
	// RecoverOpening is Recover, by force, of an inode that is open under that epoch: if it is closed, or
	// open under another one, nothing happens.
	RecoverOpening(ctx context.Context, inode, epoch uint64, path string) (client.RecoverResult, error)
	// TruncateInode is Truncate for an inode.
	TruncateInode(ctx context.Context, inode uint64, path string, length int64) error
	// SetAttrInode is SetAttr for an inode.
	SetAttrInode(ctx context.Context, inode uint64, path string, c client.AttrChange) error
	// Ask makes a call that is for a package of its own, such as client/leasehistory: op and path
	// are for errors, method is its full name, and req makes the request. It is repeated until
	// it is answered; one that changes something is answered by a *pb.MutateResponse.
	Ask(ctx context.Context, op, path, method string, req func(*pb.CallId, *pb.Caller) any, resp any) error

	// Described is a description that an answer to Ask has, under a path.
	Described(path string, a *pb.Attr) *client.FileInfo

	// Vouch says that whoever this client writes for is alive: from the first call on, a
	// lease is renewed only after another one. For who serves clients that renew, or do not.
	Vouch()

	// RenameAt is Rename, with overwrite of what old says, which is hidden in the same
	// step if that is wanted; then hidden is true.
	RenameAt(ctx context.Context, from, to Ref, overwrite bool, old Taken) (hidden bool, err error)
	// RemoveTaken is Remove of what old says, which is hidden instead if that is
	// wanted; then hidden is true. IsDirectory if it is one. What is another user's is
	// deleted all the same, unless a superuser asks.
	RemoveTaken(ctx context.Context, at Ref, old Taken) (hidden bool, err error)
	// RemoveDir is Remove of an empty directory: NotDirectory if it is none.
	RemoveDir(ctx context.Context, at Ref) error
	// RemoveTree is RemoveAll of what has to exist: else NotFound.
	RemoveTree(ctx context.Context, path string) error
}
