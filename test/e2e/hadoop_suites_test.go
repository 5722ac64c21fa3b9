package e2e_test

import (
	"cmp"
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hdfs is where scripts/setup puts HDFS, with Hadoop's own tests.
const hdfs = "../../.cache/hdfs"

// suites are in testdata/hadoop/suites, and most of their checks in Hadoop's jars.
const suites = "testdata/hadoop/suites"

// exception is a check that does not pass, and why that is right.
type exception struct{ how, why string }

var onePath = exception{"skipped", "Hadoop's client of HDFS deletes one path a call, and the test wants to delete some"}

// TestHadoopSuites: Hadoop's own tests of file systems, its benchmark of namenodes, and tests of
// Java writers against each other, on a namenode that serves Hadoop's clients in its process.
// Each check passes, but for those that are named here, and these do not.
func TestHadoopSuites(t *testing.T) {
	t.Parallel()
	classes := t.TempDir()
	sources, err := filepath.Glob(suites + "/*.java")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources in %s: %v", suites, err)
	}
	argv := append([]string{"-nowarn", "-d", classes, "-cp", hdfs + "/lib/*"}, sources...)
	if out, err := exec.CommandContext(t.Context(), "javac", argv...).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("javac: %v\n%s", err, out)
	}
	for _, s := range []struct {
		name, contract, run string
		checks              int // at least
		except              map[string]exception
	}{
		{
			"hdfs", "hdfs", "Append BulkDelete Concat ContentSummary CopyFromLocal Create Delete GetFileStatus LeaseRecovery Mkdir " +
				"MultipartUploader Open PathHandle Rename RootDirectory SafeMode Seek SetTimes Unbuffer VectoredRead Base", 326,
			map[string]exception{
				"BulkDelete.testChildPaths":                  onePath,
				"BulkDelete.testDeletePathsDirectory":        onePath,
				"BulkDelete.testDeleteSamePathsMoreThanOnce": onePath,
			},
		},
		{
			"webhdfs", "webhdfs", "Append Concat Create Delete GetFileStatus Mkdir Open Rename RootDirectory Seek SetTimes Base", 165,
			map[string]exception{
				"Seek.testNegativeSeek": {"failed", "Hadoop's client of WebHDFS throws an IllegalArgumentException before it asks a server; the test wants an IOException"},
			},
		},
		{"writers", "hdfs", "Writers", 12, nil},
		{"throughput", "hdfs", "Throughput", 6, nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			ctx := deadline(t, 5*time.Minute)
			n := newNamenode(t, filepath.Join(t.TempDir(), "data"))
			g := startInside(ctx, n)
			uri := g.hdfs
			if s.contract == "webhdfs" {
				uri = "webhdfs://" + g.addr
			}
			dir := t.TempDir()
			argv := []string{"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens", "java.base/java.lang=ALL-UNNAMED"}
			for _, p := range [][2]string{{"uri", uri}, {"contract", s.contract + ".xml"}, {"java.io.tmpdir", dir}, {"test.build.data", dir}} {
				argv = append(argv, "-D"+p[0]+"="+p[1])
			}
			argv = append(argv, "-cp", classes+":"+suites+":"+hdfs+"/lib/*", "Suites")
			p := start(ctx, t, spec{argv: append(argv, strings.Fields(s.run)...), env: []string{"HADOOP_USER_NAME=root"}, stdin: reader("")})
			p.ends(ctx, 0)
			judge(t, p, s.checks, s.except)
			n.fsck(ctx)
		})
	}
}

// startInside starts a namenode that serves Hadoop's clients in its own process.
func startInside(ctx context.Context, n *namenode) *gateway {
	n.t.Helper()
	n.process = n.launch(ctx, "--webhdfs", "127.0.0.1:0", "--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0")
	n.prints(ctx, n.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	fields := strings.Fields(n.out.String()) // ready ADDR http ADDR hadoop ADDR hdfs://ADDR data ADDR
	if len(fields) != 9 || fields[4] != "hadoop" {
		n.t.Fatalf("the namenode says %q", n.out.String())
	}
	return &gateway{n: n, process: n.process, addr: fields[5], hdfs: fields[6]}
}

// judge holds what Suites has printed to what has to be: at least so many checks have ended, and
// all have passed but for these, which have not.
func judge(t *testing.T, p *process, checks int, except map[string]exception) {
	t.Helper()
	said := lines(p.out.String())
	if said[len(said)-1] != "all" {
		t.Errorf("not all of it ran: %s\nstderr: %s", tailOf(p.out.String()), tailOf(p.err.String()))
	}
	begun := map[string]bool{}
	ended := map[string]int{} // by how
	open := maps.Clone(except)
	for _, line := range said {
		f := append(strings.SplitN(line, "\t", 4), "", "", "", "")
		how, name, why := f[1], f[2], f[3]
		switch {
		case f[0] != "check":
			continue // of a library
		case how == "begun":
			begun[name] = true
			continue
		}
		delete(begun, name)
		ended[how]++
		want := cmp.Or(except[name].how, "passed")
		delete(open, name)
		if how != want {
			t.Errorf("%s has %s, should have %s: %s", name, how, want, cmp.Or(why, except[name].why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		t.Errorf("%s did not run, but is an exception: %s", name, open[name].why)
	}
	for name := range begun {
		t.Errorf("%s has no end", name)
	}
	if n := ended["passed"] + ended["failed"] + ended["skipped"]; n < checks {
		t.Errorf("%d checks ran, should be %d at least", n, checks)
	}
	t.Logf("%v", ended)
	if t.Failed() {
		t.Logf("stderr: %s", tailOf(p.err.String()))
	}
}
