// Package fserror is the one error type of leasefs: a closed list of kinds,
// one struct that carries what the person who reads it needs next (who holds
// the file, since when, when it can be taken, what to do), and one table that
// turns a kind into a gRPC code, an errno and an exit code.
//
// Errors are matched by kind, never by text:
//
//	if errors.Is(err, fserror.Held) { ... }
//
// and opened with errors.As for their fields.
package fserror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Error describes one failed operation. The zero value of a field means that
// it does not apply. An Error is immutable once it has been returned.
type Error struct {
	Op   string // what was tried: "append", "create", …
	Path string // the absolute path in the namespace, or what else was named
	Kind Kind
	// Message says what was wrong and, where it is not plain, what to do next.
	// One line, no trailing full stop.
	Message string

	// Holder is who has the file (Held), or who has it now (LeaseLost).
	Holder *Holder
	// Reason says more closely than Kind what was wrong. Why a lease was lost:
	// "recovered", "taken over", "deleted", "replaced", "expired", "revoked".
	Reason string
	// TakeableIn is how long until another may take the file (Held).
	TakeableIn time.Duration
	// RetryAfter is when trying again makes sense (Retry, NoSpace, NotActive).
	RetryAfter time.Duration
	// Length is the file's true length in bytes (NotAtEnd).
	Length int64
	// Active is the address of the active namenode, if known (NotActive).
	Active string

	Err error // the cause, if another error was
}

// Holder tells who holds a file for write.
type Holder struct {
	User   string
	Client string        // the client's name
	Host   string        // the host it runs on
	PID    int64         // its process id there
	Since  time.Duration // how long it has held the file
	Idle   time.Duration // how long since its lease was renewed
}

// New returns an error of the kind with a formatted message.
func New(kind Kind, op, path, format string, args ...any) *Error {
	return &Error{Op: op, Path: path, Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of the kind caused by err.
func Wrap(kind Kind, op, path string, err error) *Error {
	return &Error{Op: op, Path: path, Kind: kind, Err: err}
}

// Error is one line: operation, path, cause, next step.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
	}
	if e.Path != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(e.Path)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.cause())
	return b.String()
}

// cause is the line without operation and path.
func (e *Error) cause() string {
	var b strings.Builder
	switch {
	case e.Kind == Held && e.Holder != nil:
		e.writeHeld(&b)
	case e.Message != "":
		b.WriteString(e.Message)
	case e.Err == nil:
		b.WriteString(strings.ToLower(strings.ReplaceAll(e.Kind.String(), "_", " ")))
	}
	if e.Err != nil {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (try again in %s)", Round(e.RetryAfter))
	}
	return b.String()
}

func (e *Error) writeHeld(b *strings.Builder) {
	h := e.Holder
	fmt.Fprintf(b, "held by %s (host %s, pid %d) for %s, idle %s; ", h.Client, h.Host, h.PID, Round(h.Since), Round(h.Idle))
	if e.Message != "" { // it is not a file that could be recovered
		b.WriteString(e.Message)
		return
	}
	if e.TakeableIn > 0 {
		fmt.Fprintf(b, "can be taken in %s", Round(e.TakeableIn))
	} else {
		b.WriteString("can be taken now")
	}
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches a Kind; LeaseLostGone also matches LeaseLost. NotFound, Exists,
// Permission, Closed, and invalid paths and arguments match the errors of io/fs.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Kind == NotFound
	case fs.ErrExist:
		return e.Kind == Exists || e.Kind == NotEmpty
	case fs.ErrPermission:
		return e.Kind == Permission
	case fs.ErrClosed:
		return e.Kind == Closed
	case fs.ErrInvalid:
		return e.Kind == InvalidPath || e.Kind == NameTooLong || e.Kind == InvalidArgument
	}
	k, ok := target.(Kind)
	if !ok {
		return false
	}
	return e.Kind == k || (k == LeaseLost && e.Kind == LeaseLostGone)
}

// KindOf returns the kind of err, and Internal if it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return Internal
}

// Has reports whether err is an *Error of that kind and reason.
func Has(err error, kind Kind, reason string) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind && e.Reason == reason
}

// Under returns the *Error in err with the operation and path replaced. An err that
// contains none, or nil, is returned unchanged.
func Under(err error, op, path string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Op, c.Path = op, path
	return &c
}

// With returns a copy of err with the operation and path set where they are
// empty. An err that is no *Error becomes one of kind Internal. Nil stays nil.
func With(err error, op, path string) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: op, Path: path, Kind: Internal, Err: err}
	}
	return Under(e, cmp.Or(e.Op, op), cmp.Or(e.Path, path))
}

// Ended is the error for a context that is over: its cause if that is an *Error,
// else Canceled or Deadline; Closed if the context lives, and what was used with it
// has ended.
func Ended(ctx context.Context, op, path string) *Error {
	cause := context.Cause(ctx)
	if cause == nil {
		return New(Closed, op, path, "the client was closed meanwhile")
	}
	var own *Error
	switch {
	case errors.As(cause, &own):
		c := *own
		c.Op, c.Path = cmp.Or(c.Op, op), cmp.Or(c.Path, path)
		return &c
	case errors.Is(cause, context.DeadlineExceeded):
		return Wrap(Deadline, op, path, cause)
	}
	return Wrap(Canceled, op, path, cause)
}

// Round shortens a duration for people: whole seconds from one second on,
// tenths below ten seconds, whole milliseconds below one second.
func Round(d time.Duration) time.Duration {
	switch {
	case d < 0:
		return 0
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
