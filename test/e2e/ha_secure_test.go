package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestHASecureZooKeeper: namenodes speak TLS to ZooKeeper, with certificates on
// both sides, and make nodes that a stranger can neither read nor change.
func TestHASecureZooKeeper(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	dir := t.TempDir()
	server, serverKey := env.Certificate(t, dir, "server")
	mine, mineKey := env.Certificate(t, dir, "namenode")
	stranger, strangerKey := env.Certificate(t, dir, "stranger")
	zk := env.StartZooKeeperWith(t, env.ZooKeeperConfig{Servers: 3, Cert: server, Key: serverKey, Trusted: mine})
	e := startFleet(ctx, t, func(c *fleetConfig) {
		c.n, c.zk, c.secure = 2, zk, true
		c.flags = []string{"--zookeeper-tls-ca", server, "--zookeeper-tls-cert", mine, "--zookeeper-tls-key", mineKey}
		c.env = []string{"LEASEFS_ZOOKEEPER_AUTH=leasefs:right"}
	})
	e.write(ctx, "text\n", "create", "/f")
	for range 2 {
		a := e.settled(ctx)
		for _, l := range a.zk { // what is made on a new connection belongs to the user, too
			l.sever()
		}
		e.write(ctx, "text\n", "append", "/f")
		e.harms(ctx)["kill -9"](a)
	}
	e.settled(ctx)
	if got := e.run(ctx, "cat", "/f"); got != strings.Repeat("text\n", 3) {
		t.Errorf("%q", got)
	}

	// The port without TLS is there too, for looking with.
	connect := func() *zookeeper.Conn {
		t.Helper()
		conn, _, err := zookeeper.Connect(zk.Addrs(), 4*time.Second, zookeeper.WithLogInfo(false), zookeeper.WithLogger(noLog{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	conn, owner := connect(), connect()
	if err := persistently(ctx, func() error { return owner.AddAuth("digest", []byte("leasefs:right")) }); err != nil {
		t.Fatal(err)
	}
	top := "/leasefs/" + e.name
	refused := func(what, path string, err error) {
		t.Helper()
		if !errors.Is(err, zookeeper.ErrNoAuth) {
			t.Errorf("a stranger: %s %s: %v", what, path, err)
		}
	}
	all := nodesBelow(ctx, t, owner, top)
	if len(all) < 10 {
		t.Errorf("only %q are there", all)
	}
	for _, path := range all {
		for what, do := range map[string]func() error{
			"read":  func() error { _, _, err := conn.Get(path); return err },
			"list":  func() error { _, _, err := conn.Children(path); return err },
			"write": func() error { _, err := conn.Set(path, []byte("x"), -1); return err },
			"create below": func() error {
				_, err := conn.Create(path+"/x", nil, 0, zookeeper.WorldACL(zookeeper.PermAll))
				return err
			},
			"open": func() error { _, err := conn.SetACL(path, zookeeper.WorldACL(zookeeper.PermAll), -1); return err },
		} {
			if err := persistently(ctx, do); !errors.Is(err, zookeeper.ErrNoNode) || path == top { // those of namenodes come and go
				refused(what, path, err)
			}
		}
	}
	refused("delete", top+"/format", persistently(ctx, func() error { return conn.Delete(top+"/format", -1) }))

	// Another namespace's user has room beside it.
	prepare := func(auth string, flags ...string) *namenode {
		t.Helper()
		n := newNamenode(t, t.TempDir(), append([]string{"--blocks", "file://" + t.TempDir(), "--session-timeout", sessionTimeout.String()}, flags...)...)
		if auth != "" {
			n.env = []string{"LEASEFS_ZOOKEEPER_AUTH=" + auth}
		}
		return n
	}
	launch := func(auth string, flags ...string) *process { t.Helper(); return prepare(auth, flags...).launch(ctx) }
	plain := []string{"--zookeeper", strings.Join(zk.Addrs(), ","), "--namespace"}
	other := prepare("another:user", append(plain, e.name+"-other")...)
	other.format(ctx)
	p := other.launch(ctx)
	p.prints(ctx, p.out, "ready", func(s string) bool { return strings.HasPrefix(s, "ready") })
	p.kill()
	for _, auth := range []string{"", "leasefs:wrong", "another:right"} {
		p := launch(auth, append(plain, e.name)...)
		p.ends(ctx, fserror.ExitPermission)
		oneLine(t, behindLog(p.err.String()))
		if text := p.err.String(); !strings.Contains(text, "--zookeeper-auth") || !strings.Contains(text, "LEASEFS_ZOOKEEPER_AUTH") || strings.Contains(text, "right") {
			t.Errorf("with %q: %s", auth, text)
		}
	}

	// Who does not trust, or is not trusted, gets no further, and says why. What an alert calls
	// a certificate that is not trusted (bad, or unknown) differs from one Java to the next.
	var secure []string
	for _, l := range e.members[0].zk {
		secure = append(secure, l.addr())
	}
	tls := []string{"--zookeeper", strings.Join(secure, ","), "--namespace", e.name}
	tried := map[string]*process{}
	for why, flags := range map[string][]string{
		"certificate signed by unknown authority": {"--zookeeper-tls-ca", stranger, "--zookeeper-tls-cert", mine, "--zookeeper-tls-key", mineKey},
		"remote error: tls: ":                     {"--zookeeper-tls-ca", server, "--zookeeper-tls-cert", stranger, "--zookeeper-tls-key", strangerKey},
		"or it wants TLS":                         nil,
	} {
		tried[why] = launch("leasefs:right", append(flags, tls...)...)
	}
	for why, p := range tried {
		p.prints(ctx, p.err, why, func(s string) bool { return strings.Contains(s, why) })
		if why == "or it wants TLS" { // or has no quorum: that is waited for
			p.kill()
			continue
		}
		p.ends(ctx, fserror.ExitUnavailable)
	}
}

// nodesBelow lists a node and all below it.
func nodesBelow(ctx context.Context, t *testing.T, conn *zookeeper.Conn, path string) []string {
	t.Helper()
	var names []string
	err := persistently(ctx, func() (err error) { names, _, err = conn.Children(path); return err })
	if errors.Is(err, zookeeper.ErrNoNode) {
		return nil // it went meanwhile
	}
	if err != nil {
		t.Fatalf("list %s: %v", path, err)
	}
	all := []string{path}
	for _, name := range names {
		all = append(all, nodesBelow(ctx, t, conn, path+"/"+name)...)
	}
	return all
}

// persistently asks ZooKeeper again when it did not answer: the connection, or the
// session, was lost.
func persistently(ctx context.Context, do func() error) error {
	lost := []error{zookeeper.ErrConnectionClosed, zookeeper.ErrSessionExpired, zookeeper.ErrSessionMoved, zookeeper.ErrNoServer}
	for {
		err := do()
		if ctx.Err() != nil || !slices.ContainsFunc(lost, func(l error) bool { return errors.Is(err, l) }) {
			return err
		}
		rest(ctx, 20*time.Millisecond)
	}
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}
