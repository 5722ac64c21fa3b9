package hadoop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Java names of exceptions, as Hadoop's client looks for them.
const (
	AccessControl       = "org.apache.hadoop.security.AccessControlException"
	ACL                 = "org.apache.hadoop.hdfs.protocol.AclException"
	AlreadyBeingCreated = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
	Authorization       = "org.apache.hadoop.security.authorize.AuthorizationException"
	ChecksumWrong       = "org.apache.hadoop.fs.ChecksumException"
	BytesOverQuota      = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
	NamesOverQuota      = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"
	FileExists          = "org.apache.hadoop.fs.FileAlreadyExistsException"
	FileNotFound        = "java.io.FileNotFoundException"
	HadoopIllegal       = "org.apache.hadoop.HadoopIllegalArgumentException"
	HealthCheckFailed   = "org.apache.hadoop.ha.HealthCheckFailedException"
	IllegalArgument     = "java.lang.IllegalArgumentException"
	InvalidPath         = "org.apache.hadoop.fs.InvalidPathException"
	IOException         = "java.io.IOException"
	LeaseExpired        = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"
	NameTooLong         = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"
	NotDirectory        = "org.apache.hadoop.fs.PathIsNotDirectoryException"
	NotEmpty            = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
	ParentNotDirectory  = "org.apache.hadoop.fs.ParentNotDirectoryException"
	RecoveryInProgress  = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException"
	Retriable           = "org.apache.hadoop.ipc.RetriableException"
	RuntimeException    = "java.lang.RuntimeException"
	SafeMode            = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
	SnapshotReadOnly    = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException"
	Standby             = "org.apache.hadoop.ipc.StandbyException"
	SnapshotWrong       = "org.apache.hadoop.hdfs.protocol.SnapshotException"
	Security            = "java.lang.SecurityException"
	Unsupported         = "java.lang.UnsupportedOperationException"
	NoSuchMethod        = "org.apache.hadoop.ipc.RpcNoSuchMethodException"
	NoSuchProtocol      = "org.apache.hadoop.ipc.RpcNoSuchProtocolException"
	VersionMismatch     = "org.apache.hadoop.ipc.RPC$VersionMismatch"
	InvalidToken        = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
	RPCServer           = "org.apache.hadoop.ipc.RpcServerException"
	XattrNotFound       = "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException"
)

// refusal is an error with the name that Hadoop has for it.
type refusal struct {
	class   string
	message string
	cause   error
}

func (r *refusal) Error() string     { return r.message }
func (r *refusal) Unwrap() error     { return r.cause }
func (r *refusal) JavaClass() string { return r.class }

// Refuse returns an error with a Java name.
func Refuse(class, format string, args ...any) error {
	return &refusal{class: class, message: fmt.Sprintf(format, args...)}
}

// Named gives an error another Java name, and keeps its words.
func Named(class string, err error) error {
	return &refusal{class: class, message: Message(err), cause: err}
}

// BelowFile gives the error that something above the path is no directory another name;
// HDFS has several, one for each kind of operation.
func BelowFile(class string, err error) error {
	if fserror.KindOf(err) == fserror.NotDirectory {
		return Named(class, err)
	}
	return err
}

// Message is an error in one line.
func Message(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// classes are the names by kind. What is missing here is an IOException.
var classes = map[fserror.Kind]string{
	fserror.InvalidPath:     InvalidPath,
	fserror.NameTooLong:     NameTooLong,
	fserror.InvalidArgument: HadoopIllegal,
	fserror.NotFound:        FileNotFound,
	fserror.Exists:          FileExists,
	fserror.IsDirectory:     FileNotFound, // "Path is not a file"
	fserror.NotDirectory:    ParentNotDirectory,
	fserror.NotEmpty:        NotEmpty,
	fserror.Permission:      AccessControl,
	fserror.LeaseLost:       LeaseExpired,
	fserror.LeaseLostGone:   LeaseExpired,
	fserror.Retry:           Retriable,
	fserror.NotActive:       Retriable,
	fserror.Unavailable:     Retriable,
	fserror.Unknown:         Retriable,
	fserror.Deadline:        Retriable,
	fserror.Canceled:        Retriable,
	fserror.Closed:          Retriable,
	fserror.Truncated:       Retriable,
	fserror.Damaged:         ChecksumWrong,
	fserror.Unsupported:     Unsupported,
	fserror.ReadOnly:        SnapshotReadOnly,
}

// ClassOf is the Java name of an error: what it says itself by a method JavaClass, or
// that for its kind.
func ClassOf(err error) string {
	var own interface{ JavaClass() string }
	if errors.As(err, &own) {
		return own.JavaClass()
	}
	var e *fserror.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return Retriable
		}
		return IOException
	}
	switch {
	case e.Kind == fserror.Held && e.TakeableIn <= 0 && e.Holder != nil:
		return RecoveryInProgress // its holder is past the limit, and it is being ended
	case e.Kind == fserror.Held:
		return AlreadyBeingCreated
	case e.Reason == fserror.ReasonSafeMode:
		return SafeMode
	case e.Reason == fserror.ReasonHasSnapshots:
		return SnapshotWrong
	case e.Reason == fserror.ReasonQuotaNames:
		return NamesOverQuota
	case e.Reason == fserror.ReasonQuotaBytes:
		return BytesOverQuota
	}
	if class := classes[e.Kind]; class != "" {
		return class
	}
	return IOException
}
