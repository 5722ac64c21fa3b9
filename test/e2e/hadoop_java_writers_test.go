package e2e_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHadoopAndMounts: a client of HDFS and a mount exclude each other from a file and replace
// each other, and each is told so in its own words.
func TestHadoopAndMounts(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	m := n.mount(ctx)

	java := start(ctx, t, g.javaSpec(appender, g.hdfs, "/f"))
	java.feed("one\n")
	java.prints(ctx, java.out, "one", func(s string) bool { return s == "one\n" })
	m.is("f", "one\n")
	if err := m.add("f", "no\n"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the mount writes a file that a client of HDFS has open: %v", err)
	}
	java.eof()
	java.ends(ctx, 0)

	f := m.open("f", os.O_WRONLY|os.O_APPEND)
	write := func(line string) error {
		_, err := io.WriteString(f, line)
		if serr := f.Sync(); err == nil {
			err = serr
		}
		return err
	}
	if err := write("two\n"); err != nil {
		t.Fatal(err)
	}
	second := g.begin(ctx, appender, g.hdfs, "/f")
	if second.ends(ctx, 1); !strings.Contains(second.out.String(), "AlreadyBeingCreatedException") {
		t.Errorf("a client of HDFS, while the mount writes: %s%s", second.out, second.err)
	}
	g.begin(ctx, appender, g.hdfs, "/f", "take").ends(ctx, 0)
	if err := write("late\n"); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("the mount, after it was replaced: %v", err)
	}
	const want = "one\ntwo\ntaken\n"
	m.is("f", want)
	if got := n.run(ctx, "cat", "/f"); got != want {
		t.Errorf("what was written: %q", got)
	}
	n.fsck(ctx)
}

// TestHadoopKilledWriter: what a Java writer had flushed when it was killed is there, and past the
// soft limit another client of HDFS appends to it as to any file.
func TestHadoopKilledWriter(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	const soft = 30 * time.Second // Hadoop's client takes some seconds until it asks
	n := startNamenode(ctx, t, "--soft-limit", soft.String())
	g := startGateway(ctx, n)
	more := filepath.Join(t.TempDir(), "more")
	if err := os.WriteFile(more, []byte("more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	java := start(ctx, t, g.javaSpec(appender, g.hdfs, "/f"))
	began := time.Now()
	java.feed("one\ntwo\nthree\n")
	java.prints(ctx, java.out, "three lines", func(s string) bool { return strings.HasSuffix(s, "three\n") })
	java.kill()
	refused := 0
	for ; ; refused++ {
		p := g.begin(ctx, "org.apache.hadoop.fs.FsShell", "-fs", g.hdfs, "-appendToFile", more, "/f")
		if p.wait(ctx) == 0 {
			break
		}
		if says := p.err.String(); !strings.Contains(says, "/f: held by DFSClient") {
			t.Fatalf("while the file is the killed writer's: %s", says)
		}
	}
	if d := time.Since(began); refused == 0 || d < soft {
		t.Errorf("%d appends were refused, and one succeeded after %s, with a soft limit of %s", refused, d, soft)
	}
	if got := n.run(ctx, "cat", "/f"); got != "one\ntwo\nthree\nmore\n" {
		t.Errorf("what was written: %q", got)
	}
	n.fsck(ctx)
}

// TestHadoopSilentWriters: a Java writer that writes nothing for longer than the soft limit keeps its
// file, since its client renews. One whose process was stopped for as long is replaced, learns
// it when it continues, and adds nothing behind its successor.
func TestHadoopSilentWriters(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	const soft = 30 * time.Second
	n := startNamenode(ctx, t, "--soft-limit", soft.String())
	g := startGateway(ctx, n)
	conf := "<configuration>" + property("ipc.client.rpc-timeout.ms", "20000") + // Hadoop's clients renew at half of it
		property("dfs.client.socket-timeout", "600000") + "</configuration>\n" // one that is stopped for a minute takes its silent peer for gone
	if err := os.WriteFile(filepath.Join(g.conf, "core-site.xml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	writer := func(path string) *process { return start(ctx, t, g.javaSpec(appender, g.hdfs, path)) }
	idle, flushes, closes := writer("/idle"), writer("/flushes"), writer("/closes")
	for _, p := range []*process{idle, flushes, closes} {
		p.feed("one\n")
		p.prints(ctx, p.out, "one", func(s string) bool { return s == "one\n" })
	}
	flushes.stop(ctx)
	closes.stop(ctx)
	rest(ctx, soft+soft/3)

	for _, how := range []string{"create", "append"} {
		other := g.begin(ctx, appender, g.hdfs, "/idle", how)
		if other.ends(ctx, 1); !strings.Contains(other.out.String(), "AlreadyBeingCreatedException") {
			t.Errorf("%s by another client, while a writer is idle: %s%s", how, other.out, other.err)
		}
	}
	idle.feed("two\nthree\n")
	idle.eof()
	idle.ends(ctx, 0)
	if got := n.run(ctx, "cat", "/idle"); got != "one\ntwo\nthree\n" {
		t.Errorf("what the idle writer wrote: %q", got)
	}

	for path, p := range map[string]*process{"/flushes": flushes, "/closes": closes} {
		next := n.begin(ctx, nil, "append", "--wait", "1m", "--flush", "line", "--ack", path)
		next.feed("next\n")
		next.acksUpTo(ctx, int64(len("one\nnext\n")))
		p.signal(syscall.SIGCONT)
		says := "LeaseExpiredException"
		if p == flushes {
			p.feed("late\n")
			says = "All datanodes" // Hadoop's client asks nobody why
		}
		p.eof()
		p.ends(ctx, 1)
		if said := p.out.String(); !strings.HasPrefix(said, "one\nerror ") || !strings.Contains(p.err.String(), says) {
			t.Errorf("the writer of %s, when it continues: %s%s", path, said, p.err)
		}
		next.feed("last\n")
		next.eof()
		next.ends(ctx, 0)
		if got := n.run(ctx, "cat", path); got != "one\nnext\nlast\n" {
			t.Errorf("%s holds %q", path, got)
		}
	}
	n.fsck(ctx)
}
