package client

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func mustLock(t *testing.T, fs *FS, path string) *Lock {
	t.Helper()
	check(t, fs.WriteFile(t.Context(), path, nil))
	l, err := fs.Lock(t.Context(), path, LockOptions{})
	check(t, err)
	return l
}

// A lost lock has no time left, though the session's renewals succeed.
func TestALostLockHasNoTimeLeft(t *testing.T) {
	f := newFake()
	f.renewEvery = 10 * time.Millisecond
	fs := start(t, f)
	l, other := mustLock(t, fs, "/lost"), mustLock(t, fs, "/kept")
	f.set(func() {
		f.renew = func(_ *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			resp.Lost = []*pb.LostFile{{Inode: l.w.Inode(), Epoch: l.Token(), Reason: "taken over"}}
			return true
		}
	})
	<-l.Context().Done()
	before := fs.Stats().Renewals
	await(t, "the session is renewed after the loss", func() bool { return fs.Stats().Renewals >= before+2 })
	if got := l.Remaining(); got != 0 {
		t.Fatalf("%s remain of a lost lock", got)
	}
	if other.Remaining() <= 0 {
		t.Fatal("the lock that was kept has no time left")
	}
	check(t, other.Unlock(t.Context()))
	if got := other.Remaining(); got != 0 {
		t.Fatalf("%s remain of a lock that was given up", got)
	}
}

// A namenode that asks for the set of files, as after a failover, has looked at
// none of them: its answer gives a lock no time.
func TestAnAnswerThatAsksForTheSetRenewsNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.soft, f.hard = 10*time.Second, time.Hour
	f.renewEvery = time.Hour
	clk := new(clock.Fake)
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	l := mustLock(t, fs, "/a")
	fs.session.RenewNow()
	await(t, "the set is confirmed", func() bool { return fs.Stats().Renewals > 0 })
	withSet := make(chan struct{}, 1)
	f.set(func() {
		f.renew = func(r *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			resp.WantSet = !r.HasSet
			if r.HasSet {
				select {
				case withSet <- struct{}{}:
				default:
				}
			}
			return !r.HasSet // the set gets no answer
		}
	})
	clk.Advance(11 * time.Second)
	fs.session.RenewNow()
	<-withSet // sent only when the answer before it was taken in
	if got := l.Remaining(); got >= 0 {
		t.Fatalf("%s remain of a lock that another may have", got)
	}
	f.set(func() { f.renew = nil })
	await(t, "the set was answered", func() bool { return l.Remaining() > 0 })
}
