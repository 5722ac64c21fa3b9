package scenarios_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func withTTL(d time.Duration) func(*client.Config) {
	return func(c *client.Config) { c.TTL = d }
}

// inJeopardy reports whether the lock's holder was told to stop its work.
func inJeopardy(l *client.Lock) bool {
	select {
	case <-l.Jeopardy():
		return true
	default:
		return false
	}
}

// A lock has one holder; its token grows with each. Without renewals its holder
// is told in time, by its own clock; the next one gets it after the time to live
// that the first one asked for.
func TestLockJeopardy(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	ctx := t.Context()
	a, wire := n.Wired(t, env.Named("A"), withTTL(20*time.Second))
	b := n.Client(t, env.Named("B"))
	l, err := a.Lock(ctx, "/locks/x", client.LockOptions{})
	must(t, err)
	_, err = b.Lock(ctx, "/locks/x", client.LockOptions{})
	if e := asHeld(t, err, "A"); e.Op != "lock" || e.TakeableIn > 20*time.Second+time.Millisecond {
		t.Fatalf("%v: takeable in %s", err, e.TakeableIn)
	}
	if got := l.Remaining(); got != 19*time.Second { // a margin before the namenode's end
		t.Fatalf("%s remain of 20 s", got)
	}
	wire.Lose("Renew")
	clk.Advance(13 * time.Second) // all but a quarter, and a bit
	if inJeopardy(l) || l.Remaining() != 6*time.Second {
		t.Fatalf("in jeopardy with %s left", l.Remaining())
	}
	clk.Advance(time.Second)
	<-l.Jeopardy()
	if l.Context().Err() != nil {
		t.Fatal("lost before anybody took it")
	}
	_, err = b.Lock(ctx, "/locks/x", client.LockOptions{})
	wantHeld(t, err, "A")
	clk.Advance(6*time.Second + time.Millisecond)
	if l.Remaining() >= 0 {
		t.Fatalf("%s remain, and it can be taken", l.Remaining())
	}
	l2, err := b.Lock(ctx, "/locks/x", client.LockOptions{})
	must(t, err)
	if l2.Token() <= l.Token() {
		t.Fatalf("token %d after %d", l2.Token(), l.Token())
	}
	wire.Set(nil)
	<-l.Context().Done()
	wantLost(t, context.Cause(l.Context()), "B", "")
	wantLost(t, l.Unlock(ctx), "B", "")
	must(t, l2.Unlock(ctx))
	if inJeopardy(l2) {
		t.Fatal("unlocked is no jeopardy")
	}
	wantOpen(t, b, "/locks/x", "")
}

// Who waited for longer than his time to live has a lock that is good all the
// same: it counts from when he got it.
func TestLockAfterALongWait(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	ctx := t.Context()
	a, looker := n.Client(t, env.Named("A")), n.Client(t, env.Named("looker"))
	b := n.Client(t, env.Named("B"), withTTL(2*time.Second))
	la, err := a.Lock(ctx, "/l", client.LockOptions{})
	must(t, err)
	got := make(chan *client.Lock)
	go func() {
		defer close(got)
		l, err := b.Lock(ctx, "/l", client.LockOptions{Wait: time.Minute})
		if err != nil {
			t.Error(err)
			return
		}
		got <- l
	}()
	waiting := func(want uint32) {
		t.Helper()
		env.Eventually(t, "somebody waits", func() bool {
			l := leases(t, looker, "A")
			return len(l) == 1 && l[0].Waiting == want
		})
	}
	waiting(1)
	clk.Advance(10 * time.Second)
	must(t, la.Unlock(ctx))
	lb, ok := <-got
	if !ok {
		t.FailNow()
	}
	if lb.Remaining() != 1900*time.Millisecond || inJeopardy(lb) {
		t.Fatalf("%s remain of a lock that was got just now", lb.Remaining())
	}
	must(t, lb.Unlock(ctx))
}

// The reply that grants a file is lost, and the call sent again much later: the
// lease counts from the first time, as the namenode's does.
func TestLeaseCountsFromTheFirstTry(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	lost := false
	wire.Set(func(method string, _ any, send func() error) error {
		switch {
		case method == "Renew":
			return nil // says nothing
		case method == "Append" && !lost:
			lost = true
			if err := send(); err != nil {
				return err
			}
			clk.Advance(15 * time.Second) // within the time of the call
			return env.ErrLost
		}
		return send()
	})
	l, err := a.Lock(t.Context(), "/l", client.LockOptions{})
	must(t, err)
	if got := l.Remaining(); got != 44*time.Second {
		t.Fatalf("%s remain of 60 s less a margin, 15 s after it was granted", got)
	}
	wire.Set(nil)
	must(t, l.Unlock(t.Context()))
}

// Waiters are served in the order in which they came, also when they wait for so
// long that they ask again.
func TestWaitersKeepTheirPlace(t *testing.T) {
	t.Parallel()
	// They ask again after a quarter of the hard limit, three seconds.
	n, _ := frozen(t, env.Limits(time.Second, 12*time.Second))
	ctx, began := t.Context(), time.Now()
	a := n.Client(t, env.Named("A"))
	w := create(t, a, "/f")
	names := []string{"B", "C", "D", "E"}
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	wires := make([]*env.Wire, len(names))
	for i, name := range names {
		fs, wire := n.Wired(t, env.Named(name))
		wires[i] = wire
		wg.Go(func() {
			w, err := fs.Append(ctx, "/f", client.WithWait(5*time.Minute))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			if err := w.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		env.Eventually(t, name+" waits", func() bool {
			l := leases(t, a, "A")
			return len(l) == 1 && int(l[0].Waiting) == i+1 && len(l[0].Waiters) == i+1 && l[0].Waiters[i].Client == name && l[0].Waiters[i].Inode == l[0].Files[0].Inode
		})
	}
	for i, name := range names {
		env.Eventually(t, name+" has asked again", func() bool { return wires[i].Count("Append") >= 2 })
	}
	// Not in the moment in which one asks again: it could miss its turn. All have
	// just done so.
	env.Eventually(t, "all wait", func() bool { return int(leases(t, a, "A")[0].Waiting) == len(names) })
	must(t, w.Close())
	wg.Wait()
	if !slices.Equal(order, names) {
		t.Fatalf("served in the order %v, want %v", order, names)
	}
	for i, name := range names {
		if asked := wires[i].Count("Append"); asked > 10+int(time.Since(began)/(2*time.Second)) {
			t.Errorf("%s asked %d times", name, asked)
		}
	}
}

// Whoever asks again keeps the place: if the file is freed between two calls, it
// is nobody else's who came later, unless the caller stays away.
func TestWaiterAsksAgain(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	looker := n.Client(t, env.Named("looker"))
	holder := n.Raw(t, "holder")
	w := holder.Create("/f")
	type answer struct {
		resp *pb.OpenResponse
		err  error
	}
	ask := func(r *env.Raw, wait time.Duration, again bool) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			resp, err := r.NN.Append(t.Context(), &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow("/f"), WaitMs: wait.Milliseconds(), Again: again})
			got <- answer{resp, wire.FromStatus(err)}
		}()
		return got
	}
	waiting := func(want uint32) {
		t.Helper()
		env.Eventually(t, "so many wait", func() bool {
			l := leases(t, looker, "holder")
			return len(l) == 1 && l[0].Waiting == want
		})
	}
	wantOpened := func(r *env.Raw, got <-chan answer) *pb.WriterId {
		t.Helper()
		a := <-got
		must(t, a.err)
		wantOpen(t, looker, "/f", r.Who.GetClient())
		return a.resp.GetWriter()
	}
	first, second, third := n.Raw(t, "first"), n.Raw(t, "second"), n.Raw(t, "third")
	wantKind(t, (<-ask(first, 10*time.Millisecond, true)).err, fserror.Held) // and is away
	got2 := ask(second, time.Minute, false)
	waiting(2)
	must(t, holder.Close(w, 0)) // nobody's turn who is there
	got3 := ask(third, time.Minute, false)
	must(t, looker.Mkdir(t.Context(), "/a moment", 0o755))
	if open := stat(t, looker, "/f").Open; open != nil {
		t.Fatalf("%s was faster than one who came before", open.Holder.Client)
	}
	w = wantOpened(first, ask(first, time.Minute, false))
	must(t, first.Close(w, 0))
	w = wantOpened(second, got2)
	must(t, second.Close(w, 0))
	w = wantOpened(third, got3)

	// Away for too long.
	wantKind(t, (<-ask(first, 10*time.Millisecond, true)).err, fserror.Held)
	got2 = ask(second, time.Minute, false)
	env.Eventually(t, "both wait", func() bool { return leases(t, looker, "third")[0].Waiting == 2 })
	must(t, third.Close(w, 0))
	clk.Advance(10 * time.Second)
	w = wantOpened(second, got2)
	must(t, second.Close(w, 0))
	// Nobody waits any more.
	w = wantOpened(first, ask(first, 0, false))
	must(t, first.Close(w, 0))
}

// A new process of the client that left the file open has it at once, although
// others wait for it: when it comes after them, and when the old process ends
// while both wait.
func TestComingBackPassesWaiters(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	looker := n.Client(t, env.Named("looker"))
	leave := func(path string) (end func()) {
		t.Helper()
		old := n.Raw(t, "A")
		end = old.Connect()
		old.Create(path)
		return end
	}
	type answer struct {
		who  string
		resp *pb.OpenResponse
		err  error
	}
	answers := make(chan answer)
	ask := func(path string, r *env.Raw) {
		go func() {
			resp, err := r.NN.Append(t.Context(), &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow(path), WaitMs: time.Minute.Milliseconds()})
			answers <- answer{r.Who.GetClient(), resp, wire.FromStatus(err)}
		}()
	}
	waiting := func(path string, want uint32) {
		t.Helper()
		env.Eventually(t, "so many wait", func() bool {
			return slices.ContainsFunc(leases(t, looker, "A"), func(l *client.Lease) bool { return l.Waiting == want })
		})
	}
	for _, together := range []bool{false, true} {
		path := "/later"
		if together {
			path = "/together"
		}
		end := leave(path)
		b, again := n.Raw(t, "B"), n.Raw(t, "A")
		ask(path, b)
		waiting(path, 1)
		if together {
			ask(path, again)
			waiting(path, 2)
			end()
		} else {
			end()
			env.Eventually(t, "its stream has gone", func() bool { return !leases(t, looker, "A")[0].Connected })
			ask(path, again)
		}
		first := <-answers
		if must(t, first.err); first.who != "A" {
			t.Fatalf("%s: %s was first", path, first.who)
		}
		must(t, again.Close(first.resp.GetWriter(), 0))
		second := <-answers
		must(t, second.err)
		must(t, b.Close(second.resp.GetWriter(), 0))
	}
}
