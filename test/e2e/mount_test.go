package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/test/env/size"
)

// A mountpoint is a process that mounts, and where.
type mountpoint struct {
	*process
	dir string
}

// mount mounts the namespace in a process of its own.
func (n *namenode) mount(ctx context.Context, flags ...string) *mountpoint {
	n.t.Helper()
	dir := filepath.Join(n.t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	p := n.begin(ctx, nil, append(append([]string{"mount"}, flags...), dir)...)
	m := &mountpoint{p, dir}
	n.t.Cleanup(func() { // before the process is killed and the folder removed
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE) // it may be unmounted
	})
	p.prints(ctx, p.out, "ready", func(s string) bool { return s == "ready "+dir+"\n" })
	return m
}

// letIn opens the folders on the way to the mount to all users.
func (m *mountpoint) letIn() {
	m.t.Helper()
	for d := filepath.Dir(m.dir); d != "/" && strings.Contains(d, "leasefs-e2e-"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // that is the point
			m.t.Fatal(err)
		}
	}
}

func (m *mountpoint) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mountpoint) open(name string, flags int) *os.File {
	m.t.Helper()
	f, err := os.OpenFile(m.path(name), flags, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.Close() })
	return f
}

func (m *mountpoint) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *mountpoint) is(name, want string) {
	m.t.Helper()
	if got := m.read(name); got != want {
		m.t.Fatalf("%s has %q, want %q", name, tailOf(got), tailOf(want))
	}
}

// add appends a line as a program does that wants it to be there.
func (m *mountpoint) add(name, line string) error {
	f, err := os.OpenFile(m.path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, line)
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// line is a numbered one of 64 bytes.
func line(who string, i int) string {
	s := fmt.Sprintf("%s %d ", who, i)
	return s + strings.Repeat("x", 63-len(s)) + "\n"
}

// TestMountsInTurn: 200 turns of two mounts that append to one file.
func TestMountsInTurn(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx)
	var want strings.Builder
	for i := range 200 {
		for who, m := range map[string]*mountpoint{"a": a, "b": b} {
			if err := m.add("log", line(who, i)); err != nil {
				t.Fatal(err)
			}
			want.WriteString(line(who, i))
		}
	}
	a.is("log", want.String())
	b.is("log", want.String())
	if got := n.run(ctx, "cat", "/log"); got != want.String() {
		t.Fatal("the namespace has something else")
	}
}

// TestMountsAtOnce: the one that comes second is told, and no line is lost.
func TestMountsAtOnce(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx, "--busy", "wait")
	f := a.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	c := n.mount(ctx)
	if err := c.add("log", "no\n"); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("a second writer got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	const lines = 100
	var wg sync.WaitGroup
	for who, m := range map[string]*mountpoint{"a": a, "b": b, "c": c} {
		wg.Go(func() {
			for i := range lines {
				for {
					err := m.add("log", line(who, i))
					if err == nil {
						break
					}
					if !errors.Is(err, syscall.EBUSY) || who == "b" || ctx.Err() != nil {
						t.Errorf("%s: %v", who, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	text := a.read("log")
	for got := range strings.Lines(text) {
		who, _, _ := strings.Cut(got, " ")
		if got != line(who, next[who]) {
			t.Fatalf("line %q, want %q", got, line(who, next[who]))
		}
		next[who]++
	}
	if len(next) != 3 || next["a"]+next["b"]+next["c"] != 3*lines {
		t.Fatal(next)
	}
}

// TestMountHolders: the lease stays with the process that opened the file, over
// children that close what they inherited, duplicates, and the kernel's closing
// in exec, which waits for the mount under a lock that /proc needs.
func TestMountHolders(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx)
	held := func(want bool) {
		t.Helper()
		err := b.add("f", "")
		if want && !errors.Is(err, syscall.EBUSY) || !want && err != nil {
			t.Fatalf("held %v: %v", want, err)
		}
	}
	f := a.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	sh(ctx, t, t.TempDir(), "true") // closed in exec
	held(true)
	child := exec.CommandContext(ctx, "sh", "-c", "echo child >&3; /bin/echo grandchild >&3")
	child.ExtraFiles = []*os.File{f}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	held(true)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	held(false)
	b.is("f", "child\ngrandchild\n")
	// A process that closes its own in exec, and a shell that opened it for all
	// that it runs.
	for _, argv := range [][]string{
		{"perl", "-e", `open(F, ">>", $ARGV[0]) or die $!; print F "perl\n"; F->flush; exec "true"`, a.path("f")},
		{"bash", "-c", `exec 3>>$0; echo one >&3; /bin/echo two >&3; if echo no >>$1; then exit 1; fi; exec 3>&-; echo yes >>$1`, a.path("f"), b.path("f")},
	} {
		start(ctx, t, spec{argv: argv}).ends(ctx, 0)
		held(false)
	}
	a.is("f", "child\ngrandchild\nperl\none\ntwo\nyes\n")
}

// TestMountStopped: a mount is stopped, its file taken over, and it continues:
// its write is an error, and no byte changes. Nor does it show what is old.
func TestMountStopped(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "1s", "--cache-term", "1s")
	a, b := n.mount(ctx), n.mount(ctx)
	f := a.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if _, err := io.WriteString(f, "a's\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := b.add("closed", "old\n"); err != nil {
		t.Fatal(err)
	}
	kept := a.open("closed", os.O_RDONLY)
	if _, err := kept.ReadAt(make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	a.stop(ctx)
	eventually(ctx, t, "B takes the file over", func() bool {
		err := b.add("f", "b's\n")
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := b.add("closed", "new\n"); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string)
	go func() {
		buf := make([]byte, 100)
		n, err := kept.ReadAt(buf, 0) // it may wait for A
		seen <- fmt.Sprint(string(buf[:n]), err)
	}()
	a.signal(syscall.SIGCONT)
	if got := <-seen; got != "old\nnew\nEOF" {
		t.Fatalf("A shows %q of what was closed before", got)
	}
	_, err := io.WriteString(f, "late\n")
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if !errors.Is(err, syscall.ESTALE) {
		t.Fatalf("A's write: %v", err)
	}
	if err := f.Close(); !errors.Is(err, syscall.ESTALE) {
		t.Fatalf("A's close: %v", err)
	}
	a.is("f", "a's\nb's\n")
	b.is("f", "a's\nb's\n")
}

// TestMountStoppedNames: a mount is stopped, and what its kernel believes of names
// and attributes is over when another host has changed them.
func TestMountStoppedNames(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t, "--cache-term", "1s")
	a, b := n.mount(ctx), n.mount(ctx)
	if err := os.MkdirAll(b.path("d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.add("d/e/f", "old\n"); err != nil {
		t.Fatal(err)
	}
	for range 100 { // the last finds all of it believed
		if _, err := os.Stat(a.path("d/e/f")); err != nil {
			t.Fatal(err)
		}
	}
	a.stop(ctx)
	if err := os.Rename(b.path("d"), b.path("moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.path("d"), 0o700); err != nil {
		t.Fatal(err)
	}
	looks := []struct {
		p    *process
		want string
	}{
		{start(ctx, t, spec{argv: []string{"stat", "-c", "%a", a.path("d")}}), "700\n"},
		{start(ctx, t, spec{argv: []string{"sh", "-c", `stat "$0" 2>/dev/null || echo gone`, a.path("d/e/f")}}), "gone\n"},
		{start(ctx, t, spec{argv: []string{"sh", "-c", `cd "$0" 2>/dev/null || echo gone`, a.path("d/e")}}), "gone\n"},
	}
	for _, look := range looks {
		// Each waits for A, or has its answer without.
		eventually(ctx, t, "it waits", func() bool { return look.p.ended() || waitsForMount(look.p) })
	}
	a.signal(syscall.SIGCONT)
	for _, look := range looks {
		look.p.prints(ctx, look.p.out, look.want, func(s string) bool { return s == look.want })
	}
}

// waitsForMount tells whether a process, or its child, waits for an answer of a
// mount.
func waitsForMount(p *process) bool {
	pids := []string{fmt.Sprint(p.cmd.Process.Pid)}
	children, err := os.ReadFile("/proc/" + pids[0] + "/task/" + pids[0] + "/children")
	if err == nil {
		pids = append(pids, strings.Fields(string(children))...)
	}
	for _, pid := range pids {
		wchan, err := os.ReadFile("/proc/" + pid + "/wchan")
		if err == nil && strings.Contains(string(wchan), "request_wait_answer") {
			return true
		}
	}
	return false
}

// TestMountNeverStale: what A has closed B sees.
func TestMountNeverStale(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx)
	var mu sync.Mutex
	closed, done := 0, false
	now := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		return closed, done
	}
	if err := a.add("f", ""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			least, over := now()
			i, err := os.Stat(b.path("f"))
			if err != nil || i.Size() < int64(least) {
				t.Errorf("stat: %v, %v; A has closed %d", i, err, least)
				return
			}
			least, _ = now()
			data, err := os.ReadFile(b.path("f"))
			if err != nil || len(data) < least {
				t.Errorf("read: %d, %v; A has closed %d", len(data), err, least)
				return
			}
			if over {
				return
			}
		}
	})
	for i := range size.Of(200, 2000) {
		if err := a.add("f", line("a", i)); err != nil {
			t.Error(err)
			break
		}
		mu.Lock()
		closed += 64
		mu.Unlock()
	}
	mu.Lock()
	done = true
	mu.Unlock()
	wg.Wait()
}

// TestMountKilled: a mount that is killed leaves no lease for longer than the
// soft limit, and fusermount3 cleans up.
func TestMountKilled(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "1s", "--cache-term", "1s")
	a, b := n.mount(ctx), n.mount(ctx)
	f := a.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if _, err := io.WriteString(f, "durable\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	a.kill()
	if err := f.Sync(); !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Fatalf("with a killed mount: %v", err)
	}
	_ = f.Close() // of a mount that is gone
	if out, err := exec.CommandContext(ctx, "fusermount3", "-u", a.dir).CombinedOutput(); err != nil {
		t.Fatalf("fusermount3: %v: %s", err, out)
	}
	eventually(ctx, t, "the lease lapses", func() bool {
		err := b.add("f", "more\n")
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	b.is("f", "durable\nmore\n")
}

// TestMountEnds: SIGTERM flushes and unmounts; so does somebody else's unmount.
func TestMountEnds(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t, "--cache-term", "1h")
	a, b := n.mount(ctx), n.mount(ctx)
	n.write(ctx, "text", "create", "/read")
	a.is("read", "text")
	f := a.open("f", os.O_CREATE|os.O_WRONLY)
	if _, err := io.WriteString(f, "text"); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGTERM)
	eventually(ctx, t, "it is flushed", func() bool { return n.run(ctx, "cat", "/f") == "text" })
	if a.ended() {
		t.Fatal("it ended with a file in use")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	a.ends(ctx, 0)
	// What it had read is changed without waiting for its term.
	n.run(ctx, "--timeout", "10s", "chmod", "600", "/read")
	if _, err := os.Stat(a.path("f")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("still mounted")
	}
	if out, err := exec.CommandContext(ctx, "fusermount3", "-u", b.dir).CombinedOutput(); err != nil {
		t.Fatalf("fusermount3: %v: %s", err, out)
	}
	b.ends(ctx, 0)
	if got := n.run(ctx, "lease", "ls"); strings.Contains(got, "/f") {
		t.Fatalf("a lease is left:\n%s", got)
	}
}

// TestMountInterrupts: whoever waits, for a holder or for the namenode, can be
// interrupted.
func TestMountInterrupts(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx, "--busy", "wait")
	f := a.open("f", os.O_CREATE|os.O_WRONLY)
	waiter := start(ctx, t, spec{argv: []string{"sh", "-c", "echo x >>" + b.path("f")}})
	eventually(ctx, t, "it waits", func() bool {
		return strings.Contains(n.run(ctx, "--json", "lease", "show", "/f"), `"waiting":1`)
	})
	waiter.signal(syscall.SIGTERM)
	waiter.ends(ctx, -1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.kill()
	reader := start(ctx, t, spec{argv: []string{"cat", a.path("other")}})
	eventually(ctx, t, "it asks", func() bool {
		wchan, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", reader.cmd.Process.Pid))
		return err == nil && strings.Contains(string(wchan), "request_wait_answer")
	})
	reader.signal(syscall.SIGTERM)
	reader.ends(ctx, -1)
	made := make(chan error)
	go func() { made <- os.Mkdir(a.path("d"), 0o755) }()
	n.start(ctx)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}

// TestMountDaemon: in the background, and as mount(8) does it.
func TestMountDaemon(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.run(ctx, "mkdir", "/sub")
	n.write(ctx, "text", "create", "/sub/f")
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE) }) // it may be unmounted
	m := &mountpoint{n.process, dir}
	n.run(ctx, "mount", "--daemon", dir)
	m.is("sub/f", "text")
	gone := func() {
		t.Helper()
		if out, err := exec.CommandContext(ctx, "umount", dir).CombinedOutput(); err != nil {
			t.Fatalf("umount: %v: %s", err, out)
		}
		eventually(ctx, t, "the daemon has ended", func() bool { return len(commandsWith(t, dir)) == 0 })
	}
	gone()
	if got := n.fails(ctx, 3, "", "mount", "--daemon", "--subdir", "/no", dir); !strings.Contains(got, "/no") {
		t.Fatal(got)
	}
	// With -t fuse.leasefs it would be the leasefs in the system's path, which the
	// helper mount.fuse3 calls in the same way.
	mount := exec.CommandContext(ctx, "mount", "-t", "fuse", leasefs+"#"+n.listen+"/sub", dir, "-o", "allow_other,busy=wait,nosuid,_netdev")
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	m.is("f", "text")
	gone()
}

// commandsWith are the processes that have a word in their command line.
func commandsWith(t testing.TB, word string) (pids []int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		raw, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(raw), word+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestMountOthers: other users get in only if they are let, and then as far as
// modes say; what they make is theirs.
func TestMountOthers(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	alone, shared := n.mount(ctx), n.mount(ctx, "--allow-other")
	alone.letIn()
	shared.letIn()
	if err := shared.add("private", "text\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared.path("private"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(shared.path("open"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared.path("open"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	as := func(script string) (string, error) {
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, script := range []string{"ls " + alone.dir, "cat " + shared.path("private"), "touch " + shared.path("x"), "echo x >>" + shared.path("private")} {
		if out, err := as(script); err == nil || !strings.Contains(out, "denied") {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	if out, err := as("cd " + shared.path("open") + " && echo mine >f && mkdir d && chmod 700 d && cat f"); err != nil || out != "mine\n" {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"open/f", "open/d"} {
		i, err := os.Stat(shared.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := i.Sys().(*syscall.Stat_t); !ok || st.Uid != 1 || st.Gid != 1 {
			t.Fatalf("%s is of %+v", name, i.Sys())
		}
	}
}
