package e2e_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestZooKeeperPasswordRenewed goes the way of docs/OPERATIONS.md, "A new
// password for ZooKeeper", under a writer that does not stop.
func TestZooKeeperPasswordRenewed(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	const before, after = "leasefs:before", "renewed:after:all" // a password may have colons
	e := startFleet(ctx, t, func(c *fleetConfig) {
		c.env = []string{"LEASEFS_ZOOKEEPER_AUTH=" + before}
	})
	top := "/leasefs/" + e.name
	_, stop := e.keepWriting(ctx, "/log")
	restart := func(env ...string) {
		t.Helper()
		for _, m := range e.members {
			m.term(ctx)
			m.env = env
			m.start(ctx)
			e.settled(ctx)
		}
	}
	own := func(code int, env ...string) *process {
		t.Helper()
		p := start(ctx, t, spec{argv: []string{leasefs, "admin", "zookeeper-acl", "--zookeeper", strings.Join(e.zk.Addrs(), ","), "--namespace", e.name, "--json"}, env: env})
		p.ends(ctx, code)
		return p
	}
	connect := func(auth string) *zookeeper.Conn {
		t.Helper()
		conn, _, err := zookeeper.Connect(e.zk.Addrs(), 10*time.Second, zookeeper.WithLogInfo(false), zookeeper.WithLogger(noLog{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if err := persistently(ctx, func() error { return conn.AddAuth("digest", []byte(auth)) }); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	// open looks whom the nodes let in. Those of a fleet that writes come and go.
	open := func(auth string, want error) {
		t.Helper()
		conn := connect(auth)
		seen := 0
		for _, path := range nodesBelow(ctx, t, connect(after), top) {
			err := persistently(ctx, func() error { _, _, err := conn.Get(path); return err })
			if !errors.Is(err, want) && !errors.Is(err, zookeeper.ErrNoNode) {
				t.Errorf("%s reads %s: %v, want %v", auth, path, err, want)
			}
			seen++
		}
		if seen < 10 {
			t.Errorf("only %d nodes", seen)
		}
	}

	restart("LEASEFS_ZOOKEEPER_AUTH="+before, "LEASEFS_ZOOKEEPER_AUTH_ALSO="+after)
	own(0, "LEASEFS_ZOOKEEPER_AUTH="+before, "LEASEFS_ZOOKEEPER_AUTH_ALSO="+after)
	open(before, nil)
	open(after, nil)
	restart("LEASEFS_ZOOKEEPER_AUTH=" + after)
	open(after, nil)
	var done struct{ Nodes, Changed int }
	if said := own(0, "LEASEFS_ZOOKEEPER_AUTH="+after).out.String(); json.Unmarshal([]byte(said), &done) != nil || done.Nodes < 10 || done.Changed < 10 {
		t.Errorf("it says %q", said)
	}
	open(before, zookeeper.ErrNoAuth)
	open(after, nil)
	own(fserror.ExitPermission, "LEASEFS_ZOOKEEPER_AUTH="+before)
	stop()

	m := e.members[0]
	m.term(ctx)
	m.env = []string{"LEASEFS_ZOOKEEPER_AUTH=" + before}
	p := m.launch(ctx)
	p.ends(ctx, fserror.ExitPermission)
	oneLine(t, behindLog(p.err.String()))
	m.env = []string{"LEASEFS_ZOOKEEPER_AUTH=" + after}
	m.start(ctx)
	e.settled(ctx)
}
