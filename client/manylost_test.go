package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/leasemanager"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// A session that loses more files at once than an answer tells of believes none of them
// renewed: what is not told yet is as old as it was.
func TestManyLostAtOnce(t *testing.T) {
	const files, lost = 2300, 2200 // two answers leave some out
	f := newFake()
	f.renewEvery = time.Hour // until something is to be told
	clk := new(clock.Fake)
	m := leasemanager.New(leasemanager.Config{Clock: clk})
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	us := leasemanager.Holder{User: "u", Session: leasemanager.SessionID(fs.caller.GetSession())}
	other := leasemanager.Holder{User: "v", Session: leasemanager.SessionID{1}}
	all := make([]*Writer, files)
	for i := range all {
		all[i] = mustCreate(t, fs, fmt.Sprint("/f", i))
		m.Open(us, all[i].key.Inode, all[i].key.Epoch)
	}
	var taken time.Duration // when
	answers := 0
	f.set(func() {
		f.renew = func(r *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			for _, w := range all[:lost] {
				if w.lost.Load() == nil && taken > 0 && w.lease.Age(fs.session.Now()) < clk.Boot()-taken {
					t.Errorf("after %d answers a file that another has counts as renewed", answers)
					break
				}
			}
			q := leasemanager.Renewal{Session: us.Session, Version: r.GetVersion(), HasSet: r.GetHasSet()}
			for _, o := range r.GetOpen() {
				q.Open = append(q.Open, leasemanager.Ref{Inode: o.GetInode(), Epoch: o.GetEpoch()})
			}
			out := m.Renew(q)
			resp.WantSet, resp.UnknownSession = out.WantSet, out.UnknownSession
			if taken > 0 {
				answers++
				resp.NextRenewalMs = 1 // the clock stands still
			}
			for _, l := range out.Lost {
				resp.Lost = append(resp.Lost, &pb.LostFile{Inode: l.Inode, Epoch: l.Epoch, Reason: l.Reason})
			}
			return true
		}
	})
	fs.session.RenewNow()
	await(t, "the set is confirmed", func() bool { return fs.Stats().Renewals > 0 })
	f.set(func() {
		for i, w := range all[:lost] {
			m.Open(other, w.key.Inode, w.key.Epoch+files+uint64(i)) //nolint:gosec // small
		}
		taken = clk.Boot() + 1
		clk.Advance(time.Second)
	})
	fs.session.RenewNow()
	for _, w := range all[:lost] {
		<-w.Context().Done()
	}
	await(t, "the files that were kept are renewed", func() bool { return all[files-1].lease.Age(fs.session.Now()) == 0 })
	for _, w := range all[lost:] {
		check(t, w.Close())
	}
}
