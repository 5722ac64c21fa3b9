package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// ensemble is several namenodes of one namespace. The namenode in it runs
// commands that know all of them; it is no process.
type ensemble struct {
	*namenode
	zk  []string
	all []*namenode
}

const ensembleName = "e2e"

// newEnsemble prepares n namenodes over the ZooKeeper servers and the bucket.
func newEnsemble(t *testing.T, zk []string, server *s3env.Server, n int) *ensemble {
	t.Helper()
	e := &ensemble{namenode: &namenode{t: t}, zk: zk}
	for range n {
		e.add(server)
	}
	return e
}

// add prepares one more, on an empty folder.
func (e *ensemble) add(server *s3env.Server) *namenode {
	n := newNamenode(e.t, filepath.Join(e.t.TempDir(), "data"), "--blocks", server.URL(prefixOf(e.t)),
		"--zookeeper", strings.Join(e.zk, ","), "--namespace", ensembleName, "--session-timeout", "2s", "--delete-after", "1ms")
	n.env = server.Env()
	e.all = append(e.all, n)
	if e.listen != "" {
		e.listen += ","
	}
	e.listen += n.listen
	return n
}

func (e *ensemble) start(ctx context.Context) {
	e.t.Helper()
	e.all[0].format(ctx)
	for _, n := range e.all {
		n.start(ctx)
	}
	e.active(ctx)
}

// status asks one namenode.
func (e *ensemble) statusOf(ctx context.Context, n *namenode) client.NamenodeStatus {
	e.t.Helper()
	list, err := client.QueryStatus(ctx, client.Config{Namenodes: []string{n.listen}})
	if err != nil {
		e.t.Fatal(err)
	}
	return list[0]
}

// active waits until one of them is.
func (e *ensemble) active(ctx context.Context) (active *namenode) {
	e.t.Helper()
	eventually(ctx, e.t, "a namenode is active", func() bool {
		for _, n := range e.all {
			if n.process != nil && !n.ended() && e.statusOf(ctx, n).Role == "active" {
				active = n
				return true
			}
		}
		return false
	})
	return active
}

// caughtUp waits until a standby has applied what the active one has.
func (e *ensemble) caughtUp(ctx context.Context, n *namenode) {
	e.t.Helper()
	want := e.statusOf(ctx, e.active(ctx)).DurableTxID
	eventually(ctx, e.t, "the standby has caught up", func() bool {
		s := e.statusOf(ctx, n)
		return s.Err == nil && s.TxID >= want && (s.Role == "standby" || s.Role == "active")
	})
}

// TestS3Ensemble is several namenodes with ZooKeeper whose blocks and images are
// in a bucket.
func TestS3Ensemble(t *testing.T) {
	t.Parallel()
	onEnsembles(t, []ensembleTest{
		{"ImagesInTheStore", haImages},
		{"FilesOverFailovers", haFiles},
		{"RollingRestart", haRollingRestart},
		{"Metrics", haMetrics},
		{"OnlyTheStoreIsLeft", haOnlyTheStore},
	})
}

// ensembleTest is a test with a namespace of its own on two namenodes.
type ensembleTest struct {
	name string
	test func(context.Context, *testing.T, *ensemble, *s3env.Server)
}

// onEnsembles runs tests one after another, with each S3 server beside the other.
func onEnsembles(t *testing.T, tests []ensembleTest) {
	t.Helper()
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zk := env.LendZooKeeper(t)
			server := s3env.Start(t, name)
			for _, c := range tests {
				t.Run(c.name, func(t *testing.T) {
					ctx := deadline(t, 4*time.Minute)
					forget(ctx, t, zk.Addrs())
					c.test(ctx, t, newEnsemble(t, zk.Addrs(), server, 2), server)
				})
			}
		})
	}
}

// forget removes the namespace from ZooKeeper, as if the servers were new.
func forget(ctx context.Context, t *testing.T, zk []string) {
	t.Helper()
	sess, err := zkconn.Dial(ctx, zkconn.Config{Servers: zk, SessionTimeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close() }()
	if err := removeTree(ctx, sess, "/leasefs"); err != nil {
		t.Fatal(err)
	}
}

func removeTree(ctx context.Context, sess *zkconn.Session, path string) error {
	children, err := sess.Children(ctx, path)
	if errors.Is(err, zookeeper.ErrNoNode) {
		return nil
	}
	for _, c := range children {
		if err == nil {
			err = removeTree(ctx, sess, path+"/"+c)
		}
	}
	if err == nil {
		err = sess.Delete(ctx, path, -1)
	}
	return err
}

// haImages: a checkpoint is an object; two are kept; a namenode with an empty
// folder starts from the newest and the journal behind it.
func haImages(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	for _, n := range e.all {
		n.flags = append(n.flags, "--archive", "1h") // metrics of it, too
	}
	e.start(ctx)
	e.run(ctx, "put", "-r", goSource(t, "internal/abi"), "/tree")
	for i := range 3 {
		e.write(ctx, fmt.Sprint("after ", i), "create", "-p", fmt.Sprintf("/after/%d", i))
		e.run(ctx, "admin", "checkpoint")
	}
	images := stored(t, server, "/named/image-")
	if len(images) != 2 {
		t.Errorf("images in the store: %v, want two", images)
	}
	e.write(ctx, "behind the image", "create", "/behind")
	want := e.run(ctx, "ls", "-lR", "/")
	image := e.statusOf(ctx, e.active(ctx)).ImageTxID
	third := e.add(server)
	third.start(ctx)
	e.caughtUp(ctx, third)
	if s := e.statusOf(ctx, third); s.Role != "standby" || s.ImageTxID != image {
		t.Errorf("the third: %+v", s)
	}
	names(t, third.page(ctx, "metrics"), "leasefs_ready 0", "leasefs_standby 1", "leasefs_txid ", "leasefs_durable_txid ", "leasefs_s3_requests_total")
	names(t, e.active(ctx).page(ctx, "metrics"), "leasefs_ready 1", "leasefs_standby 0", "leasefs_zookeeper_journal_bytes ")
	alertsAreOfMetrics(t, third.page(ctx, "metrics")+e.active(ctx).page(ctx, "metrics"))
	for _, n := range e.all[:2] {
		n.kill()
	}
	if got := e.run(ctx, "ls", "-lR", "/"); got != want {
		t.Errorf("the third has\n%s\nwant\n%s", tailOf(got), tailOf(want))
	}
	if got := e.run(ctx, "cat", "/behind"); got != "behind the image" {
		t.Errorf("%q", got)
	}
	e.fsck(ctx)
	// Nothing of images stays in data folders.
	for _, n := range e.all {
		if size, files := folderBytes(t, filepath.Join(n.data, "image")); files != 0 {
			t.Errorf("%d files, %d bytes in %s/image", files, size, n.data)
		}
	}
	// A damaged newest image is passed over, for the other.
	names := stored(t, server, "/named/image-")
	server.Put(t, names[len(names)-1], []byte("not an image"))
	third.kill()
	fourth := e.add(server)
	fourth.start(ctx)
	if got := e.run(ctx, "ls", "-lR", "/"); got != want {
		t.Errorf("the fourth has\n%s\nwant\n%s", tailOf(got), tailOf(want))
	}
	names = stored(t, server, "/named/image-")
	e.run(ctx, "admin", "checkpoint")
	fourth.term(ctx)
	fourth.start(ctx)
	e.fsck(ctx)
	t.Logf("images: %v", names)
}

// alertsAreOfMetrics: a rule about a metric that nobody has would never fire.
func alertsAreOfMetrics(t *testing.T, pages string) {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`leasefs_[a-z0-9_]+`).FindAllString(string(rules), -1) {
		if name == "leasefs_limit_full_seconds" {
			continue // only what grows has it: TestStatusTellsWhatIsUsedUp sees it
		}
		if !strings.Contains(pages, "\n"+name+" ") && !strings.Contains(pages, "\n"+name+"{") {
			t.Errorf("deploy/prometheus-alerts.yml: no namenode has %s", name)
		}
	}
}

// haFiles: what one namenode has taken the next one gives.
func haFiles(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	e.start(ctx)
	odd := oddTree(t)
	put := e.begin(ctx, reader(""), "put", "-r", odd, "/odd")
	eventually(ctx, t, "blocks arrive", func() bool { return len(stored(t, server, "/blocks/")) > 0 || put.ended() })
	victim := e.active(ctx)
	victim.kill()
	put.ends(ctx, 0)
	victim.start(ctx)
	e.run(ctx, "admin", "failover")
	out := filepath.Join(t.TempDir(), "out")
	e.run(ctx, "get", "-r", "/odd", out)
	files, size := sameTrees(ctx, t, odd, out)
	t.Logf("%d files, %s, over kill -9 and a failover", files, mib(size))
	e.fsck(ctx)
	// All that rewrites blocks, each on another namenode.
	want := ""
	add := func(text string) {
		e.write(ctx, text, "append", "--create", "/log")
		want += text
	}
	for i := range 4 {
		add(strings.Repeat(strconv.Itoa(i), 300_000))
		e.run(ctx, "admin", "failover")
	}
	e.run(ctx, "truncate", "--size", "1000001", "/log")
	want = want[:1_000_001]
	add("tail")
	e.write(ctx, "second", "create", "/second")
	e.run(ctx, "admin", "failover")
	e.run(ctx, "concat", "/log", "/second")
	want += "second"
	if got := e.run(ctx, "cat", "/log"); got != want {
		t.Errorf("/log has %d bytes, not the %d written", len(got), len(want))
	}
	e.run(ctx, "rm", "-r", "/odd")
	e.run(ctx, "admin", "gc")
	e.fsck(ctx)
}

// haRollingRestart: namenodes are restarted one by one, the active one last,
// under writers that notice no more than a pause.
func haRollingRestart(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	e.add(server)
	e.start(ctx)
	const writers = 4
	procs := make([]*process, writers)
	want := make([]strings.Builder, writers)
	for i := range procs {
		procs[i] = e.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", fmt.Sprintf("/w%d", i))
	}
	line := 0
	feed := func() {
		for i, p := range procs {
			text := fmt.Sprintf("writer %d line %d %s\n", i, line, strings.Repeat(".", line%300*10))
			p.feed(text)
			want[i].WriteString(text)
		}
		line++
	}
	settled := func() (longest time.Duration) {
		for i, p := range procs {
			began := time.Now()
			p.acksUpTo(ctx, int64(want[i].Len()))
			longest = max(longest, time.Since(began))
		}
		return longest
	}
	for round := range 2 {
		active := e.active(ctx)
		order := make([]*namenode, 0, len(e.all))
		for _, n := range e.all {
			if n != active {
				order = append(order, n)
			}
		}
		for _, n := range append(order, active) {
			for range 20 {
				feed()
			}
			began := time.Now()
			n.signal(15)
			feed()
			n.ends(ctx, 0)
			ended := time.Since(began)
			pause := settled()
			n.start(ctx)
			e.caughtUp(ctx, n)
			t.Logf("round %d: %v restarted (the active one: %t): ended in %.2f s, the last writer went on after %.2f s more, caught up after %.2f s",
				round, n.listen, n == active, ended.Seconds(), pause.Seconds(), time.Since(began).Seconds())
		}
	}
	for range 20 {
		feed()
	}
	for i, p := range procs {
		p.eof()
		p.ends(ctx, 0)
		if got := e.run(ctx, "cat", fmt.Sprintf("/w%d", i)); got != want[i].String() {
			t.Errorf("writer %d: %d bytes, not the %d that were acknowledged", i, len(got), want[i].Len())
		}
	}
	if got := e.run(ctx, "find", "/", "--open"); got != "" {
		t.Errorf("left open: %s", got)
	}
	e.fsck(ctx)
}

// haOnlyTheStore: ZooKeeper and all data folders are lost. docs/OPERATIONS.md
// says what to do; what the last image has is there again.
func haOnlyTheStore(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	e.start(ctx)
	large := strings.Repeat("large ", 400_000)
	e.write(ctx, large, "create", "/large")
	e.write(ctx, "small", "create", "/small")
	e.run(ctx, "admin", "checkpoint")
	e.write(ctx, large, "create", "/lost") // behind the image
	s := e.statusOf(ctx, e.active(ctx))
	for _, n := range e.all {
		n.kill()
	}
	forget(ctx, t, e.zk)
	// The id is in the names of the objects.
	id := strings.Split(strings.TrimPrefix(stored(t, server, "/named/image-")[0], prefixOf(t)+"/"), "/")[0]
	if id != s.NamespaceID {
		t.Fatalf("id %q, want %q", id, s.NamespaceID)
	}
	names(t, e.takeOver(ctx, server.URL(prefixOf(t))), "all later changes are lost", "2 files")
	fresh := newEnsemble(t, e.zk, server, 2)
	fresh.start(ctx)
	if got := fresh.run(ctx, "cat", "/small"); got != "small" {
		t.Errorf("%q", got)
	}
	if got := fresh.run(ctx, "cat", "/large"); got != large {
		t.Errorf("/large has %d bytes", len(got))
	}
	fresh.fails(ctx, 3, "", "cat", "/lost")
	if now := fresh.statusOf(ctx, fresh.active(ctx)); now.Term <= s.Term || now.NamespaceID != id {
		t.Errorf("%+v, before %+v", now, s)
	}
	for i := range 3 {
		fresh.write(ctx, large, "create", fmt.Sprintf("/new%d", i))
		fresh.run(ctx, "admin", "failover")
	}
	fresh.run(ctx, "admin", "checkpoint")
	fresh.fsck(ctx)
}
