package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
)

// pulse appends one line after the other and notes when each was acknowledged.
type pulse struct {
	mu   sync.Mutex
	acks []time.Time
	err  error
}

// beat writes until ctx ends.
func (p *pulse) beat(ctx context.Context, w *client.Writer) {
	for ctx.Err() == nil {
		_, err := w.Write([]byte("a line of a writer that is at work all the time\n"))
		if err == nil {
			err = w.Flush(ctx)
		}
		p.mu.Lock()
		if err != nil && ctx.Err() == nil && p.err == nil {
			p.err = err
		}
		if err == nil {
			p.acks = append(p.acks, time.Now())
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// pause is the longest time without an acknowledgement that ended after at, and
// when it ended.
func (p *pulse) pause(at time.Time) (longest time.Duration, end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.acks); i++ {
		if d := p.acks[i].Sub(p.acks[i-1]); p.acks[i].After(at) && d > longest {
			longest, end = d, p.acks[i]
		}
	}
	return longest, end
}

func (p *pulse) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks)
}

// quantiles describes times.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	all = slices.Clone(all)
	slices.Sort(all)
	at := func(q float64) time.Duration {
		return all[min(int(q*float64(len(all))), len(all)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("least %s, median %s, p90 %s, most %s (%d)", at(0), at(0.5), at(0.9), at(1), len(all))
}

// histogram shows times in steps that grow by half.
func histogram(all []time.Duration) string {
	var b strings.Builder
	rest := slices.Clone(all)
	slices.Sort(rest)
	for top := 100 * time.Millisecond; len(rest) > 0; top += top / 2 {
		n := 0
		for n < len(rest) && rest[n] < top {
			n++
		}
		if n > 0 {
			fmt.Fprintf(&b, "\n  < %8s %5d %s", top.Round(10*time.Millisecond), n, strings.Repeat("#", min(n, 60)))
		}
		rest = rest[n:]
	}
	return b.String()
}

// TestHAFigures reports how long writers that are connected wait for the next
// namenode: from the kill or the command to the first acknowledgement, and the
// pause that each of eight writers sees. It asserts that they go on, and no time.
func TestHAFigures(t *testing.T) {
	ctx := deadline(t, 10*time.Minute)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.direct = true })
	fsys := e.library(ctx)
	const writers = 8
	var command *process
	for _, way := range []struct {
		name   string
		rounds int
		end    func(a *member)
		after  func(a *member)
	}{
		{"kill -9", sized(3, 10), func(a *member) { a.kill() }, func(a *member) { a.start(ctx) }},
		{"admin failover", sized(3, 10), func(*member) { command = e.begin(ctx, reader(""), "admin", "failover") }, func(*member) { command.ends(ctx, 0) }},
		{"SIGTERM", sized(1, 10), func(a *member) { a.term(ctx) }, func(a *member) { a.start(ctx) }},
		{"SIGSTOP", sized(1, 10), func(a *member) { a.stop(ctx) }, func(a *member) { a.cont(); a.standby(ctx) }},
	} {
		var first, pauses []time.Duration
		for round := range way.rounds {
			a := e.settled(ctx)
			var all [writers]pulse
			work, stop := context.WithCancel(ctx)
			var wg sync.WaitGroup
			var ready atomic.Int32
			for i := range all {
				w, err := fsys.Create(ctx, fmt.Sprintf("/%s-%d-%d", strings.ReplaceAll(way.name, " ", ""), round, i))
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() { all[i].beat(work, w); ready.Add(1); _ = w.Close() })
			}
			eventually(ctx, t, "the writers are at work", func() bool {
				return all[0].count() > 20 && all[writers-1].count() > 20
			})
			began := time.Now()
			way.end(a)
			e.successor(ctx, a)
			was := make([]int, writers)
			for i := range all {
				was[i] = all[i].count()
			}
			eventually(ctx, t, "all writers go on", func() bool {
				for i := range all {
					if all[i].count() < was[i]+20 {
						return all[i].err != nil
					}
				}
				return true
			})
			stop()
			wg.Wait()
			soonest := time.Duration(1 << 62)
			for i := range all {
				if all[i].err != nil {
					t.Errorf("%s: writer %d: %v", way.name, i, all[i].err)
					continue
				}
				d, end := all[i].pause(began)
				pauses = append(pauses, d)
				soonest = min(soonest, end.Sub(began))
			}
			first = append(first, soonest)
			way.after(a)
		}
		if way.rounds > 0 {
			t.Logf("%s: first acknowledgement after it: %s; pauses of %d writers: %s%s", way.name, quantiles(first), writers, quantiles(pauses), histogram(pauses))
		}
	}
}
