package fserror

import (
	"syscall"

	"google.golang.org/grpc/codes"
)

// Kind is the closed list of what can go wrong. It is the same on the wire, in
// the client library, in the mount and in the exit code of the program.
type Kind uint8

// The kinds. Numbers travel on the wire: they are never reused.
const (
	// Internal is a fault of leasefs itself, or one that fits no other kind.
	Internal Kind = iota
	// InvalidPath: relative, empty component, "." or "..", NUL, or not UTF-8.
	InvalidPath
	// NameTooLong: a component, or a path as a whole, over the limits that
	// package fspath gives.
	NameTooLong
	// InvalidArgument: a request that can never succeed as it is.
	InvalidArgument
	// NotFound: no such file, directory, lease or namenode object.
	NotFound
	// Exists: the name is taken.
	Exists
	// IsDirectory: a file was needed.
	IsDirectory
	// NotDirectory: a directory was needed.
	NotDirectory
	// NotEmpty: a directory with entries, without recursion asked for.
	NotEmpty
	// Permission: the caller may not.
	Permission
	// Held: another holder has the file open for write (HDFS's
	// AlreadyBeingCreatedException).
	Held
	// LeaseLost: the epoch or token of a writer is not current any more, or the
	// file was closed by recovery.
	LeaseLost
	// LeaseLostGone: the file was deleted or replaced under its writer. It
	// matches LeaseLost under errors.Is and has the same name on the screen.
	LeaseLostGone
	// NotAtEnd: a write elsewhere than at the end of the file.
	NotAtEnd
	// Retry: the namenode cannot now, but will later: safe mode, overload, tail
	// budget used up.
	Retry
	// NoSpace: disk, memory or quota is used up; deleting helps.
	NoSpace
	// NotActive: the namenode asked is a standby.
	NotActive
	// Unavailable: no active namenode could be reached.
	Unavailable
	// Damaged: bytes on a disk are not what was written.
	Damaged
	// Canceled: the caller gave up.
	Canceled
	// Deadline: the caller's time ran out.
	Deadline
	// TooLarge: a message, file or list over its limit.
	TooLarge
	// Loop: too many symbolic links in a path.
	Loop
	// Unsupported: what this kind of file system does not do.
	Unsupported
	// Closed: the object (writer, reader, client) was closed before.
	Closed
	// Unknown: the outcome of the call is not known (a lost reply, time over).
	Unknown
	// TooOld: what was asked for is not kept any more; start over.
	TooOld
	// Truncated: the file was shortened while it was read, so that what comes
	// next may not belong to what was read before.
	Truncated
	// CompareFailed: a compare of a transaction does not hold; nothing was done.
	CompareFailed
	// ReadOnly: what cannot be changed, since it is in a snapshot.
	ReadOnly

	// Kinds is how many there are.
	Kinds
)

// Exit codes of the program (CLI contract).
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitExists      = 4
	ExitHeld        = 5
	ExitRetry       = 6
	ExitLeaseLost   = 7
	ExitPermission  = 8
	ExitUnavailable = 9
	ExitDamaged     = 10
	ExitCompare     = 11
)

// row is what one kind becomes at each border of the system.
type row struct {
	name  string
	code  codes.Code
	errno syscall.Errno
	exit  int
}

// table is the one place where a kind is given its meaning elsewhere.
var table = [Kinds]row{
	Internal:        {"INTERNAL", codes.Internal, syscall.EIO, ExitFailure},
	InvalidPath:     {"INVALID_PATH", codes.InvalidArgument, syscall.EINVAL, ExitUsage},
	NameTooLong:     {"NAME_TOO_LONG", codes.InvalidArgument, syscall.ENAMETOOLONG, ExitUsage},
	InvalidArgument: {"INVALID_ARGUMENT", codes.InvalidArgument, syscall.EINVAL, ExitUsage},
	NotFound:        {"NOT_FOUND", codes.NotFound, syscall.ENOENT, ExitNotFound},
	Exists:          {"EXISTS", codes.AlreadyExists, syscall.EEXIST, ExitExists},
	IsDirectory:     {"IS_A_DIRECTORY", codes.FailedPrecondition, syscall.EISDIR, ExitFailure},
	NotDirectory:    {"NOT_A_DIRECTORY", codes.FailedPrecondition, syscall.ENOTDIR, ExitFailure},
	NotEmpty:        {"NOT_EMPTY", codes.FailedPrecondition, syscall.ENOTEMPTY, ExitFailure},
	Permission:      {"PERMISSION", codes.PermissionDenied, syscall.EACCES, ExitPermission},
	Held:            {"HELD", codes.FailedPrecondition, syscall.EBUSY, ExitHeld},
	LeaseLost:       {"LEASE_LOST", codes.Aborted, syscall.ESTALE, ExitLeaseLost},
	LeaseLostGone:   {"LEASE_LOST", codes.NotFound, syscall.ESTALE, ExitLeaseLost},
	NotAtEnd:        {"NOT_AT_END", codes.InvalidArgument, syscall.EOPNOTSUPP, ExitFailure},
	Retry:           {"RETRY", codes.Unavailable, syscall.EAGAIN, ExitRetry},
	NoSpace:         {"NO_SPACE", codes.ResourceExhausted, syscall.ENOSPC, ExitRetry},
	NotActive:       {"NOT_ACTIVE", codes.Unavailable, syscall.EAGAIN, ExitUnavailable},
	Unavailable:     {"UNAVAILABLE", codes.Unavailable, syscall.EIO, ExitUnavailable},
	Damaged:         {"DAMAGED", codes.DataLoss, syscall.EIO, ExitDamaged},
	Canceled:        {"CANCELED", codes.Canceled, syscall.EINTR, ExitFailure},
	Deadline:        {"DEADLINE", codes.DeadlineExceeded, syscall.ETIMEDOUT, ExitFailure},
	TooLarge:        {"TOO_LARGE", codes.InvalidArgument, syscall.EFBIG, ExitFailure},
	Loop:            {"LOOP", codes.FailedPrecondition, syscall.ELOOP, ExitFailure},
	Unsupported:     {"UNSUPPORTED", codes.Unimplemented, syscall.EOPNOTSUPP, ExitFailure},
	Closed:          {"CLOSED", codes.FailedPrecondition, syscall.EBADF, ExitFailure},
	Unknown:         {"UNKNOWN", codes.Unknown, syscall.EIO, ExitFailure},
	TooOld:          {"TOO_OLD", codes.OutOfRange, syscall.ESTALE, ExitFailure},
	Truncated:       {"TRUNCATED", codes.Aborted, syscall.ESTALE, ExitRetry},
	CompareFailed:   {"COMPARE_FAILED", codes.FailedPrecondition, syscall.ECANCELED, ExitCompare},
	ReadOnly:        {"READ_ONLY", codes.FailedPrecondition, syscall.EROFS, ExitPermission},
}

// Transient reports whether a call that ended with err may succeed if it is tried again:
// nobody answered in time, or the one who answered cannot serve it for now.
func Transient(err error) bool {
	switch KindOf(err) {
	case Unavailable, Retry, Deadline, NotActive:
		return true
	}
	return false
}

// row is k's row, or that of Internal for a kind that this version does not know.
func (k Kind) row() row {
	if k >= Kinds {
		return table[Internal]
	}
	return table[k]
}

// String returns the name that users and scripts see, such as "HELD".
func (k Kind) String() string { return k.row().name }

// Error makes a Kind usable as the target of errors.Is.
func (k Kind) Error() string { return k.String() }

// Code is the gRPC status code of the kind.
func (k Kind) Code() codes.Code { return k.row().code }

// Errno is what a caller through the kernel gets.
func (k Kind) Errno() syscall.Errno { return k.row().errno }

// ExitCode is the program's exit code for the kind.
func (k Kind) ExitCode() int { return k.row().exit }
