package webhdfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Java names of exceptions, as Hadoop's client looks for them.
const (
	accessControl       = "org.apache.hadoop.security.AccessControlException"
	alreadyBeingCreated = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
	authorization       = "org.apache.hadoop.security.authorize.AuthorizationException"
	aclException        = "org.apache.hadoop.hdfs.protocol.AclException"
	checksumWrong       = "org.apache.hadoop.fs.ChecksumException"
	fileExists          = "org.apache.hadoop.fs.FileAlreadyExistsException"
	fileNotFound        = "java.io.FileNotFoundException"
	hadoopIllegal       = "org.apache.hadoop.HadoopIllegalArgumentException"
	illegalArgument     = "java.lang.IllegalArgumentException"
	invalidPath         = "org.apache.hadoop.fs.InvalidPathException"
	ioException         = "java.io.IOException"
	leaseExpired        = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"
	nameTooLong         = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"
	notEmpty            = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
	parentNotDirectory  = "org.apache.hadoop.fs.ParentNotDirectoryException"
	recoveryInProgress  = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException"
	retriable           = "org.apache.hadoop.ipc.RetriableException"
	runtimeException    = "java.lang.RuntimeException"
	safeMode            = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
	security            = "java.lang.SecurityException"
	unsupported         = "java.lang.UnsupportedOperationException"
	xattrNotFound       = "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException"
)

// refusal is an error with the name that Hadoop has for it.
type refusal struct {
	class   string
	message string
	cause   error
}

func (r *refusal) Error() string { return r.message }
func (r *refusal) Unwrap() error { return r.cause }

func refuse(class, format string, args ...any) error {
	return &refusal{class: class, message: fmt.Sprintf(format, args...)}
}

// named gives an error another name, and keeps its words.
func named(class string, err error) error {
	return &refusal{class: class, message: message(err), cause: err}
}

// belowFile gives the error that something above the path is no directory another name;
// HDFS has several, one for each kind of operation.
func belowFile(class string, err error) error {
	if fserror.KindOf(err) == fserror.NotDirectory {
		return named(class, err)
	}
	return err
}

// message is one line.
func message(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// classes are the names by kind. What is missing here is an IOException.
var classes = map[fserror.Kind]string{
	fserror.InvalidPath:     invalidPath,
	fserror.NameTooLong:     nameTooLong,
	fserror.InvalidArgument: hadoopIllegal,
	fserror.NotFound:        fileNotFound,
	fserror.Exists:          fileExists,
	fserror.IsDirectory:     fileNotFound, // "Path is not a file"
	fserror.NotDirectory:    parentNotDirectory,
	fserror.NotEmpty:        notEmpty,
	fserror.Permission:      accessControl,
	fserror.LeaseLost:       leaseExpired,
	fserror.LeaseLostGone:   leaseExpired,
	fserror.Retry:           retriable,
	fserror.NotActive:       retriable,
	fserror.Unavailable:     retriable,
	fserror.Unknown:         retriable,
	fserror.Deadline:        retriable,
	fserror.Canceled:        retriable,
	fserror.Closed:          retriable,
	fserror.Truncated:       retriable,
	fserror.Damaged:         checksumWrong,
	fserror.Unsupported:     unsupported,
}

// classOf is the Java name of an error.
func classOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.class
	}
	var b *badParam
	if errors.As(err, &b) {
		return illegalArgument
	}
	var e *fserror.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return retriable
		}
		return ioException
	}
	switch {
	case e.Kind == fserror.Held && e.TakeableIn <= 0 && e.Holder != nil:
		return recoveryInProgress // its holder is past the limit, and it is being ended
	case e.Kind == fserror.Held:
		return alreadyBeingCreated
	case e.Reason == fserror.ReasonSafeMode:
		return safeMode
	}
	if class := classes[e.Kind]; class != "" {
		return class
	}
	return ioException
}

// statuses are the HTTP statuses that are not 403, as HDFS has them.
var statuses = map[string]int{
	security:         http.StatusUnauthorized,
	fileNotFound:     http.StatusNotFound,
	unsupported:      http.StatusBadRequest,
	illegalArgument:  http.StatusBadRequest,
	hadoopIllegal:    http.StatusBadRequest,
	invalidPath:      http.StatusBadRequest,
	runtimeException: http.StatusInternalServerError,
}

// remoteException is what an error looks like to a client.
type remoteException struct {
	RemoteException struct {
		Exception     string `json:"exception"`
		JavaClassName string `json:"javaClassName"`
		Message       string `json:"message"`
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	class := classOf(err)
	status := http.StatusForbidden
	if s, ok := statuses[class]; ok {
		status = s
	}
	var e *fserror.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())+1))
	}
	var x remoteException
	x.RemoteException.JavaClassName = class
	x.RemoteException.Exception = class[strings.LastIndexAny(class, ".$")+1:]
	x.RemoteException.Message = message(err)
	answer(w, status, x)
}

// answer writes a JSON value.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // whoever is gone does not read it
}
