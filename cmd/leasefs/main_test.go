package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/namenode"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"leasefs": main})
}

// patience is how long a script waits for anything before it fails.
const patience = 2 * time.Minute

// TestScripts runs testdata/cli/*.txtar: the program as its user types it, against
// a namenode of the script's own. Beside testscript's commands there are
//
//	code N COMMAND...       runs it; its exit code must be N
//	namenode start|stop     $LEASEFS_NAMENODE; it is started before the script
//	writer NAME ARGS...     starts leasefs in the background, its input a pipe
//	feed NAME TEXT          writes a line to that pipe
//	acked NAME REGEXP       waits until it printed a line that is REGEXP
//	eof NAME                closes the pipe
//	signal NAME INT|TERM|KILL|STOP|CONT
//	ended NAME CODE         waits for its end; its output is in NAME.out, NAME.err
//	special PATH            makes a named pipe on this machine
//	eventually COMMAND...   runs it until it succeeds
//	quiet FILE              stderr, or a file, says nothing but what is waited for on a busy machine
//
// The soft limit is 2 s in scripts named *lapse* or *expired*, and a minute in others; the hard
// limit is 8 s in those named *expired*, and 10 minutes in others. A script named offline_* has no
// namenode.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Deadline:            time.Now().Add(4 * patience), // the end of a command that hangs, with the log of its script
		Dir:                 "../../testdata/cli",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			h := &harness{dir: filepath.Join(env.WorkDir, ".namenode"), writers: make(map[string]*background), soft: time.Minute, hard: 10 * time.Minute}
			switch script := filepath.Base(env.WorkDir); {
			case strings.Contains(script, "lapse"):
				h.soft = 2 * time.Second
			case strings.Contains(script, "expired"):
				h.soft, h.hard = 2*time.Second, 8*time.Second
			}
			env.Values[harnessKey{}] = h
			env.Defer(h.end)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("LEASEFS_TIMEOUT", "1m")
			env.Setenv("LEASEFS_USER", "")
			env.Setenv("GOGC", os.Getenv("GOGC")) // scripts start hundreds of commands, of which each would collect once
			if strings.Contains(filepath.Base(env.WorkDir), "offline") {
				return nil
			}
			if err := h.start(); err != nil {
				return err
			}
			env.Setenv("LEASEFS_NAMENODE", h.addr)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "namenode": cmdNamenode, "writer": cmdWriter, "feed": cmdFeed, "acked": cmdAcked,
			"eof": cmdEOF, "signal": cmdSignal, "ended": cmdEnded, "special": cmdSpecial, "eventually": cmdEventually, "quiet": cmdQuiet,
		},
	})
}

type harnessKey struct{}

// harness is what one script started.
type harness struct {
	dir, addr, http string
	soft, hard      time.Duration // limits
	server          *namenode.Server
	writers         map[string]*background
}

func (h *harness) start() error {
	listen, http := h.addr, h.http
	if listen == "" {
		listen = loopback() + ":0" // its port is free when it is started again
		http = listen
	}
	s, err := namenode.Start(context.Background(), namenode.Config{ //nolint:usetesting // outlives the call
		Data: h.dir, Listen: listen, HTTP: http, LeaseTimes: namenode.LeaseTimes{SoftLimit: h.soft, HardLimit: h.hard}, Version: "test",
	})
	if err != nil {
		return err
	}
	h.server, h.addr, h.http = s, s.Addr(), s.HTTPAddr()
	return nil
}

func (h *harness) stop() error {
	if h.server == nil {
		return nil
	}
	s := h.server
	h.server = nil
	return s.Close()
}

// end stops whatever the script left.
func (h *harness) end() {
	for _, b := range h.writers {
		_ = b.cmd.Process.Kill()
		<-b.done
	}
	_ = h.stop()
}

func harnessOf(ts *testscript.TestScript) *harness {
	h, ok := ts.Value(harnessKey{}).(*harness)
	if !ok {
		ts.Fatalf("no harness")
	}
	return h
}

// background is a leasefs that runs beside the script.
type background struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	done   chan struct{}
	err    error

	mu    sync.Mutex
	out   []byte
	wrote chan struct{} // closed and replaced at each output
}

// Write takes standard output.
func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = append(b.out, p...)
	close(b.wrote)
	b.wrote = make(chan struct{})
	return len(p), nil
}

func (b *background) output() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.out), b.wrote
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdNamenode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: namenode start|stop")
	}
	h := harnessOf(ts)
	switch args[0] {
	case "start":
		ts.Check(h.start())
	case "stop":
		ts.Check(h.stop())
	default:
		ts.Fatalf("usage: namenode start|stop")
	}
}

func cmdWriter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: writer NAME ARGS...")
	}
	b := &background{done: make(chan struct{}), wrote: make(chan struct{})}
	path, err := exec.LookPath("leasefs")
	ts.Check(err)
	b.cmd = exec.Command(path, args[1:]...) //nolint:gosec // the test binary
	b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = ts.Getenv("WORK"), b, &b.stderr
	b.cmd.Env = append(os.Environ(), "LEASEFS_NAMENODE="+ts.Getenv("LEASEFS_NAMENODE"), "LEASEFS_TIMEOUT="+ts.Getenv("LEASEFS_TIMEOUT"))
	b.stdin, err = b.cmd.StdinPipe()
	ts.Check(err)
	ts.Check(b.cmd.Start())
	go func() {
		b.err = b.cmd.Wait()
		close(b.done)
	}()
	harnessOf(ts).writers[args[0]] = b
}

func writerOf(ts *testscript.TestScript, neg bool, args []string, n int) *background {
	if neg || len(args) != n {
		ts.Fatalf("wrong use")
	}
	b := harnessOf(ts).writers[args[0]]
	if b == nil {
		ts.Fatalf("there is no writer %s", args[0])
	}
	return b
}

func cmdFeed(ts *testscript.TestScript, neg bool, args []string) {
	_, err := io.WriteString(writerOf(ts, neg, args, 2).stdin, args[1]+"\n")
	ts.Check(err)
}

func cmdAcked(ts *testscript.TestScript, neg bool, args []string) {
	b := writerOf(ts, neg, args, 2)
	line, err := regexp.Compile("(?m)^" + args[1] + "\n")
	ts.Check(err)
	limit := time.After(patience)
	for {
		out, wrote := b.output()
		if line.MatchString(out) {
			return
		}
		select {
		case <-wrote:
		case <-b.done:
			if out, _ := b.output(); !line.MatchString(out) {
				ts.Fatalf("%s ended without the line %s: %q, %s", args[0], args[1], out, b.stderr.String())
			}
		case <-limit:
			ts.Fatalf("%s did not print the line %s: %q", args[0], args[1], out)
		}
	}
}

func cmdEOF(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(writerOf(ts, neg, args, 1).stdin.Close())
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	b := writerOf(ts, neg, args, 2)
	sig, ok := map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}[args[1]]
	if !ok {
		ts.Fatalf("unknown signal %s", args[1])
	}
	ts.Check(b.cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		// What it is fed from here on it does not read before it is continued.
		err := error(syscall.EINTR)
		for errors.Is(err, syscall.EINTR) {
			err = unix.Waitid(unix.P_PID, b.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		}
		ts.Check(err)
	}
}

func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	b := writerOf(ts, neg, args, 2)
	select {
	case <-b.done:
	case <-time.After(patience):
		ts.Fatalf("%s did not end", args[0])
	}
	delete(harnessOf(ts).writers, args[0])
	out, _ := b.output()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".out"), []byte(out), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".err"), b.stderr.Bytes(), 0o600))
	if got := strconv.Itoa(b.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s: exit code %s, want %s: %s", args[0], got, args[1], b.stderr.String())
	}
}

func cmdSpecial(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: special PATH")
	}
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o600))
}

func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: eventually COMMAND...")
	}
	limit := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ts.Exec(args[0], args[1:]...) == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			ts.Fatalf("%s never succeeded", strings.Join(args, " "))
		}
	}
}

// waitNote is a line about what a command waits for, which is no error.
var waitNote = regexp.MustCompile(`(?m)^leasefs: .*; waiting up to \S+ \(--timeout\)\n`)

func cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: quiet FILE")
	}
	if said := waitNote.ReplaceAllString(ts.ReadFile(args[0]), ""); said != "" {
		ts.Fatalf("%s: %s", args[0], said)
	}
}

var loopbacks atomic.Uint32

// loopback is an address of this machine that nobody else uses: all of 127.0.0.0/8
// is this machine, and other programs are at 127.0.0.1.
func loopback() string {
	n, pid := loopbacks.Add(1), os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid%250, 1+(pid/250+int(n/250))%250, 1+n%250)
}

// deadAddress is where nothing listens.
func deadAddress() string { return loopback() + ":1" }
