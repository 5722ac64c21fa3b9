package namenode_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/testenv"
	"github.com/leasefs/leasefs/testenv/known"
	"github.com/leasefs/leasefs/vfs"
	"github.com/leasefs/leasefs/zkconn/zkproxy"
)

// fillable is a disk that has no room in one folder when it is told so.
type fillable struct {
	vfs.FS
	dir  string
	full *atomic.Bool
}

func (f fillable) Usage(path string) (free, total int64, err error) {
	if f.full.Load() && strings.HasPrefix(path, f.dir) {
		return 0, 1 << 40, nil
	}
	return f.FS.Usage(path)
}

// onFillable gives a namenode such a disk under its data folder.
func onFillable(c *namenode.Config) *atomic.Bool {
	full := new(atomic.Bool)
	c.FS = fillable{vfs.OS(), c.Data, full}
	return full
}

// A namenode whose own disk is full is not the one that takes over while another can
// take what it would refuse; and is, when there is no other.
func TestFullDiskMakesWay(t *testing.T) {
	if known.Failure(t) {
		return
	}
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	ccfg, _ := p.config()
	full := onFillable(&bcfg)
	a, b, c := p.active(acfg), p.start(bcfg), p.start(ccfg)
	full.Store(true)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	p.eventually("one has taken over", func() bool { return b.Role() == "active" || c.Role() == "active" })
	if b.Role() == "active" {
		t.Fatal("the namenode with a full disk has taken over")
	}
	testenv.RawAt(t, ccfg.Listen, "writer").Create("/grows")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	p.becomes(b, "active")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// refusesFailover asks for a hand-over that is to be refused for a reason of the standby's, and
// to change nothing.
func (p *pair) refusesFailover(a, b *namenode.Server, r *testenv.Raw, why, standby string) {
	p.t.Helper()
	_, err := r.Admin.Failover(p.t.Context(), &pb.FailoverRequest{Caller: r.Who})
	if err == nil {
		p.t.Fatalf("handed over to %s; want a refusal that says %q", standby, why)
	}
	if !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), standby) {
		p.t.Fatalf("%v; want a refusal that says %q of %s", err, why, standby)
	}
	if a.Role() != "active" || b.Role() != "standby" {
		p.t.Fatalf("they are %s and %s", a.Role(), b.Role())
	}
}

// A hand-over by hand to a namenode without room is refused with the reason.
func TestFailoverToAFullDisk(t *testing.T) {
	if known.Failure(t) {
		return
	}
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	full := onFillable(&bcfg)
	full.Store(true)
	a, b := p.active(acfg), p.start(bcfg)
	r := testenv.RawAt(t, acfg.Listen, "operator")
	p.refusesFailover(a, b, r, "disk is full", bcfg.Listen)
	full.Store(false)
	p.eventually("it hands over", func() bool {
		_, err := r.Admin.Failover(t.Context(), &pb.FailoverRequest{Caller: r.Who})
		return err == nil
	})
	p.handedOver(a, b)
}

// A hand-over by hand to a namenode that has not followed is refused with the reason.
func TestFailoverToOneThatLags(t *testing.T) {
	if known.Failure(t) {
		return
	}
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, way := p.config()
	a, b := p.active(acfg), p.start(bcfg)
	r := testenv.RawAt(t, acfg.Listen, "operator")
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	way.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte("/journal/batches/")) {
			<-hold
		}
		return zkproxy.Forward
	})
	r.Create("/unseen")
	p.refusesFailover(a, b, r, "behind", bcfg.Listen)
	release()
	p.eventually("it hands over", func() bool {
		_, err := r.Admin.Failover(t.Context(), &pb.FailoverRequest{Caller: r.Who})
		return err == nil
	})
	p.handedOver(a, b)
}
