package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// leasefs is the binary under test.
var leasefs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Started under nohup, what the tests start would ignore SIGHUP too; with a
	// handler here it does not.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// Beside the work tree, where scripts/setup looks for room: /tmp may be
	// memory, and small.
	temp, err := filepath.Abs("../../.cache/tmp")
	if err == nil {
		err = os.MkdirAll(temp, 0o755) //nolint:gosec // a usual mode
	}
	if err == nil {
		temp, err = filepath.EvalSymlinks(temp) // as the kernel names it
	}
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(temp, "leasefs-e2e-")
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir) // of all tests, and of what they start
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	leasefs = filepath.Join(dir, "leasefs")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", leasefs, "../../cmd/leasefs").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	defer endZooKeeper()
	defer env.EndLentZooKeepers()
	env.SideBySide()
	return m.Run()
}

// patience is how much longer than a test's author expected a busy machine may
// take. No test's verdict depends on when its deadline is.
const patience = 3

// deadline is the test's context with an end, patience times d from now.
func deadline(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience*d)
	t.Cleanup(cancel)
	return ctx
}

// output is what a process printed so far.
type output struct {
	mu    sync.Mutex
	b     strings.Builder // what is told of it needs no copy
	wrote chan struct{}   // closed and replaced at each write
}

func newOutput() *output { return &output{wrote: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	close(o.wrote)
	o.wrote = make(chan struct{})
	return len(p), nil
}

func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String(), o.wrote
}

// cut forgets all but the first n bytes.
func (o *output) cut(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.b.String()[:n]
	o.b.Reset()
	o.b.WriteString(kept)
}

func (o *output) String() string {
	s, _ := o.look()
	return s
}

// process is one that this test started. It is killed at the latest when its
// context or the test ends.
type process struct {
	t        testing.TB
	name     string
	cmd      *exec.Cmd
	stdin    io.WriteCloser // nil if it was given an input
	out, err *output
	done     <-chan struct{} // closed at its end
}

// spec says how to start one.
type spec struct {
	argv  []string
	env   []string  // added to a small fixed one
	stdin io.Reader // nil: a pipe to feed
}

func start(ctx context.Context, t testing.TB, s spec) *process {
	t.Helper()
	p := &process{t: t, name: strings.Join(s.argv, " "), out: newOutput(), err: newOutput()}
	p.cmd = exec.CommandContext(ctx, s.argv[0], s.argv[1:]...) //nolint:gosec // the test's own
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, s.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.Stdin = s.stdin
	p.cmd.WaitDelay = 10 * time.Second
	if s.stdin == nil {
		var err error
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.done, err = spawn.Start(p.cmd); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	// Not p: its input and output may be large, and the test may be long.
	child, done := p.cmd.Process, p.done
	t.Cleanup(func() {
		_ = child.Kill() // ended by now, as a rule
		<-done
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v: %v", p.name, s, err)
	}
}

// kill ends it the hard way and waits.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop stops it, and waits until the kernel says that it is.
func (p *process) stop(ctx context.Context) {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(ctx, p.t, p.name+" is stopped", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, state, _ := strings.Cut(string(raw), ") ")
		return err == nil && strings.HasPrefix(state, "T")
	})
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for its end and returns the exit code; -1: a signal ended it.
func (p *process) wait(ctx context.Context) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.t.Fatalf("%s did not end: %v\nstdout: %s\nstderr: %s", p.name, context.Cause(ctx), tailOf(p.out.String()), tailOf(p.err.String()))
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends waits for its end with that exit code.
func (p *process) ends(ctx context.Context, code int) {
	p.t.Helper()
	if got := p.wait(ctx); got != code {
		p.t.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", p.name, got, code, tailOf(p.out.String()), tailOf(p.err.String()))
	}
}

// prints waits until o satisfies ok.
func (p *process) prints(ctx context.Context, o *output, what string, ok func(string) bool) {
	p.t.Helper()
	for {
		text, wrote := o.look()
		if ok(text) {
			return
		}
		select {
		case <-wrote:
		case <-p.done:
			if text, _ := o.look(); !ok(text) {
				p.t.Fatalf("%s ended (%v) and did not print %s\nstdout: %s\nstderr: %s", p.name, p.cmd.ProcessState, what, tailOf(p.out.String()), tailOf(p.err.String()))
			}
			return
		case <-ctx.Done():
			p.t.Fatalf("%s did not print %s: %v\nstdout: %s\nstderr: %s", p.name, what, context.Cause(ctx), tailOf(p.out.String()), tailOf(p.err.String()))
		}
	}
}

// feed writes to its standard input.
func (p *process) feed(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, text); err != nil {
		p.t.Fatalf("%s: feed: %v", p.name, err)
	}
}

func (p *process) eof() {
	p.t.Helper()
	if err := p.stdin.Close(); err != nil {
		p.t.Fatalf("%s: close its input: %v", p.name, err)
	}
}

// acks are the lengths that a writer with --ack printed.
func (p *process) acks() []int64 {
	p.t.Helper()
	var list []int64
	text := p.out.String()
	text = text[:strings.LastIndexByte(text, '\n')+1]
	for line := range strings.Lines(text) {
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil || len(list) > 0 && n <= list[len(list)-1] {
			p.t.Fatalf("%s: acknowledged %q after %v", p.name, line, list)
		}
		list = append(list, n)
	}
	return list
}

// acked is the last of them, or 0.
func (p *process) acked() int64 {
	p.t.Helper()
	text := p.out.String()
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return 0
	}
	line := text[strings.LastIndexByte(text[:end], '\n')+1 : end]
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		p.t.Fatalf("%s: acknowledged %q", p.name, line)
	}
	return n
}

// acksUpTo waits until n bytes are acknowledged.
func (p *process) acksUpTo(ctx context.Context, n int64) {
	p.t.Helper()
	p.prints(ctx, p.out, fmt.Sprintf("an acknowledgement of %d bytes", n), func(string) bool { return p.acked() >= n })
}

// rss is a process's resident memory and the highest that it was, in bytes.
func (p *process) rss() (now, peak int64) {
	p.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	return now, peak
}

// besideOthers lets a test run in parallel, unless in full size: the figures that it
// logs then are of this test alone.
func besideOthers(t *testing.T) {
	t.Helper()
	if !size.Full {
		t.Parallel()
	}
}

// eventually waits until ok says so.
func eventually(ctx context.Context, t testing.TB, what string, ok func() bool) {
	t.Helper()
	env.Until(ctx, t, what, ok)
}

// tailOf is the end of a long text.
func tailOf(s string) string {
	const most = 4000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// waitNote is a line about what a command waits for, which is no error.
var waitNote = regexp.MustCompile(`(?m)^leasefs: .*; waiting up to \S+ \(--timeout\)\n`)

// oneLine checks an error line of the program.
func oneLine(t testing.TB, stderr string) {
	t.Helper()
	stderr = waitNote.ReplaceAllString(stderr, "")
	if !strings.HasPrefix(stderr, "leasefs: ") || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
		t.Errorf("not one line that begins with \"leasefs: \": %q", stderr)
	}
}

// folderBytes is what is in the regular files below dir, and how many there are.
func folderBytes(t testing.TB, dir string) (size int64, files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // of a running namenode
		}
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
			files++
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return size, files
}

func lines(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func reader(text string) io.Reader { return bytes.NewBufferString(text) }
