package election_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

var (
	ensemble *env.ZooKeeper
	quiet    = slog.New(slog.DiscardHandler)
	roots    atomic.Int64
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.AroundTests(m, &ensemble)) }

func root() string { return fmt.Sprintf("/leasefs/test%d", roots.Add(1)) }

// calmSession is long: no session ends because the
// machine is busy.
const calmSession = 20 * env.ZooKeeperTick

func join(t testing.TB, addrs []string, path, name string) *election.Candidacy {
	t.Helper()
	c, err := election.Join(t.Context(), election.Config{
		ZooKeeper: zkconn.Config{Servers: addrs, SessionTimeout: calmSession, Logger: quiet},
		Path:      path + "/election", Self: election.Member{Address: name}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Resign() })
	return c
}

func proxy(t testing.TB, server int) *zkproxy.Proxy {
	t.Helper()
	p, err := zkproxy.New(ensemble.Server(server).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// waiting is a Wait in a goroutine.
func waiting(t testing.TB, c *election.Candidacy) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- c.Wait(t.Context()) }()
	return ch
}

func members(t testing.TB, c *election.Candidacy) string {
	t.Helper()
	all, err := c.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, m := range all {
		if m.Elected != (i == 0) || m.Session == 0 || m.JoinedMS == 0 {
			t.Fatalf("member %d is %+v", i, m)
		}
		names = append(names, m.Address)
	}
	return strings.Join(names, " ")
}

// The next in line is elected whether the one before resigns, is expired, or
// dies; and the end of one in between wakes nobody wrongly.
func TestOneAfterTheOther(t *testing.T) {
	path := root()
	pa := proxy(t, 0)
	a := join(t, []string{pa.Addr()}, path, "a")
	b, c, d := join(t, ensemble.Addrs(), path, "b"), join(t, ensemble.Addrs(), path, "c"), join(t, ensemble.Addrs(), path, "d")
	if err := a.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wb, wc, wd := waiting(t, b), waiting(t, c), waiting(t, d)
	if got := members(t, d); got != "a b c d" {
		t.Fatalf("members %q", got)
	}
	if err := c.Resign(); err != nil {
		t.Fatal(err)
	}
	if err := <-wc; !errors.Is(err, election.ErrLost) {
		t.Fatalf("Wait after Resign: %v", err)
	}
	id := a.SessionID()
	if err := pa.Expire(id); err != nil {
		t.Fatal(err)
	}
	if err := <-wb; err != nil {
		t.Fatal(err)
	}
	<-a.Lost()
	if err := a.Wait(t.Context()); !errors.Is(err, election.ErrLost) {
		t.Fatalf("Wait after the session: %v", err)
	}
	if a.SessionID() != id || a.Connected() {
		t.Fatal("a lost candidacy has another session")
	}
	select {
	case err := <-wd:
		t.Fatalf("d was let in while b is elected: %v", err)
	default:
	}
	if got := members(t, d); got != "b d" {
		t.Fatalf("members %q", got)
	}
	if err := b.Resign(); err != nil {
		t.Fatal(err)
	}
	if err := <-wd; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := join(t, ensemble.Addrs(), path, "e")
	if err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait with an ended context: %v", err)
	}
}

// TestScenario44 loses the connection exactly when the node is made: the node
// counts if it is there, is made if it is not, and no second one is left that
// would block the next election.
func TestScenario44LostWhileJoining(t *testing.T) {
	for _, c := range []struct {
		name string
		acts []zkproxy.Action
	}{
		{"lost answer", []zkproxy.Action{zkproxy.CutAfter}},
		{"lost request", []zkproxy.Action{zkproxy.CutBefore}},
		{"several", []zkproxy.Action{zkproxy.CutBefore, zkproxy.CutBefore, zkproxy.CutAfter}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := root()
			p := proxy(t, 1)
			var at atomic.Int64
			p.Decide(func(op int32, body []byte) zkproxy.Action {
				if op == zkproxy.OpCreate && bytes.Contains(body, []byte("/election/_c_")) {
					if n := at.Add(1); int(n) <= len(c.acts) {
						return c.acts[n-1]
					}
				}
				return zkproxy.Forward
			})
			a := join(t, []string{p.Addr()}, path, "a")
			if at.Load() < int64(len(c.acts)) {
				t.Fatal("nothing was cut")
			}
			b := join(t, ensemble.Addrs(), path, "b")
			if err := a.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if names := nodes(t, session(t), path); len(names) != 2 {
				t.Fatalf("nodes %v", names)
			}
			if err := a.Resign(); err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A session that ends just as the node is to be made is no end of joining.
func TestExpiredWhileJoining(t *testing.T) {
	path := root()
	p := proxy(t, 1)
	var once sync.Once
	p.Decide(func(op int32, body []byte) zkproxy.Action {
		act := zkproxy.Forward
		if op == zkproxy.OpCreate && bytes.Contains(body, []byte("/election/_c_")) {
			once.Do(func() {
				if err := p.ExpireAll(); err != nil {
					t.Error(err)
				}
				act = zkproxy.CutBefore
			})
		}
		return act
	})
	a := join(t, []string{p.Addr()}, path, "a")
	if err := a.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := nodes(t, session(t), path); len(names) != 1 {
		t.Fatalf("nodes %v", names)
	}
}

func session(t testing.TB) *zkconn.Session {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: ensemble.Addrs(), SessionTimeout: calmSession, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// nodes lists an election's nodes of now.
func nodes(t testing.TB, s *zkconn.Session, path string) []string {
	t.Helper()
	err := s.Sync(t.Context(), path)
	var names []string
	if err == nil {
		names, err = s.Children(t.Context(), path+"/election")
	}
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A second node of our own, however it came to be, is removed and not waited
// for.
func TestOwnSecondNodeIsRemoved(t *testing.T) {
	path := root()
	a := join(t, ensemble.Addrs(), path, "a")
	s := session(t)
	names := nodes(t, s, path)
	if len(names) != 1 {
		t.Fatalf("nodes %v", names)
	}
	own := names[0]
	i := strings.LastIndex(own, "-")
	second := own[:i+1] + "0000000777"
	if _, err := s.Create(t.Context(), path+"/election/"+second, []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names = nodes(t, s, path); len(names) != 1 || names[0] != own {
		t.Fatalf("nodes %v", names)
	}
}

// Connections come and go; the one who waits is elected all the same.
func TestWaitOverBrokenConnections(t *testing.T) {
	path := root()
	a := join(t, ensemble.Addrs(), path, "a")
	p := proxy(t, 2)
	b := join(t, []string{p.Addr()}, path, "b")
	w := waiting(t, b)
	for range 10 {
		p.Cut()
		if got := members(t, b); got != "a b" {
			t.Fatalf("members %q", got)
		}
	}
	p.Cut()
	if err := a.Resign(); err != nil {
		t.Fatal(err)
	}
	if err := <-w; err != nil {
		t.Fatal(err)
	}
}

func TestMembersOfNoElection(t *testing.T) {
	all, err := election.Members(t.Context(), session(t), root())
	if err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
}

// What a namenode reports is what the others see, and goes with it when it moves.
func TestReports(t *testing.T) {
	path := root()
	a, b := join(t, ensemble.Addrs(), path, "a"), join(t, ensemble.Addrs(), path, "b")
	report := func(c *election.Candidacy, name string) (r *election.Report) {
		t.Helper()
		all, err := c.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Address == name {
				r = m.Report
			}
		}
		return r
	}
	if r := report(b, "a"); r != nil {
		t.Fatalf("it has reported %+v", r)
	}
	full := election.Report{TxID: 7, Unfit: "the disk is full"}
	for _, want := range []election.Report{{TxID: 5}, full, {}, full} {
		if err := a.Report(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if r := report(b, "a"); r == nil || *r != want {
			t.Fatalf("it has reported %+v, and %+v is seen", want, r)
		}
	}
	if err := a.MoveBack(t.Context(), election.Report{TxID: 8, Unfit: full.Unfit}); err != nil {
		t.Fatal(err)
	}
	if r := report(b, "a"); r == nil || r.TxID != 8 || r.Unfit != full.Unfit {
		t.Fatalf("after it has moved %+v is seen", r)
	}
	if err := a.Resign(); err != nil {
		t.Fatal(err)
	}
	if err := a.Report(t.Context(), full); !errors.Is(err, election.ErrLost) {
		t.Fatalf("report of one that is out: %v", err)
	}
	if err := a.MoveBack(t.Context(), full); !errors.Is(err, election.ErrLost) {
		t.Fatalf("move of one that is out: %v", err)
	}
}

// One that moves back is behind all others, who move up; it is elected when its
// turn comes again, and every wait before ends as it should.
func TestMoveBack(t *testing.T) {
	path := root()
	a, b, c := join(t, ensemble.Addrs(), path, "a"), join(t, ensemble.Addrs(), path, "b"), join(t, ensemble.Addrs(), path, "c")
	back := func(who *election.Candidacy, want string) {
		t.Helper()
		if err := who.MoveBack(t.Context(), election.Report{}); err != nil {
			t.Fatal(err)
		}
		if got := members(t, b); got != want {
			t.Fatalf("members %q, want %q", got, want)
		}
		if n := len(nodes(t, session(t), path)); n != len(strings.Fields(want)) {
			t.Fatalf("%d nodes of %q", n, want)
		}
	}
	wb, wc := waiting(t, b), waiting(t, c)
	back(b, "a c b") // while it waits for a, and c for it
	back(a, "c b a")
	if err := <-wc; err != nil {
		t.Fatal(err)
	}
	wa := waiting(t, a)
	back(c, "b a c")
	if err := <-wb; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wa:
		t.Fatalf("a was let in while b is elected: %v", err)
	default:
	}
	if err := b.Resign(); err != nil {
		t.Fatal(err)
	}
	if err := <-wa; err != nil {
		t.Fatal(err)
	}
	if err := a.MoveBack(t.Context(), election.Report{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Who finds that the one before him has just gone leaves no watch on it: that would
// stay as long as his session.
func TestNoWatchOnWhoIsGone(t *testing.T) {
	path := root()
	p := proxy(t, 1)
	a := join(t, ensemble.Addrs(), path, "a")
	node := nodes(t, session(t), path)[0]
	b := join(t, []string{p.Addr()}, path, "b")
	at, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{ensemble.Server(1).Addr()}, SessionTimeout: calmSession, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	before := ensemble.Server(1).Stat(t, "zk_watch_count")
	var once sync.Once
	gone := make(chan error, 1)
	p.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte("/election/"+node)) { // he asks for the one before him
			once.Do(func() { gone <- errors.Join(a.Resign(), at.Sync(t.Context(), path)) })
		}
		return zkproxy.Forward
	})
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if after := ensemble.Server(1).Stat(t, "zk_watch_count"); after != before {
		t.Errorf("there are %d watches, and were %d", after, before)
	}
}

// Who looks after each token of Changes sees, at the last, who is there, whatever
// happened to the connection meanwhile; and has one watch at ZooKeeper all the time,
// which ends with the session.
func TestChanges(t *testing.T) {
	path := root()
	p := proxy(t, 1)
	a, b := join(t, ensemble.Addrs(), path, "a"), join(t, []string{p.Addr()}, path, "b")
	none := ensemble.Server(1).Stat(t, "zk_watch_count")
	seen := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-b.Changes():
			case <-b.Lost():
				return
			}
			all, err := b.Members(t.Context())
			if err != nil {
				return // the session is over
			}
			var names []string
			for _, m := range all {
				names = append(names, m.Address)
			}
			select {
			case seen <- strings.Join(names, " "):
			case <-b.Lost():
			}
		}
	}()
	sees := func(want string) {
		t.Helper()
		for got := range seen {
			if got == want {
				return
			}
		}
	}
	watches := func(want int64, when string) {
		t.Helper()
		// The server has to notice that a connection is gone.
		env.Eventually(t, fmt.Sprintf("%s there are %d watches", when, want), func() bool {
			return ensemble.Server(1).Stat(t, "zk_watch_count") == want
		})
	}
	sees("a b") // without a change
	watches(none+1, "at first")
	join(t, ensemble.Addrs(), path, "c")
	sees("a b c")
	if err := a.MoveBack(t.Context(), election.Report{}); err != nil {
		t.Fatal(err)
	}
	sees("b c a")
	for range 5 {
		p.Down()
		d := join(t, ensemble.Addrs(), path, "d")
		p.Up()
		sees("b c a d")
		p.Cut()
		if err := d.Resign(); err != nil {
			t.Fatal(err)
		}
		sees("b c a")
	}
	watches(none+1, "after many changes")
	if err := b.Resign(); err != nil {
		t.Fatal(err)
	}
	<-ended
	watches(none, "after the session")
}

// Who waits for a report of the same namenode that ZooKeeper does not answer waits no
// longer than he has time.
func TestMoveBackBesideAReport(t *testing.T) {
	p := proxy(t, 1)
	a := join(t, []string{p.Addr()}, root(), "a")
	asked := make(chan struct{}, 1)
	p.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte(`"unfit"`)) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return zkproxy.CutBefore
		}
		return zkproxy.Forward
	})
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- a.Report(ctx, election.Report{Unfit: "full"}) }()
	<-asked
	over, end := context.WithCancel(t.Context())
	end()
	if err := a.MoveBack(over, election.Report{Unfit: "full"}); !errors.Is(err, context.Canceled) {
		t.Errorf("beside a report that is not answered: %v", err)
	}
	cancel()
	if err := <-reported; err == nil {
		t.Error("the report was answered")
	}
}

// A move whose request or answer is lost happens once, and the one that moves is in
// line all the time.
func TestMoveBackOverLostAnswers(t *testing.T) {
	for _, test := range []struct {
		name string
		acts []zkproxy.Action
	}{
		{"lost answer", []zkproxy.Action{zkproxy.CutAfter}},
		{"lost request", []zkproxy.Action{zkproxy.CutBefore}},
		{"several", []zkproxy.Action{zkproxy.CutBefore, zkproxy.CutBefore, zkproxy.CutAfter}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := root()
			p := proxy(t, 1)
			a, b := join(t, []string{p.Addr()}, path, "a"), join(t, ensemble.Addrs(), path, "b")
			var at atomic.Int64
			p.Decide(func(_ int32, body []byte) zkproxy.Action {
				if bytes.Contains(body, []byte("/election/_c_")) && bytes.Contains(body, []byte(`"unfit"`)) {
					if n := at.Add(1); int(n) <= len(test.acts) {
						return test.acts[n-1]
					}
				}
				return zkproxy.Forward
			})
			stop, watched := make(chan struct{}), make(chan error, 1)
			go func() {
				for {
					all, err := b.Members(t.Context())
					if err == nil && len(all) != 2 {
						err = fmt.Errorf("members %v", all)
					}
					if err != nil {
						watched <- err
						return
					}
					select {
					case <-stop:
						watched <- nil
						return
					default:
					}
				}
			}()
			if err := a.MoveBack(t.Context(), election.Report{Unfit: "full"}); err != nil {
				t.Fatal(err)
			}
			close(stop)
			if err := <-watched; err != nil {
				t.Error(err)
			}
			if at.Load() < int64(len(test.acts)) {
				t.Fatal("nothing was cut")
			}
			if got := members(t, b); got != "b a" {
				t.Fatalf("members %q", got)
			}
			if names := nodes(t, session(t), path); len(names) != 2 {
				t.Fatalf("nodes %v", names)
			}
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
