package zkconn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

var (
	ensemble *env.ZooKeeper
	quiet    = slog.New(slog.DiscardHandler)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.AroundTests(m, &ensemble)) }

// sessionTimeout is long: no session ends because
// the machine is busy.
const sessionTimeout = 20 * env.ZooKeeperTick

func dial(t testing.TB, servers ...string) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers, SessionTimeout: sessionTimeout, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var names atomic.Int64

func unique(name string) string { return fmt.Sprintf("/%s-%d", name, names.Add(1)) }

func proxy(t testing.TB) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(ensemble.Server(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Multis arrive in the order in which they were started.
func TestMultisKeepTheirOrder(t *testing.T) {
	const n = 2000
	path := unique("order")
	p := proxy(t)
	var mu sync.Mutex
	var came []uint32
	p.Decide(func(op int32, body []byte) zkproxy.Action {
		if op == zkproxy.OpMulti { // type 4, done 1, error 4, path 4+n, data 4+4
			size := binary.BigEndian.Uint32(body[9:])
			mu.Lock()
			defer mu.Unlock()
			came = append(came, binary.BigEndian.Uint32(body[17+size:]))
		}
		return zkproxy.Forward
	})
	s := dial(t, p.Addr())
	if err := s.EnsurePath(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	var calls []*zkconn.Call
	for i := range uint32(n) {
		calls = append(calls, s.Start(&zk.SetDataRequest{Path: path, Data: binary.BigEndian.AppendUint32(nil, i), Version: int32(i)}))
	}
	for i, c := range calls {
		<-c.Done()
		if _, err := c.Result(); err != nil {
			t.Fatalf("multi %d: %v", i, err)
		}
	}
	for i, got := range came {
		if got != uint32(i) {
			t.Fatalf("multi %d came as number %d", got, i)
		}
	}
	if len(came) != n {
		t.Fatalf("%d of %d came", len(came), n)
	}
}

// After the session's end nothing of it is sent, by whatever name.
func TestExpiredSessionSendsNothing(t *testing.T) {
	p := proxy(t)
	s := dial(t, p.Addr())
	_, ch, err := s.ExistsW(t.Context(), "/never")
	if err != nil {
		t.Fatal(err)
	}
	if s.Timeout() != sessionTimeout || !s.Connected() {
		t.Fatalf("time-out %s, connected %t", s.Timeout(), s.Connected())
	}
	p.Down()
	path := unique("queued")
	queued := s.Start(&zk.CreateRequest{Path: path, Acl: s.ACL()})
	var requests atomic.Int64
	p.Decide(func(int32, []byte) zkproxy.Action {
		requests.Add(1)
		return zkproxy.Forward
	})
	if err := p.Expire(s.ID()); err != nil {
		t.Fatal(err)
	}
	p.Up()
	<-s.Done()
	<-queued.Done()
	if _, err := queued.Result(); !zkconn.Unknown(err) {
		t.Fatalf("queued: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "/"); !errors.Is(err, zkconn.ErrExpired) || !errors.Is(err, zkconn.ErrLost) {
		t.Fatalf("Get: %v", err)
	}
	<-ch
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if there, err := dial(t, ensemble.Addrs()...).Exists(t.Context(), path); there || err != nil || requests.Load() != 0 {
		t.Fatalf("the queued request was carried out: %t, %v, %d requests", there, err, requests.Load())
	}
}

// A watch goes off over a reconnection, though what it waits for came meanwhile.
func TestWatchOverReconnection(t *testing.T) {
	t.Run("without a user", func(t *testing.T) { watchOverReconnection(t, "") })
	t.Run("with one", func(t *testing.T) { watchOverReconnection(t, "u") })
}

func watchOverReconnection(t *testing.T, user string) {
	p := proxy(t)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{p.Addr()}, SessionTimeout: 10 * time.Second, User: user, Password: "p", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	other := dial(t, ensemble.Addrs()...)
	for range 20 {
		path := unique("watched")
		there, ch, err := s.ExistsW(t.Context(), path)
		if err != nil || there {
			t.Fatal(there, err)
		}
		p.Down()
		if _, err := other.Create(t.Context(), path, nil, 0); err != nil {
			t.Fatal(err)
		}
		queued := s.Start(&zk.SetDataRequest{Path: "/", Version: -1}) // its answer is newer than the event
		p.Up()
		<-queued.Done()
		if e := <-ch; e.Type != zk.EventNodeCreated {
			t.Fatalf("event %+v", e)
		}
	}
}

// A watch of children goes off once when one comes or goes, also when that happens
// while the session is on its way to another server; it ends with the node, and with
// the session.
func TestChildrenW(t *testing.T) {
	here := proxy(t)
	there, err := zkproxy.New(ensemble.Server(1).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	there.Down()
	s := dial(t, here.Addr(), there.Addr())
	other := dial(t, ensemble.Addrs()...)
	path := unique("children")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	catchUp := func() {
		t.Helper()
		ok(s.Retry(t.Context(), func() error { return s.Sync(t.Context(), path) }))
	}
	watch := func() (string, <-chan zk.Event) {
		t.Helper()
		catchUp()
		names, changed, err := s.ChildrenW(t.Context(), path)
		ok(err)
		slices.Sort(names)
		return strings.Join(names, " "), changed
	}
	come := func(name string) {
		t.Helper()
		_, err := other.Create(t.Context(), path+name, nil, 0)
		ok(err)
	}
	leave := func(name string) { t.Helper(); ok(other.Delete(t.Context(), path+name, -1)) }
	come("")
	for _, test := range []struct {
		name   string
		change func()
		had    string
	}{
		{"one comes", func() { come("/a") }, ""},
		{"one comes while it moves", func() { here.Down(); come("/b"); there.Up() }, "a"},
		{"one goes", func() { leave("/a") }, "a b"},
		{"one goes while it moves", func() { there.Down(); leave("/b"); here.Up() }, "b"},
		{"nothing changes while it moves", func() { here.Down(); there.Up(); catchUp(); come("/c") }, ""},
	} {
		had, changed := watch()
		if had != test.had {
			t.Fatalf("before %q there are %q, want %q", test.name, had, test.had)
		}
		catchUp()
		select {
		case e := <-changed:
			t.Fatalf("before %q: %+v", test.name, e)
		default:
		}
		test.change()
		if e := <-changed; e.Type != zk.EventNodeChildrenChanged {
			t.Fatalf("when %q: %+v", test.name, e)
		}
	}
	if _, changed, err := s.ChildrenW(t.Context(), path+"/a"); !errors.Is(err, zk.ErrNoNode) || changed != nil {
		t.Fatalf("of no node: %v, %v", changed, err)
	}
	_, changed := watch()
	leave("/c")
	<-changed
	_, changed = watch()
	leave("")
	if e := <-changed; e.Type != zk.EventNodeDeleted {
		t.Fatalf("when the node goes: %+v", e)
	}
	come("")
	_, changed = watch()
	ok(s.Close())
	if e := <-changed; e.Type != zk.EventNotWatching {
		t.Fatalf("when the session ends: %+v", e)
	}
}

// A server that is stopped takes connections and says nothing: another is taken.
func TestStoppedServerIsLeft(t *testing.T) {
	z := env.StartZooKeeper(t, 3)
	_, followers := z.Leader(t)
	followers[0].Pause(t)
	defer followers[0].Continue(t)
	for range 3 { // one of two is tried first
		s := dial(t, followers[0].Addr(), followers[1].Addr())
		if err := s.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDialSaysWhatFailed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	dials := 0
	_, err = zkconn.Dial(ctx, zkconn.Config{Servers: []string{addr}, Logger: quiet, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials > 1 { // the first one's failure is known
			cancel(context.DeadlineExceeded)
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("Dial: %v", err)
	}
	if _, err := zkconn.Dial(t.Context(), zkconn.Config{}); err == nil {
		t.Fatal("Dial without servers")
	}
}

// TLS is spoken to the servers. Of those that are not trusted see
// TestUnfitServers.
func TestTLS(t *testing.T) {
	p := proxy(t)
	certs := httptest.NewTLSServer(nil) // for its certificate
	defer certs.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", certs.TLS)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { forward(c, p.Addr()) })
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(certs.Certificate())
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{l.Addr().String()}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, User: "u", Password: "p", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func forward(c net.Conn, addr string) {
	defer func() { _ = c.Close() }()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(c, to)
		_ = c.Close()
	}()
	_, _ = io.Copy(to, c)
	_ = to.Close()
	<-done
}

// A call is given up with its context, and the session lives on.
func TestContextEndsACall(t *testing.T) {
	p := proxy(t)
	s := dial(t, p.Addr())
	free := make(chan struct{})
	arrived := make(chan struct{}, 10)
	p.Decide(func(int32, []byte) zkproxy.Action {
		arrived <- struct{}{}
		<-free
		return zkproxy.Forward
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, _, err := s.Get(ctx, "/"); !errors.Is(err, context.Canceled) {
		t.Fatalf("Get: %v", err)
	}
	close(free)
	if _, _, err := s.Get(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
}

// A server that has just been started takes connections before it answers. It is
// waited for, and the log says so. A connection that stays silent is given up,
// however long a session may be.
func TestStartingServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := proxy(t)
	var once sync.Once
	told := make(chan string, 1)
	ready := make(chan struct{})
	var log lines = func(line string) {
		if strings.Contains(line, "waiting for ZooKeeper") {
			once.Do(func() { told <- line; close(ready) })
		}
	}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{
		Servers: []string{p.Addr()}, SessionTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-ready:
				return new(net.Dialer).DialContext(ctx, network, addr)
			default:
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, there) }() // ends with here
				return here, nil
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if line := <-told; !strings.Contains(line, p.Addr()) || !strings.Contains(line, "does not answer as a ZooKeeper server") {
		t.Errorf("the log says %q", line)
	}
	if err := errors.Join(s.Sync(t.Context(), "/"), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// lines gets what is logged.
type lines func(line string)

func (f lines) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// What is asked again and again says why it waits, also if the request never got as far
// as to fail.
func TestWaitingSaysWhatFails(t *testing.T) {
	t.Parallel()
	p := proxy(t)
	told := make(chan string, 100)
	var log lines = func(line string) {
		if strings.Contains(line, "waiting for ZooKeeper") {
			told <- line
		}
	}
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{p.Addr()}, SessionTimeout: sessionTimeout, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	says := func(what string, request func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Retry(ctx, func() error { return request(ctx) }) }()
		line := <-told
		for !strings.Contains(line, what) { // one of before may still come
			line = <-told
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}
	says("the server chokes", func(context.Context) error { return fmt.Errorf("%w: the server chokes", zkconn.ErrLost) })
	p.Down()
	env.Eventually(t, "the connection is lost", func() bool { return !s.Connected() })
	says(p.Addr(), func(ctx context.Context) error { return s.Sync(ctx, "/") })
	s.Abandon()
}
