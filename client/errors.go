package client

import "github.com/leasefs/leasefs/internal/fserror"

// Error is what every method of this package returns when it fails: kind,
// operation, path, and for ErrHeld the other holder. Use errors.As to read it
// and errors.Is with one of the kinds below to match it.
type Error = fserror.Error

// Holder is who has a file open for write, in an Error of kind ErrHeld.
type Holder = fserror.Holder

// Kind classifies an Error. It is an error itself, so that errors.Is takes it.
// Kinds are the same in the library, on the wire, in the mount and in the
// program's exit code.
type Kind = fserror.Kind

// KindOf returns the kind of an error of this package: the closest one for an
// error of a context, and ErrInternal for any other.
func KindOf(err error) Kind { return fserror.KindOf(err) }

// The kinds of errors.
const (
	// ErrInternal: a fault of leasefs itself, or one that fits no other kind.
	ErrInternal = fserror.Internal
	// ErrInvalidPath: relative, an empty component, "." or "..", NUL, or not UTF-8.
	ErrInvalidPath = fserror.InvalidPath
	// ErrNameTooLong: a name over 255 bytes, or a path over 32,768 bytes or 1,024 names.
	ErrNameTooLong = fserror.NameTooLong
	// ErrInvalidArgument: the call can never succeed as it is.
	ErrInvalidArgument = fserror.InvalidArgument
	// ErrNotFound: no such file, directory, attribute or lease.
	ErrNotFound = fserror.NotFound
	// ErrExists: the name is taken.
	ErrExists = fserror.Exists
	// ErrIsDirectory: a file was needed.
	ErrIsDirectory = fserror.IsDirectory
	// ErrNotDirectory: a directory was needed.
	ErrNotDirectory = fserror.NotDirectory
	// ErrNotEmpty: a directory with entries, and no recursion asked for.
	ErrNotEmpty = fserror.NotEmpty
	// ErrPermission: the caller may not.
	ErrPermission = fserror.Permission
	// ErrHeld: another holder has the file open for write; Error.Holder says who.
	ErrHeld = fserror.Held
	// ErrLeaseLost: the writer is not the file's writer any more.
	ErrLeaseLost = fserror.LeaseLost
	// ErrLeaseLostGone: the file was deleted or replaced under its writer. It
	// matches ErrLeaseLost, too.
	ErrLeaseLostGone = fserror.LeaseLostGone
	// ErrNotAtEnd: a write elsewhere than at the end of the file.
	ErrNotAtEnd = fserror.NotAtEnd
	// ErrRetry: the namenode cannot now, but will later (safe mode, overload).
	ErrRetry = fserror.Retry
	// ErrNoSpace: disk, memory or a quota is used up; deleting helps.
	ErrNoSpace = fserror.NoSpace
	// ErrNotActive: the namenode that answered is a standby.
	ErrNotActive = fserror.NotActive
	// ErrUnavailable: no active namenode could be reached.
	ErrUnavailable = fserror.Unavailable
	// ErrDamaged: stored bytes are not what was written.
	ErrDamaged = fserror.Damaged
	// ErrCanceled: the caller gave up.
	ErrCanceled = fserror.Canceled
	// ErrDeadline: the caller's time ran out.
	ErrDeadline = fserror.Deadline
	// ErrTooLarge: a message, file or list over its limit.
	ErrTooLarge = fserror.TooLarge
	// ErrLoop: too many symbolic links in a path.
	ErrLoop = fserror.Loop
	// ErrUnsupported: what this kind of file system does not do.
	ErrUnsupported = fserror.Unsupported
	// ErrClosed: the writer, reader or FS was closed before.
	ErrClosed = fserror.Closed
	// ErrUnknown: the outcome of the call is not known (a lost reply, or the
	// time ran out after it was sent).
	ErrUnknown = fserror.Unknown
	// ErrTooOld: what was asked for is not kept any more; start over.
	ErrTooOld = fserror.TooOld
	// ErrTruncated: the file was shortened while it was read, so what comes next
	// may not belong to what was read before.
	ErrTruncated = fserror.Truncated
	// ErrCompareFailed: a compare of a Tx does not hold; nothing was done.
	ErrCompareFailed = fserror.CompareFailed
	// ErrReadOnly: it is in a snapshot, where nothing can be changed.
	ErrReadOnly = fserror.ReadOnly
)
