package namenode_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// fillable is a disk that has no room in one folder when it is told so, or does not say
// how much it has.
type fillable struct {
	vfs.FS
	dir  string
	full *atomic.Bool
	left int64 // bytes that are free when it is full
	mute bool
}

func (f fillable) Usage(path string) (free, total int64, err error) {
	switch {
	case !strings.HasPrefix(path, f.dir):
		return f.FS.Usage(path)
	case f.mute:
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: syscall.EIO}
	case f.full.Load():
		return f.left, 1 << 40, nil
	}
	return f.FS.Usage(path)
}

// onFillable gives a namenode such a disk under its data folder.
func onFillable(c *namenode.Config) *atomic.Bool {
	full := new(atomic.Bool)
	c.FS = fillable{FS: vfs.OS(), dir: c.Data, full: full}
	return full
}

// A namenode whose own disk is full is not the one that takes over while another can
// take what it would refuse; and is, when there is no other.
func TestFullDiskMakesWay(t *testing.T) {
	t.Parallel()
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
	env.RawAt(t, ccfg.Listen, "writer").Create("/grows")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	p.becomes(b, "active")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// readOnly is a disk that was mounted again, read-only, while on is set.
type readOnly struct {
	vfs.FS
	dir string
	on  *atomic.Bool
}

func (f readOnly) OpenWrite(name string) (vfs.File, error) {
	if f.on.Load() && strings.HasPrefix(name, f.dir) {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	return f.FS.OpenWrite(name)
}

// A namenode whose disk cannot be written is as one whose disk is full, however much is
// free there: it is not handed over to, and does not stay active beside one that is fit.
func TestReadOnlyDiskMakesWay(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var aro, bro atomic.Bool
	clk := monoAhead{ahead: new(atomic.Int64)}
	acfg, _ := p.config(func(c *namenode.Config) {
		c.FS, c.Clock = readOnly{vfs.OS(), c.Data, &aro}, clk
	})
	bcfg, _ := p.config(func(c *namenode.Config) { c.FS = readOnly{vfs.OS(), c.Data, &bro} })
	a, b := p.active(acfg), p.start(bcfg)
	r := env.RawAt(t, acfg.Listen, "operator")
	rb := r.At(bcfg.Listen)
	bro.Store(true)
	p.eventually("its status says so", func() bool {
		st, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{Caller: rb.Who})
		return err == nil && strings.Contains(st.GetShort(), "cannot be written")
	})
	p.refusesFailover(a, b, r, "cannot be written", bcfg.Listen)
	bro.Store(false)
	aro.Store(true)
	clk.ahead.Store(int64(time.Hour))
	p.handedOver(a, b)
}

// refusesFailover asks for a hand-over that is to be refused for a reason of the standby's, and
// to change nothing.
func (p *pair) refusesFailover(a, b *namenode.Server, r *env.Raw, why, standby string) {
	p.t.Helper()
	p.eventually("the active one has read the report", func() bool { return a.KnowsUnfit(p.t.Context(), why) })
	_, err := r.Failover()
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
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	full := onFillable(&bcfg)
	full.Store(true)
	a := p.active(acfg)
	r := env.RawAt(t, acfg.Listen, "operator")
	if _, err := r.Failover(); !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "no standby to hand over to") {
		t.Errorf("without a standby: %v", err)
	}
	b := p.start(bcfg)
	p.refusesFailover(a, b, r, "disk is full", bcfg.Listen)
	full.Store(false)
	p.eventually("it hands over", func() bool {
		_, err := r.Failover()
		return err == nil
	})
	p.handedOver(a, b)
}

// Hand-overs one soon after the other go to namenodes that are fit, past the one that
// is first in the line and full each time.
func TestHandOversPastAFullDisk(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	ccfg, _ := p.config()
	full := onFillable(&bcfg)
	full.Store(true)
	a, b, c := p.active(acfg), p.start(bcfg), p.start(ccfg)
	handOver := func(from *namenode.Server, cfg namenode.Config, to *namenode.Server) {
		t.Helper()
		r := env.RawAt(t, cfg.Listen, "operator")
		p.eventually("it hands over", func() bool {
			_, err := r.Failover()
			return err == nil
		})
		<-from.Done()
		if err := from.Close(); err != nil {
			t.Error(err)
		}
		p.eventually("one has taken over", func() bool { return to.Role() == "active" || b.Role() == "active" })
		if b.Role() == "active" {
			t.Fatal("the namenode with a full disk has taken over")
		}
	}
	handOver(a, acfg, c) // b makes way
	a = p.start(acfg)
	handOver(c, ccfg, a) // and again
	for _, s := range []*namenode.Server{a, b} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// holdBatches lets a namenode read no batch of the journal until it is released.
func holdBatches(way *zkproxy.Proxy) (release func()) {
	hold := make(chan struct{})
	way.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte("/journal/batches/")) {
			<-hold
		}
		return zkproxy.Forward
	})
	return sync.OnceFunc(func() { close(hold) })
}

// A hand-over by hand to a namenode that has not followed is refused with the reason.
func TestFailoverToOneThatLags(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, way := p.config()
	a, b := p.active(acfg), p.start(bcfg)
	r := env.RawAt(t, acfg.Listen, "operator")
	release := holdBatches(way)
	defer release()
	r.Create("/unseen")
	p.refusesFailover(a, b, r, "behind", bcfg.Listen)
	rb := env.RawAt(t, bcfg.Listen, "operator")
	p.eventually("its status says that it lags", func() bool {
		st, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{Caller: rb.Who})
		return err == nil && st.GetRole() == "standby" && st.GetDurableTxid() > st.GetTxid()
	})
	release()
	p.eventually("it hands over", func() bool {
		_, err := r.Failover()
		return err == nil
	})
	p.handedOver(a, b)
}

// A namenode that has not followed is not the one that takes over while another has.
func TestOneThatLagsMakesWay(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, way := p.config()
	ccfg, _ := p.config()
	a, b, c := p.active(acfg), p.start(bcfg), p.start(ccfg)
	release := holdBatches(way)
	defer release()
	r := env.RawAt(t, acfg.Listen, "operator")
	r.Create("/unseen")
	var next string
	p.eventually("it hands over", func() bool {
		out, err := r.Failover()
		next = out.GetNext()
		return err == nil
	})
	if next != ccfg.Listen {
		t.Errorf("handed over to %s, want %s", next, ccfg.Listen)
	}
	<-a.Done()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.eventually("one has taken over", func() bool { return b.Role() == "active" || c.Role() == "active" })
	if b.Role() == "active" {
		t.Error("the namenode that lags has taken over")
	}
	env.RawAt(t, ccfg.Listen, "reader").File("/unseen")
	release()
	for _, s := range []*namenode.Server{c, b} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// monoAhead is the machine's clock, on which some time more has passed.
type monoAhead struct {
	clock.System
	ahead *atomic.Int64
}

func (c monoAhead) Mono() time.Duration { return c.System.Mono() + time.Duration(c.ahead.Load()) }

// An active namenode whose disk has filled up hands over to one that has room, if its
// reign was long enough; while none has, it stays active, and deletes.
func TestActiveWithAFullDiskHandsOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	clk := monoAhead{ahead: new(atomic.Int64)}
	acfg, _ := p.config(func(c *namenode.Config) { c.Clock = clk })
	bcfg, _ := p.config()
	afull, bfull := onFillable(&acfg), onFillable(&bcfg)
	a := p.active(acfg)
	r := env.RawAt(t, acfg.Listen, "operator")
	r.Create("/old")
	afull.Store(true)
	bfull.Store(true)
	clk.ahead.Store(int64(time.Hour))
	b := p.start(bcfg)
	short := func(r *env.Raw) string {
		st, err := r.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.Who})
		if err != nil {
			return err.Error()
		}
		return st.GetShort()
	}
	rb := r.At(bcfg.Listen)
	p.eventually("both say that they are full", func() bool {
		return strings.Contains(short(r), "disk is full") && strings.Contains(short(rb), "disk is full")
	})
	if _, err := r.Failover(); !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("a hand-over to a full disk: %v", err)
	}
	if a.Role() != "active" {
		t.Errorf("it is %s", a.Role())
	}
	if _, err := r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/old")}); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	bfull.Store(false)
	p.handedOver(a, b)
}

// A disk that does not say how much room it has is told of, and no reason against its
// namenode.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	p := newPair(t)
	var log logText
	acfg, _ := p.config()
	bcfg, _ := p.config(log.config, func(c *namenode.Config) { c.FS = fillable{FS: vfs.OS(), dir: c.Data, mute: true} })
	a, b := p.active(acfg), p.start(bcfg)
	if !log.has("does not know whether it has room", "statfs") {
		t.Errorf("%s", log.String())
	}
	rb := env.RawAt(t, bcfg.Listen, "operator")
	st, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{Caller: rb.Who})
	if err != nil || !strings.Contains(st.GetDiskError(), "statfs") || st.GetShort() != "" {
		t.Errorf("status: %v, %v", st, err)
	}
	r := env.RawAt(t, acfg.Listen, "operator")
	p.eventually("it hands over", func() bool {
		_, err := r.Failover()
		return err == nil
	})
	p.handedOver(a, b)
}

// A namenode that has room for what is new, and none for an image, is not fit: it makes
// way, as one that is full, and is not handed over to.
func TestNoRoomForAnImage(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var aleft, bleft atomic.Bool
	const reserve = 64 << 10 // bytes; the image has twice as many
	little := func(full *atomic.Bool) func(*namenode.Config) {
		return func(c *namenode.Config) {
			c.Reserve, c.FS = reserve, fillable{FS: vfs.OS(), dir: c.Data, full: full, left: 2 * reserve}
		}
	}
	clk := monoAhead{ahead: new(atomic.Int64)}
	acfg, _ := p.config(little(&aleft), func(c *namenode.Config) { c.Clock = clk })
	bcfg, _ := p.config(little(&bleft))
	a := p.active(acfg)
	r := env.RawAt(t, acfg.Listen, "operator")
	if err := r.Flush(r.Create("/tail"), 0, strings.Repeat("x", 2*reserve)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who}); err != nil {
		t.Fatal(err)
	}
	b := p.start(bcfg)
	bleft.Store(true)
	rb := r.At(bcfg.Listen)
	p.eventually("its status says so", func() bool {
		st, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{Caller: rb.Who})
		return err == nil && strings.Contains(st.GetShort(), "no room for an image")
	})
	p.refusesFailover(a, b, r, "no room for an image", bcfg.Listen)
	bleft.Store(false)
	aleft.Store(true)
	p.eventually("its status says so", func() bool {
		st, err := r.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.Who})
		return err == nil && st.GetRole() == "active" && strings.Contains(st.GetShort(), "no room for an image")
	})
	r.Create("/grows") // it has room for that
	clk.ahead.Store(int64(time.Hour))
	p.handedOver(a, b)
}

// A reign is given up under load, too; not before it has lasted a while, and not while
// an image takes the room.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	clk := monoAhead{ahead: new(atomic.Int64)}
	acfg, _ := p.config(func(c *namenode.Config) { c.Clock = clk })
	bcfg, _ := p.config()
	a, b := p.active(acfg), p.start(bcfg)
	a.GiveUp(t.Context())
	if a.Role() != "active" {
		t.Fatalf("after a moment of its reign it is %s", a.Role())
	}
	clk.ahead.Store(int64(time.Hour))
	stored := a.HoldImage(t)
	a.GiveUp(t.Context())
	if a.Role() != "active" {
		t.Fatalf("beside an image it is %s", a.Role())
	}
	stored()
	r := env.RawAt(t, acfg.Listen, "writer")
	w := r.Create("/log")
	written := make(chan int64, 1)
	go func() {
		at := int64(0)
		for r.Flush(w, at, "line\n") == nil {
			at += 5
		}
		written <- at
	}()
	p.eventually("it hands over while a writer writes", func() bool {
		a.GiveUp(t.Context())
		return a.Role() != "active"
	})
	p.handedOver(a, b)
	if n := <-written; n == 0 {
		t.Error("nothing was written")
	}
}
