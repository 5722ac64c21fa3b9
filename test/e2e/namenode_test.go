package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// namenode is one under test: a process at a time, always on the same folder
// and ports.
type namenode struct {
	t            testing.TB
	data         string
	listen, http string
	flags        []string // each with a value
	trusts       bool     // clients on other machines, who prove nothing
	env          []string // added to a small fixed one
	via          []string // what starts it, such as nsenter with arguments
	from         []string // what starts the commands that are run against it
	program      string   // of it, or of the commands; empty: the one under test
	*process
}

// portsGiven are those that freePort has returned: what is free now may be
// somebody's who has not started yet, or is just starting again.
var portsGiven sync.Map

// freePort is one that nothing listens on, below those that the kernel gives
// to outgoing connections: so it is still free at a restart. No two calls return
// the same.
func freePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		if _, taken := portsGiven.LoadOrStore(addr, true); taken {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	t.Fatal("no free port")
	return ""
}

func newNamenode(t testing.TB, data string, flags ...string) *namenode {
	t.Helper()
	return &namenode{t: t, data: data, listen: freePort(t), http: freePort(t), flags: flags}
}

// startNamenode starts one on a new folder and waits until it is ready.
func startNamenode(ctx context.Context, t testing.TB, flags ...string) *namenode {
	t.Helper()
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), flags...)
	n.start(ctx)
	return n
}

// binary is the program that it, or a command against it, is.
func (n *namenode) binary() string { return cmp.Or(n.program, leasefs) }

// launch starts it, ready or not.
func (n *namenode) launch(ctx context.Context, more ...string) *process {
	n.t.Helper()
	argv := append([]string{}, n.via...)
	argv = append(argv, n.binary(), "namenode", "--data", n.data, "--listen", n.listen, "--http", n.http)
	if n.trusts {
		argv = append(argv, "--insecure-trust-clients")
	}
	argv = append(argv, n.flags...)
	return start(ctx, n.t, spec{argv: append(argv, more...), env: n.env})
}

// format makes the namespace of several namenodes with the flags of this one,
// unless ZooKeeper has it.
func (n *namenode) format(ctx context.Context) {
	n.t.Helper()
	argv := append(slices.Clone(n.via), n.binary(), "admin", "format")
	for i := 0; i+1 < len(n.flags); i += 2 { // each has a value
		if name := n.flags[i]; name == "--namespace" || name == "--blocks" || name == "--session-timeout" || strings.HasPrefix(name, "--zookeeper") {
			argv = append(argv, n.flags[i:i+2]...)
		}
	}
	for {
		p := start(ctx, n.t, spec{argv: argv, env: n.env, stdin: reader("")})
		switch code := p.wait(ctx); code {
		case 0, fserror.ExitExists:
			return
		case fserror.ExitUnavailable: // on a busy machine a new ZooKeeper takes long over TLS
			if ctx.Err() == nil {
				continue
			}
			fallthrough
		default:
			n.t.Fatalf("format: exit code %d: %s", code, p.err.String())
		}
	}
}

var readyLine = regexp.MustCompile(`^ready (\S+) http (\S+)\n$`)

func (n *namenode) start(ctx context.Context) {
	n.t.Helper()
	n.process = n.launch(ctx)
	n.prints(ctx, n.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	m := readyLine.FindStringSubmatch(n.out.String())
	if m == nil || m[1] != n.listen || m[2] != n.http {
		n.t.Fatalf("not the line \"ready\" with %s and %s: %q", n.listen, n.http, n.out.String())
	}
}

// crash kills it and starts it again.
func (n *namenode) crash(ctx context.Context) {
	n.t.Helper()
	n.kill()
	n.start(ctx)
}

// term ends it cleanly.
func (n *namenode) term(ctx context.Context) {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	n.ends(ctx, 0)
}

// begin starts a command against it. A nil input is a pipe to feed.
func (n *namenode) begin(ctx context.Context, stdin io.Reader, args ...string) *process {
	n.t.Helper()
	return start(ctx, n.t, spec{argv: slices.Concat(n.from, []string{n.binary()}, args), env: []string{"LEASEFS_NAMENODE=" + n.listen}, stdin: stdin})
}

// result is what a command that ended left.
type result struct {
	code     int
	out, err string
}

func (n *namenode) try(ctx context.Context, stdin string, args ...string) result {
	n.t.Helper()
	p := n.begin(ctx, reader(stdin), args...)
	code := p.wait(ctx)
	return result{code, p.out.String(), p.err.String()}
}

// fails runs a command that must end with that code and one line of error.
func (n *namenode) fails(ctx context.Context, code int, stdin string, args ...string) string {
	n.t.Helper()
	r := n.try(ctx, stdin, args...)
	if r.code != code {
		n.t.Fatalf("%s: exit code %d, want %d\nstderr: %s", strings.Join(args, " "), r.code, code, r.err)
	}
	if !strings.Contains(r.err, `{"error":`) {
		oneLine(n.t, r.err)
	}
	return r.err
}

// run runs a command that must succeed, and returns what it printed.
func (n *namenode) run(ctx context.Context, args ...string) string {
	n.t.Helper()
	return n.write(ctx, "", args...)
}

// write is run with an input.
func (n *namenode) write(ctx context.Context, stdin string, args ...string) string {
	n.t.Helper()
	r := n.try(ctx, stdin, args...)
	if r.code != 0 {
		n.t.Fatalf("%s: exit code %d\nstderr: %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// client is a connection in this process, to look fast and often.
func (n *namenode) client(ctx context.Context) *client.FS {
	n.t.Helper()
	fsys, err := client.New(ctx, client.Config{Namenodes: []string{n.listen}, Client: "e2e"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = fsys.Close() }) // the namenode may be gone
	return fsys
}

// status is what "leasefs status --json" says.
type status struct {
	Role          string `json:"role"`
	Term          uint64 `json:"term"`
	TxID          uint64 `json:"txid"`
	DurableTxID   uint64 `json:"durable_txid"`
	Inodes        uint64 `json:"inodes"`
	Blocks        uint64 `json:"blocks"`
	Leases        uint64 `json:"leases"`
	OpenFiles     uint64 `json:"open_files"`
	UptimeMS      int64  `json:"uptime_ms"`
	Files         uint64 `json:"files"`
	GarbageBlocks uint64 `json:"garbage_blocks"`
	TailBytes     int64  `json:"tail_bytes"`
	StoredBytes   int64  `json:"stored_bytes"`
	JournalBytes  int64  `json:"journal_bytes"`
	HeapBytes     int64  `json:"heap_bytes"`
	ZooKeeperB    int64  `json:"zookeeper_bytes"`
	ZooKeeperN    int64  `json:"zookeeper_nodes"`
}

func (n *namenode) status(ctx context.Context) status {
	n.t.Helper()
	var s status
	if err := json.Unmarshal([]byte(n.run(ctx, "status", "--json")), &s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// fsck checks tree and blocks.
func (n *namenode) fsck(ctx context.Context) {
	n.t.Helper()
	n.run(ctx, "admin", "fsck", "--blocks")
}

// usage describes what the namenode uses now.
func (n *namenode) usage(ctx context.Context) string {
	n.t.Helper()
	s := n.status(ctx)
	now, peak := n.rss()
	journal, segments := folderBytes(n.t, filepath.Join(n.data, "journal"))
	image, _ := folderBytes(n.t, filepath.Join(n.data, "image"))
	blocks, files := folderBytes(n.t, filepath.Join(n.data, "blocks"))
	return fmt.Sprintf("RSS %s (peak %s), heap %s, tails %s; journal %s in %d files, image %s, %d block files of %s",
		mib(now), mib(peak), mib(s.HeapBytes), mib(s.TailBytes), mib(journal), segments, mib(image), files, mib(blocks))
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// since is a time in seconds, for a log line.
func since(began time.Time) string { return fmt.Sprintf("%.2f s", time.Since(began).Seconds()) }

// jsonError is the object of an error under --json.
func jsonError(t testing.TB, stderr string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewBufferString(stderr))
	var v map[string]map[string]any
	if err := dec.Decode(&v); err != nil || v["error"] == nil || len(v) != 1 || strings.Count(stderr, "\n") != 1 {
		t.Fatalf("not one error object on one line: %q (%v)", stderr, err)
	}
	return v["error"]
}
