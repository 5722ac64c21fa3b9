package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
)

// The COMMAND of these tests is this test's own binary, started with the address
// of a store in its environment.
func init() {
	if addr := os.Getenv("E2E_STORE"); addr != "" {
		os.Exit(worker(addr))
	}
}

// worker writes to the store, with its fencing token, until the store tells it to
// end. Its connection ends when it does, however that is.
func worker(addr string) int {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 90
	}
	fmt.Fprintf(c, "hello %s %s\n", os.Getenv("E2E_NAME"), os.Getenv("LEASEFS_TOKEN"))
	answers := make(chan string)
	go func() {
		defer close(answers)
		for in := bufio.NewScanner(c); in.Scan(); {
			answers <- in.Text()
		}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintln(c, "write")
		case a, ok := <-answers:
			if !ok {
				return 91
			}
			if code, quit := strings.CutPrefix(a, "quit "); quit {
				n, _ := strconv.Atoi(code) // the test's own
				return n
			}
		case <-terms:
			fmt.Fprintln(c, "term")
			if os.Getenv("E2E_STUBBORN") == "" {
				return 0
			}
		}
	}
}

// entry is what the store saw, in order: "hello", "ok" and "refused" (of writes),
// "term" (the worker got the signal), "gone".
type entry struct {
	what, name string
	token      uint64
}

// store takes writes from workers, and none with a smaller token than it has
// seen.
type store struct {
	addr string

	mu      sync.Mutex
	log     []entry
	highest uint64
	conns   map[string]net.Conn
}

func startStore(t *testing.T) *store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &store{addr: l.Addr().String(), conns: map[string]net.Conn{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *store) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewScanner(c)
	var me entry
	for in.Scan() {
		f := strings.Fields(in.Text())
		s.mu.Lock()
		switch f[0] {
		case "hello":
			me.name = f[1]
			me.token, _ = strconv.ParseUint(f[2], 10, 64) // 0 is below all others
			s.conns[me.name] = c
			s.add("hello", me)
		case "write":
			if me.token < s.highest {
				s.add("refused", me)
				break
			}
			s.highest = me.token
			s.add("ok", me)
		default:
			s.add(f[0], me)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.add("gone", me)
	s.mu.Unlock()
}

func (s *store) add(what string, e entry) {
	e.what = what
	s.log = append(s.log, e)
}

// quit has a worker end with that code.
func (s *store) quit(name string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.conns[name], "quit %d\n", code)
}

func (s *store) entries() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// count is how many such entries there are.
func (s *store) count(name, what string) (n int) {
	for _, e := range s.entries() {
		if e.name == name && e.what == what {
			n++
		}
	}
	return n
}

// sees waits for an entry.
func (s *store) sees(ctx context.Context, t *testing.T, name, what string) {
	t.Helper()
	eventually(ctx, t, name+" "+what, func() bool { return s.count(name, what) > 0 })
}

// at is where the first such entry is; -1: nowhere.
func (s *store) at(name, what string) int {
	return slices.IndexFunc(s.entries(), func(e entry) bool { return e.name == name && e.what == what })
}

// check holds the log against what a lock promises, and returns the order in
// which the workers began. stopped are those whose supervisor was stopped: only
// they may be alive beside the next.
func (s *store) check(t *testing.T, stopped ...string) (order []string) {
	t.Helper()
	alive := map[string]bool{}
	var last uint64 // token of the last worker that began
	var wrote uint64
	for i, e := range s.entries() {
		switch e.what {
		case "hello":
			if e.token <= last {
				t.Errorf("entry %d: %s has token %d, the one before it had %d", i, e.name, e.token, last)
			}
			for other := range alive {
				if !slices.Contains(stopped, other) {
					t.Errorf("entry %d: %s began while %s was alive", i, e.name, other)
				}
			}
			last = e.token
			alive[e.name] = true
			order = append(order, e.name)
		case "ok":
			if e.token < wrote {
				t.Errorf("entry %d: a write with token %d was taken after one with %d", i, e.token, wrote)
			}
			wrote = e.token
		case "gone":
			delete(alive, e.name)
		}
	}
	return order
}

// lock starts "leasefs lock FLAGS /lock -- worker"; a stubborn worker is a child
// of COMMAND.
func (n *namenode) lock(ctx context.Context, t *testing.T, s *store, name, address string, stubborn bool, flags ...string) *process {
	t.Helper()
	command := []string{os.Args[0]}
	if stubborn {
		command = []string{"sh", "-c", `trap "" TERM; "$0"; :`, os.Args[0]}
	}
	argv := slices.Concat([]string{leasefs, "--client", name, "lock"}, flags, []string{"/lock", "--"}, command)
	env := []string{"LEASEFS_NAMENODE=" + address, "E2E_STORE=" + s.addr, "E2E_NAME=" + name}
	if stubborn {
		env = append(env, "E2E_STUBBORN=1")
	}
	return start(ctx, t, spec{argv: argv, env: env, stdin: reader("")})
}

// waits waits until so many wait for the lock.
func waits(ctx context.Context, t *testing.T, fs *client.FS, path string, want uint32) {
	t.Helper()
	eventually(ctx, t, fmt.Sprint(want, " wait for ", path), func() bool { return waiting(ctx, fs, path) == want })
}

// waiting is how many wait for the lock.
func waiting(ctx context.Context, fs *client.FS, path string) uint32 {
	for l, err := range fs.Leases().List(ctx, client.LeaseFilter{Path: path}) {
		if err == nil {
			return l.Waiting
		}
	}
	return 0
}

// Three processes elect a leader. It is stopped: the next one takes over, and the
// store refuses what the old one's command still writes. Continued, it ends its
// command. The second is killed, and its command with it; the third takes over.
func TestLockElectsALeader(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	fs := n.client(ctx)
	s := startStore(t)
	flags := []string{"--ttl", "15s", "--wait", "2m"} // a leader that a busy machine holds up for some seconds is not succeeded
	a := n.lock(ctx, t, s, "a", n.listen, true, flags...)
	s.sees(ctx, t, "a", "ok")
	b := n.lock(ctx, t, s, "b", n.listen, false, flags...)
	waits(ctx, t, fs, "/lock", 1)
	c := n.lock(ctx, t, s, "c", n.listen, false, flags...)
	waits(ctx, t, fs, "/lock", 2)

	a.stop(ctx)
	s.sees(ctx, t, "b", "ok")
	s.sees(ctx, t, "a", "refused") // its command continues, and changes nothing
	refused := s.count("a", "refused")
	eventually(ctx, t, "the old leader's command still tries", func() bool { return s.count("a", "refused") > refused+3 })
	a.signal(syscall.SIGCONT)
	s.sees(ctx, t, "a", "gone")
	a.ends(ctx, 107)
	oneLine(t, a.err.String())
	if line := a.err.String(); !strings.HasPrefix(line, "leasefs: lock /lock: ") {
		t.Errorf("%q does not name command and path", line)
	}

	b.kill()
	s.sees(ctx, t, "b", "gone")
	s.sees(ctx, t, "c", "ok")
	s.quit("c", 3)
	c.ends(ctx, 3)
	if order := s.check(t, "a"); !slices.Equal(order, []string{"a", "b", "c"}) {
		t.Errorf("the leaders were %v", order)
	}
	if got := n.run(ctx, "stat", "--json", "/lock"); !strings.Contains(got, `"length":0,`) || !strings.Contains(got, `"open":false`) {
		t.Errorf("left behind: %s", got)
	}
}

// proxy is a line to the namenode that can be cut.
type proxy struct {
	l  net.Listener
	mu sync.Mutex
	// cut closes both sides and refuses new ones.
	isCut bool
	conns []net.Conn
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			p.mu.Lock()
			if err != nil || p.isCut {
				_ = c.Close()
				if err == nil {
					_ = up.Close()
				}
				p.mu.Unlock()
				continue
			}
			p.conns = append(p.conns, c, up)
			p.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(up, c) }) // until cut closes them
			wg.Go(func() { _, _ = io.Copy(c, up) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		_ = c.Close() // that it ends is all
	}
	p.conns = nil
}

// A leader that the namenode cannot be reached from gets SIGTERM and, if it
// ignores that, SIGKILL, before the next one begins.
func TestLockEndsItsCommandInTime(t *testing.T) {
	t.Parallel()
	for name, stubborn := range map[string]bool{"listens to SIGTERM": false, "ignores SIGTERM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := deadline(t, 3*time.Minute)
			// A supervisor that gets no processor in the last tenth of the time
			// does nothing in time. That does not happen each time.
			for try := 1; ; try++ {
				err := endsInTime(ctx, t, stubborn)
				if err == nil {
					return
				}
				if try == 4 {
					t.Fatal(err)
				}
				t.Log(err)
			}
		})
	}
}

// endsInTime cuts a leader off once, and tells what came in another order than it
// should.
func endsInTime(ctx context.Context, t *testing.T, stubborn bool) error {
	t.Helper()
	n := startNamenode(ctx, t)
	s := startStore(t)
	p := startProxy(t, n.listen)
	flags := []string{"--ttl", "6s", "--wait", "1m"}
	a := n.lock(ctx, t, s, "a", p.l.Addr().String(), stubborn, flags...)
	s.sees(ctx, t, "a", "ok")
	b := n.lock(ctx, t, s, "b", n.listen, false, flags...)
	fs := n.client(ctx)
	eventually(ctx, t, "b waits, or has it", func() bool { return s.count("b", "ok") > 0 || waiting(ctx, fs, "/lock") == 1 })
	p.cut()
	s.sees(ctx, t, "b", "ok")
	a.ends(ctx, 107)
	oneLine(t, a.err.String())
	s.sees(ctx, t, "a", "gone")
	s.check(t, "a")
	term, gone, next := s.at("a", "term"), s.at("a", "gone"), s.at("b", "hello")
	if term < 0 || gone < term || next < gone {
		return fmt.Errorf("SIGTERM was entry %d, the end of the command %d, the next one's begin %d: %v", term, gone, next, s.entries())
	}
	s.quit("b", 0)
	b.ends(ctx, 0)
	return nil
}

// The namenode is gone: the leader's command is ended, and lock says so without
// waiting for a namenode to tell. After a restart nobody who is alive has the
// lock, and the next one gets it.
func TestLockWithoutNamenode(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	s := startStore(t)
	a := n.lock(ctx, t, s, "a", n.listen, true, "--ttl", "10s") // else a busy machine may end it before the namenode is gone
	s.sees(ctx, t, "a", "ok")
	n.kill()
	s.sees(ctx, t, "a", "gone")
	gone := time.Now()
	a.ends(ctx, 107)
	oneLine(t, a.err.String())
	t.Logf("lock ended %s after its command", since(gone))
	if !strings.Contains(a.err.String(), "not renewed in time") {
		t.Errorf("%q does not say why", a.err)
	}
	n.start(ctx)
	const ttl = 30 * time.Second // a busy machine restarts the namenode in less
	b := n.lock(ctx, t, s, "b", n.listen, false, "--ttl", ttl.String(), "--wait", "2m")
	s.sees(ctx, t, "b", "ok")
	// An outage that is short, by what the lock lasts without renewal, costs
	// nothing: it is renewed in time.
	killed := time.Now()
	n.crash(ctx)
	rest(ctx, time.Until(killed.Add(ttl)))
	wrote := s.count("b", "ok")
	eventually(ctx, t, "the leader continues", func() bool { return s.count("b", "ok") > wrote })
	s.quit("b", 0)
	b.ends(ctx, 0)
	s.check(t)
}

// Waiters get the lock in the order in which they came; each waits in one call.
func TestLockServesInOrder(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	fs := n.client(ctx)
	s := startStore(t)
	names := []string{"a", "b", "c", "d", "e"}
	locks := make([]*process, len(names))
	for i, name := range names {
		locks[i] = n.lock(ctx, t, s, name, n.listen, false, "--wait", "1m")
		if i == 0 {
			s.sees(ctx, t, name, "ok")
			continue
		}
		waits(ctx, t, fs, "/lock", uint32(i)) //nolint:gosec // small
	}
	// One that gives up is no longer in the way.
	locks[2].signal(syscall.SIGINT)
	locks[2].ends(ctx, 130)
	waits(ctx, t, fs, "/lock", 3)
	for i, name := range names {
		if i == 2 {
			continue
		}
		s.sees(ctx, t, name, "ok")
		s.quit(name, i)
		locks[i].ends(ctx, i)
	}
	if order := s.check(t); !slices.Equal(order, []string{"a", "b", "d", "e"}) {
		t.Errorf("served in the order %v", order)
	}
}

// The command's own exit code is passed on; that of lock itself is 100 more.
func TestLockExitCodes(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	for code, script := range map[int]string{0: "exit 0", 3: "exit 3", 107: "exit 107", 255: "exit 255", 128 + 9: "kill -9 $$", 128 + 15: "kill -15 $$"} {
		r := n.try(ctx, "", "lock", "/l", "--", "sh", "-c", script)
		if r.code != code || waitNote.ReplaceAllString(r.err, "") != "" || r.out != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", script, r.code, r.out, r.err)
		}
	}
	// Streams, arguments and environment are the command's.
	if r := n.try(ctx, "in\n", "lock", "/l", "--", "sh", "-c", `read x; echo "$0 $1 $x"; echo err >&2; test "$LEASEFS_TOKEN" -gt 0`, "-a", "--b"); r.code != 0 || r.out != "-a --b in\n" || r.err != "err\n" {
		t.Errorf("%+v", r)
	}
	// Each holder has a greater token, over a restart and a deleted file too.
	last := 0
	for i := range 4 {
		switch i {
		case 2:
			n.crash(ctx)
		case 3:
			n.run(ctx, "rm", "/l")
		}
		token, err := strconv.Atoi(strings.TrimSpace(n.run(ctx, "lock", "/l", "--", "sh", "-c", "echo $LEASEFS_TOKEN")))
		if err != nil || token <= last {
			t.Fatalf("token %d after %d, %v", token, last, err)
		}
		last = token
	}

	notAProgram := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(notAProgram, []byte("\x00\x01"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		code int
		args []string
		says string
	}{
		{102, []string{"lock"}, "takes PATH -- COMMAND"},
		{102, []string{"lock", "/l"}, "takes PATH -- COMMAND"},
		{102, []string{"lock", "relative", "--", "true"}, "relative"},
		{102, []string{"lock", "--wait", "-1s", "/l", "--", "true"}, "not a duration"},
		{102, []string{"lock", "--ttl", "50ms", "/l", "--", "true"}, "--ttl 50ms: give a time to live of at least 100ms"},
		{102, []string{"lock", "--ttl", "0", "/l", "--", "true"}, "--ttl 0s: give a time to live of at least 100ms"},
		{102, []string{"lock", "--ttl", "-1s", "/l", "--", "true"}, "--ttl -1s: give a time to live of at least 100ms"},
		{102, []string{"lock", "--ttl", "1000h", "/l", "--", "true"}, "--ttl 1000h0m0s: "},
		{127, []string{"lock", "/l", "--", "/no/such/command"}, "/no/such/command"},
		{127, []string{"lock", "/l", "--", "no-such-command-anywhere"}, "no-such-command-anywhere"},
		{126, []string{"lock", "/l", "--", "/dev/null"}, "/dev/null"},
		{126, []string{"lock", "/l", "--", notAProgram}, notAProgram},
		{1, []string{"mkdir", "/dir"}, ""},
		{100 + 1, []string{"lock", "/dir", "--", "true"}, "/dir"},
		{108, []string{"--user", "nobody-else", "lock", "/l", "--", "true"}, "/l"},
		{109, []string{"--namenode", freePort(t), "--timeout", "1s", "lock", "/l", "--", "true"}, "no active namenode"},
	} {
		if tc.code == 1 {
			n.run(ctx, tc.args...)
			continue
		}
		if line := n.fails(ctx, tc.code, "", tc.args...); !strings.HasPrefix(line, "leasefs: ") || !strings.Contains(line, tc.says) {
			t.Errorf("%v: %q", tc.args, line)
		}
	}

	a := n.begin(ctx, nil, "--client", "holder", "lock", "/l", "--", "cat")
	a.feed("has it\n")
	a.prints(ctx, a.out, "its input", func(s string) bool { return s == "has it\n" })
	for _, args := range [][]string{{"lock", "/l"}, {"lock", "--wait", "50ms", "/l"}} {
		line := n.fails(ctx, 105, "", append(args, "--", "true")...)
		if !strings.HasPrefix(line, "leasefs: lock /l: held by holder (host ") {
			t.Errorf("%q", line)
		}
	}
	if e := jsonError(t, n.fails(ctx, 105, "", "--json", "lock", "/l", "--", "true")); e["kind"] != "HELD" || e["holder"] != "holder" {
		t.Errorf("%v", e)
	}
	// Taken away from it: the command is killed, and the loss is told.
	n.run(ctx, "lease", "recover", "--force", "/l")
	a.ends(ctx, 107)
	oneLine(t, a.err.String())
	if !strings.HasPrefix(a.err.String(), "leasefs: lock /l: ") {
		t.Errorf("%q", a.err)
	}
}

// Signals go to the command, whose exit code counts; whatever it left running
// ends with the lock; and with the supervisor it dies too.
func TestLockAndSignals(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	s := startStore(t)
	for _, tc := range []struct {
		script string
		sig    syscall.Signal
		code   int
	}{
		{`echo up; exec cat`, syscall.SIGINT, 130},
		{`echo up; exec cat`, syscall.SIGTERM, 143},
		{`trap "exit 42" INT; echo up; while :; do read x; done`, syscall.SIGINT, 42},
		{`trap "exit 0" TERM; echo up; while :; do read x; done`, syscall.SIGTERM, 0},
	} {
		p := n.begin(ctx, nil, "lock", "/l", "--", "sh", "-c", tc.script)
		p.prints(ctx, p.out, "up", func(s string) bool { return s == "up\n" })
		p.signal(tc.sig)
		p.ends(ctx, tc.code)
		if waitNote.ReplaceAllString(p.err.String(), "") != "" {
			t.Errorf("%v to %q: %s", tc.sig, tc.script, p.err)
		}
		if got := n.run(ctx, "find", "/", "--open"); got != "" {
			t.Errorf("left open: %s", got)
		}
	}

	run := func(name, script string) *process {
		return start(ctx, t, spec{
			argv: []string{leasefs, "lock", "/" + name, "--", "sh", "-c", script, os.Args[0]},
			env:  []string{"LEASEFS_NAMENODE=" + n.listen, "E2E_STORE=" + s.addr, "E2E_NAME=" + name, "E2E_STUBBORN=1"},
		})
	}
	left := run("left", `"$0" & read x`)
	s.sees(ctx, t, "left", "ok")
	left.feed("end\n")
	left.ends(ctx, 0)
	s.sees(ctx, t, "left", "gone")

	killed := run("killed", `exec "$0"`)
	s.sees(ctx, t, "killed", "ok")
	killed.kill()
	s.sees(ctx, t, "killed", "gone")

	// A second signal, to a command that ignored the first: it is killed, with all
	// that it has started, and the lock is free.
	for name, script := range map[string]string{"twice": `exec "$0"`, "child": `trap "" TERM; "$0"; :`} {
		twice := run(name, script)
		s.sees(ctx, t, name, "ok")
		twice.signal(syscall.SIGTERM)
		s.sees(ctx, t, name, "term")
		twice.signal(syscall.SIGTERM)
		twice.ends(ctx, 128+9)
		s.sees(ctx, t, name, "gone")
		if got := n.run(ctx, "stat", "--json", "/"+name); !strings.Contains(got, `"open":false`) {
			t.Errorf("left open: %s", got)
		}
	}
}
