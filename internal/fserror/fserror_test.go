package fserror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// TestTableIsComplete: each kind has a name, a code, an errno and an exit code,
// and the conflicts of docs/CLI.md have the codes that scripts depend on.
func TestTableIsComplete(t *testing.T) {
	names := map[string]Kind{}
	for k := range Kinds {
		r := table[k]
		if r.name == "" || r.code == codes.OK || r.errno == 0 || r.exit == ExitOK {
			t.Errorf("kind %d has an incomplete row: %+v", k, r)
		}
		if other, twice := names[r.name]; twice && k != LeaseLostGone {
			t.Errorf("kinds %d and %d have the same name %s", k, other, r.name)
		}
		names[r.name] = k
	}
	for kind, exit := range map[Kind]int{
		NotFound: 3, Exists: 4, Held: 5, Retry: 6, NoSpace: 6, LeaseLost: 7, LeaseLostGone: 7, Permission: 8,
		Unavailable: 9, NotActive: 9, Damaged: 10, InvalidPath: 2, InvalidArgument: 2, Internal: 1,
	} {
		if got := kind.ExitCode(); got != exit {
			t.Errorf("%s has exit code %d, not %d", kind, got, exit)
		}
	}
	unknown := Kinds + 7
	if unknown.Code() != codes.Internal || unknown.ExitCode() != ExitFailure || unknown.String() != "INTERNAL" || unknown.Errno() == 0 {
		t.Error("a kind out of the list is not treated as internal")
	}
}

func TestIs(t *testing.T) {
	err := fmt.Errorf("outer: %w", New(LeaseLostGone, "write", "/a", "gone"))
	if !errors.Is(err, LeaseLost) || !errors.Is(err, LeaseLostGone) || errors.Is(err, Held) {
		t.Error("LeaseLostGone is LeaseLost and itself, and nothing else")
	}
	if errors.Is(New(LeaseLost, "", "", ""), LeaseLostGone) {
		t.Error("LeaseLost is not LeaseLostGone")
	}
	if KindOf(err) != LeaseLostGone || KindOf(errors.New("x")) != Internal || KindOf(fmt.Errorf("w: %w", Retry)) != Retry {
		t.Error("KindOf")
	}
	if !errors.Is(Wrap(Damaged, "", "", fs.ErrNotExist), fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}

func TestErrorLine(t *testing.T) {
	for _, tc := range []struct {
		err  *Error
		want string
	}{
		{
			&Error{
				Op: "append", Path: "/logs/a", Kind: Held, TakeableIn: 48 * time.Second,
				Holder: &Holder{Client: "ingest-3", Host: "b", PID: 812, Since: 250 * time.Second, Idle: 12 * time.Second},
			},
			"append /logs/a: held by ingest-3 (host b, pid 812) for 4m10s, idle 12s; can be taken in 48s",
		},
		{
			&Error{Op: "create", Path: "/a", Kind: Held, Message: "it is being made", Holder: &Holder{Client: "c", Host: "b", PID: 8, Since: time.Second, Idle: time.Second}},
			"create /a: held by c (host b, pid 8) for 1s, idle 1s; it is being made",
		},
		{&Error{Op: "rm", Path: "/x", Kind: NotFound}, "rm /x: not found"},
		{&Error{Kind: Retry, Message: "safe mode", RetryAfter: time.Second}, "safe mode (try again in 1s)"},
		{&Error{Op: "get", Kind: Damaged, Message: "block 1/2", Err: errors.New("bad")}, "get: block 1/2: bad"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestWith(t *testing.T) {
	if With(nil, "a", "b") != nil {
		t.Error("nil does not stay nil")
	}
	inner := New(Exists, "", "/inner", "taken")
	got := With(inner, "create", "/outer")
	if got.Error() != "create /inner: taken" || inner.Op != "" {
		t.Errorf("With changed what was set, or its argument: %v, %+v", got, inner)
	}
	if KindOf(With(errors.New("plain"), "x", "/y")) != Internal {
		t.Error("a plain error is internal")
	}
}

func TestEnded(t *testing.T) {
	lost := &Error{Kind: LeaseLost, Message: "the lease was lost"}
	for _, c := range []struct {
		cause error
		want  Kind
	}{{nil, Closed}, {context.Canceled, Canceled}, {context.DeadlineExceeded, Deadline}, {errors.New("told"), Canceled}, {lost, LeaseLost}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		e := Ended(ctx, "write", "/a")
		if e.Kind != c.want || e.Op != "write" || e.Path != "/a" || c.cause != nil && c.want != LeaseLost && !errors.Is(e, c.cause) {
			t.Errorf("%v ends with %v", c.cause, e)
		}
		cancel(nil)
	}
	if lost.Op != "" {
		t.Error("the cause was changed")
	}
}

// An error is told under another operation and path without a change to the
// one that others may hold; what is none of ours stays what it is.
func TestUnder(t *testing.T) {
	plain := errors.New("no disk")
	if err := Under(plain, "put", "/a"); err != plain { //nolint:errorlint // the very same
		t.Errorf("a plain error became %v", err)
	}
	if err := Under(nil, "put", "/a"); err != nil {
		t.Errorf("nil became %v", err)
	}
	e := New(NotFound, "create", "/.tmp", "it is gone").Because("gone")
	under := Under(fmt.Errorf("copy: %w", e), "put", "/a")
	if under.Error() != "put /a: it is gone" || e.Error() != "create /.tmp: it is gone" {
		t.Errorf("%q, of %q", under, e)
	}
	for _, c := range []struct {
		err    error
		kind   Kind
		reason string
		want   bool
	}{
		{under, NotFound, "gone", true},
		{under, NotFound, "", false},
		{under, Exists, "gone", false},
		{plain, Internal, "", false},
		{nil, Internal, "", false},
	} {
		if got := Has(c.err, c.kind, c.reason); got != c.want {
			t.Errorf("Has(%v, %v, %q) = %v", c.err, c.kind, c.reason, got)
		}
	}
}
