// Package wire carries an fserror.Error over gRPC and back, whole.
package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Detail turns an error into its message. A context's error gets its kind.
func Detail(err error) *pb.ErrorDetail {
	var e *fserror.Error
	if !errors.As(err, &e) {
		e = &fserror.Error{Kind: kindOfPlain(err), Err: err}
	}
	d := &pb.ErrorDetail{
		Kind: uint32(e.Kind), Op: e.Op, Path: e.Path, Message: e.Message, Reason: fserror.ReasonOf(e),
		TakeableInMs: ceilMS(e.TakeableIn), RetryAfterMs: ceilMS(e.RetryAfter),
		Length: e.Length, Active: e.Active,
	}
	if h := e.Holder; h != nil {
		d.Holder = &pb.HolderInfo{User: h.User, Client: h.Client, Host: h.Host, Pid: h.PID, SinceMs: h.Since.Milliseconds(), IdleMs: h.Idle.Milliseconds()}
	}
	if e.Err != nil {
		if d.Message != "" {
			d.Message += ": "
		}
		d.Message += e.Err.Error()
	}
	return d
}

// FromDetail is the inverse of Detail. A kind that this program does not know
// (a newer namenode's) becomes Internal.
func FromDetail(d *pb.ErrorDetail) *fserror.Error {
	kind := fserror.Internal
	if d.GetKind() < uint32(fserror.Kinds) {
		kind = fserror.Kind(d.GetKind())
	}
	e := &fserror.Error{
		Op: d.GetOp(), Path: d.GetPath(), Kind: kind, Message: d.GetMessage(), Reason: d.GetReason(),
		TakeableIn: ms(d.GetTakeableInMs()), RetryAfter: ms(d.GetRetryAfterMs()),
		Length: d.GetLength(), Active: d.GetActive(),
	}
	if d.GetHolder() != nil {
		h := Holder(d.GetHolder())
		e.Holder = &h
	}
	return e
}

// Holder is who a message says has something.
func Holder(h *pb.HolderInfo) fserror.Holder {
	return fserror.Holder{
		User: h.GetUser(), Client: h.GetClient(), Host: h.GetHost(), PID: h.GetPid(),
		Since: ms(h.GetSinceMs()), Idle: ms(h.GetIdleMs()),
	}
}

// ToStatus makes the error that a gRPC handler returns.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok && !isFSError(err) {
		return err
	}
	d := Detail(err)
	st := status.New(fserror.Kind(d.GetKind()).Code(), err.Error())
	with, derr := st.WithDetails(d)
	if derr != nil {
		return st.Err()
	}
	return with.Err()
}

// FromStatus turns what a gRPC call returned into an *fserror.Error. A status
// without detail (from the transport, or not from leasefs) gets a kind by its
// code: Unavailable and Unknown mean that the outcome of the call is not known. What
// is an *fserror.Error already, made on this side, stays as it is.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		var e *fserror.Error
		if errors.As(err, &e) {
			return err
		}
		return &fserror.Error{Kind: kindOfPlain(err), Err: err}
	}
	for _, d := range st.Details() {
		if ed, ok := d.(*pb.ErrorDetail); ok {
			return FromDetail(ed)
		}
	}
	if st.Code() == codes.Unimplemented && strings.HasPrefix(st.Message(), "unknown method ") { // of a service that it has
		return fserror.New(fserror.Unsupported, "", "", "the namenode is of an older release, and does not know this call (%s)", st.Message()).Because(fserror.ReasonOlder)
	}
	return &fserror.Error{Kind: kindOfCode(st.Code()), Message: st.Message()}
}

func kindOfCode(c codes.Code) fserror.Kind {
	switch c {
	case codes.Canceled:
		return fserror.Canceled
	case codes.DeadlineExceeded:
		return fserror.Deadline
	case codes.Unavailable:
		return fserror.Unavailable
	case codes.ResourceExhausted:
		return fserror.TooLarge // gRPC's own: a message over its limit
	case codes.Unauthenticated, codes.PermissionDenied:
		return fserror.Permission
	case codes.Unimplemented:
		return fserror.Unsupported
	case codes.InvalidArgument:
		return fserror.InvalidArgument
	}
	return fserror.Internal
}

func kindOfPlain(err error) fserror.Kind {
	switch {
	case errors.Is(err, context.Canceled):
		return fserror.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return fserror.Deadline
	}
	return fserror.KindOf(err)
}

func isFSError(err error) bool {
	var e *fserror.Error
	return errors.As(err, &e)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// ceilMS rounds up, so that who waits that long does not come too early.
func ceilMS(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
