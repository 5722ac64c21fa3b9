package wire

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestRoundTrip: an error of each kind arrives as it was sent.
func TestRoundTrip(t *testing.T) {
	for k := range fserror.Kinds {
		in := &fserror.Error{
			Op: "append", Path: "/a", Kind: k, Message: "m", Reason: "r", TakeableIn: 3 * time.Second, RetryAfter: time.Second, Length: 7, Active: "h:1",
			Holder: &fserror.Holder{User: "u", Client: "c", Host: "h", PID: 5, Since: time.Minute, Idle: time.Second},
		}
		st := ToStatus(in)
		if got := status.Code(st); got != k.Code() {
			t.Errorf("%s: code %s, want %s", k, got, k.Code())
		}
		var out *fserror.Error
		if !errors.As(FromStatus(st), &out) || !reflect.DeepEqual(in, out) {
			t.Errorf("%s: %+v became %+v", k, in, out)
		}
	}
}

func TestPlainErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want fserror.Kind
	}{
		{context.Canceled, fserror.Canceled},
		{context.DeadlineExceeded, fserror.Deadline},
		{errors.New("x"), fserror.Internal},
		{status.Error(codes.Unavailable, "no route"), fserror.Unavailable},
		{status.Error(codes.ResourceExhausted, "message too large"), fserror.TooLarge},
		{status.Error(codes.Unimplemented, "no method"), fserror.Unsupported},
	} {
		if got := fserror.KindOf(FromStatus(ToStatus(tc.err))); got != tc.want {
			t.Errorf("%v became %s, want %s", tc.err, got, tc.want)
		}
	}
	for message, reason := range map[string]string{"unknown method Mkdir for service leasefs.v1.Namenode": fserror.ReasonOlder, "unexpected HTTP status code 404": ""} {
		if got := fserror.ReasonOf(FromStatus(status.Error(codes.Unimplemented, message))); got != reason {
			t.Errorf("%s: the reason is %q, want %q", message, got, reason)
		}
	}
	if FromStatus(nil) != nil || ToStatus(nil) != nil {
		t.Error("nil does not stay nil")
	}
}

// TestUnknownKind: a newer namenode's kind is not taken for another.
func TestUnknownKind(t *testing.T) {
	if e := FromDetail(&pb.ErrorDetail{Kind: 200, Message: "new"}); e.Kind != fserror.Internal || e.Message != "new" {
		t.Errorf("%+v", e)
	}
}

// TestTimesRoundUp: who waits as long as the error says does not come too early.
func TestTimesRoundUp(t *testing.T) {
	e := FromDetail(Detail(&fserror.Error{Kind: fserror.Held, TakeableIn: 1500 * time.Microsecond}))
	if e.TakeableIn != 2*time.Millisecond {
		t.Errorf("%s", e.TakeableIn)
	}
}
