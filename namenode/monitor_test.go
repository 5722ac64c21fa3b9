package namenode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// attached makes files that are attached to a new lease.
func attached(t *testing.T, r *env.Raw, ttl time.Duration, paths ...string) (lease uint64) {
	t.Helper()
	g, err := r.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, TtlMs: ttl.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Close: true, Parents: true, Lease: g.GetId()}); err != nil {
			t.Fatal(err)
		}
	}
	return g.GetId()
}

// look is what there is at a path; nil: nothing.
func look(t *testing.T, r *env.Raw, path string) *pb.Attr {
	t.Helper()
	out, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At(path)})
	if err != nil && !errors.Is(err, fserror.NotFound) {
		t.Fatal(err)
	}
	return out.GetAttr()
}

const (
	longTerm = time.Hour // of a cache; longer than any lease of these tests
	shortTTL = time.Minute
)

func termOf(d time.Duration) func(*namenode.Config) {
	return func(c *namenode.Config) { c.CacheTerm = d }
}

// reapFast has the clock, which stands still, not count for the rate.
func reapFast(c *namenode.Config) { c.ReapRate = 1_000_000 }

// Who keeps what he has read and does not answer holds up the end of the lease
// that it is of, as a whole. No other end waits for him, neither of a granted lease nor
// at the hard limit.
func TestASilentReaderHoldsUpOnlyWhatItHolds(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm), reapFast)
	owner, writer := n.Raw(t, "owner"), n.Raw(t, "writer")
	reader, _ := silentReader(t, n, "reader")
	attached(t, owner, shortTTL, "/a/kept")
	many := make([]string, 70)
	for i := range many {
		many[i] = "/many/" + string(rune('A'+i/10)) + string(rune('0'+i%10))
	}
	attached(t, owner, shortTTL, many...)
	attached(t, owner, shortTTL+time.Second, "/b/other")
	rest := make([]string, 70)
	for i := range rest {
		rest[i] = "/rest" + many[i]
	}
	attached(t, owner, shortTTL+time.Second, rest...)
	writer.Create("/c/open")
	keep(t, reader, "/a/kept")
	keep(t, reader, many[len(many)-1])

	clk.Advance(shortTTL + 2*time.Second)
	env.Eventually(t, "leases end of which nobody keeps anything", func() bool {
		return look(t, owner, "/b/other") == nil && look(t, owner, rest[0]) == nil && look(t, owner, rest[len(rest)-1]) == nil
	})
	clk.Advance(namenode.DefaultHardLimit)
	env.Eventually(t, "the file is closed at the hard limit", func() bool { return look(t, owner, "/c/open").GetOpen() == nil })
	if look(t, owner, "/a/kept") == nil || look(t, owner, many[0]) == nil || look(t, owner, many[len(many)-1]) == nil {
		t.Fatal("it was deleted while a session may answer from its cache that it is there")
	}
	clk.Advance(2 * longTerm)
	env.Eventually(t, "what was kept is deleted when the term is over", func() bool {
		return look(t, owner, "/a/kept") == nil && look(t, owner, many[0]) == nil && look(t, owner, many[len(many)-1]) == nil
	})
}

// keepAlive names a lease once, and returns the time to live that it is answered.
func keepAlive(t *testing.T, r *env.Raw, lease uint64) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k, err := r.NN.KeepAlive(ctx)
	if err == nil {
		err = k.Send(&pb.KeepAliveRequest{Caller: r.Who, Ids: []uint64{lease}})
	}
	var m *pb.KeepAliveResponse
	if err == nil {
		m, err = k.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(m.GetLeases()[0].GetTtlMs()) * time.Millisecond
}

// A lease whose end waits for a reader has not ended: it is kept alive, and
// nobody is told of an end that a crash could take back.
func TestALeaseIsAliveUntilItsEndIsDurable(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm), reapFast)
	owner := n.Raw(t, "owner")
	reader, stream := silentReader(t, n, "reader")
	lease := attached(t, owner, shortTTL, "/f")
	attached(t, owner, 2*shortTTL, "/fence")
	keep(t, reader, "/f")
	clk.Advance(shortTTL + time.Second)
	asked := <-stream.revoked
	// Less than the TTL if the journal has its age already.
	if ttl := keepAlive(t, owner, lease); ttl <= 0 || ttl > shortTTL {
		n.Restart(t)
		t.Fatalf("answered %s; after a restart %s", ttl, keepAlive(t, owner, lease))
	}
	stream.ack(asked)
	clk.Advance(shortTTL)
	env.Eventually(t, "another lease ends", func() bool { return look(t, owner, "/fence") == nil })
	if look(t, owner, "/f") == nil {
		t.Fatal("a lease was kept alive, and its file is gone")
	}
	clk.Advance(shortTTL)
	env.Eventually(t, "the lease ends", func() bool { return look(t, owner, "/f") == nil })
	n.Restart(t)
	if keepAlive(t, owner, lease) != 0 {
		t.Fatal("it lives again after a restart")
	}
}

// The hard limit closes a file no sooner than its holder has dropped the
// attributes that it has kept, which say that the file is open.
func TestTheHardLimitRecallsWhatIsKept(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm))
	other := n.Raw(t, "other")
	holder, stream := silentReader(t, n, "holder")
	out, err := holder.NN.Create(t.Context(), &pb.CreateRequest{Call: holder.Call(), Caller: holder.Who, At: pb.At("/f"), Cache: true})
	if err != nil || len(out.GetKeys()) == 0 || out.GetAttr().GetOpen() == nil {
		t.Fatal(out, err)
	}
	clk.Advance(namenode.DefaultHardLimit + time.Second)
	env.Eventually(t, "the holder is asked, or the file closed", func() bool {
		return len(stream.revoked) > 0 || look(t, other, "/f").GetOpen() == nil
	})
	if look(t, other, "/f").GetOpen() == nil {
		t.Fatal("closed while its holder may answer from its cache that it is open")
	}
	stream.ack(<-stream.revoked)
	env.Eventually(t, "the file is closed", func() bool { return look(t, other, "/f").GetOpen() == nil })
}

// A lease that was granted under the id of one whose end waited is another lease.
func TestTheEndOfALeaseIsNotThatOfTheNext(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm), reapFast)
	owner := n.Raw(t, "owner")
	reader, stream := silentReader(t, n, "reader")
	lease := attached(t, owner, shortTTL, "/f")
	attached(t, owner, 2*shortTTL, "/fence")
	keep(t, reader, "/f")
	clk.Advance(shortTTL + time.Second)
	asked := <-stream.revoked
	id := namespace.LeaseID(lease)
	if err := n.ApplyAtOnce(func() { stream.ack(asked) },
		&namespace.OpEnd{ID: id, Reason: namespace.LeaseRevoked},
		&namespace.OpGrant{ID: id, TTL: time.Hour.Milliseconds(), Owner: namespace.Owner{User: owner.Who.GetUser()}},
	); err != nil {
		t.Fatal(err)
	}
	clk.Advance(shortTTL)
	env.Eventually(t, "another lease ends", func() bool { return look(t, owner, "/fence") == nil })
	if keepAlive(t, owner, lease) == 0 {
		t.Fatal("the new lease has ended with the old one")
	}
}

// TestNoTransactionUnderALeaseWhoseTimeIsOver: what is to be done only while a granted lease lives is not done when its
// time is over, though its end is not recorded yet, since a reader keeps what is attached to it.
func TestNoTransactionUnderALeaseWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm), reapFast)
	owner := n.Raw(t, "owner")
	reader, stream := silentReader(t, n, "reader")
	lease := attached(t, owner, shortTTL, "/f")
	keep(t, reader, "/f")
	mkdir := func(path string) error {
		_, err := owner.NN.Transact(t.Context(), &pb.TransactRequest{
			Call: owner.Call(), Caller: owner.Who,
			Compares: []*pb.TxCompare{{What: &pb.TxCompare_Lease{Lease: lease}}},
			Ops:      []*pb.TxOp{{Path: path, Op: &pb.TxOp_Mkdir{Mkdir: &pb.TxDir{}}}},
		})
		return err
	}
	if err := mkdir("/alive"); err != nil {
		t.Fatal(err)
	}
	clk.Advance(shortTTL + time.Second)
	<-stream.revoked // the end waits for the reader
	if err := mkdir("/late"); !errors.Is(err, fserror.CompareFailed) {
		t.Errorf("a transaction under a lease whose time is over: %v", err)
	}
}
