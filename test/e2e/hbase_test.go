package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hbase is where scripts/setup puts HBase.
const hbase = "../../.cache/hbase"

// javaOpens is what HBase 2.6 needs of Java 17.
var javaOpens = []string{
	"--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.lang.reflect=ALL-UNNAMED",
	"--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED",
}

// hbaseAt is an HBase in one process, with its ZooKeeper, whose files are on hdfs://.
type hbaseAt struct {
	t       *testing.T
	classes string // classpath
}

func newHBase(ctx context.Context, t *testing.T, root string) *hbaseAt {
	t.Helper()
	dir := t.TempDir()
	var conf strings.Builder
	_, port, _ := strings.Cut(freePort(t), ":")
	for _, p := range [][2]string{
		{"hbase.rootdir", root + "/hbase"},
		{"hbase.tmp.dir", dir},
		{"hbase.zookeeper.property.clientPort", port},
		{"hbase.localcluster.assign.random.ports", "true"},
		{"hbase.master.info.port", "-1"},
		{"hbase.regionserver.info.port", "-1"},
		{"hbase.regionserver.handler.count", "5"},
		{"hbase.filesystem.reorder.blocks", "false"}, // it changes constants of Java, which Java 17 refuses
	} {
		fmt.Fprintf(&conf, "<property><name>%s</name><value>%s</value></property>\n", p[0], p[1])
	}
	if err := os.WriteFile(filepath.Join(dir, "hbase-site.xml"), []byte("<configuration>\n"+conf.String()+"</configuration>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-d", dir, "-cp", hbase+"/lib/*", "testdata/hbase/Rows.java").CombinedOutput()
	if err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return &hbaseAt{t, dir + ":testdata/hbase:" + hbase + "/lib/*"}
}

func (h *hbaseAt) java(ctx context.Context, class string, args ...string) *process {
	h.t.Helper()
	argv := append([]string{"java", "-Xmx700m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, javaOpens...)
	argv = append(argv, "-cp", h.classes, class)
	return start(ctx, h.t, spec{argv: append(argv, args...), env: []string{"HADOOP_USER_NAME=root"}, stdin: reader("")})
}

// serve starts it and waits until it serves.
func (h *hbaseAt) serve(ctx context.Context) *process {
	h.t.Helper()
	p := h.java(ctx, "org.apache.hadoop.hbase.master.HMaster", "start")
	p.prints(ctx, p.err, "that it serves", func(s string) bool { return strings.Contains(s, "Master has completed initialization") })
	return p
}

// TestHBase: an HBase has its files and its write-ahead log here. It is killed while rows
// are put; the next one recovers the leases of the logs, and has each row that was acknowledged.
func TestHBase(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 8*time.Minute)
	n := startNamenode(ctx, t)
	g := startGateway(ctx, n)
	h := newHBase(ctx, t, g.hdfs)
	server := h.serve(ctx)
	put := h.java(ctx, "Rows", "put", "0")
	acked := int64(0)
	for range 2 {
		put.prints(ctx, put.out, "500 more rows", func(string) bool { return put.acked() >= acked+500 })
		server.kill()
		put.kill()
		acked = put.acked() + 1
		server = h.serve(ctx)
		if !strings.Contains(server.err.String(), "Recovered lease") {
			t.Errorf("it recovered no lease")
		}
		check := h.java(ctx, "Rows", "check", fmt.Sprint(acked))
		check.ends(ctx, 0)
		t.Logf("%d rows are there", acked)
		put = h.java(ctx, "Rows", "put", fmt.Sprint(acked))
	}
	put.kill()
	server.kill()
	n.fsck(ctx)
}
