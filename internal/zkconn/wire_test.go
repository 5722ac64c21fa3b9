package zkconn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
)

// Operations, as in ZooKeeper's ZooDefs.OpCode.
const (
	opGreeting   = 0 // our name for the connect request, which has none
	opGetData    = 4
	opSync       = 9
	opPing       = 11
	opMulti      = 14
	opSetAuth    = 100
	opSetWatches = 101
	opClose      = -11
)

// faultyLine opens connections on which writes can be made to fail.
type faultyLine struct {
	mu    sync.Mutex
	fails []int32       // the operations whose writes fail, one after the other
	all   chan struct{} // closed when all have
}

func (l *faultyLine) fail(ops ...int32) (all <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails, l.all = ops, make(chan struct{})
	return l.all
}

func (l *faultyLine) failsNow(op int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fails) == 0 || l.fails[0] != op {
		return false
	}
	if l.fails = l.fails[1:]; len(l.fails) == 0 {
		close(l.all)
	}
	return true
}

func (l *faultyLine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &faultyConn{Conn: c, line: l, greeting: true}, err
}

type faultyConn struct {
	net.Conn
	line     *faultyLine
	greeting bool
}

// Write writes half of what is to fail: who went on after it would be
// misunderstood.
func (c *faultyConn) Write(p []byte) (int, error) {
	op := int32(opGreeting)
	if !c.greeting {
		op = int32(binary.BigEndian.Uint32(p[8:])) //nolint:gosec // bits
	}
	c.greeting = false
	if !c.line.failsNow(op) {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)/2])
	return n, errors.New("the line is faulty")
}

// within fails the test if ch says nothing for very long.
func within[T any](t testing.TB, what string, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
}

// A write that fails, whatever was to be written, costs the connection. The
// session lives on with its user and its watches, and ends when it is closed.
func TestFailedWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails []int32
	}{
		{"greeting", []int32{opSync, opGreeting, opGreeting}},
		{"login", []int32{opSync, opSetAuth, opSetAuth}},
		{"watches", []int32{opSync, opSetWatches, opSetWatches}},
		{"each in turn", []int32{opSync, opGreeting, opSetAuth, opSetWatches}},
		{"multi", []int32{opMulti}},
		{"ping", []int32{opPing}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			line := new(faultyLine)
			first := line.fail(opGreeting, opSetAuth)
			s, err := zkconn.Dial(ctx, zkconn.Config{
				Servers: ensemble.Addrs(), SessionTimeout: 10 * time.Second, User: "u", Password: "p", Dial: line.dial, Logger: quiet,
			})
			if err != nil {
				t.Fatal(err)
			}
			within(t, "the first greeting and the first login fail", first)
			path := unique("faulty")
			if _, err := s.Create(ctx, path, nil, 0); err != nil { // its user's alone
				t.Fatal(err)
			}
			_, event, err := s.ExistsW(ctx, path+"/below")
			if err != nil {
				t.Fatal(err)
			}
			all := line.fail(c.fails...)
			switch c.fails[0] {
			case opSync:
				if err := s.Sync(ctx, "/"); !errors.Is(err, zkconn.ErrLost) {
					t.Fatalf("a request that was not written: %v", err)
				}
			case opMulti:
				if _, err := s.Multi(ctx, &zk.SetDataRequest{Path: path, Version: -1}); !errors.Is(err, zkconn.ErrLost) {
					t.Fatalf("a multi that was not written: %v", err)
				}
			}
			within(t, "the writes fail", all)
			for { // until the connection that comes after
				if _, err = s.Create(ctx, path+"/below", nil, 0); !errors.Is(err, zkconn.ErrLost) || ctx.Err() != nil {
					break
				}
			}
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Fatalf("a request later: %v", err)
			}
			within(t, "the watch goes off", event)

			all = line.fail(opClose)
			closed := make(chan error)
			go func() { closed <- s.Close() }()
			within(t, "the farewell fails", all)
			within(t, "the session is closed", closed)
		})
	}
}

// What is asked while there is no connection waits for it, for its context or
// for the end of the session, and keeps nothing when it has given up.
func TestCallsWithoutConnection(t *testing.T) {
	p := proxy(t)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{p.Addr()}, SessionTimeout: 10 * time.Second, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	deadline, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	down := func() {
		t.Helper()
		p.Down()
		env.Eventually(t, "the session has no connection", func() bool { return !s.Connected() })
	}
	path := unique("held")
	calls := []func(context.Context) error{
		func(ctx context.Context) error { _, _, err := s.Get(ctx, "/"); return err },
		func(ctx context.Context) error { return s.Sync(ctx, "/") },
		func(ctx context.Context) error { _, err := s.Create(ctx, path+"-given-up", nil, 0); return err },
		func(ctx context.Context) error {
			_, err := s.Multi(ctx, &zk.CreateRequest{Path: path + "-given-up", Acl: s.ACL()})
			return err
		},
	}
	ask := func(ctx context.Context, n int) (outcomes chan error) {
		outcomes = make(chan error, n)
		for i := range n {
			go func() { outcomes <- calls[i%len(calls)](ctx) }()
		}
		return outcomes
	}

	down()
	const n = 400
	before := runtime.NumGoroutine()
	short, giveUp := context.WithCancel(deadline)
	outcomes := ask(short, n)
	env.Eventually(t, "the calls wait", func() bool { return runtime.NumGoroutine() > before+n-20 })
	select {
	case err := <-outcomes:
		t.Fatalf("a call without a connection ended: %v", err)
	default:
	}
	giveUp()
	for range n {
		if err := <-outcomes; !errors.Is(err, context.Canceled) {
			t.Fatalf("a call that was given up: %v", err)
		}
	}
	env.Eventually(t, "nothing is left of the calls", func() bool { return runtime.NumGoroutine() < before+10 })

	// Those that wait on go through, in their order; those that were given up
	// never happen.
	waiting := []*zkconn.Call{
		s.Start(&zk.CreateRequest{Path: path, Acl: s.ACL()}),
		s.Start(&zk.SetDataRequest{Path: path, Data: []byte("first"), Version: 0}),
		s.Start(&zk.SetDataRequest{Path: path, Data: []byte("second"), Version: 1}),
	}
	calls = calls[:2]
	outcomes = ask(deadline, n)
	p.Up()
	for range n {
		if err := <-outcomes; err != nil {
			t.Fatalf("a call that waited for the connection: %v", err)
		}
	}
	for i, c := range waiting {
		within(t, "a multi that waited", c.Done())
		if _, err := c.Result(); err != nil {
			t.Fatalf("multi %d that waited: %v", i, err)
		}
	}
	if there, err := s.Exists(deadline, path+"-given-up"); there || err != nil {
		t.Fatalf("what was given up is there: %t, %v", there, err)
	}

	down()
	outcomes = ask(deadline, n)
	multi := s.Start(&zk.SetDataRequest{Path: path, Version: -1})
	s.Abandon()
	for range n {
		if err := <-outcomes; !errors.Is(err, zkconn.ErrLost) || !errors.Is(err, zkconn.ErrClosed) {
			t.Fatalf("a call that waited when the session ended: %v", err)
		}
	}
	within(t, "a multi that waited", multi.Done())
	if _, err := multi.Result(); !errors.Is(err, zkconn.ErrLost) || !errors.Is(err, zkconn.ErrClosed) {
		t.Fatalf("a multi that waited when the session ended: %v", err)
	}
}
