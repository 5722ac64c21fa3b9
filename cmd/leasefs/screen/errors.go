package screen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/internal/fserror"
)

// OutputError is a failed write to standard output.
func OutputError(err error) error {
	return &fserror.Error{Op: "write to standard output", Kind: fserror.Internal, Message: "the output is not complete; run it again", Err: err}
}

// Reported stands for errors that were printed already; only the first one's exit
// code is still wanted.
func Reported(first error) error { return reportedError{first} }

// reportedError is reported.
type reportedError struct{ first error }

func (r reportedError) Error() string { return r.first.Error() }
func (r reportedError) Unwrap() error { return r.first }

// Stopped says what a command brought to an end when a signal came. It is
// printed, and the exit code is the signal's.
func Stopped(format string, args ...any) error { return stoppedError{fmt.Sprintf(format, args...)} }

// stoppedError is stopped.
type stoppedError struct{ text string }

func (s stoppedError) Error() string { return s.text }

// Report prints the error, if any, as one line on standard error, and returns
// the exit code. cause is that of the command's context.
func (p *Printer) Report(err, cause error) int {
	if err == nil {
		return fserror.ExitOK
	}
	var command runner.Exit
	if errors.As(err, &command) {
		return int(command) // it has said itself why
	}
	var sig runner.Interrupted
	if errors.As(cause, &sig) && ByInterrupt(err) {
		var s stoppedError
		if !errors.As(err, &s) {
			err = stoppedError{"interrupted"}
		}
		e := &fserror.Error{Kind: fserror.Canceled, Message: err.Error()}
		p.printLine(e, e.Message) // whoever interrupts knows what to do next
		return 128 + int(sig.Signal)
	}
	var done reportedError
	if !errors.As(err, &done) {
		p.PrintError(err)
	}
	return exitCode(err)
}

// ByInterrupt says whether an error is what a cancelled context makes of a
// call, and not a failure of its own.
func ByInterrupt(err error) bool {
	var s stoppedError
	var i runner.Interrupted
	return errors.As(err, &s) || errors.As(err, &i) || errors.Is(err, context.Canceled) || fserror.KindOf(err) == fserror.Canceled
}

func exitCode(err error) int {
	var command runner.Exit
	if errors.As(err, &command) {
		return int(command)
	}
	var cannot runner.CannotRun
	if errors.As(err, &cannot) {
		return cannot.Code
	}
	var failure runner.Failure
	if errors.As(err, &failure) {
		return runner.FailureBase + exitCode(failure.Err)
	}
	return kindOf(err).ExitCode()
}

// kindOf is an error's kind. One that has none may still be a context's end.
func kindOf(err error) fserror.Kind {
	var e *fserror.Error
	var k fserror.Kind
	switch {
	case errors.As(err, &e):
		k = e.Kind
	case errors.As(err, &k):
	case errors.Is(err, context.DeadlineExceeded):
		k = fserror.Deadline
	case errors.Is(err, context.Canceled):
		k = fserror.Canceled
	}
	if k >= fserror.Kinds { // of a newer namenode
		return fserror.Internal
	}
	return k
}

// errorJSON is the shape of an error under --json.
type errorJSON struct {
	Kind         string  `json:"kind"`
	Path         *string `json:"path"`
	Message      string  `json:"message"`
	Holder       *string `json:"holder"`
	IdleMS       *int64  `json:"idle_ms"`
	TakeableInMS *int64  `json:"takeable_in_ms"`
	RetryAfterMS *int64  `json:"retry_after_ms"`
	Length       *int64  `json:"length"` // of the file, if that is what was wrong
}

// PrintError writes one error line, as text or as JSON.
func (p *Printer) PrintError(err error) { p.printLine(err, ErrorText(err)) }

// printLine is printError with the text to show.
func (p *Printer) printLine(err error, text string) {
	// What was printed so far comes first where both streams go to one place.
	_ = p.Out.Flush()
	if !p.JSON {
		fmt.Fprintln(p.Stderr, OneLine("leasefs: "+text))
		return
	}
	var e *fserror.Error
	if !errors.As(err, &e) {
		e = &fserror.Error{Kind: kindOf(err), Err: err}
	}
	j := errorJSON{Kind: e.Kind.String(), Path: OrNull(e.Path), Message: text, RetryAfterMS: OrNull(e.RetryAfter.Milliseconds())}
	if e.Kind == fserror.NotAtEnd {
		j.Length = &e.Length
	}
	if e.Holder != nil {
		j.Holder = &e.Holder.Client
	}
	if e.Holder != nil && e.Kind == fserror.Held { // of others it is not told how they stand
		idle, takeable := e.Holder.Idle.Milliseconds(), e.TakeableIn.Milliseconds()
		j.IdleMS, j.TakeableInMS = &idle, &takeable
	}
	enc := json.NewEncoder(p.Stderr)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]errorJSON{"error": j}) // nobody is left to tell
}

// OneLine escapes what would break a line or drive a terminal.
func OneLine(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
