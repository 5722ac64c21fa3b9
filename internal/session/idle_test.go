package session

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// A session without open files renews at half its soft limit, however much more often
// leases have to be renewed; a file is renewed so often from its opening on.
func TestIdleSessionsRenewSeldom(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
				return &pb.RenewLeaseResponse{NextRenewalMs: 1000, SoftLimitMs: 40_000, HardLimitMs: 400_000}
			}
		})
		r.open()
		r.RenewNow() // and learn of that
		count := func() int {
			synctest.Wait()
			_, renewals, _ := r.nn.seen()
			return renewals
		}
		before := count()
		pass(10 * time.Minute)
		if n := count() - before; n < 30 || n > 32 { // every 19 to 20 s
			t.Errorf("%d renewals in 10 minutes without a file", n)
		}
		f := r.file(7)
		for range 60 {
			pass(time.Second)
			synctest.Wait()
			if age := f.stamp.Age(r.Now()); age > time.Second {
				t.Fatalf("the file's lease was renewed %s ago", age)
			}
		}
		r.Remove(f)
		before = count()
		pass(2 * time.Second)
		if m := r.nn.last(); count() == before || !m.GetHasSet() || len(m.GetOpen()) != 0 {
			t.Errorf("after the last file: %v", m)
		}
		before = count()
		pass(15 * time.Second)
		if n := count() - before; n != 0 {
			t.Errorf("%d renewals in 15 s after the namenode knew that there is no file", n)
		}
	})
}

// A session that may not cache asks again after some minutes, with a new stream, while no file is
// open. One that may asks nothing.
func TestAsksAgainWhetherItMayCache(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		may := r.nn.welcome
		r.nn.welcome = &pb.Welcome{NamespaceId: "ns", SoftLimitMs: 60_000, HardLimitMs: 1_200_000, RenewEveryMs: 30_000, CacheFull: true}
		r.open()
		hellos := func() int {
			synctest.Wait()
			n, _, _ := r.nn.seen()
			return n
		}
		f := r.file(7)
		pass(time.Hour)
		if n := hellos(); n != 1 {
			t.Fatalf("%d streams while a file is open", n)
		}
		r.Remove(f)
		r.nn.set(func(n *namenode) { n.welcome = may })
		pass(2*uncachedFor + time.Second)
		if n := hellos(); n != 2 {
			t.Fatalf("%d streams, want another one", n)
		}
		pass(time.Hour)
		if n := hellos(); n != 2 {
			t.Errorf("%d streams of one that may cache", n)
		}
	})
}
