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
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "5s")
	g := startGateway(ctx, n)
	more := filepath.Join(t.TempDir(), "more")
	if err := os.WriteFile(more, []byte("more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	java := start(ctx, t, g.javaSpec(appender, g.hdfs, "/f"))
	java.feed("one\ntwo\nthree\n")
	java.prints(ctx, java.out, "three lines", func(s string) bool { return strings.HasSuffix(s, "three\n") })
	java.kill()
	for {
		p := g.begin(ctx, "org.apache.hadoop.fs.FsShell", "-fs", g.hdfs, "-appendToFile", more, "/f")
		if p.wait(ctx) == 0 {
			break
		}
		if says := p.err.String(); !strings.Contains(says, "/f: held by DFSClient") {
			t.Fatalf("while the file is the killed writer's: %s", says)
		}
	}
	if got := n.run(ctx, "cat", "/f"); got != "one\ntwo\nthree\nmore\n" {
		t.Errorf("what was written: %q", got)
	}
	n.fsck(ctx)
}
