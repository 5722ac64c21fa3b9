//go:build torture

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/spawn"
	"github.com/leasefs/leasefs/test/sim"
)

// diskSize is that of a namenode's disk in MiB: a namenode wants 128 of it free.
const diskSize = 320

// node is a machine with a namenode that is started again when it ends.
type node struct {
	name    string
	machine *env.Machine
	via     []string // starts a command on the machine, where it has its disk
	args    []string // of the program
	env     []string
	disk    string // as this process sees it
	step    string // the file with the step of its clock

	off     sync.Mutex // held while it is not to run
	mu      sync.Mutex
	proc    *os.Process
	program string // with which it is started the next time
}

// newNode makes a machine's disk and prepares what starts its namenode.
func newNode(t *testing.T, lab *env.Lab, name, dir, program string, keys []string, flags ...string) *node {
	t.Helper()
	n := &node{name: name, machine: lab.Machine(name), step: filepath.Join(dir, "step"), program: program}
	data := filepath.Join(dir, "disk")
	if err := os.MkdirAll(data, 0o750); err != nil {
		t.Fatal(err)
	}
	argv := append(n.machine.Via(), "unshare", "--mount", "sh", "-ec", fmt.Sprintf("mount -t tmpfs -o size=%dm disk '%s'; echo mounted; exec cat", diskSize, data))
	keeper := exec.Command(argv[0], argv[1:]...)
	mounted := make(chan struct{})
	keeper.Stdout, keeper.Stderr = &lines{take: func(string) { close(mounted) }}, os.Stderr
	stdin, err := keeper.StdinPipe() // its end is the keeper's
	if err != nil {
		t.Fatal(err)
	}
	ended, err := spawn.Start(keeper)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); <-ended })
	select {
	case <-mounted:
	case <-ended:
		t.Fatalf("no disk for %s: scripts/setup test says what is missing", name)
	}
	pid := keeper.Process.Pid
	n.disk = fmt.Sprintf("/proc/%d/root%s", pid, data)
	n.via = []string{"nsenter", "--net", "--mount", "--target", fmt.Sprint(pid)}
	if os.Getuid() != 0 {
		n.via = slices.Insert(n.via, 1, "--user", "--preserve-credentials")
	}
	n.args = append([]string{"namenode", "--data", filepath.Join(data, "data"),
		"--listen", n.machine.Addr(8020), "--http", n.machine.Addr(8021), "--advertise", name + ":8020", "--advertise-http", name + ":8021", "--insecure-trust-clients"}, flags...)
	n.env = append(append(os.Environ(), stepVariable+"="+n.step), keys...)
	return n
}

// command runs a command there, which must succeed.
func (n *node) command(t *testing.T, argv []string) {
	t.Helper()
	argv = slices.Concat(n.via, argv)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // the test's own
	cmd.Env = n.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

// run keeps a namenode running until ctx ends, as a service manager does.
func (n *node) run(ctx context.Context, w *sim.Work) {
	for ctx.Err() == nil {
		n.off.Lock()
		argv := slices.Concat(n.via, []string{n.starts()}, n.args)
		cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // the test's own
		cmd.Env, cmd.Stderr = n.env, &lines{take: func(line string) { logged(w, n.name, line) }}
		ended, err := spawn.Start(cmd)
		n.mu.Lock()
		n.proc = cmd.Process
		n.mu.Unlock()
		n.off.Unlock()
		if err != nil {
			w.Break("%s: %v", n.name, err)
			return
		}
		select {
		case <-ended:
			w.Note(n.name, "ended: %v", cmd.ProcessState)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-ended:
			case <-time.After(time.Minute):
				w.Break("%s does not end within a minute of SIGTERM", n.name)
				_ = cmd.Process.Kill()
				<-ended
			}
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				w.Break("%s: exit code %d after SIGTERM", n.name, code)
			}
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// logged takes in a line that a namenode has printed.
func logged(w *sim.Work, who, line string) {
	for _, end := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if strings.HasPrefix(line, end) {
			w.Break("%s: %s", who, line)
		}
	}
	w.Logged(who, line, strings.Contains(line, " level=WARN ") || strings.Contains(line, " level=ERROR "))
}

// signal sends its process a signal; one that has ended just then misses it.
func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		_ = n.proc.Signal(s)
	}
}

// starts is the program with which it is started the next time.
func (n *node) starts() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.program
}

// replace ends the namenode in order, which is started again with another program.
func (n *node) replace(program string) {
	n.mu.Lock()
	n.program = program
	n.mu.Unlock()
	n.signal(syscall.SIGTERM)
}

// fill leaves no room on the disk.
func (n *node) fill(t *testing.T) (empty func()) {
	t.Helper()
	name := filepath.Join(n.disk, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for at, piece := int64(0), int64(1<<20); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, piece); { //nolint:gosec // a descriptor is small
		case err == nil:
			at += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// setClock steps its time of day to so much ahead of this machine's.
func (n *node) setClock(t *testing.T, ahead time.Duration) {
	t.Helper()
	if err := os.WriteFile(n.step+".new", []byte(ahead.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.step+".new", n.step); err != nil {
		t.Fatal(err)
	}
}

// host is the machine of a client: its connections are those of a machine of the lab,
// and break alone.
type host struct {
	machine *env.Machine
	addrs   map[string]string // of names

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

func newHost(m *env.Machine, addrs map[string]string) *host {
	return &host{machine: m, addrs: addrs, conns: map[net.Conn]struct{}{}}
}

// DialContext implements sim.Host.
func (h *host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	if addr, ok := h.addrs[address]; ok {
		address = addr
	}
	c, err := h.machine.DialContext(ctx, address)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		_ = c.Close()
		return nil, errors.New("the machine is down")
	}
	h.conns[c] = struct{}{}
	return &conn{c, h}, nil
}

// Crash implements sim.Host.
func (h *host) Crash() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = true
	for c := range h.conns {
		_ = c.Close()
	}
	clear(h.conns)
}

// Restart implements sim.Host.
func (h *host) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = false
}

type conn struct {
	net.Conn
	h *host
}

func (c *conn) Close() error {
	c.h.mu.Lock()
	delete(c.h.conns, c.Conn)
	c.h.mu.Unlock()
	return c.Conn.Close()
}

// lines is a writer that hands out whole lines.
type lines struct {
	take func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		l.take(string(line))
	}
}
