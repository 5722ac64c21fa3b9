package e2e_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pair is two gateways that Hadoop's client knows as one HA service, and asks the first one first.
type pair struct {
	*gateway // of that service, without a process; hdfs is its name
	each     [2]*gateway
	argv     [2][]string
}

func startPair(ctx context.Context, n *namenode) *pair {
	n.t.Helper()
	p := &pair{gateway: &gateway{n: n, process: &process{t: n.t}, conf: n.t.TempDir(), hdfs: "hdfs://files"}}
	key := filepath.Join(n.t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		n.t.Fatal(err)
	}
	conf := property("fs.defaultFS", p.hdfs) + property("dfs.nameservices", "files") + property("dfs.ha.namenodes.files", "a,b") +
		property("dfs.client.failover.random.order", "false") +
		property("dfs.client.failover.proxy.provider.files", "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider")
	for i, id := range []string{"a", "b"} {
		calls := freePort(n.t)
		p.argv[i] = []string{"gateway", "--hdfs", calls, "--data", freePort(n.t), "--hdfs-pair", "--key", key}
		conf += property("dfs.namenode.rpc-address.files."+id, calls)
		p.start(ctx, i)
	}
	if err := os.WriteFile(filepath.Join(p.conf, "core-site.xml"), []byte("<configuration>\n"+conf+"</configuration>\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return p
}

// start starts one of the two, again at the same addresses.
func (p *pair) start(ctx context.Context, i int) {
	p.n.t.Helper()
	g := &gateway{n: p.n, process: p.n.begin(ctx, nil, p.argv[i]...)}
	g.prints(ctx, g.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	p.each[i] = g
}

// jdk is the largest file of the Java that the tests run.
func jdk(t *testing.T) string {
	t.Helper()
	java, err := exec.LookPath("java")
	if err == nil {
		java, err = filepath.EvalSymlinks(java)
	}
	name := filepath.Join(filepath.Dir(java), "../lib/modules")
	if err == nil {
		_, err = os.Stat(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// digest is a file's sum and size, in words.
func digest(t *testing.T, r io.Reader) string {
	t.Helper()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d bytes, %x", n, sum.Sum(nil))
}

// TestHadoopPair: a Java client that knows two gateways of a fleet puts a large file, reads it
// and appends, while the active namenode is killed, and then the gateway that it uses. Each ends
// well, or says that it does not, and nothing that was acknowledged is missing.
func TestHadoopPair(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	f := startFleet(ctx, t)
	p := startPair(ctx, f.namenode)
	fs := f.library(ctx)
	fail := func() {
		a := f.active(ctx)
		a.kill()
		f.successor(ctx, a)
		a.start(ctx)
	}
	file := jdk(t)
	local, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	want := digest(t, local)
	info, err := local.Stat()
	if err != nil {
		t.Fatal(err)
	}

	// The namenode is killed amid a put. Without -d it is written beside its name first.
	put := p.begin(ctx, "org.apache.hadoop.fs.FsShell", "-put", file, "/modules")
	eventually(ctx, t, "a tenth of the file is there", func() bool {
		i, err := fs.Stat(ctx, "/modules._COPYING_")
		return put.ended() || err == nil && i.Size() >= info.Size()/10
	})
	if put.ended() {
		t.Fatalf("it was written before the namenode was killed: %s", put.err)
	}
	fail()
	put.ends(ctx, 0)
	r, err := fs.Open(ctx, "/modules")
	if err != nil {
		t.Fatal(err)
	}
	if got := digest(t, r); got != want {
		t.Errorf("what was put is %s, should be %s", got, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	// The gateway is killed amid a cat, which waits for its reader meanwhile.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.javaSpec("org.apache.hadoop.fs.FsShell", "-cat", "/modules")
	s.argv = slices.Concat([]string{"sh", "-c", `exec "$@" >"$0"`, fifo}, s.argv)
	s.stdin = reader("")
	cat := start(ctx, t, s)
	out, err := os.OpenFile(fifo, os.O_RDWR, 0) // also for writing: so this waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := out.SetReadDeadline(end); err != nil {
			t.Fatal(err)
		}
	}
	begin := make([]byte, 1<<20)
	if _, err := io.ReadFull(out, begin); err != nil {
		t.Fatalf("%v: %s", err, cat.err)
	}
	p.each[0].kill()
	rest := io.LimitReader(out, info.Size()-int64(len(begin)))
	if got := digest(t, io.MultiReader(strings.NewReader(string(begin)), rest)); got != want {
		t.Errorf("what was read is %s, should be %s", got, want)
	}
	cat.ends(ctx, 0)
	p.start(ctx, 0)

	// Both are killed amid appends, the namenode first.
	p.appends(ctx, p.hdfs, "/lines", fail)
	w := start(ctx, t, p.javaSpec(appender, p.hdfs, "/cut"))
	var all strings.Builder
	for i := range 5000 { // they find room in the pipe
		fmt.Fprintf(&all, "line %d\n", i)
	}
	w.feed(all.String())
	w.prints(ctx, w.out, "a tenth of the lines", func(s string) bool { return strings.Count(s, "\n") >= 100 })
	p.each[0].kill()
	w.eof()
	w.wait(ctx)
	acked, failure, _ := strings.Cut(w.out.String(), "error ")
	if w.cmd.ProcessState.ExitCode() != 0 && failure == "" {
		t.Errorf("it ends without a word: %s", w.err)
	}
	p.begin(ctx, appender, p.hdfs, "/cut", "take").ends(ctx, 0) // by the other gateway
	got := strings.TrimSuffix(f.run(ctx, "cat", "/cut"), "taken\n")
	if !strings.HasPrefix(got, acked) || !strings.HasPrefix(all.String(), got) {
		t.Errorf("%d bytes were acknowledged, and these %d are there: %.300q", len(acked), len(got), got)
	}
	t.Logf("of 5,000 lines %d were acknowledged over the end of a gateway: %s", strings.Count(acked, "\n"), strings.TrimSpace(failure))
	f.fsck(ctx)
}
