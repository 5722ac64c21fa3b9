package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// refused starts a namenode that must not come up, and returns why not.
func refused(ctx context.Context, n *namenode, flags ...string) string {
	n.t.Helper()
	p := n.launch(ctx, flags...)
	p.ends(ctx, 1)
	if p.out.String() != "" {
		n.t.Errorf("it printed %q", p.out)
	}
	why := behindLog(p.err.String())
	oneLine(n.t, why)
	return why
}

func names(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not say %q", text, p)
		}
	}
}

func TestCleanEnd(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.write(ctx, "bytes", "create", "-p", "/a/b/c")
	n.run(ctx, "ln", "-s", "c", "/a/b/link")
	n.write(ctx, "open", "--client", "keeper", "create", "--keep-open", "/open")
	w := n.begin(ctx, nil, "--client", "live", "create", "--flush", "line", "--ack", "/live")
	w.feed("before\n")
	w.acksUpTo(ctx, 7)
	want := n.run(ctx, "ls", "-lR", "/")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		began := time.Now()
		n.signal(sig)
		n.ends(ctx, 0)
		t.Logf("%v: ended in %s", sig, since(began))
		n.start(ctx)
		if got := n.run(ctx, "ls", "-lR", "/"); got != want {
			t.Errorf("after %v:\n%s\nbefore:\n%s", sig, got, want)
		}
	}
	// The writer that lived through it continues.
	w.feed("after\n")
	w.acksUpTo(ctx, 13)
	w.eof()
	w.ends(ctx, 0)
	if got := n.run(ctx, "cat", "/a/b/link", "/live"); got != "bytesbefore\nafter\n" {
		t.Errorf("%q", got)
	}
	// The keeper could be on its way back, for a moment.
	eventually(ctx, t, "the keeper's name closes the file", func() bool { return n.try(ctx, "", "--client", "keeper", "close", "/open").code == 0 })
	n.fsck(ctx)

	// A second SIGTERM, of someone in a hurry, is no crash that loses anything.
	n.write(ctx, "more", "append", "/open")
	n.signal(syscall.SIGTERM)
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	n.wait(ctx)
	n.start(ctx)
	if got := n.run(ctx, "cat", "/open"); got != "openmore" {
		t.Errorf("%q", got)
	}
}

func TestReadyLine(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t) // checks the line as text
	for _, page := range []string{"healthz", "readyz", "metrics"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/"+page, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", page, resp.Status)
		}
	}
	n.term(ctx)
	http.DefaultClient.CloseIdleConnections()

	p := n.launch(ctx, "--json")
	p.prints(ctx, p.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	var ready struct {
		Ready         bool
		Address, HTTP string
	}
	if err := json.Unmarshal([]byte(p.out.String()), &ready); err != nil || !ready.Ready || ready.Address != n.listen || ready.HTTP != n.http {
		t.Errorf("%s: %v", p.out, err)
	}
	for line := range strings.Lines(p.err.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON in its log: %q", line)
		}
	}
	p.signal(syscall.SIGTERM)
	p.ends(ctx, 0)
}

func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.write(ctx, "here", "create", "/f")

	second := newNamenode(t, n.data)
	names(t, refused(ctx, second), n.data, "another namenode")
	names(t, refused(ctx, newNamenode(t, filepath.Join(t.TempDir(), "new")), "--listen", n.listen), n.listen, "--listen")
	names(t, refused(ctx, newNamenode(t, filepath.Join(t.TempDir(), "new")), "--http", n.listen), n.listen, "--http")
	if got := n.run(ctx, "cat", "/f"); got != "here" {
		t.Errorf("%q", got)
	}
	n.term(ctx)

	version := filepath.Join(n.data, "VERSION")
	was, err := os.ReadFile(version)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(version, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(regexp.MustCompile(`format = \d+`).ReplaceAllString(string(was), "format = 99"))
	names(t, refused(ctx, n), n.data, "99", "newer")
	write("what?")
	names(t, refused(ctx, n), version, "damaged", "backup")
	if err := os.Remove(version); err != nil {
		t.Fatal(err)
	}
	names(t, refused(ctx, n), n.data, "VERSION")
	write(string(was))
	n.start(ctx)
	if got := n.run(ctx, "cat", "/f"); got != "here" {
		t.Errorf("%q", got)
	}
	n.term(ctx)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	names(t, refused(ctx, newNamenode(t, file)), file)
	names(t, refused(ctx, newNamenode(t, filepath.Join(file, "below"))), file)
	names(t, refused(ctx, newNamenode(t, filepath.Dir(file))), filepath.Dir(file), "not empty")
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
}

// scratch is a small disk of its own: a tmpfs that only processes started
// through it see, and that goes with its keeper, whatever happens. It is held
// open, not found by the keeper's number: when the keeper is gone that may be
// another process's, and the disk that is filled the machine's.
type scratch struct {
	t    *testing.T
	dir  string // as those processes see it
	root *os.File
	via  []string
}

func newScratch(ctx context.Context, t *testing.T, size string) *scratch {
	t.Helper()
	// Without links: one that names its target from the root would lead out of the
	// keeper's root again.
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		argv = append(argv, "--user", "--map-root-user")
	}
	argv = append(argv, "sh", "-ec", fmt.Sprintf("mount -t tmpfs -o size=%s scratch '%s'; echo mounted; exec cat", size, dir))
	keeper := start(ctx, t, spec{argv: argv})
	keeper.prints(ctx, keeper.out, "mounted", func(text string) bool { return text == "mounted\n" })
	hold := func(name string) *os.File {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", keeper.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	here := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	s := &scratch{t: t, dir: dir, root: hold("root" + dir), via: []string{"nsenter", "--mount=" + here(hold("ns/mnt"))}}
	if os.Getuid() != 0 {
		s.via = append(s.via, "--user="+here(hold("ns/user")), "--preserve-credentials")
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.root.Fd()), &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Fatalf("%s is no disk of its own: type %#x, %v", dir, st.Type, err)
	}
	return s
}

// outside is the folder as this process sees it.
func (s *scratch) outside() string { return fmt.Sprintf("/proc/self/fd/%d", s.root.Fd()) }

func (s *scratch) remount(ctx context.Context, options string) {
	s.t.Helper()
	start(ctx, s.t, spec{argv: append(append([]string{}, s.via...), "mount", "-o", "remount,"+options, s.dir), stdin: reader("")}).ends(ctx, 0)
}

func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	disk := newScratch(ctx, t, "512m")
	n := newNamenode(t, filepath.Join(disk.dir, "data"))
	n.via = disk.via
	n.start(ctx)
	n.write(ctx, "here", "create", "/f")
	n.term(ctx)
	disk.remount(ctx, "ro")
	names(t, refused(ctx, n), n.data, "read-only")
	fresh := newNamenode(t, filepath.Join(disk.dir, "new"))
	fresh.via = disk.via
	names(t, refused(ctx, fresh), fresh.data, "read-only")
	disk.remount(ctx, "rw")
	n.start(ctx)
	if got := n.run(ctx, "cat", "/f"); got != "here" {
		t.Errorf("%q", got)
	}
}
