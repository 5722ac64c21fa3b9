package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hadoop is where scripts/setup puts the clients of HDFS.
const hadoop = "../../.cache/hadoop"

// gateway is a leasefs gateway in front of a namenode.
type gateway struct {
	*process
	n    *namenode
	conf string // a folder with core-site.xml
	addr string // HOST:PORT of WebHDFS
	hdfs string // hdfs://HOST:PORT
}

func startGateway(ctx context.Context, n *namenode) *gateway {
	n.t.Helper()
	g := &gateway{n: n, conf: n.t.TempDir()}
	if err := os.WriteFile(filepath.Join(g.conf, "core-site.xml"), []byte("<configuration/>\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	g.process = n.begin(ctx, nil, "gateway", "--webhdfs", "127.0.0.1:0", "--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0")
	g.prints(ctx, g.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	fields := strings.Fields(g.out.String())
	if len(fields) != 5 || fields[0] != "ready" {
		n.t.Fatalf("the gateway says %q", g.out.String())
	}
	g.addr, g.hdfs = fields[1], fields[2]
	return g
}

// javaSpec is a class of Hadoop's as root, with a pipe to feed.
func (g *gateway) javaSpec(class string, args ...string) spec {
	argv := append([]string{"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", g.conf + ":" + hadoop + "/lib/*", class}, args...)
	return spec{argv: argv, env: []string{"HADOOP_USER_NAME=root"}}
}

// begin starts a class of Hadoop's as root, without input.
func (g *gateway) begin(ctx context.Context, class string, args ...string) *process {
	g.t.Helper()
	s := g.javaSpec(class, args...)
	s.stdin = reader("")
	return start(ctx, g.t, s)
}

// java runs a class of Hadoop's as root, and returns its exit code and what it printed.
func (g *gateway) java(ctx context.Context, class string, args ...string) (code int, out string) {
	g.t.Helper()
	p := g.begin(ctx, class, args...)
	code = p.wait(ctx)
	if code != 0 {
		g.t.Logf("%s: exit code %d: %s%s", strings.Join(args, " "), code, p.out, p.err)
	}
	return code, p.out.String()
}

// shell is hadoop fs; it must succeed.
func (g *gateway) shell(ctx context.Context, args ...string) string {
	g.t.Helper()
	code, out := g.java(ctx, "org.apache.hadoop.fs.FsShell", args...)
	if code != 0 {
		g.t.FailNow()
	}
	return out
}

// TestHadoopSnapshots: Hadoop's client makes, reads, lists, compares and deletes snapshots by both
// protocols, and knows what is refused.
func TestHadoopSnapshots(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	want, err := os.ReadFile("testdata/hadoop/snapshots.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, fs := range []string{g.hdfs, "webhdfs://" + g.addr} {
		p := g.begin(ctx, "testdata/hadoop/Snapshots.java", fs)
		p.ends(ctx, 0)
		if got := p.out.String(); got != string(want) {
			t.Errorf("%s:\n%s", fs, got)
		}
	}
	n.run(ctx, "mkdir", "/d")
	n.run(ctx, "snapshot", "allow", "/d")
	if out := g.shell(ctx, "-fs", g.hdfs, "-createSnapshot", "/d"); !strings.HasPrefix(out, "Created snapshot /d/.snapshot/s2") {
		t.Error(out)
	}
	n.fsck(ctx)
}

// TestHadoopClients: Hadoop's own shell and distcp, and Python's clients, use the gateway
// as they use HDFS.
func TestHadoopClients(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	web := "webhdfs://" + g.addr
	local := t.TempDir()
	content := make([]byte, 20<<20)
	_, _ = rand.Read(content) // it never fails
	for name, b := range map[string][]byte{"large": content, "sub/small": content[:100], "sub/empty": nil} {
		name = filepath.Join(local, "src", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, one := filepath.Join(local, "src"), filepath.Join(local, "src/sub/small")

	g.shell(ctx, "-fs", web, "-put", src, "/")
	g.shell(ctx, "-fs", web, "-appendToFile", one, one, "/src/sub/empty")
	if out := g.shell(ctx, "-fs", web, "-cat", "/src/sub/empty"); out != string(content[:100])+string(content[:100]) {
		t.Errorf("appended: %d bytes", len(out))
	}
	n.run(ctx, "mv", "/src/large", "/src/sub/large") // what another client does is seen
	if out := g.shell(ctx, "-fs", web, "-ls", "-R", "/src"); !strings.Contains(out, "20971520 ") || !strings.Contains(out, "/src/sub/large\n") {
		t.Errorf("a listing: %s", out)
	}
	g.shell(ctx, "-fs", web, "-chmod", "640", "/src/sub/large")
	if out := n.run(ctx, "stat", "--json", "/src/sub/large"); !strings.Contains(out, `640`) {
		t.Errorf("after chmod: %s", out)
	}

	copied := func(from, to string) {
		t.Helper()
		if code, out := g.java(ctx, "org.apache.hadoop.tools.DistCp", "-update", from, to); code != 0 {
			t.Fatalf("distcp: %s", out)
		}
	}
	copied(web+"/src/sub", web+"/copy")
	copied(web+"/copy", g.hdfs+"/again")
	copied(g.hdfs+"/again", "file://"+filepath.Join(local, "back"))
	var sums []string
	for _, out := range []string{
		g.shell(ctx, "-fs", web, "-checksum", "/src/sub/large"),
		g.shell(ctx, "-fs", web, "-checksum", "/copy/large"),
		g.shell(ctx, "-fs", g.hdfs, "-checksum", "/again/large"),
	} {
		if f := strings.Fields(out); len(f) == 3 && f[1] == "MD5-of-0MD5-of-512CRC32C" {
			sums = append(sums, f[2])
		} else {
			t.Errorf("a checksum: %s", out)
		}
	}
	if len(slices.Compact(sums)) != 1 {
		t.Errorf("checksums of the same bytes: %q", sums)
	}
	back, err := os.ReadFile(filepath.Join(local, "back/large"))
	if err != nil || !bytes.Equal(back, content) {
		t.Errorf("what came back: %d bytes, %v", len(back), err)
	}
	if code, _ := g.java(ctx, "org.apache.hadoop.fs.FsShell", "-fs", web, "-cat", "/nothing"); code != 1 {
		t.Errorf("a file that is not there: exit code %d", code)
	}
	g.shell(ctx, "-fs", g.hdfs, "-appendToFile", one, "/again/small")
	if out := g.shell(ctx, "-fs", g.hdfs, "-cat", "/again/small"); out != string(content[:100])+string(content[:100]) {
		t.Errorf("appended over hdfs://: %d bytes", len(out))
	}
	g.shell(ctx, "-fs", g.hdfs, "-setfacl", "-R", "-m", "user:bob:rw-,group:staff:r--", "/again")
	g.shell(ctx, "-fs", g.hdfs, "-setfacl", "-x", "group:staff", "/again/small")
	if out := g.shell(ctx, "-fs", g.hdfs, "-getfacl", "/again/small"); !strings.Contains(out, "\nuser:bob:rw-\n") || strings.Contains(out, "staff") || !strings.Contains(out, "\nmask::rw-\n") {
		t.Errorf("an ACL: %s", out)
	}
	if out := g.shell(ctx, "-fs", g.hdfs, "-ls", "/again"); strings.Count(out, "+") != 3 {
		t.Errorf("a listing of files with ACLs: %s", out)
	}
	g.shell(ctx, "-fs", g.hdfs, "-rm", "-r", "-skipTrash", "/src", "/copy", "/again")
	if out := n.run(ctx, "ls", "/"); out != "" {
		t.Errorf("left: %s", out)
	}

	write := g.begin(ctx, "testdata/hadoop/Recoverable.java", g.hdfs, "write")
	write.ends(ctx, 0)
	g.begin(ctx, "testdata/hadoop/Recoverable.java", g.hdfs, strings.TrimSpace(write.out.String())).ends(ctx, 0)
	if out := n.run(ctx, "cat", "/done"); out != "before after" {
		t.Errorf("a recovered file: %q", out)
	}

	_, port, _ := strings.Cut(g.addr, ":")
	for _, argv := range [][]string{{"testdata/hadoop/use_webhdfs.py", port}, {"testdata/hadoop/use_hdfs.py", g.hdfs}} {
		p := start(ctx, t, spec{argv: append([]string{python}, argv...), env: []string{"PYTHONPATH=" + hadoop + "/python", "HADOOP_USER_NAME=root"}, stdin: reader("")})
		p.ends(ctx, 0)
	}
	n.fsck(ctx)
}

// TestHadoopOperators: hdfs groups is answered, and what an operator tells a NameNode is
// refused in words. The classes are those that HBase brings.
func TestHadoopOperators(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	g := startGateway(ctx, startNamenode(ctx, t))
	for _, c := range []struct {
		says string
		argv []string
	}{
		{"root : root", []string{"org.apache.hadoop.hdfs.tools.GetGroups", "-fs", g.hdfs, "root"}},
		{"which is run by other commands", []string{"org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", g.hdfs, "-refreshUserToGroupsMappings"}},
		{"which is run by other commands", []string{"org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", g.hdfs, "-refreshServiceAcl"}},
	} {
		p := start(ctx, t, spec{
			argv: append([]string{"java", "-XX:TieredStopAtLevel=1", "-cp", g.conf + ":" + hbase + "/lib/*"}, c.argv...),
			env:  []string{"HADOOP_USER_NAME=root"}, stdin: reader(""),
		})
		p.wait(ctx)
		if out := p.out.String() + p.err.String(); !strings.Contains(out, c.says) {
			t.Errorf("%s: %s", c.argv[0], out)
		}
	}
}

// TestHadoopPutOverAKilledNamenode: hadoop fs -put waits for a namenode that was killed
// in the middle, and nothing is missing then.
func TestHadoopPutOverAKilledNamenode(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	content, err := os.ReadFile(jdk(t))
	if err != nil {
		t.Fatal(err)
	}
	fs := n.client(ctx)
	for _, scheme := range []string{"webhdfs://" + g.addr, g.hdfs} {
		name := "/" + scheme[:4]
		put := start(ctx, t, g.javaSpec("org.apache.hadoop.fs.FsShell", "-fs", scheme, "-put", "-d", "-", name))
		fed := make(chan error, 1)
		go func() {
			_, err := put.stdin.Write(content)
			fed <- err
		}()
		eventually(ctx, t, "a tenth of the file is there", func() bool {
			i, err := fs.Stat(ctx, name)
			return put.ended() || err == nil && i.Size() >= int64(len(content)/10)
		})
		if put.ended() { // which it does not well before its input does
			t.Fatalf("it ended before the namenode was killed: %s", put.err)
		}
		n.crash(ctx)
		if err := <-fed; err != nil {
			t.Fatalf("what it reads: %v: %s", err, put.err)
		}
		put.eof()
		put.ends(ctx, 0)
		if got := n.run(ctx, "cat", name); got != string(content) {
			t.Errorf("%s has %d bytes that are not those put", name, len(got))
		}
	}
	n.fsck(ctx)
}
