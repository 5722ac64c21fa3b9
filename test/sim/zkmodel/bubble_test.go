package zkmodel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// dialer connects to the model's servers, named zk0:1, zk1:1, …, by pipes.
func dialer(e *zkmodel.Ensemble) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		var i int
		if _, err := fmt.Sscanf(addr, "zk%d:1", &i); err != nil {
			return nil, err
		}
		here, there := net.Pipe()
		e.Server(i).ServeConn(there)
		return here, nil
	}
}

func dial(t *testing.T, e *zkmodel.Ensemble, servers ...int) *zkconn.Session {
	t.Helper()
	return dialAs(t, e, zkconn.Config{}, servers...)
}

// dialAs is dial with the users of cfg.
func dialAs(t *testing.T, e *zkmodel.Ensemble, cfg zkconn.Config, servers ...int) *zkconn.Session {
	t.Helper()
	for _, i := range servers {
		cfg.Servers = append(cfg.Servers, fmt.Sprintf("zk%d:1", i))
	}
	cfg.SessionTimeout, cfg.Dial, cfg.Logger = 4*time.Second, dialer(e), quiet
	s, err := zkconn.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// inBubble runs fn with three model servers in simulated time.
func inBubble(t *testing.T, fn func(*testing.T, *zkmodel.Ensemble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := zkmodel.New(zkmodel.Config{Servers: 3})
		t.Cleanup(func() {
			e.Close()
			<-time.After(2 * time.Second) // go-zookeeper's Close leaves a goroutine for one
		})
		fn(t, e)
	})
}

func create(t *testing.T, s *zkconn.Session, path string, flags int32) {
	t.Helper()
	if _, err := s.Create(t.Context(), path, []byte{}, flags); err != nil {
		t.Fatal(err)
	}
}

// TestOwnersThroughALaggingServer changes the owners of nodes through a server that
// has not heard of what was done through another one.
func TestOwnersThroughALaggingServer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		before := dialAs(t, e, zkconn.Config{User: "nn", Password: "before"}, 0)
		if err := before.EnsureShared(t.Context(), "/shared"); err != nil {
			t.Fatal(err)
		}
		create(t, before, "/own", 0)
		both := dialAs(t, e, zkconn.Config{User: "nn", Password: "before", AlsoUser: "nn", AlsoPassword: "after"}, 0)
		after := dialAs(t, e, zkconn.Config{User: "nn", Password: "after"}, 1)
		e.Server(1).SetLag(time.Second)
		create(t, before, "/own/a", 0)
		if err := errors.Join(both.OwnShared(t.Context(), "/shared"), both.OwnAll(t.Context(), "/own", func(bool) {})); err != nil {
			t.Fatal(err)
		}
		var nodes int
		err := errors.Join(after.OwnShared(t.Context(), "/shared"), after.OwnAll(t.Context(), "/own", func(changed bool) {
			if changed {
				nodes++
			}
		}))
		if err != nil || nodes != 2 {
			t.Fatalf("of two nodes, %d had two owners: %v", nodes, err)
		}
		create(t, after, "/shared/theirs", 0)
		create(t, after, "/own/b", 0)
		for _, path := range []string{"/shared/theirs", "/own/b"} {
			if err := before.Delete(t.Context(), path, -1); !errors.Is(err, gozk.ErrNoAuth) {
				t.Errorf("the owner of before removes %s: %v", path, err)
			}
		}
	})
}

// TestFirstTickIsEarly: the first tick may come before New has returned.
func TestFirstTickIsEarly(*testing.T) {
	for range 2000 {
		zkmodel.New(zkmodel.Config{Tick: 2}).Close()
	}
}

// A session that is silent for its time-out ends, with its ephemeral nodes, at
// the moment that follows from the time-out and the tick.
func TestSilentSessionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a, b := dial(t, e, 0), dial(t, e, 1)
		create(t, a, "/a", gozk.FlagEphemeral)
		there, gone, err := b.ExistsW(t.Context(), "/a")
		if !there || err != nil {
			t.Fatal(there, err)
		}
		began := time.Now()
		a.Abandon()
		if ev := <-gone; ev.Type != gozk.EventNodeDeleted {
			t.Error(ev)
		}
		// The last ping was a third of the time-out ago at most.
		if d := time.Since(began); d < 2600*time.Millisecond || d > 4500*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
	})
}

// A read shows the state of the server that answers it. Sync brings that up to
// what was committed, and a session goes to no server that has less than it saw.
func TestLaggingServer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a, b := dial(t, e, 0), dial(t, e, 1)
		e.Server(1).SetLag(3 * time.Second)
		create(t, a, "/a", 0)
		if there, err := b.Exists(t.Context(), "/a"); there || err != nil {
			t.Errorf("a server that lags has it: %v, %v", there, err)
		}
		began := time.Now()
		if err := b.Sync(t.Context(), "/a"); err != nil {
			t.Fatal(err)
		}
		if there, err := b.Exists(t.Context(), "/a"); !there || err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("after a sync of %v: %v, %v", time.Since(began), there, err)
		}

		moving := dial(t, e, 0, 1)
		e.Server(1).Hold()
		create(t, moving, "/b", 0)
		e.Server(0).Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := moving.Exists(ctx, "/b"); err == nil {
			t.Error("a session went to a server that is behind what it has seen")
		}
		e.Server(1).Release()
		if there, err := moving.Exists(t.Context(), "/b"); !there || err != nil {
			t.Errorf("after the server has caught up: %v, %v", there, err)
		}
	})
}

// A lost request has no effect, a lost reply hides one, and both say that the
// outcome is not known.
func TestLostAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a, b := dial(t, e, 0), dial(t, e, 1)
		for _, test := range []struct {
			how  zkmodel.Loss
			path string
			made bool
		}{{zkmodel.LostRequest, "/request", false}, {zkmodel.LostReply, "/reply", true}} {
			e.Server(0).Lose(test.how, 1)
			if _, err := a.Create(t.Context(), test.path, nil, 0); !zkconn.Unknown(err) {
				t.Errorf("%s: %v", test.path, err)
			}
			if there, err := b.Exists(t.Context(), test.path); there != test.made || err != nil {
				t.Errorf("%s: made %v, %v", test.path, there, err)
			}
		}
	})
}

// A multi of which one part fails leaves nothing behind and says which part.
func TestMultiIsWhole(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a := dial(t, e, 0)
		create(t, a, "/a", 0)
		nodes := e.Nodes()
		acl := gozk.WorldACL(gozk.PermAll)
		res, err := a.Multi(t.Context(), &gozk.CreateRequest{Path: "/b", Acl: acl}, &gozk.CreateRequest{Path: "/a", Acl: acl}, &gozk.DeleteRequest{Path: "/a", Version: -1})
		if !errors.Is(err, gozk.ErrNodeExists) || zkconn.FailedOp(res) != 1 || e.Nodes() != nodes {
			t.Errorf("%v, part %d, %d nodes where %d were", err, zkconn.FailedOp(res), e.Nodes(), nodes)
		}
	})
}

// Without a majority nothing is served, and no session ends; the time-outs begin
// again when it is back.
func TestNoMajority(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a := dial(t, e, 0, 1, 2)
		create(t, a, "/a", gozk.FlagEphemeral)
		e.Server(1).Stop()
		e.Server(2).Isolate(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.Retry(ctx, func() error { return a.Sync(ctx, "/a") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("served by one server of three: %v", err)
		}
		e.Server(2).Heal()
		there := false
		err := a.Retry(t.Context(), func() (err error) {
			there, err = a.Exists(t.Context(), "/a")
			return err
		})
		if !there || err != nil {
			t.Errorf("after an hour without a majority: %v, %v", there, err)
		}
	})
}

// The children of a node are found among all nodes, whatever their names.
func TestChildren(t *testing.T) {
	inBubble(t, func(t *testing.T, e *zkmodel.Ensemble) {
		a := dial(t, e, 0)
		for _, path := range []string{"/d", "/d/a", "/d/a/x", "/d/a-b", "/d/a-b/y", "/d/ab", "/d/b", "/d-e"} {
			create(t, a, path, 0)
		}
		for path, want := range map[string]string{"/d": "a a-b ab b", "/d/a": "x", "/d/b": "", "/": "d d-e"} {
			got, err := a.Children(t.Context(), path)
			if strings.Join(got, " ") != want || err != nil {
				t.Errorf("children of %s: %q, want %q, %v", path, got, want, err)
			}
		}
	})
}
