package experiments

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// clockRates has readers with slow or fast clocks cache a file that is then changed while
// they are cut off.
func clockRates(t *testing.T, r *report.Result) {
	const term = 10 * time.Second
	const safe = 0.92 // above 1/1.1: a margin of a tenth, and messages on their way
	readers := sizes(3, 5)
	table := report.Table{Title: "Readers that were cut off and still answered what had been changed since; term 10 s, margin a tenth.",
		Columns: []string{"rate of the reader's clock", "readers", "stale", "stale for, at most"}}
	chart := report.Chart{Name: "stale", Title: "For how long a cut-off reader answers what has changed", X: report.Axis{Label: "rate of its clock"}, Y: report.Axis{Label: "seconds"}}
	measured := report.Series{Name: "leasefs, margin 10 %"}
	for _, rate := range sizes([]float64{0.8, 0.9, 0.92, 1, 1.05}, []float64{0.7, 0.75, 0.8, 0.85, 0.9, 0.91, 0.92, 0.95, 0.98, 1, 1.02, 1.05, 1.1}) {
		var stale int
		var longest time.Duration
		synctest.Test(t, func(t *testing.T) { stale, longest = slowReaders(t, term, rate, readers) })
		table.Row(fmt.Sprint(rate), readers, stale, longest)
		measured.Add(rate, longest.Seconds())
		if rate >= safe && stale > 0 {
			t.Errorf("%d readers whose clocks run at %v answered what had changed, for up to %v", stale, rate, longest)
		}
	}
	chart.Series = append(chart.Series, measured)

	margins := report.Table{Title: "The table of cache leases by itself, with other margins: the slowest clock, in steps of 0.01, whose holder is never stale.",
		Columns: []string{"margin, of the term", "slowest clock measured", "model 1/(1+margin)", "a change waits for who is gone, at most, in terms"}}
	for _, margin := range []float64{0, 0.02, 0.05, 0.1, 0.2, 0.5} {
		line := report.Series{Name: fmt.Sprintf("model, margin %.0f %%", 100*margin), Dashed: true}
		slowest := 1.0
		for p := 100; p >= 60; p-- {
			rate := float64(p) / 100
			var late time.Duration
			synctest.Test(t, func(t *testing.T) { late = staleFor(t, term, time.Duration(margin*float64(term)), rate) })
			if late == 0 && slowest == float64(p+1)/100 {
				slowest = rate
			}
			if rate >= 0.7 {
				line.Add(rate, late.Seconds())
			}
			if late > 0 && rate > 1/(1+margin)+0.001 {
				t.Errorf("margin %v: the holder with a clock of %v was stale for %v", margin, rate, late)
			}
		}
		margins.Row(fmt.Sprintf("%.0f %%", 100*margin), fmt.Sprint(slowest), 1/(1+margin), 1+margin)
		if margin != 0.02 && margin != 0.05 {
			line.Name = fmt.Sprintf("the table, margin %.0f %%", 100*margin)
			chart.Series = append(chart.Series, line)
		}
	}
	r.Tables, r.Charts = []report.Table{table, margins}, []report.Chart{chart}
}

// slowReaders cuts readers off and changes what they have cached. It returns how many of
// them gave stale answers after the change, and for how long.
func slowReaders(t *testing.T, term time.Duration, rate float64, readers int) (stale int, longest time.Duration) {
	f := newFleet(t, fleetConfig{times: namenode.LeaseTimes{CacheTerm: term}})
	writer := f.client("writer")
	for i := range readers {
		path := fmt.Sprintf("/f%d", i)
		must(t, writer.fs.WriteFile(t.Context(), path, []byte("text")))
		reader := f.client(fmt.Sprintf("reader%d", i), caching, func(m *machine, c *client.Config) {
			m.clock = newMachineClock(rate)
			c.Clock = m.clock
		})
		waitCached(t, reader, path)
		<-time.After(term + time.Second + time.Duration(i)*term/11) // at any time of a term
		before, err := reader.fs.Stat(t.Context(), path)
		must(t, err)
		heal := f.silence(reader)
		must(t, writer.fs.Chtimes(t.Context(), path, before.ModTime().Add(time.Hour)))
		changed := time.Now()
		for {
			soon, cancel := context.WithTimeout(t.Context(), oneWay)
			now, err := reader.fs.Stat(soon, path)
			cancel()
			if err != nil { // it has to ask, and reaches nobody
				break
			}
			if !now.ModTime().Equal(before.ModTime()) {
				t.Fatal("the reader knows what it cannot know")
			}
			<-time.After(10 * time.Millisecond)
		}
		if late := time.Since(changed) - oneWay; late > 0 {
			stale++
			longest = max(longest, late)
		}
		heal()
		must(t, reader.fs.Close())
	}
	f.end()
	return stale, longest
}

// staleFor grants a key to a holder that then is silent, and returns for how long it
// answers after the key was changed.
func staleFor(t *testing.T, term, margin time.Duration, rate float64) time.Duration {
	table := readlease.New(readlease.Config{Clock: newMachineClock(1), Term: term, Margin: max(margin, 1)})
	id, keys := readlease.SessionID{1}, []readlease.Key{{Kind: 1, Inode: 1}}
	sent := time.Now()
	<-time.After(oneWay)
	stream := table.Connect(id, "x", 1, func(readlease.Revocation) {})
	lives := stream.Renew()
	if !table.Grant(id, keys) {
		t.Fatal("nothing was granted")
	}
	change := table.Revoke(keys)
	must(t, change.Wait(t.Context()))
	change.Done()
	end := sent.Add(time.Duration(float64(lives) / rate))
	return max(0, time.Until(end))
}
