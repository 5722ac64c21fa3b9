package experiments

import (
	"context"
	"fmt"
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

// readRate is how often a reader of experiment A reads, a second.
const readRate = 4.0

// cacheTerms counts the messages between readers and the namenode, by the term, and measures
// how long a change takes while readers answer and while one does not.
func cacheTerms(t *testing.T, r *report.Result) {
	terms := sizes([]time.Duration{0, time.Second, 10 * time.Second}, []time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second})
	readers := sizes([]int{1, 5}, []int{1, 10, 100})
	cells := sizes([][2]int{{1, 100}, {5, 100}, {5, 10}}, [][2]int{{1, 100}, {10, 100}, {100, 100}, {10, 10}, {10, 1000}}) // readers, reads a write
	length := sizes(15*time.Second, 90*time.Second)

	table := report.Table{Title: "Messages of a reader a second (each way counted), and the share of those without a cache. The model has no writes.",
		Columns: []string{"readers, reads a write", "term", "messages a second", "share", "model 1/(1+R·t)"}}
	chart := report.Chart{Name: "messages", Title: "Messages of a reader, beside those without a cache", X: report.Axis{Label: "term in seconds"}, Y: report.Axis{Label: "share", Log: true}}
	model := report.Series{Name: "model 1/(1+R·t)", Dashed: true}
	for s := 0.0; s <= terms[len(terms)-1].Seconds(); s += 0.25 {
		model.Add(s, 1/(1+readRate*s))
	}
	for _, cell := range cells {
		n, ratio := cell[0], cell[1]
		line := report.Series{Name: fmt.Sprintf("readers %d, reads a write %d", n, ratio)}
		without := 0.0
		for _, term := range terms {
			var each float64
			synctest.Test(t, func(t *testing.T) { each = countMessages(t, term, n, ratio, length) })
			if term == 0 {
				without = each
			}
			line.Add(term.Seconds(), each/without)
			table.Row(fmt.Sprintf("%d, %s", n, report.Show(ratio)), term, each, each/without, 1/(1+readRate*term.Seconds()))
		}
		chart.Series = append(chart.Series, line)
	}
	chart.Series = append(chart.Series, model)

	stopped := report.Table{Title: "Delay of a change whose reader does not answer, in simulated time.",
		Columns: []string{"term", "changes", "least", "median", "most", "limit: 1.1 terms"}}
	wait := report.Chart{Name: "stopped", Title: "Delay of a change whose reader does not answer", X: report.Axis{Label: "term in seconds"}, Y: report.Axis{Label: "seconds"}}
	least, most := report.Series{Name: "least"}, report.Series{Name: "most"}
	limit := report.Series{Name: "limit: 1.1 terms", Dashed: true}
	for _, term := range terms {
		if term == 0 {
			continue
		}
		var all []time.Duration
		synctest.Test(t, func(t *testing.T) { all = stoppedReaders(t, term, sizes(4, 12)) })
		slices.Sort(all)
		last, bound := all[len(all)-1], term+term/10
		stopped.Row(term, len(all), all[0], all[len(all)/2], last, bound)
		least.Add(term.Seconds(), all[0].Seconds())
		most.Add(term.Seconds(), last.Seconds())
		limit.Add(term.Seconds(), bound.Seconds())
		if last > bound+100*oneWay {
			t.Errorf("a change waited %v for a reader that was gone; the term is %v", last, term)
		}
	}
	wait.Series = []report.Series{least, most, limit}

	live := report.Table{Title: "Delay of a change whose readers answer: a namenode's process, readers in another one, loopback.",
		Columns: []string{"readers that have it", "changes", "median", "99 of 100"}}
	for _, n := range slices.Concat([]int{0}, readers) {
		all := liveReaders(t, n, sizes(50, 300))
		live.Row(n, len(all), all[len(all)/2], all[len(all)*99/100])
	}
	r.Tables, r.Charts = []report.Table{table, stopped, live}, []report.Chart{chart, wait}
}

// cacheTerm is the namenode's setting for a term, of which 0 is none.
func cacheTerm(term time.Duration) namenode.LeaseTimes {
	if term == 0 {
		term = -1
	}
	return namenode.LeaseTimes{CacheTerm: term}
}

// countMessages has readers read one file while another client changes it, each at
// random, and returns the messages of a reader a second.
func countMessages(t *testing.T, term time.Duration, readers, ratio int, length time.Duration) float64 {
	f := newFleet(t, fleetConfig{times: cacheTerm(term)})
	writer := f.client("writer")
	must(t, writer.fs.WriteFile(t.Context(), "/f", []byte("text")))
	all := make([]*machine, readers)
	for i := range all {
		all[i] = f.client(fmt.Sprintf("reader%d", i), caching)
		_, err := all[i].fs.Stat(t.Context(), "/f")
		must(t, err)
	}
	<-time.After(2 * time.Second)
	before := 0
	for _, m := range all {
		before += m.count.total()
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var working sync.WaitGroup
	poisson := func(i int, rate float64, do func() error) {
		rnd := rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // chance by a seed
		for {
			select {
			case <-time.After(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))):
				if err := do(); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			case <-ctx.Done():
				return
			}
		}
	}
	for i, m := range all {
		working.Go(func() {
			poisson(i, readRate, func() error { _, err := m.fs.Stat(ctx, "/f"); return err })
		})
	}
	working.Go(func() {
		poisson(-1, readRate*float64(readers)/float64(ratio), func() error { return writer.fs.Chtimes(ctx, "/f", time.Now()) })
	})
	working.Wait()
	after := 0
	for _, m := range all {
		after += m.count.total()
	}
	f.end()
	return float64(after-before) / length.Seconds() / float64(readers)
}

// stoppedReaders has one reader after the other fall silent at any time of its term, and
// returns how long a change of what it has read takes.
func stoppedReaders(t *testing.T, term time.Duration, n int) (took []time.Duration) {
	f := newFleet(t, fleetConfig{times: cacheTerm(term)})
	writer := f.client("writer")
	must(t, writer.fs.WriteFile(t.Context(), "/f", []byte("text")))
	for i := range n {
		m := f.client(fmt.Sprintf("reader%d", i), caching)
		waitCached(t, m, "/f")
		<-time.After(term + term*time.Duration(i)/time.Duration(2*n)) // renewals are half a term apart
		if _, err := m.fs.Stat(t.Context(), "/f"); err != nil {
			t.Fatal(err)
		}
		heal := f.silence(m)
		began := time.Now()
		must(t, writer.fs.Chtimes(t.Context(), "/f", began))
		took = append(took, time.Since(began))
		heal()
		must(t, m.fs.Close())
	}
	f.end()
	return took
}

// waitCached returns when the client answers for a file from what it keeps.
func waitCached(t testing.TB, m *machine, path string) {
	t.Helper()
	waitKept(t, m.fs, path)
}

func waitKept(t testing.TB, fs *client.FS, path string) {
	t.Helper()
	for hits, began := fs.Stats().Cache.Hits, time.Now(); fs.Stats().Cache.Hits == hits; <-time.After(time.Millisecond) {
		if _, err := fs.Stat(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%s is not kept", path)
		}
	}
}

// liveReaders measures changes of a file that so many readers keep, on real sockets. It
// returns the sorted times.
func liveReaders(t *testing.T, readers, changes int) (took []time.Duration) {
	p := startNamenode(t)
	defer p.kill()
	connect := func(i int, cache bool) *client.FS {
		fs, err := client.New(t.Context(), client.Config{Namenodes: []string{p.addr}, Client: fmt.Sprint(i), Cache: cache})
		must(t, err)
		t.Cleanup(func() { _ = fs.Close() })
		return fs
	}
	writer := connect(-1, false)
	must(t, writer.WriteFile(t.Context(), "/f", []byte("text")))
	all := make([]*client.FS, readers)
	for i := range all {
		all[i] = connect(i, true)
	}
	for range changes {
		for _, fs := range all {
			waitKept(t, fs, "/f")
		}
		began := time.Now()
		must(t, writer.Chtimes(t.Context(), "/f", began))
		took = append(took, time.Since(began))
	}
	for _, fs := range all {
		_ = fs.Close() // before the namenode
	}
	_ = writer.Close()
	slices.Sort(took)
	return took
}
