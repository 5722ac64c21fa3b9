package screen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/internal/fserror"
)

func TestEveryKindHasAHint(t *testing.T) {
	for k := range fserror.Kinds {
		if h := hints[k]; h == "" || len(h) > 80 || strings.ContainsAny(h, "()\n") || strings.HasSuffix(h, ".") {
			t.Errorf("%s: hint %q", k, h)
		}
	}
}

// TestEveryReasonHasAHint: the table has each reason of package fserror, and no other.
func TestEveryReasonHasAHint(t *testing.T) {
	src, err := os.ReadFile("../../../internal/fserror/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\tReason\w+\s+= "(.*?)"`).FindAllSubmatch(src, -1)
	if len(all) < 20 || len(all) != len(reasonHints) {
		t.Errorf("%d reasons, %d hints", len(all), len(reasonHints))
	}
	for _, m := range all {
		if h := reasonHints[string(m[1])]; h == "" || strings.ContainsAny(h, "()\n") || strings.HasSuffix(h, ".") {
			t.Errorf("%s: hint %q", m[1], h)
		}
	}
}

// A log line that has a reason, or an error with one, has its hint.
func TestLogHints(t *testing.T) {
	var out strings.Builder
	log := slog.New(hintingHandler{slog.NewTextHandler(&out, nil)}).With("role", "active").WithGroup("g")
	err := fserror.Wrap(fserror.Unavailable, "", "", fserror.New(fserror.Exists, "", "", "taken").Because(fserror.ReasonBlocks))
	log.Warn("left", "reason", fserror.ReasonUnsweptBlocks, "blocks", 3)
	log.Error("ended", "cause", fmt.Errorf("start: %w", err))
	log.Info("lost", "reason", "recovered")
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		want := []string{`hint="leasefs admin gc deletes them"`, `hint="--blocks names it"`, ""}[i]
		if !strings.Contains(line, want) || strings.Contains(line, "hint=") != (want != "") || !strings.Contains(line, "role=active") {
			t.Errorf("%s, want %s", line, want)
		}
	}
}

// Every line ends with a next step, and with one only.
func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fserror.New(fserror.NotFound, "stat", "/a", "no such file or directory"), "stat /a: no such file or directory (check the name; it may have been moved or deleted)"},
		{&fserror.Error{Op: "mkdir", Path: "/e", Kind: fserror.Retry, Message: "safe mode", RetryAfter: time.Second}, "mkdir /e: safe mode (try again in 1s)"},
		{fserror.New(fserror.Retry, "put", "/e", "overloaded"), "put /e: overloaded (try again in a moment)"},
		{fserror.New(fserror.NoSpace, "put", "/e", "full; delete files or add space"), "put /e: full; delete files or add space"},
		{fserror.New(fserror.Exists, "put", "/e", "exists already; --overwrite replaces it"), "put /e: exists already; --overwrite replaces it"},
		{fmt.Errorf("x: %w", fserror.New(fserror.NotFound, "", "", "none").Because(fserror.ReasonNoLease)), "x: none; leasefs lease ls lists those that live"},
		{&fserror.Error{Kind: fserror.LeaseLost, Reason: "recovered", Message: "lost"}, "lost (" + hints[fserror.LeaseLost] + ")"},
		{argv.Usagef("ls", "unknown flag -z"), "ls: unknown flag -z (see leasefs ls --help)"},
		{fserror.New(fserror.Held, "mv", "/a", "the file is open for write"), "mv /a: the file is open for write (" + hints[fserror.Held] + ")"},
		{
			&fserror.Error{Op: "append", Path: "/a", Kind: fserror.Held, Holder: &fserror.Holder{Client: "c", Host: "b", PID: 8, Since: time.Second, Idle: time.Second}},
			"append /a: held by c (host b, pid 8) for 1s, idle 1s; can be taken now (leasefs lease recover --force /a takes it now)",
		},
		{
			&fserror.Error{Op: "create", Path: "/a", Kind: fserror.Held, Message: "it is being made", Holder: &fserror.Holder{Client: "c", Host: "b", PID: 8, Since: time.Second, Idle: time.Second}},
			"create /a: held by c (host b, pid 8) for 1s, idle 1s; it is being made",
		},
		{fserror.Held, "HELD (" + hints[fserror.Held] + ")"},
		{fserror.Wrap(fserror.Internal, "get", "f", syscall.EMFILE), "get f: too many open files (" + noDescriptors + ")"},
		{fserror.New(fserror.Unavailable, "create", "/a", "dial tcp: socket: too many open files"), "create /a: dial tcp: socket: too many open files (" + noDescriptors + ")"},
		{errors.New("odd"), "odd (" + hints[fserror.Internal] + ")"},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), "call: context deadline exceeded (" + hints[fserror.Deadline] + ")"},
		{&fserror.Error{Op: "x", Kind: fserror.Kinds + 3, Message: "from the future"}, "x: from the future (" + hints[fserror.Internal] + ")"},
	} {
		if got := ErrorText(tc.err); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

// An error's own kind counts, whatever caused it.
func TestExitCodeIsThatOfTheKind(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{fserror.Wrap(fserror.Unavailable, "stat", "/a", context.DeadlineExceeded), fserror.ExitUnavailable},
		{fserror.Wrap(fserror.Retry, "stat", "/a", fmt.Errorf("x: %w", os.ErrDeadlineExceeded)), fserror.ExitRetry},
		{errors.Join(fserror.Damaged, context.DeadlineExceeded), fserror.ExitDamaged},
		{context.DeadlineExceeded, fserror.ExitFailure},
		{runner.Failure{Err: fserror.Wrap(fserror.LeaseLost, "lock", "/a", context.DeadlineExceeded)}, runner.FailureBase + fserror.ExitLeaseLost},
		{fserror.Kinds + 3, fserror.ExitFailure},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
	for err, want := range map[error]fserror.Kind{
		context.DeadlineExceeded: fserror.Deadline, context.Canceled: fserror.Canceled, fserror.Held: fserror.Held, os.ErrExist: fserror.Internal,
	} {
		if got := kindOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
