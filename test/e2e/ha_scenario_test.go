package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

// harms are the ways in which the active namenode loses its reign. Each returns
// when another is active and the one harmed on its way back.
func (e *fleet) harms(ctx context.Context) map[string]func(a *member) {
	return map[string]func(a *member){
		"graceful": func(a *member) {
			e.failover(ctx, a)
			eventually(ctx, e.t, a.name+" says what it was", func() bool {
				return strings.Contains(a.err.String(), "not active any more; starting again as a standby")
			})
		},
		"SIGTERM": func(a *member) { a.term(ctx); e.successor(ctx, a); a.start(ctx) },
		"kill -9": func(a *member) { a.kill(); e.successor(ctx, a); a.start(ctx) },
		"SIGSTOP": func(a *member) { a.stop(ctx); e.successor(ctx, a); a.cont() },
		"cut from ZooKeeper": func(a *member) {
			a.fromZooKeeper()
			e.successor(ctx, a)
			a.toZooKeeper()
		},
		"cut from all": func(a *member) {
			a.fromZooKeeper()
			a.fromClients()
			e.successor(ctx, a)
			a.toZooKeeper()
			a.toClients()
		},
	}
}

func kind(t *testing.T, err error, want fserror.Kind) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// TestScenario38: a lease granted on the active one is on the standbys; after a
// failover its stamp is newer.
func TestScenario38LeaseOnTheStandby(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	e := startFleet(ctx, t)
	// A session without a stream, which renews nothing by itself.
	r := e.raw(t, "writer")
	w := r.Create("/held")
	if _, err := r.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, Id: 77, TtlMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	remaining := func(m *member) (held, granted time.Duration) {
		t.Helper()
		fsys := e.library(ctx)
		for l, err := range fsys.Leases().List(ctx, client.LeaseFilter{}) {
			switch {
			case err != nil:
				t.Fatal(err)
			case l.Granted:
				granted = l.Remaining
			case len(l.Files) == 1 && l.Files[0].Path == "/held" && l.Files[0].Epoch == w.GetEpoch():
				held = l.Remaining
			}
		}
		if held == 0 || granted == 0 {
			t.Errorf("%s: the leases have %s and %s left", m.name, held, granted)
		}
		return held, granted
	}
	e.settled(ctx)
	eventually(ctx, t, "all know the open file", func() bool {
		for _, m := range e.members {
			if m.look(ctx).OpenFiles != 1 {
				return false
			}
		}
		return true
	})
	for {
		a := e.settled(ctx)
		term, at := a.look(ctx).Term, time.Now()
		held, granted := remaining(a)
		e.harms(ctx)["kill -9"](a)
		next := e.active(ctx)
		if next.look(ctx).Term == term {
			continue // who was killed had been succeeded already
		}
		held2, granted2 := remaining(next)
		if gone := time.Since(at) - time.Second; held2 <= held-gone || granted2 <= granted-gone {
			t.Errorf("what is left of the leases: %s and %s, after the failover %s and %s", held, granted, held2, granted2)
		}
		break
	}
	// And the writer continues, without a word, where it is known.
	if err := r.Flush(w, 0, "abc"); err != nil {
		t.Error(err)
	}
}

// TestScenario39: a writer is in the middle of a file of many blocks when the
// active one goes. It continues, and the file is whole.
func TestScenario39WriterGoesOn(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	e := startFleet(ctx, t)
	for name, harm := range e.harms(ctx) {
		t.Run(name, func(t *testing.T) {
			a := e.settled(ctx)
			fsys := e.library(ctx, func(c *client.Config) { c.BlockSize = 256 << 10 })
			path := "/" + strings.ReplaceAll(name, " ", "-")
			w, err := fsys.Create(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			content := make([]byte, size.Of(4<<20, 12<<20)+12345)
			rnd := rand.NewChaCha8([32]byte{1})
			_, _ = rnd.Read(content)
			var wg sync.WaitGroup
			begun := make(chan struct{})
			wg.Go(func() {
				<-begun
				harm(a)
			})
			for off := 0; off < len(content); off += 50_000 {
				if off > len(content)/3 && off <= len(content)/3+50_000 {
					close(begun)
				}
				if _, err := w.Write(content[off:min(off+50_000, len(content))]); err != nil {
					t.Fatalf("write at %d: %v", off, err)
				}
				if off%400_000 == 0 {
					if err := w.Flush(ctx); err != nil {
						t.Fatalf("flush at %d: %v", off, err)
					}
				}
			}
			wg.Wait()
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(ctx, t, e.library(ctx), path); !bytes.Equal(got, content) {
				t.Errorf("%d bytes were written, %d are there, or others", len(content), len(got))
			}
		})
	}
	e.settled(ctx)
	e.fsck(ctx)
}

// repeated is one request that changes something.
type repeated struct {
	name string
	send func(ctx context.Context, at *env.Raw) (proto.Message, error)
}

func repeatable[Req, Resp proto.Message](name string, req Req, call func(at *env.Raw, ctx context.Context, req Req) (Resp, error)) repeated {
	return repeated{name, func(ctx context.Context, at *env.Raw) (proto.Message, error) {
		return call(at, ctx, proto.Clone(req).(Req)) //nolint:forcetypeassert // of the same type
	}}
}

// everyChange sends, at the active namenode, one request of every kind that
// changes something, and returns them and the answers.
func everyChange(ctx context.Context, t *testing.T, r *env.Raw) (all []repeated, answers []proto.Message) {
	t.Helper()
	do := func(c repeated) proto.Message {
		t.Helper()
		m, err := c.send(ctx, r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		all, answers = append(all, c), append(answers, m)
		return m
	}
	mkdir := func(at *env.Raw, ctx context.Context, q *pb.MkdirRequest) (*pb.MutateResponse, error) {
		return at.NN.Mkdir(ctx, q)
	}
	do(repeatable("Mkdir", &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")}, mkdir))
	create := func(path string, closed bool) *pb.WriterId {
		q := &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Close: closed}
		if closed {
			q.Data, q.DataCrc32C = []byte("data"), env.TailRequest(nil, 0, "data").GetCrc32C()
		}
		m := do(repeatable("Create", q, func(at *env.Raw, ctx context.Context, q *pb.CreateRequest) (*pb.OpenResponse, error) {
			return at.NN.Create(ctx, q)
		}))
		return m.(*pb.OpenResponse).GetWriter() //nolint:forcetypeassert // as sent
	}
	w := create("/d/f", false)
	tail := func(w *pb.WriterId, at int64, text string) {
		do(repeatable("AppendTail", env.TailRequest(w, at, text), func(at *env.Raw, ctx context.Context, q *pb.AppendTailRequest) (*pb.AppendTailResponse, error) {
			return at.NN.AppendTail(ctx, q)
		}))
	}
	tail(w, 0, "abc")
	b, err := r.PutBlock(w, []byte("abcde"))
	if err != nil {
		t.Fatal(err)
	}
	do(repeatable("Commit", env.CommitRequest(w, 0, b, "abc"), func(at *env.Raw, ctx context.Context, q *pb.CommitRequest) (*pb.CommitResponse, error) {
		return at.NN.Commit(ctx, q)
	}))
	do(repeatable("Close", &pb.CloseRequest{Call: r.Call(), Writer: w, Offset: 5, Length: 5}, func(at *env.Raw, ctx context.Context, q *pb.CloseRequest) (*pb.CloseResponse, error) {
		return at.NN.Close(ctx, q)
	}))
	for _, path := range []string{"/d/whole", "/d/m1", "/d/m2"} {
		create(path, true)
	}
	m := do(repeatable("Append", &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow("/d/whole")}, func(at *env.Raw, ctx context.Context, q *pb.AppendRequest) (*pb.OpenResponse, error) {
		return at.NN.Append(ctx, q)
	}))
	w = m.(*pb.OpenResponse).GetWriter() //nolint:forcetypeassert // as sent
	tail(w, 4, " and more")
	do(repeatable("Recover", &pb.RecoverRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow("/d/whole"), Force: true}, func(at *env.Raw, ctx context.Context, q *pb.RecoverRequest) (*pb.RecoverResponse, error) {
		return at.NN.Recover(ctx, q)
	}))
	create("/d/abandoned", false)
	do(repeatable("CloseAbandoned", &pb.CloseAbandonedRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow("/d/abandoned")}, func(at *env.Raw, ctx context.Context, q *pb.CloseAbandonedRequest) (*pb.CloseResponse, error) {
		return at.NN.CloseAbandoned(ctx, q)
	}))
	do(repeatable("Rename", &pb.RenameRequest{Call: r.Call(), Caller: r.Who, From: pb.At("/d/m1"), To: pb.At("/d/renamed")}, func(at *env.Raw, ctx context.Context, q *pb.RenameRequest) (*pb.MutateResponse, error) {
		return at.NN.Rename(ctx, q)
	}))
	do(repeatable("Delete", &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d/m2")}, func(at *env.Raw, ctx context.Context, q *pb.DeleteRequest) (*pb.MutateResponse, error) {
		return at.NN.Delete(ctx, q)
	}))
	do(repeatable("SetAttr", &pb.SetAttrRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d/renamed"), SetMode: true, Mode: 0o600}, func(at *env.Raw, ctx context.Context, q *pb.SetAttrRequest) (*pb.MutateResponse, error) {
		return at.NN.SetAttr(ctx, q)
	}))
	do(repeatable("Symlink", &pb.SymlinkRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d/l"), Target: "renamed"}, func(at *env.Raw, ctx context.Context, q *pb.SymlinkRequest) (*pb.MutateResponse, error) {
		return at.NN.Symlink(ctx, q)
	}))
	create("/d/one", true)
	create("/d/two", true)
	do(repeatable("Concat", &pb.ConcatRequest{Call: r.Call(), Caller: r.Who, Target: pb.Follow("/d/one"), Sources: []*pb.Ref{pb.At("/d/two")}}, func(at *env.Raw, ctx context.Context, q *pb.ConcatRequest) (*pb.MutateResponse, error) {
		return at.NN.Concat(ctx, q)
	}))
	do(repeatable("Truncate", &pb.TruncateRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow("/d/one"), Length: 6}, func(at *env.Raw, ctx context.Context, q *pb.TruncateRequest) (*pb.MutateResponse, error) {
		return at.NN.Truncate(ctx, q)
	}))
	do(repeatable("GrantLease", &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, TtlMs: 300_000}, func(at *env.Raw, ctx context.Context, q *pb.GrantLeaseRequest) (*pb.GrantLeaseResponse, error) {
		return at.NN.GrantLease(ctx, q)
	}))
	id := answers[len(answers)-1].(*pb.GrantLeaseResponse).GetId() //nolint:forcetypeassert // as sent
	do(repeatable("AttachLease", &pb.AttachLeaseRequest{Call: r.Call(), Caller: r.Who, Id: id, At: pb.At("/d/one")}, func(at *env.Raw, ctx context.Context, q *pb.AttachLeaseRequest) (*pb.MutateResponse, error) {
		return at.NN.AttachLease(ctx, q)
	}))
	do(repeatable("DetachLease", &pb.DetachLeaseRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d/one")}, func(at *env.Raw, ctx context.Context, q *pb.DetachLeaseRequest) (*pb.MutateResponse, error) {
		return at.NN.DetachLease(ctx, q)
	}))
	do(repeatable("RevokeLease", &pb.RevokeLeaseRequest{Call: r.Call(), Caller: r.Who, Id: id}, func(at *env.Raw, ctx context.Context, q *pb.RevokeLeaseRequest) (*pb.RevokeLeaseResponse, error) {
		return at.NN.RevokeLease(ctx, q)
	}))
	return all, answers
}

// TestScenario40: a request of every kind that changes something, sent again
// because its reply was lost, gets the same answer from the successor and has
// one effect; so at the successor's successor, twice at once.
func TestScenario40OverFailovers(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.flags = []string{"--soft-limit", "5m"} })
	r := e.raw(t, "A")
	all, answers := everyChange(ctx, t, r)
	fenced := map[string]bool{"AppendTail": true, "Commit": true} // their files are closed by now: refused, and no effect
	for _, how := range []string{"graceful", "kill -9", "SIGSTOP"} {
		e.harms(ctx)[how](e.settled(ctx))
		e.settled(ctx)
		before := e.run(ctx, "find", "/", "--json")
		for i, c := range all {
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					got, err := c.send(ctx, r)
					if fenced[c.name] {
						kind(t, err, fserror.LeaseLost)
					} else if err != nil || !proto.Equal(got, answers[i]) {
						t.Errorf("%s, sent again after %s: %v, %v; the first answer was %v", c.name, how, got, err, answers[i])
					}
				})
			}
			wg.Wait()
		}
		if after := e.run(ctx, "find", "/", "--json"); after != before {
			t.Errorf("after %s the repetitions changed something:\n%s\n%s", how, before, after)
		}
	}
	e.fsck(ctx)
}

// TestScenario41: a call that a standby refuses runs when it is sent to it again,
// with the same call id, once it is active.
func TestScenario41RefusedByAStandby(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.n = 2 })
	eventually(ctx, t, "status of a standby alone shows the active namenode, and exits with 0", func() bool {
		r := e.another(e.active(ctx)).try(ctx, "", "status", "--json")
		return r.code == 0 && strings.Contains(r.out, `"role":"standby"`) && strings.Contains(r.out, `"role":"active"`)
	})
	for !refusedByAStandby(ctx, t, e) {
		t.Log("the standby has become active before it was to")
	}
}

// refusedByAStandby is Scenario41 once; false: the standby became active in the
// midst of it, so that nothing can be said.
func refusedByAStandby(ctx context.Context, t *testing.T, e *fleet) bool {
	t.Helper()
	a := e.settled(ctx)
	b := e.another(a)
	r := env.RawAt(t, b.listen, "A")
	name := fmt.Sprint("d", b.look(ctx).Term)
	req := &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/" + name)}
	mkdir := func() error {
		_, err := r.NN.Mkdir(ctx, proto.Clone(req).(*pb.MkdirRequest))
		return err
	}
	eventually(ctx, t, "a standby knows who is active", func() bool { // one that has just begun asks first
		fe := new(fserror.Error)
		return !errors.As(mkdir(), &fe) || fe.Active != ""
	})
	// Nor does it answer anything else, whatever it is asked.
	answers := []error{mkdir()}
	_, err := r.NN.Stat(ctx, &pb.StatRequest{Caller: r.Who, At: pb.At("/")})
	answers = append(answers, err)
	_, err = r.NN.Commit(ctx, env.CommitRequest(&pb.WriterId{}, 0, &pb.Block{}, ""))
	answers = append(answers, err)
	_, err = r.NN.Create(ctx, &pb.CreateRequest{})
	answers = append(answers, err)
	_, err = r.Admin.Failover(ctx, &pb.FailoverRequest{Caller: r.Who})
	answers = append(answers, err)
	if s := b.look(ctx); s.Role != "standby" || s.Term != a.look(ctx).Term || fmt.Sprint("d", s.Term) != name {
		return false
	}
	for _, err := range answers {
		kind(t, err, fserror.NotActive)
	}
	if fe := new(fserror.Error); errors.As(answers[0], &fe) && fe.Active != a.clients.addr() {
		t.Errorf("a standby answered %v, naming %q", fe, fe.Active)
	}
	eventually(ctx, t, "the call runs", func() bool {
		if a.role(ctx) == "active" { // still, or again
			e.run(ctx, "admin", "failover")
		}
		err := mkdir()
		if err != nil && !errors.Is(err, fserror.Unknown) {
			kind(t, err, fserror.NotActive)
		}
		return err == nil
	})
	if got := e.run(ctx, "stat", "--json", "/"+name); !strings.Contains(got, `"/`+name+`"`) {
		t.Errorf("stat: %q", got)
	}
	return true
}

// TestScenario43: the leader of ZooKeeper is killed; then two of its three
// servers: nothing can be written, which is said clearly; and all continues by
// itself, whoever waits for it included.
func TestScenario43ZooKeeperDown(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	zk := env.StartZooKeeper(t, 3)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.zk = zk })
	e.write(ctx, "before\n", "append", "--create", "/f")
	fsys := e.library(ctx)
	w, err := fsys.Create(ctx, "/patient")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	say := func() {
		t.Helper()
		lines++
		_, err := fmt.Fprintf(w, "line %d\n", lines)
		if err == nil {
			err = w.Flush(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	say()
	leader, _ := zk.Leader(t)
	leader.Kill(t)
	say()
	e.write(ctx, "without the leader\n", "append", "/f")
	leader.Start(t)
	leader.WaitReady(t)
	say()

	leader, others := zk.Leader(t)
	leader.Kill(t)
	others[0].Kill(t)
	eventually(ctx, t, "nobody answers", func() bool { return !strings.Contains(e.roles(ctx), "active") })
	for _, args := range [][]string{{"append", "/f"}, {"cat", "/f"}} {
		eventually(ctx, t, "the error names ZooKeeper", func() bool {
			return strings.Contains(e.fails(ctx, 9, "x", append([]string{"--timeout", "2s"}, args...)...), "ZooKeeper")
		})
	}
	waited := make(chan struct{})
	go func() { defer close(waited); lines++; _, _ = fmt.Fprintf(w, "line %d\n", lines); err = w.Flush(ctx) }()
	rest(ctx, 10*time.Second) // longer than a reign lasts that cannot write
	leader.Start(t)
	others[0].Start(t)
	<-waited
	if err != nil {
		t.Fatalf("a writer that waited: %v", err)
	}
	e.settled(ctx)
	e.write(ctx, "after\n", "append", "/f")
	if got := e.run(ctx, "cat", "/f"); got != "before\nwithout the leader\nafter\n" {
		t.Errorf("%q", got)
	}
	say()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for i := range lines {
		_, _ = fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := e.run(ctx, "cat", "/patient"); got != want.String() {
		t.Errorf("%q, want %q", got, want.String())
	}
}

// TestScenario43SlowNetwork: the sessions of all namenodes end because nothing
// passes for a while; the servers and the namenodes are all alive.
func TestScenario43SlowNetwork(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t)
	fsys := e.library(ctx)
	w, err := fsys.Create(ctx, "/f")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, m := range e.members {
			m.fromZooKeeper()
		}
		done := make(chan error, 1)
		go func() {
			_, err := fmt.Fprintf(w, "line %d\n", i)
			if err == nil {
				err = w.Flush(ctx)
			}
			done <- err
		}()
		rest(ctx, time.Duration(2+3*i)*sessionTimeout/2)
		for _, m := range e.members {
			m.toZooKeeper()
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e.settled(ctx)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := e.run(ctx, "cat", "/f"); got != "line 0\nline 1\nline 2\n" {
		t.Errorf("%q", got)
	}
}

// TestScenario45: a listing of open files in pages, and one of a directory, continue
// over failovers: no error, nothing twice, nothing left out.
func TestScenario45PagedListing(t *testing.T) {
	t.Parallel()
	const sessions = 2050 // over two pages
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.flags = []string{"--soft-limit", "5m"} })
	r := e.raw(t, "many")
	if _, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 64)
	for i := range sessions { // each a session of its own, and so a lease
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			who := proto.Clone(r.Who).(*pb.Caller)
			who.Client = fmt.Sprint("c", i)
			who.Session = []byte(fmt.Sprintf("%016d", i*7919%sessions))
			_, err := r.NN.Create(ctx, &pb.CreateRequest{Call: &pb.CallId{Session: who.GetSession(), Seq: 1}, Caller: who, At: pb.At(fmt.Sprintf("/d/f%04d", i))})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fsys := e.library(ctx)
	for _, how := range []string{"graceful", "kill -9"} {
		a := e.settled(ctx)
		seen := map[string]int{}
		n := 0
		for l, err := range fsys.Leases().List(ctx, client.LeaseFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range l.Files {
				seen[f.Path]++
			}
			if n++; n == 700 {
				e.harms(ctx)[how](a)
			}
		}
		names := 0
		after := ""
		for more := true; more; {
			var page []*client.FileInfo
			var err error
			if page, more, err = fsys.List(ctx, "/d", after, 1000); err != nil {
				t.Fatal(err)
			}
			for _, i := range page {
				name := strings.TrimPrefix(i.Path, "/d/")
				if name <= after || i.Open == nil {
					t.Errorf("%s after %s, open: %v", name, after, i.Open)
				}
				after = name
				names++
			}
			if names == 1000 {
				e.harms(ctx)["graceful"](e.settled(ctx))
			}
		}
		twice := 0
		for _, n := range seen {
			if n > 1 {
				twice++
			}
		}
		if len(seen) != sessions || names != sessions || twice > 0 {
			t.Errorf("%s: %d open files listed, %d of them twice, and %d names; there are %d", how, len(seen), twice, names, sessions)
		}
	}
}

// TestScenario59OverFailovers: a watch tells every change once, in order, over
// failovers of all kinds.
func TestScenario59OverFailovers(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t)
	fsys := e.library(ctx)
	if err := fsys.Mkdir(ctx, "/w", 0o755); err != nil {
		t.Fatal(err)
	}
	watching := e.library(ctx)
	w, err := watching.Watch(ctx, "/w", client.WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stop := make(chan struct{})
	made := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				made <- i
				return
			default:
			}
			rest(ctx, size.Of(10*time.Millisecond, 0))
			if err := fsys.WriteFile(ctx, fmt.Sprintf("/w/%d", i), []byte("x")); err != nil {
				failed <- err
				made <- i
				return
			}
		}
	}()
	for _, how := range []string{"graceful", "kill -9", "SIGSTOP", "cut from ZooKeeper", "SIGTERM"} {
		e.harms(ctx)[how](e.settled(ctx))
	}
	close(stop)
	n := <-made
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	next, last := 0, uint64(0)
	for next < n {
		events, err := w.Next()
		if err != nil {
			t.Fatalf("after %d of %d: %v", next, n, err)
		}
		for _, ev := range events {
			if ev.TxID < last {
				t.Fatalf("transaction %d after %d", ev.TxID, last)
			}
			last = ev.TxID
			if ev.Type != client.EventCreate {
				continue
			}
			if want := fmt.Sprintf("/w/%d", next); ev.Path != want {
				t.Fatalf("%s was made where %s is due", ev.Path, want)
			}
			next++
		}
	}
	t.Logf("%d files", n)
}

// A watch that begins just after a failover is told of nothing that was before.
func TestHAWatchFromNow(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.n = 2 })
	for range 5 {
		e.write(ctx, "x", "append", "--create", "/old")
	}
	for range 3 {
		e.settled(ctx)
		e.run(ctx, "admin", "failover")
		fsys := e.library(ctx)
		w, err := fsys.Watch(ctx, "/", client.WatchOptions{Recursive: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := fsys.WriteFile(ctx, "/new", []byte("x")); err != nil {
			t.Fatal(err)
		}
		for found := false; !found; {
			events, err := w.Next()
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range events {
				if ev.Path != "/new" {
					t.Errorf("told of %s", ev.Path)
				}
				found = true
			}
		}
		w.Close()
		if err := fsys.Remove(ctx, "/new"); err != nil {
			t.Fatal(err)
		}
	}
}
