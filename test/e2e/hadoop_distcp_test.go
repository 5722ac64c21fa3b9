package e2e_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHadoopDistCp: distcp copies between HDFS itself and leasefs, both ways and by both
// protocols, and finds by checksums alone what it has to copy.
func TestHadoopDistCp(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	web := "webhdfs://" + g.addr
	dir := t.TempDir()
	s := spec{argv: []string{
		"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens", "java.base/java.lang=ALL-UNNAMED",
		"-Djava.io.tmpdir=" + dir, "-cp", suites + ":" + hdfs + "/lib/*", "testdata/hadoop/Hdfs.java", filepath.Join(dir, "hdfs"),
	}, env: []string{"HADOOP_USER_NAME=root"}}
	server := start(ctx, t, s)
	server.prints(ctx, server.out, "its URI", func(s string) bool { return strings.Contains(s, "hdfs://") && strings.HasSuffix(s, "\n") })
	theirs := strings.TrimSpace(server.out.String())

	src := filepath.Join(dir, "src")
	large := make([]byte, 20<<20)
	_, _ = rand.Read(large) // it never fails
	for name, b := range map[string][]byte{"large": large, "sub/small": large[:100], "sub/empty": nil} {
		name = filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copied := func(args ...string) {
		t.Helper()
		if code, out := g.java(ctx, "org.apache.hadoop.tools.DistCp", args...); code != 0 {
			t.Fatalf("distcp %s: %s", strings.Join(args, " "), out)
		}
	}
	g.shell(ctx, "-fs", theirs, "-D", "dfs.blocksize=1048576", "-put", src, "/src")

	// Blocks are of another size here, which other checksums do not mind.
	copied("-D", "dfs.checksum.combine.mode=COMPOSITE_CRC", theirs+"/src", g.hdfs+"/composite")
	copied("-pb", theirs+"/src", g.hdfs+"/src")
	copied("-pb", theirs+"/src", web+"/web")
	sums := strings.Fields(g.shell(ctx, "-checksum", theirs+"/src/large", g.hdfs+"/src/large", web+"/web/large"))
	if len(sums) != 9 || sums[2] != sums[5] || sums[2] != sums[8] {
		t.Errorf("checksums: %q", sums)
	}
	for _, name := range []string{"/composite", "/src", "/web"} {
		if got := n.run(ctx, "cat", name+"/large", name+"/sub/small", name+"/sub/empty"); got != string(large)+string(large[:100]) {
			t.Errorf("%s has %d bytes that are not those put", name, len(got))
		}
	}

	// Only what differs is copied, as long as it may be.
	n.write(ctx, strings.Repeat("x", 100), "create", "--overwrite", "/src/sub/small")
	before := strings.Fields(g.shell(ctx, "-stat", "%Y", theirs+"/src/large", theirs+"/src/sub/small"))
	copied("-update", "-pb", g.hdfs+"/src", theirs+"/src")
	after := strings.Fields(g.shell(ctx, "-stat", "%Y", theirs+"/src/large", theirs+"/src/sub/small"))
	if len(before) != 2 || len(after) != 2 || before[0] != after[0] || before[1] == after[1] {
		t.Errorf("modified before %q, after %q", before, after)
	}
	if out := g.shell(ctx, "-cat", theirs+"/src/sub/small"); out != strings.Repeat("x", 100) {
		t.Errorf("HDFS has %q", out)
	}
	back := filepath.Join(dir, "back")
	copied("-pb", web+"/web", theirs+"/web")
	g.shell(ctx, "-get", theirs+"/web/large", back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, large) {
		t.Errorf("what came back: %d bytes, %v", len(got), err)
	}
	server.eof()
	server.ends(ctx, 0)
	n.fsck(ctx)
}
