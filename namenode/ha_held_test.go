package namenode_test

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// A namenode that was elected, is held up, and is out of the election by then,
// does not end the reign of the one that was elected after it.
func TestElectedAndHeldUp(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	a := p.active(acfg)
	elected, hold := make(chan struct{}), make(chan struct{})
	bcfg, _ := p.config(logged("elected", func() { close(elected); <-hold }))
	b := p.start(bcfg)
	ccfg, _ := p.config()
	c := p.start(ccfg)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-elected
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	// As if its session had ended, of which it does not know yet.
	const path = "/leasefs/pair/election"
	nodes, err := s.Children(t.Context(), path)
	if err != nil || len(nodes) != 2 {
		t.Fatalf("nodes %q, %v", nodes, err)
	}
	number := func(name string) string { return name[strings.LastIndexByte(name, '-'):] }
	first := slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	if err := s.Delete(t.Context(), path+"/"+first, -1); err != nil {
		t.Fatal(err)
	}
	p.becomes(c, "active")
	close(hold)
	p.eventually("the one that was held up continues", func() bool {
		select {
		case <-b.Done():
			return true
		default:
			return b.Role() == "active"
		}
	})
	if err := b.Err(); b.Role() == "active" || !reign.Restartable(err) {
		t.Errorf("the one that was held up is %s, %v", b.Role(), err)
	}
	env.RawAt(t, ccfg.Listen, "writer").Create("/f")
	for _, s := range []*namenode.Server{b, c} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// heldBeat is the machine's clock, at which a window's keeper is held while it
// asks whether a beat is due.
type heldBeat struct {
	clock.System
	armed         atomic.Bool
	reached, hold chan struct{}
}

func (h *heldBeat) Boot() time.Duration {
	if h.armed.Load() {
		var callers [8]uintptr
		frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); strings.HasSuffix(f.Function, ".(*Window).Keep") && h.armed.Swap(false) {
				close(h.reached)
				<-h.hold
			}
		}
	}
	return h.System.Boot()
}

// A beat that was due when the reign was handed over is no failure.
func TestBeatAfterAHandOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	clk := &heldBeat{reached: make(chan struct{}), hold: make(chan struct{})}
	cfg, way := p.config(session(calmSession), func(c *namenode.Config) { c.Clock = clk })
	a := p.active(cfg)
	bcfg, _ := p.config(session(calmSession))
	b := p.start(bcfg)
	clk.armed.Store(true)
	select {
	case <-clk.reached:
	case <-a.Done():
		t.Fatal(a.Err())
	}
	const closeSession = -11
	var released atomic.Bool
	way.Decide(func(op int32, _ []byte) zkproxy.Action {
		if op == closeSession && !released.Swap(true) { // the term is released by now
			close(clk.hold)
			late := time.NewTimer(400 * time.Millisecond)
			select {
			case <-a.Done():
			case <-late.C:
			}
		}
		return zkproxy.Forward
	})
	if _, err := p.client(cfg.Listen, bcfg.Listen).Admin().Failover(t.Context()); err != nil {
		t.Error(err)
	}
	p.handedOver(a, b)
}
