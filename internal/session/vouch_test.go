package session

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// A session that somebody else's files are held by renews their lease while that one is
// heard of, and lets it go as soon as he is silent.
func TestVouchedLeaseIsRenewedForTheLiving(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
				return &pb.RenewLeaseResponse{NextRenewalMs: 20_000, SoftLimitMs: 40_000, HardLimitMs: 400_000}
			}
		})
		r.open()
		r.Vouch()
		f := r.file(7)
		for range 20 { // he renews at half the soft limit
			pass(20 * time.Second)
			r.Vouch()
			synctest.Wait()
			if age := f.stamp.Age(r.Now()); age > time.Second {
				t.Fatalf("he was heard of, and the lease was renewed %s ago", age)
			}
		}
		r.Vouch() // many do not make many renewals
		synctest.Wait()
		_, before, _ := r.nn.seen()
		for range 1000 {
			r.Vouch()
			synctest.Wait()
		}
		if _, after, _ := r.nn.seen(); after != before {
			t.Errorf("%d renewals for 1000 signs of life at once", after-before)
		}
		pass(20 * time.Second) // the last of these signs is not lost
		synctest.Wait()
		pass(100 * time.Second)
		synctest.Wait()
		if age := f.stamp.Age(r.Now()); age < 99*time.Second {
			t.Errorf("after 120 s of silence the lease was renewed %s ago", age)
		}
		r.Vouch()
		synctest.Wait()
		if age := f.stamp.Age(r.Now()); age > time.Second {
			t.Errorf("he is back, and the lease was renewed %s ago", age)
		}
	})
}
