package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// held is a claim as a test makes it.
type held struct {
	Claim
	lose     context.CancelCauseFunc
	jeopardy chan struct{}
}

func hold(t *testing.T, remaining time.Duration) *held {
	t.Helper()
	ctx, lose := context.WithCancelCause(t.Context())
	h := &held{lose: lose, jeopardy: make(chan struct{})}
	until := time.Now().Add(remaining)
	h.Claim = Claim{Path: "/p", Lost: ctx, Jeopardy: h.jeopardy, Remaining: func() time.Duration { return time.Until(until) }, Late: "too late"}
	return h
}

// run runs a shell script in the background, and returns when it has printed a line:
// its traps are set. ended gives what Run returned.
func run(t *testing.T, ctx context.Context, s *Signals, script string, h *held) (ended chan error) { //nolint:revive // the test comes first
	t.Helper()
	c, err := Find("lock", []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = []string{"CLAIM=of a test"}
	c.Stdin, c.Stdout, c.Stderr = null, in, in
	ended = make(chan error, 1)
	go func() {
		defer null.Close()
		defer in.Close()
		ended <- c.Run(ctx, s, h.Claim)
	}()
	lines := bufio.NewReader(out)
	t.Cleanup(func() { _ = out.Close() })
	if line, err := lines.ReadString('\n'); err != nil || line != "of a test\n" {
		t.Fatalf("the command printed %q, %v", line, err)
	}
	return ended
}

// stubborn is a command that only SIGKILL ends.
const stubborn = `trap '' TERM; echo "$CLAIM"; while :; do sleep 1000; done`

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]Exit{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137} {
		err := <-run(t, t.Context(), NewSignals(), `echo "$CLAIM"; `+script, hold(t, time.Hour))
		var got Exit
		if want == 0 && err != nil || want != 0 && (!errors.As(err, &got) || got != want) {
			t.Errorf("%s: %v, want %d", script, err, want)
		}
		if Failed(err) != err { //nolint:errorlint // the same one
			t.Errorf("%s: the command's own exit code became %v", script, Failed(err))
		}
	}
	var f Failure
	if err := Failed(fserror.New(fserror.Held, "", "", "x")); !errors.As(err, &f) || fserror.KindOf(err) != fserror.Held || Failed(nil) != nil {
		t.Errorf("failed: %v", err)
	}
}

// A claim in jeopardy ends the command, at the latest when it can be another's; one
// that is lost does so at once.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		name, script string
		remaining    time.Duration
		how          func(*held)
		want         string
	}{
		{"in jeopardy", `trap 'exit 0' TERM; echo "$CLAIM"; while :; do sleep 1000 & wait; done`, time.Hour, func(h *held) { close(h.jeopardy) }, "lock /p: too late"},
		{"and it stays", stubborn, killMargin + time.Millisecond, func(h *held) { close(h.jeopardy) }, "lock /p: too late"},
		{"lost", stubborn, time.Hour, func(h *held) { h.lose(fserror.New(fserror.LeaseLost, "renew", "", "bob has it")) }, "lock /p: bob has it; the command was killed"},
		{"lost without a word", stubborn, time.Hour, func(h *held) { h.lose(nil) }, "lock /p: it was lost; the command was killed"},
	} {
		h := hold(t, c.remaining)
		ended := run(t, t.Context(), NewSignals(), c.script, h)
		c.how(h)
		if err := <-ended; fserror.KindOf(err) != fserror.LeaseLost || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// While the machine is suspended timers stand still, and what is left of the claim does not.
func TestLostInASuspension(t *testing.T) {
	h := hold(t, time.Hour)
	var asked atomic.Int32
	h.Remaining = func() time.Duration {
		if asked.Add(1) == 1 {
			return time.Hour
		}
		return 0
	}
	ended := run(t, t.Context(), NewSignals(), stubborn, h)
	close(h.jeopardy)
	if err := <-ended; fserror.KindOf(err) != fserror.LeaseLost {
		t.Error(err)
	}
}

// The first signal goes to the command, the second one kills it.
func TestSignals(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	ended := run(t, ctx, NewSignals(), `trap 'exit 7' INT; echo "$CLAIM"; while :; do sleep 1000 & wait; done`, hold(t, time.Hour))
	stop(Interrupted{syscall.SIGINT})
	if err := <-ended; !errors.Is(err, Exit(7)) {
		t.Errorf("SIGINT: %v", err)
	}
	ctx, stop = context.WithCancelCause(t.Context())
	s := NewSignals()
	ended = run(t, ctx, s, stubborn, hold(t, time.Hour))
	stop(Interrupted{syscall.SIGTERM})
	s.again <- struct{}{}
	if err := <-ended; !errors.Is(err, Exit(137)) {
		t.Errorf("twice: %v", err)
	}
	c, err := Find("lock", []string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx, NewSignals(), hold(t, time.Hour).Claim); !errors.Is(err, context.Canceled) {
		t.Errorf("after a signal: %v", err)
	}
}

func TestCannotRun(t *testing.T) {
	dir := t.TempDir()
	text := dir + "/text"
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]int{"no-such-command-anywhere": 127, dir + "/missing": 127, text: 126} {
		_, err := Find("lock", []string{name})
		var cannot CannotRun
		var e *fserror.Error
		if !errors.As(err, &cannot) || cannot.Code != code || !errors.As(err, &e) || e.Path != name {
			t.Errorf("%s: %v, want %d", name, err, code)
		}
	}
}

// A terminal that is not the program's to hand on, as that of a job in the background,
// stays with whom it belongs to.
func TestTerminalOfAnother(t *testing.T) {
	_, terminal := newTerminal(t)
	c, err := Find("lock", []string{"sh", "-c", "exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	if err := c.Run(t.Context(), NewSignals(), hold(t, time.Hour).Claim); !errors.Is(err, Exit(7)) {
		t.Error(err)
	}
}

// A command that is suspended continues: nobody could resume it. The test runs itself in a
// terminal of its own.
func TestSuspendedCommandContinues(t *testing.T) {
	const inside = "LEASEFS_TEST_IN_TERMINAL"
	if os.Getenv(inside) == "" {
		outside, terminal := newTerminal(t)
		go func() { _, _ = io.Copy(io.Discard, outside) }()
		self := exec.Command(os.Args[0], "-test.run=^TestSuspendedCommandContinues$", "-test.timeout=2m") //nolint:gosec // this program
		self.Env = append(os.Environ(), inside+"=1")
		self.Stdin, self.Stdout, self.Stderr = terminal, terminal, terminal
		self.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := self.Run(); err != nil {
			t.Errorf("in a terminal: %v", err)
		}
		return
	}
	c, err := Find("lock", []string{"sh", "-c", "kill -TSTP $$; exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	notes := 0
	c.Stdin, c.Stdout, c.Stderr, c.Note = os.Stdin, os.Stdout, os.Stderr, func(string, ...any) { notes++ }
	if err := c.Run(t.Context(), NewSignals(), hold(t, time.Hour).Claim); !errors.Is(err, Exit(7)) || notes != 1 {
		t.Errorf("%v, %d notes", err, notes)
	}
}

// newTerminal returns both ends of a terminal that nobody has.
func newTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return master, terminal
}
