package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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

func (p *pulse) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
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

// failoverRounds is how often each way is gone at least.
const failoverRounds = 10

// BenchmarkFailover is how long eight writers that are connected wait for the
// next namenode: from the kill or the command to the first acknowledgement after
// the pause, with its stages, and the pause that each of them sees.
func BenchmarkFailover(b *testing.B) {
	for _, way := range []struct {
		name  string
		end   func(ctx context.Context, fsys *client.FS, a *member)
		after func(ctx context.Context, a *member)
	}{
		{"kill", func(_ context.Context, _ *client.FS, a *member) { a.kill() }, func(ctx context.Context, a *member) { a.start(ctx) }},
		{"command", func(ctx context.Context, fsys *client.FS, a *member) {
			if _, err := fsys.Admin().Failover(ctx); err != nil {
				a.t.Fatal(err)
			}
		}, func(context.Context, *member) {}},
		{"SIGTERM", func(ctx context.Context, _ *client.FS, a *member) { a.term(ctx) }, func(ctx context.Context, a *member) { a.start(ctx) }},
		{"SIGSTOP", func(ctx context.Context, _ *client.FS, a *member) { a.stop(ctx) }, func(ctx context.Context, a *member) { a.cont(); a.standby(ctx) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			ctx := deadline(b, 10*time.Minute)
			e := startFleet(ctx, b, func(c *fleetConfig) { c.direct = true })
			fsys := e.library(ctx)
			var f failovers
			b.ResetTimer()
			for round := range max(b.N, failoverRounds) {
				a := e.settled(ctx)
				f.add(ctx, e, fsys, a, fmt.Sprint("/", round, "-"), func() { way.end(ctx, fsys, a) })
				way.after(ctx, a)
			}
			f.report(b)
		})
	}
}

// failovers are the times of several.
type failovers struct {
	first, pauses              []time.Duration // to the first acknowledgement; of each writer
	elected, tookOver, noticed []time.Duration // stages: the end to the election, to the take-over, to the first
}

// add has writers at work while end ends a's reign, until all continue.
func (f *failovers) add(ctx context.Context, e *fleet, fsys *client.FS, a *member, prefix string, end func()) {
	e.t.Helper()
	var all [8]pulse
	work, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for i := range all {
		w, err := fsys.Create(ctx, prefix+fmt.Sprint(i))
		if err != nil {
			e.t.Fatal(err)
		}
		wg.Go(func() { all[i].beat(work, w); _ = w.Close() })
	}
	more := func(what string, than [len(all)]int) {
		e.t.Helper()
		eventually(ctx, e.t, what, func() bool {
			for i := range all {
				if all[i].failed() != nil {
					e.t.Fatalf("writer %d: %v", i, all[i].failed())
				}
				if all[i].count() <= than[i]+20 {
					return false
				}
			}
			return true
		})
	}
	more("the writers are at work", [len(all)]int{})
	began := time.Now()
	end()
	next := e.successor(ctx, a)
	var was [len(all)]int
	for i := range all {
		was[i] = all[i].count()
	}
	more("all writers go on", was)
	stop()
	wg.Wait()
	var first time.Time
	for i := range all {
		d, end := all[i].pause(began)
		f.pauses = append(f.pauses, d)
		if first.IsZero() || end.Before(first) {
			first = end
		}
	}
	elected, tookOver := next.said("elected"), next.said(`"took over"`)
	f.first = append(f.first, first.Sub(began))
	f.elected = append(f.elected, elected.Sub(began))
	f.tookOver = append(f.tookOver, tookOver.Sub(elected))
	f.noticed = append(f.noticed, first.Sub(tookOver))
}

// said is when a member last logged that message, to the millisecond.
func (m *member) said(msg string) (at time.Time) {
	m.t.Helper()
	text := m.err.String()
	i := strings.LastIndex(text, " msg="+msg)
	if i < 0 {
		m.t.Fatalf("%s has not logged %s", m.name, msg)
	}
	line := text[strings.LastIndexByte(text[:i], '\n')+1:]
	stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		m.t.Fatal(err)
	}
	return at
}

func (f *failovers) report(b *testing.B) {
	b.Helper()
	slices.Sort(f.first)
	b.ReportMetric(0, "ns/op") // says nothing
	b.ReportMetric(float64(f.first[len(f.first)/2].Milliseconds()), "ms-median")
	b.ReportMetric(float64(f.first[len(f.first)-1].Milliseconds()), "ms-most")
	b.Logf("to the first acknowledgement: %s\n  until another was elected: %s\n  until it had taken over: %s\n  until a writer had an answer: %s\npauses of all writers: %s%s",
		quantiles(f.first), quantiles(f.elected), quantiles(f.tookOver), quantiles(f.noticed), quantiles(f.pauses), histogram(f.pauses))
}
