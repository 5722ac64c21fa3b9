package experiments

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// softLimits weighs the number of live writers that a soft limit evicts against the wait for
// a dead one.
func softLimits(t *testing.T, r *report.Result) {
	limits := sizes([]time.Duration{2 * time.Second, 10 * time.Second}, []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 60 * time.Second})
	writers := sizes(8, 40)
	pauses := make([]time.Duration, writers)
	rnd := rand.New(rand.NewPCG(1, 7)) //nolint:gosec // chance by a seed
	for i := range pauses {
		pauses[i] = time.Duration(min(60, math.Exp(1.3*rnd.NormFloat64())) * float64(time.Second))
	}
	table := report.Table{
		Title: fmt.Sprintf("Writers whose file another client waits for: %d of them stand still for as long as a log-normal distribution says (median 1 s, one in 20 over 8.5 s), "+
			"%d have a network whose delay changes ten times a second, from 0 to as much as is said, for two minutes, and %d die.", writers, writers, writers),
		Columns: []string{"soft limit", "evicted by pauses", "paused for longer than half of it", "evicted by jitter of 0.5 s", "of 2 s", "a dead one is replaced after, median", "most"},
	}
	chart := report.Chart{Name: "evicted", Title: "Live writers evicted, against the time to replace a dead one", X: report.Axis{Label: "median time to replace a dead writer, seconds", Log: true}, Y: report.Axis{Label: "per cent of live writers evicted"}}
	lines := []report.Series{{Name: "by pauses"}, {Name: "by jitter of 0.5 s"}, {Name: "by jitter of 2 s"}}
	for _, soft := range limits {
		var evicted [3]int
		var dead []time.Duration
		synctest.Test(t, func(t *testing.T) { evicted[0] = pausedWriters(t, soft, pauses) })
		for i, jitter := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) { evicted[1+i] = jitteredWriters(t, soft, jitter, writers) })
		}
		synctest.Test(t, func(t *testing.T) { dead = deadWriters(t, soft, writers) })
		long := 0
		for _, d := range pauses {
			if d > soft/2 {
				long++
			}
		}
		of := func(n int) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(writers)) }
		median, most := dead[len(dead)/2], dead[len(dead)-1]
		table.Row(soft, of(evicted[0]), of(long), of(evicted[1]), of(evicted[2]), median, most)
		for i := range lines {
			lines[i].Add(median.Seconds(), 100*float64(evicted[i])/float64(writers))
		}
		if most > soft+5*time.Second {
			t.Errorf("soft limit %v: a dead writer was replaced after %v", soft, most)
		}
		if evicted[0] > long {
			t.Errorf("soft limit %v: %d writers were evicted, and only %d paused for longer than half of that", soft, evicted[0], long)
		}
	}
	chart.Series = lines
	r.Tables, r.Charts = []report.Table{table}, []report.Chart{chart}
}

// contended is a writer with a file that another client waits for.
type contended struct {
	writer *machine
	w      *client.Writer
	other  *machine
	path   string
}

func contend(t *testing.T, soft time.Duration, n int) (*fleet, []*contended) {
	f := newFleet(t, fleetConfig{times: namenode.LeaseTimes{SoftLimit: soft}})
	all := make([]*contended, n)
	for i := range all {
		c := &contended{writer: f.client(fmt.Sprintf("writer%d", i)), other: f.client(fmt.Sprintf("other%d", i)), path: fmt.Sprintf("/f%d", i)}
		var err error
		c.w, err = c.writer.fs.Append(t.Context(), c.path, client.WithCreate())
		must(t, err)
		all[i] = c
	}
	<-time.After(2 * soft)
	return f, all
}

// each runs do for all, and begins one after the other, within half a soft limit.
func each(all []*contended, soft time.Duration, do func(i int, c *contended)) {
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() {
			<-time.After(soft / 2 * time.Duration(i) / time.Duration(len(all)))
			do(i, c)
		})
	}
	running.Wait()
}

// take waits for the file until the context ends, and reports whether it got it.
func (c *contended) take(ctx context.Context) bool {
	for ctx.Err() == nil {
		if w, err := c.other.fs.Append(ctx, c.path, client.WithWait(time.Minute)); err == nil {
			_ = w.Detach() // only taking the file counts
			return true
		}
	}
	return false
}

// pausedWriters has each writer stand still once, and returns how many lost their file to
// the waiting client before they came back.
func pausedWriters(t *testing.T, soft time.Duration, pauses []time.Duration) (evicted int) {
	f, all := contend(t, soft, len(pauses))
	var mu sync.Mutex
	each(all, soft, func(i int, c *contended) {
		ctx, cancel := context.WithTimeout(t.Context(), pauses[i])
		defer cancel()
		c.writer.clock.stop()
		c.writer.host.Pause()
		if c.take(ctx) {
			mu.Lock()
			evicted++
			mu.Unlock()
		}
		<-ctx.Done()
		c.writer.clock.resume()
		c.writer.host.Resume()
	})
	f.end()
	return evicted
}

// jitteredWriters has the way between each writer and the namenode take a time that
// changes all the time, and returns how many lost their file.
func jitteredWriters(t *testing.T, soft, jitter time.Duration, n int) (evicted int) {
	f, all := contend(t, soft, n)
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	each(all, soft, func(i int, c *contended) {
		rnd := rand.New(rand.NewPCG(uint64(i), 3)) //nolint:gosec // chance by a seed
		mine, over := context.WithCancel(ctx)
		defer over()
		go func() {
			defer over()
			if c.take(mine) {
				mu.Lock()
				evicted++
				mu.Unlock()
			}
		}()
		for mine.Err() == nil {
			f.net.Line(c.writer.name, "nn0").SetDelay(time.Duration(rnd.Int64N(int64(jitter))))
			f.net.Line("nn0", c.writer.name).SetDelay(time.Duration(rnd.Int64N(int64(jitter))))
			select {
			case <-time.After(100 * time.Millisecond):
			case <-mine.Done():
			}
		}
	})
	synctest.Wait()
	f.end()
	return evicted
}

// deadWriters has each writer's machine die, and returns how long those who wait for
// their files had to, sorted.
func deadWriters(t *testing.T, soft time.Duration, n int) (took []time.Duration) {
	f, all := contend(t, soft, n)
	var mu sync.Mutex
	each(all, soft, func(_ int, c *contended) {
		began := time.Now()
		c.writer.host.Crash()
		if c.take(t.Context()) {
			mu.Lock()
			took = append(took, time.Since(began))
			mu.Unlock()
		}
	})
	f.end()
	slices.Sort(took)
	return took
}
