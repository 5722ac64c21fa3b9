package scenarios_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// keepAlive sends one message of keep-alives and returns what each lease has.
func keepAlive(t *testing.T, r *env.Raw, ids ...client.LeaseID) (ttls []time.Duration) {
	t.Helper()
	s, err := r.NN.KeepAlive(t.Context())
	must(t, err)
	req := &pb.KeepAliveRequest{Caller: r.Who}
	for _, id := range ids {
		req.Ids = append(req.Ids, uint64(id))
	}
	must(t, s.Send(req))
	resp, err := s.Recv()
	must(t, err)
	for i, l := range resp.GetLeases() {
		if l.GetId() != req.GetIds()[i] {
			t.Fatalf("the answer is about %v, want them in the order %v", resp.GetLeases(), req.GetIds())
		}
		ttls = append(ttls, time.Duration(l.GetTtlMs())*time.Millisecond)
	}
	must(t, s.CloseSend())
	if _, err := s.Recv(); err != io.EOF { //nolint:errorlint // that very one
		t.Fatalf("the stream ended with %v", err)
	}
	return ttls
}

// A client keeps all its leases alive in one message a round, over restarts. It
// tells of each that ended, and of all of them when no answer came for their
// time to live by its own clock.
func TestScenario08KeptAlive(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, func(c *namenode.Config) { c.MinLeaseTTL = 300 * time.Millisecond })
	ctx := t.Context()
	b := n.Client(t, env.Named("B"))
	a, wire := n.Wired(t, env.Named("A"))
	const count, ttl = 20, 300 * time.Millisecond // a round each 100 ms of the real clock
	ids := make([]client.LeaseID, count)
	kept := make([]*client.KeptLease, count)
	var err error
	for i := range ids {
		ids[i] = grant(t, a, ttl)
		kept[i], err = a.Leases().KeepAlive(ctx, ids[i])
		must(t, err)
	}
	round := func() { // at least one whole round
		t.Helper()
		from := wire.Count("KeepAlive")
		env.Eventually(t, "two rounds", func() bool { return wire.Count("KeepAlive") >= from+2 })
	}
	round()
	wire.Set(func(method string, req any, send func() error) error {
		if r, ok := req.(*pb.KeepAliveRequest); ok && len(r.GetIds()) != count {
			t.Errorf("a message keeps %d leases alive, want all %d", len(r.GetIds()), count)
		}
		return send()
	})
	for range 5 {
		clk.Advance(200 * time.Millisecond)
		round()
	}
	n.Restart(t)
	round()
	for range 3 {
		clk.Advance(200 * time.Millisecond)
		round()
	}
	for i, k := range kept {
		if k.ID() != ids[i] || k.Context().Err() != nil || ended(t, b, ids[i]) {
			t.Fatalf("lease %s ended: %v", ids[i], context.Cause(k.Context()))
		}
	}
	wire.Set(nil)

	// One is revoked: its context ends, and no other's.
	err = b.Leases().Revoke(ctx, ids[0])
	must(t, err)
	<-kept[0].Context().Done()
	wantKind(t, context.Cause(kept[0].Context()), fserror.LeaseLost)
	// One is let go: it ends, and not before its time.
	kept[1].Stop()
	<-kept[1].Context().Done()
	wantKind(t, context.Cause(kept[1].Context()), fserror.Closed)
	round()
	clk.Advance(200 * time.Millisecond)
	if ended(t, b, ids[1]) {
		t.Fatal("Stop revoked the lease")
	}
	round()
	clk.Advance(200 * time.Millisecond)
	waitEnded(t, b, ids[1])
	if err := context.Cause(kept[2].Context()); err != nil {
		t.Fatalf("the others ended: %v", err)
	}
	// A context of its own.
	short, cancel := context.WithCancel(ctx)
	extra, err := a.Leases().KeepAlive(short, grant(t, a, ttl))
	must(t, err)
	cancel()
	<-extra.Context().Done()

	// Cut off for as long as they live.
	round()
	wire.Cut()
	clk.Advance(200 * time.Millisecond)
	if err := context.Cause(kept[2].Context()); err != nil {
		t.Fatalf("given up before its time: %v", err)
	}
	clk.Advance(100 * time.Millisecond)
	for _, k := range kept[2:] {
		<-k.Context().Done()
		wantKind(t, context.Cause(k.Context()), fserror.LeaseLost)
	}
	wire.Mend()
	last, err := b.Leases().KeepAlive(ctx, grant(t, b, ttl))
	must(t, err)
	must(t, b.Close())
	wantKind(t, context.Cause(last.Context()), fserror.Closed)
}

// keptAlive is leases of an hour whose next round is far away, kept alive by A.
func keptAlive(t *testing.T, a *client.FS, count int) (kept []*client.KeptLease) {
	t.Helper()
	for range count {
		k, err := a.Leases().KeepAlive(t.Context(), grant(t, a, time.Hour))
		must(t, err)
		kept = append(kept, k)
	}
	return kept
}

// wantEnd waits for the end of a kept lease, and checks what it says.
func wantEnd(t *testing.T, k *client.KeptLease, says string) {
	t.Helper()
	<-k.Context().Done()
	err := context.Cause(k.Context())
	wantKind(t, err, fserror.LeaseLost)
	if !strings.Contains(err.Error(), says) {
		t.Fatalf("the end is told as %q, want %q in it", err, says)
	}
}

// Whoever keeps a lease alive learns at once that it was revoked, or that its time
// is over, long before it is named next; and nobody else's ends.
func TestScenario08EndIsTold(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	ctx := t.Context()
	b := n.Client(t, env.Named("B"))
	a, wire := n.Wired(t, env.Named("A"))
	kept := keptAlive(t, a, 4)
	env.Eventually(t, "the rounds are over", func() bool { return wire.Count("KeepAlive") >= 4+1 })
	err := b.Leases().Revoke(ctx, kept[0].ID())
	must(t, err)
	wantEnd(t, kept[0], "lease "+kept[0].ID().String()+" has ended (revoked)")
	// Two who keep it alive, in one process and in another.
	twice, err := a.Leases().KeepAlive(ctx, kept[1].ID())
	must(t, err)
	other, err := b.Leases().KeepAlive(ctx, kept[1].ID())
	must(t, err)
	err = a.Leases().Revoke(ctx, kept[1].ID())
	must(t, err)
	for _, k := range []*client.KeptLease{kept[1], twice, other} {
		wantEnd(t, k, "has ended (revoked)")
	}
	// The same id again is another lease.
	_, err = b.Leases().Grant(ctx, time.Hour, kept[0].ID())
	must(t, err)
	again, err := a.Leases().KeepAlive(ctx, kept[0].ID())
	must(t, err)
	if kept[2].Context().Err() != nil || kept[3].Context().Err() != nil || again.Context().Err() != nil {
		t.Fatal("leases ended that nobody has revoked")
	}
	// Their time is over, and no round comes in between: the last one, which the
	// new lease has caused, may be under way at first.
	env.Eventually(t, "one has expired", func() bool {
		clk.Advance(time.Hour + time.Second)
		return again.Context().Err() != nil
	})
	for _, k := range []*client.KeptLease{kept[2], kept[3], again} {
		wantEnd(t, k, "has ended (expired)")
	}
}

// What ended while there was no stream is told when there is one again.
func TestScenario08EndWithoutStream(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	b := n.Client(t, env.Named("B"))
	a, wire := n.Wired(t, env.Named("A"))
	kept := keptAlive(t, a, 2)
	wire.Cut()
	err := b.Leases().Revoke(t.Context(), kept[0].ID())
	must(t, err)
	wire.Mend()
	wantEnd(t, kept[0], "has ended")
	n.Restart(t)
	err = b.Leases().Revoke(t.Context(), kept[1].ID())
	must(t, err)
	wantEnd(t, kept[1], "has ended")
}

// Whoever keeps a lease alive can ask his clock for how long it certainly lives, and
// is told that it may have ended before any timer has fired.
func TestScenario08Remaining(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	b := n.Client(t, env.Named("B"))
	own, _ := env.FakeClock()
	a := n.Client(t, env.Named("A"), func(c *client.Config) { c.Clock = own })
	k := keptAlive(t, a, 1)[0]
	for _, step := range []struct{ passes, left time.Duration }{
		{0, time.Hour - time.Second},
		{time.Hour - 2*time.Second, time.Second},
		{2 * time.Second, -time.Second},
	} {
		own.Advance(step.passes)
		if left := k.Remaining(); left != step.left || k.Context().Err() != nil {
			t.Errorf("it lives for %v, want %v; %v", left, step.left, context.Cause(k.Context()))
		}
	}
	err := b.Leases().Revoke(t.Context(), k.ID())
	must(t, err)
	wantEnd(t, k, "has ended")
	if left := k.Remaining(); left != 0 {
		t.Errorf("it has ended and lives for %v", left)
	}
}

// Many leases share one stream, which goes with the last of them.
func TestScenario08OneStream(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	streams := func() int { return wire.Streams("KeepAlive") }
	kept := keptAlive(t, a, 50)
	if got := streams(); got != 1 {
		t.Fatalf("%d streams for 50 leases", got)
	}
	for _, k := range kept {
		k.Stop()
	}
	kept = keptAlive(t, a, 2)
	if got := streams(); got > 2 {
		t.Fatalf("%d streams", got)
	}
	kept[0].Stop()
	err := a.Leases().Revoke(t.Context(), kept[1].ID())
	must(t, err)
	wantEnd(t, kept[1], "has ended (revoked)")
}
