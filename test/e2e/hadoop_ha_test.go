package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

const appender = "testdata/hadoop/Appender.java"

// appends has a Java writer append many lines with a flush each, calls harm when it has
// appended some of them, and checks that all are there in the end.
func (g *gateway) appends(ctx context.Context, uri, path string, harm func()) {
	g.t.Helper()
	w := start(ctx, g.t, g.javaSpec(appender, uri, path))
	var lines strings.Builder
	const all = 1000
	for i := range all {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	if _, err := w.stdin.Write([]byte(lines.String())); err != nil {
		g.t.Fatal(err)
	}
	acknowledged := func(n int) func(string) bool {
		return func(s string) bool { return strings.Count(s, "\n") >= n || strings.Contains(s, "error") }
	}
	w.prints(ctx, w.out, "a tenth of the lines", acknowledged(all/10))
	if strings.Count(w.out.String(), "\n") == all {
		g.t.Fatal("all was written before anything was harmed")
	}
	harm()
	w.prints(ctx, w.out, "all lines", acknowledged(all))
	w.eof()
	w.ends(ctx, 0)
	if w.out.String() != lines.String() {
		g.t.Errorf("acknowledged: %.300q", w.out.String())
	}
	if got := g.n.run(ctx, "cat", path); got != lines.String() {
		g.t.Errorf("%s has %d bytes that are not the %d acknowledged", path, len(got), lines.Len())
	}
}

// TestHadoopAppendOverAKilledNamenode: a writer in Java that flushes each line survives
// a kill and a restart of the namenode, and nothing that was acknowledged is missing.
func TestHadoopAppendOverAKilledNamenode(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	g.appends(ctx, g.hdfs, "/lines", func() { n.crash(ctx) })
	n.fsck(ctx)
}

// TestHadoopOverAFailover: hadoop fs -put by both protocols and an appending writer go on when
// the active one of three namenodes is killed amid them, and nothing is missing.
func TestHadoopOverAFailover(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	f := startFleet(ctx, t)
	g := startGateway(ctx, f.namenode)
	fs := f.library(ctx)
	content := make([]byte, 200<<20)
	_, _ = rand.Read(content) // it never fails
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	fail := func() {
		a := f.active(ctx)
		a.kill()
		f.successor(ctx, a)
		a.start(ctx)
	}
	for _, scheme := range []string{"webhdfs://" + g.addr, g.hdfs} {
		name := "/" + scheme[:4]
		put := g.begin(ctx, "org.apache.hadoop.fs.FsShell", "-fs", scheme, "-put", "-d", file, name)
		eventually(ctx, t, "a tenth of the file is there", func() bool {
			i, err := fs.Stat(ctx, name)
			return put.ended() || err == nil && i.Size() >= int64(len(content)/10)
		})
		if put.ended() {
			t.Fatalf("it was written before the namenode was killed: %s", put.err)
		}
		fail()
		put.ends(ctx, 0)
		if got := f.run(ctx, "cat", name); got != string(content) {
			t.Errorf("%s has %d bytes that are not those put", name, len(got))
		}
	}
	g.appends(ctx, g.hdfs, "/lines", fail)
	f.fsck(ctx)
}

// TestHadoopAndOtherWriters: a client of HDFS and leasefs append exclude each other from a
// file and replace each other, and each is told so in its own words.
func TestHadoopAndOtherWriters(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)

	java := start(ctx, t, g.javaSpec(appender, g.hdfs, "/theirs"))
	write := func(p *process, line, says string) {
		t.Helper()
		if _, err := p.stdin.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		p.prints(ctx, p.out, says, func(s string) bool { return strings.Contains(s, says) })
	}
	write(java, "one", "one\n")
	if out := n.fails(ctx, fserror.ExitHeld, "two\n", "append", "/theirs"); !strings.Contains(out, "DFSClient") {
		t.Errorf("it does not say who writes: %s", out)
	}
	n.run(ctx, "lease", "recover", "--force", "/theirs")
	ours := n.begin(ctx, nil, "append", "--flush", "line", "--ack", "/theirs")
	if _, err := ours.stdin.Write([]byte("ours\n")); err != nil {
		t.Fatal(err)
	}
	ours.prints(ctx, ours.out, "what is acknowledged", func(s string) bool { return s != "" })
	write(java, "late", "error ")
	java.ends(ctx, 1)
	if out := java.out.String(); strings.Contains(out, "late\n") || !strings.Contains(java.err.String(), "All datanodes") { // it asks nobody why
		t.Errorf("who was replaced is told: %s%s", out, java.err)
	}

	second := g.begin(ctx, appender, g.hdfs, "/theirs")
	if second.ends(ctx, 1); !strings.Contains(second.out.String(), "AlreadyBeingCreatedException") {
		t.Errorf("a second writer: %s%s", second.out, second.err)
	}
	g.begin(ctx, appender, g.hdfs, "/theirs", "take").ends(ctx, 0)
	ours.ends(ctx, fserror.ExitLeaseLost) // it learns at once
	if got := n.run(ctx, "cat", "/theirs"); got != "one\nours\ntaken\n" {
		t.Errorf("what was written: %q", got)
	}
	n.fsck(ctx)
}
