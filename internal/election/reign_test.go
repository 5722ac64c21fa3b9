package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// reign is the time in which one candidate could have answered.
type reign struct {
	who      string
	term     uint64
	from, to time.Duration
}

// candidate runs reigns: the parts of a namenode that take over and give back.
type candidate struct {
	name string
	zk   zkconn.Config
	path string
	clk  clock.Clock

	mu     sync.Mutex
	reigns []reign
	free   int           // take-overs that did not have to wait
	served chan struct{} // one for each reign that began
}

func (c *candidate) run(ctx context.Context, resign <-chan struct{}) error {
	for ctx.Err() == nil {
		if err := c.once(ctx, resign); err != nil && ctx.Err() == nil {
			switch {
			case errors.Is(err, election.ErrLost), errors.Is(err, journal.ErrFenced),
				errors.Is(err, zkconn.ErrLost), errors.Is(err, zkconn.ErrExpired), errors.Is(err, zkconn.ErrClosed):
			default:
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// once joins, waits, takes over, serves, and leaves.
func (c *candidate) once(ctx context.Context, resign <-chan struct{}) error {
	cand, err := election.Join(ctx, election.Config{ZooKeeper: c.zk, Path: c.path + "/election", Self: election.Member{Address: c.name}, Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { _ = cand.Resign() }()
	w, err := election.NewWindow(c.clk, lease, margin)
	if err != nil {
		return err
	}
	end := func() time.Duration { // the latest that any Confirmed can have said yes
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.clk.Boot() + w.Remaining()
	}
	var last time.Duration
	var lastMu sync.Mutex
	j, err := zk.Open(ctx, zk.Config{
		ZooKeeper: c.zk, Path: c.path + "/journal", Holder: c.name, Lease: lease, Clock: c.clk, Logger: quiet,
		CloseTimeout: time.Millisecond,
		Written: func() func() {
			confirm := w.Write()
			return func() {
				confirm()
				lastMu.Lock()
				defer lastMu.Unlock()
				last = max(last, end())
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	if _, err := j.Replay(ctx, 1, func(journal.Record) error { return nil }); err != nil {
		return err
	}
	tctx, stopTail := context.WithCancel(ctx)
	tailed := make(chan error, 1)
	go func() { tailed <- j.Tail(tctx, func(journal.Record) error { return nil }) }()
	err = cand.Wait(ctx)
	stopTail()
	if terr := <-tailed; err == nil && !errors.Is(terr, context.Canceled) {
		err = terr
	}
	if err != nil {
		return err
	}
	before, err := j.Term(ctx)
	if err != nil {
		return err
	}
	h, err := j.TakeOver(ctx, before.Term+1, func(journal.Record) error { return nil })
	if err != nil {
		return err
	}
	if h.Released {
		c.mu.Lock()
		c.free++
		c.mu.Unlock()
	} else if err := election.AwaitEnd(ctx, c.clk, h.Seen, h.Lease, margin); err != nil {
		return err
	}
	j.Awaited()
	r := reign{who: c.name, term: before.Term + 1, from: c.clk.Boot()}
	err = c.serve(ctx, cand, w, j, h.Last, resign)
	w.End()
	ended := c.clk.Boot()
	lastMu.Lock()
	r.to = min(last, ended) // whichever comes first closed the window
	lastMu.Unlock()
	c.mu.Lock()
	if r.to > r.from {
		c.reigns = append(c.reigns, r)
	}
	c.mu.Unlock()
	if errors.Is(err, errResign) {
		return j.Release(ctx)
	}
	return err
}

var errResign = errors.New("asked to resign")

// serve journals the activation and then a record now and then, as long as the
// window is open. It deliberately does not look at the session: the window alone
// must be enough.
func (c *candidate) serve(ctx context.Context, cand *election.Candidacy, w *election.Window, j *zk.Journal, last uint64, resign <-chan struct{}) error {
	kctx, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		_ = w.Keep(kctx, j.Beat, func(err error) bool { return errors.Is(err, journal.ErrFenced) }) // the journal says so too
	}()
	defer func() { stop(); <-kept }()
	for n := 0; ; n++ {
		last++
		if err := j.Append(journal.Record{TxID: last, Type: 1, Body: []byte(c.name)}); err != nil {
			return err
		}
		wctx, cancel := context.WithTimeout(ctx, lease)
		err := j.WaitDurable(wctx, last)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if !w.Confirmed() {
			return errors.Join(election.ErrLost, err)
		}
		if n == 0 {
			select {
			case c.served <- struct{}{}:
			default:
			}
		}
		t := time.NewTimer(time.Duration(rand.Int64N(int64(lease / 2))))
		select {
		case <-t.C:
		case <-resign:
			t.Stop()
			return errResign
		case <-cand.Lost():
			<-t.C // until the window is over
		}
	}
}

// Three candidates, whose connections are cut and whose sessions end at random,
// while some resign: never could two have answered at the same time.
func TestNeverTwoConfirmed(t *testing.T) {
	const faults = 16
	path := root()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rnd := rand.New(rand.NewPCG(6, 6))
	served := make(chan struct{}, 1)
	resign := make(chan struct{}, 1)
	var all []*candidate
	var proxies []*zkproxy.Proxy
	ended := make(chan error, 3)
	for i := range 3 {
		p := proxy(t, i)
		proxies = append(proxies, p)
		c := &candidate{
			name: string(rune('a' + i)), path: path, clk: clock.System{}, served: served,
			zk: zkconn.Config{Servers: []string{p.Addr()}, SessionTimeout: 1500 * time.Millisecond, Logger: quiet},
		}
		all = append(all, c)
		go func() { ended <- c.run(ctx, resign) }()
	}
	for i := range faults {
		select {
		case <-served:
		case err := <-ended:
			t.Fatal(err)
		}
		p := proxies[rnd.IntN(3)]
		switch i % 4 {
		case 0:
			for _, p := range proxies { // whoever it is
				if err := p.ExpireAll(); err != nil {
					t.Error(err)
				}
			}
		case 1:
			resign <- struct{}{}
		case 2:
			p.Down()
			for _, o := range proxies {
				if o != p {
					o.Cut()
				}
			}
			resign <- struct{}{}
		case 3:
			for _, p := range proxies {
				p.Up()
				p.Cut()
			}
			resign <- struct{}{}
		}
	}
	<-served
	cancel()
	for range all {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	var reigns []reign
	free := 0
	for _, c := range all {
		reigns = append(reigns, c.reigns...)
		free += c.free
	}
	slices.SortFunc(reigns, func(a, b reign) int { return int(a.from - b.from) })
	for i := 1; i < len(reigns); i++ {
		a, b := reigns[i-1], reigns[i]
		if a.to > b.from || a.term >= b.term {
			t.Errorf("%s in term %d could answer until %s, %s in term %d from %s on", a.who, a.term, a.to, b.who, b.term, b.from)
		}
	}
	if len(reigns) < faults/2 || free == 0 {
		t.Errorf("%d reigns, %d taken over without a wait", len(reigns), free)
	}
	t.Logf("%d reigns, %d taken over without a wait", len(reigns), free)
}
