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

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// Of the readers of experiment C's second part.
const (
	busyReaders  = 20
	busyReadRate = 10.0 // of each, a second
)

// recallOrTerm compares a change that recalls what was lent with one that waits for the end
// of the term, and measures what happens to reads while a change waits.
func recallOrTerm(t *testing.T, r *report.Result) {
	terms := sizes([]time.Duration{3 * time.Second}, []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second})
	n := sizes(5, 20)
	first := report.Table{
		Title:   "A change of what 10 readers keep, in simulated time, a message takes 1 ms. To wait for the end of the term is what leasefs does if no recall is answered.",
		Columns: []string{"term", "recall: median", "most", "messages a change", "end of the term: median", "most", "messages a change"},
	}
	chart := report.Chart{Name: "delay", Title: "Delay of a change of what ten readers keep", X: report.Axis{Label: "term in seconds", Log: true}, Y: report.Axis{Label: "seconds", Log: true}}
	recall, term := report.Series{Name: "recall"}, report.Series{Name: "end of the term"}
	for _, lent := range terms {
		var asked, waited []time.Duration
		var messages float64
		synctest.Test(t, func(t *testing.T) { asked, messages = recalls(t, lent, n) })
		synctest.Test(t, func(t *testing.T) { waited = stoppedReaders(t, lent, n) })
		slices.Sort(waited)
		first.Row(lent, asked[len(asked)/2], asked[len(asked)-1], messages, waited[len(waited)/2], waited[len(waited)-1], 0)
		recall.Add(lent.Seconds(), asked[len(asked)/2].Seconds())
		term.Add(lent.Seconds(), waited[len(waited)/2].Seconds())
	}
	chart.Series = []report.Series{recall, term}

	second := report.Table{
		Title: fmt.Sprintf("A change waits for one reader that does not answer (term 10 s), or answers after 1 s. Meanwhile %d readers ask for the file %v times a second each. The first row is leasefs, the others are a model with its rules, and with other ones.",
			busyReaders, busyReadRate),
		Columns: []string{"reads meanwhile", "the change takes", "calls", "calls a second", "reads done", "a read takes, mean", "most"},
	}
	var seen *reads
	synctest.Test(t, func(t *testing.T) { seen = readsMeanwhile(t, 10*time.Second) })
	second.Row(append([]any{"leasefs: answered, not lent"}, seen.row()...)...)
	for _, silent := range []time.Duration{0, time.Second} {
		for p := answered; p <= lentAgain; p++ {
			var got *reads
			synctest.Test(t, func(t *testing.T) { got = modelled(t, p, 10*time.Second, silent) })
			what := "model: " + p.String()
			if silent > 0 {
				what += fmt.Sprintf("; the silent one answers after %s", report.Show(silent))
			}
			second.Row(append([]any{what}, got.row()...)...)
		}
	}
	r.Tables, r.Charts = []report.Table{first, second}, []report.Chart{chart}
}

// recalls measures changes of what ten readers keep, and counts their messages.
func recalls(t *testing.T, term time.Duration, n int) (took []time.Duration, messages float64) {
	f := newFleet(t, fleetConfig{times: namenode.LeaseTimes{CacheTerm: term}})
	writer := f.client("writer")
	must(t, writer.fs.WriteFile(t.Context(), "/f", []byte("text")))
	var all []*machine
	for i := range 10 {
		all = append(all, f.client(fmt.Sprintf("reader%d", i), caching))
	}
	count := func() (sum int) {
		for _, m := range all {
			sum += m.count.total()
		}
		return sum
	}
	for range n {
		for _, m := range all {
			waitCached(t, m, "/f")
		}
		before, began := count(), time.Now()
		must(t, writer.fs.Chtimes(t.Context(), "/f", began))
		took = append(took, time.Since(began))
		messages += float64(count() - before)
	}
	f.end()
	slices.Sort(took)
	return took, messages / float64(n)
}

// reads is what became of reads while a change waited.
type reads struct {
	mu          sync.Mutex
	took        time.Duration // the change
	calls, done int
	total, most time.Duration
}

func (r *reads) add(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.total += took
	r.most = max(r.most, took)
}

func (r *reads) row() []any {
	return []any{r.took, r.calls, float64(r.calls) / r.took.Seconds(), r.done, r.total / time.Duration(max(r.done, 1)), r.most}
}

// readAll has readers read at random until the context ends.
func readAll(ctx context.Context, into *reads, read func(i int)) {
	var running sync.WaitGroup
	for i := range busyReaders {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 5)) //nolint:gosec // chance by a seed
			for {
				select {
				case <-time.After(time.Duration(rnd.ExpFloat64() / busyReadRate * float64(time.Second))):
				case <-ctx.Done():
					return
				}
				began := time.Now()
				read(i)
				into.add(time.Since(began))
			}
		})
	}
	running.Wait()
}

// readsMeanwhile has leasefs change a file that a silent reader keeps, while others read it.
func readsMeanwhile(t *testing.T, term time.Duration) *reads {
	got := new(reads)
	f := newFleet(t, fleetConfig{times: namenode.LeaseTimes{CacheTerm: term}})
	writer, silent := f.client("writer"), f.client("silent", caching)
	must(t, writer.fs.WriteFile(t.Context(), "/f", []byte("text")))
	var all []*machine
	for i := range busyReaders {
		all = append(all, f.client(fmt.Sprintf("reader%d", i), caching))
		waitCached(t, all[i], "/f")
	}
	waitCached(t, silent, "/f")
	f.silence(silent)
	calls := func() (sum int) {
		for _, m := range all {
			m.count.mu.Lock()
			sum += m.count.out
			m.count.mu.Unlock()
		}
		return sum
	}
	before := calls()
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		readAll(ctx, got, func(i int) {
			if _, err := all[i].fs.Stat(t.Context(), "/f"); err != nil {
				t.Error(err)
			}
		})
	})
	began := time.Now()
	must(t, writer.fs.Chtimes(t.Context(), "/f", began))
	got.took = time.Since(began)
	got.calls = calls() - before
	cancel()
	reading.Wait()
	f.end()
	return got
}

// policy is what a grantor does with reads while a change waits.
type policy int

const (
	answered  policy = iota // without a lease
	blocked                 // until the change is made
	lentAgain               // for what is left of the longest term that is waited for
)

func (p policy) String() string {
	return [...]string{"answered, not lent", "blocked until the change is made", "lent again until the end of the longest term"}[p]
}

// grantor is a server with one file, in the bubble's time.
type grantor struct {
	policy   policy
	term     time.Duration
	mu       sync.Mutex
	until    map[int]time.Time // when what is lent ends, by reader
	changing chan struct{}     // closed when the change is made; nil: there is none
	longest  time.Time         // that the change waits for
	calls    int
}

// read is a call: it returns until when the answer may be kept.
func (g *grantor) read(reader int) (until time.Time) {
	<-time.After(oneWay)
	g.mu.Lock()
	g.calls++
	changing := g.changing
	switch {
	case changing == nil:
		until = time.Now().Add(g.term - 2*oneWay)
		g.until[reader] = time.Now().Add(g.term + g.term/10)
	case g.policy == lentAgain:
		until = g.longest.Add(-g.term / 10)
		g.until[reader] = g.longest
	}
	g.mu.Unlock()
	if changing != nil && g.policy == blocked {
		<-changing
	}
	<-time.After(oneWay)
	return until
}

// change makes a change. Reader silent answers its recall after answers, 0: never; recalled
// is told of all others'.
func (g *grantor) change(silent int, answers time.Duration, recalled func(reader int)) {
	<-time.After(oneWay)
	g.mu.Lock()
	g.changing, g.longest = make(chan struct{}), g.until[silent]
	g.recall(silent, recalled)
	g.mu.Unlock()
	wait := time.Until(g.longest)
	if answers > 0 {
		wait = min(wait, answers)
	}
	<-time.After(max(wait, 2*oneWay))
	g.mu.Lock()
	again := g.recall(silent, recalled) && time.Now().Before(g.longest)
	g.mu.Unlock()
	if again {
		<-time.After(2 * oneWay)
	}
	g.mu.Lock()
	close(g.changing)
	g.changing = nil
	g.mu.Unlock()
	<-time.After(oneWay)
}

// recall takes back what all but one have, and reports whether there was anything. The
// lock is held.
func (g *grantor) recall(silent int, recalled func(reader int)) (some bool) {
	for reader := range g.until {
		if reader != silent {
			delete(g.until, reader)
			some = true
			go func() { <-time.After(oneWay); recalled(reader) }()
		}
	}
	return some
}

// modelled is readsMeanwhile with a grantor of the model.
func modelled(t *testing.T, p policy, term, answers time.Duration) *reads {
	got := new(reads)
	g := &grantor{policy: p, term: term, until: map[int]time.Time{}}
	var mu sync.Mutex
	kept := map[int]time.Time{}
	const silent = busyReaders
	g.read(silent)
	for i := range busyReaders {
		kept[i] = g.read(i)
	}
	<-time.After(100 * time.Millisecond)
	g.calls = 0
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		readAll(ctx, got, func(i int) {
			mu.Lock()
			good := time.Now().Before(kept[i])
			mu.Unlock()
			if good {
				return
			}
			until := g.read(i)
			mu.Lock()
			kept[i] = until
			mu.Unlock()
		})
	})
	began := time.Now()
	g.change(silent, answers, func(reader int) {
		mu.Lock()
		kept[reader] = time.Time{}
		mu.Unlock()
	})
	got.took = time.Since(began)
	g.mu.Lock()
	got.calls = g.calls
	g.mu.Unlock()
	cancel()
	reading.Wait()
	return got
}
