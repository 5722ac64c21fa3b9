package experiments

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// lostInFailovers kills the active one of two namenodes while live clients hold granted
// leases and locks, by the ratio of their time to live to the session time-out.
func lostInFailovers(t *testing.T, r *report.Result) {
	const promised = 3 // session time-outs: docs/LEASES.md
	timeouts := sizes([]time.Duration{2 * time.Second}, []time.Duration{2 * time.Second, 5 * time.Second})
	ratios := sizes([]float64{0.5, 1, 1.5, 3}, []float64{0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4})
	rounds := sizes(2, 6)
	table := report.Table{
		Title:   "Live holders that lost what they held, or had to give it up, when the active namenode's machine died; two namenodes.",
		Columns: []string{"session time-out, time to live", "failovers", "the longest", "leases", "given up", "of them ended", "locks", "in jeopardy", "lost"},
	}
	chart := report.Chart{Name: "lost", Title: "Live holders lost in a failover", X: report.Axis{Label: "time to live in session time-outs"}, Y: report.Axis{Label: "per cent"}}
	for _, timeout := range timeouts {
		leases := report.Series{Name: fmt.Sprintf("leases, time-out %s", report.Show(timeout))}
		jeopardy := report.Series{Name: fmt.Sprintf("locks in jeopardy, %s", report.Show(timeout))}
		for _, ratio := range ratios {
			var l losses
			ttl := time.Duration(ratio * float64(timeout))
			synctest.Test(t, func(t *testing.T) { l = failOver(t, timeout, ttl, rounds) })
			table.Row(fmt.Sprintf("%s, %v times", report.Show(timeout), ratio), rounds, l.longest, l.leases, l.lostLeases, l.ended, l.locks, l.jeopardies, l.lostLocks)
			leases.Add(ratio, 100*float64(l.lostLeases)/float64(l.leases))
			jeopardy.Add(ratio, 100*float64(l.jeopardies)/float64(l.locks))
			if ratio >= promised && l.lostLeases+l.jeopardies > 0 {
				t.Errorf("time-out %v, time to live %v: %+v", timeout, ttl, l)
			}
		}
		chart.Series = append(chart.Series, leases, jeopardy)
	}
	r.Tables, r.Charts = []report.Table{table}, []report.Chart{chart}
}

type losses struct {
	longest                                                 time.Duration
	leases, lostLeases, ended, locks, jeopardies, lostLocks int
}

// failOver has a fleet fail over so many times.
func failOver(t *testing.T, timeout, ttl time.Duration, rounds int) (l losses) {
	const holders = 5
	f := newFleet(t, fleetConfig{namenodes: 2, session: timeout, times: namenode.LeaseTimes{MinLeaseTTL: 100 * time.Millisecond}})
	var all []*machine
	for i := range holders {
		all = append(all, f.client(fmt.Sprintf("c%d", i), func(_ *machine, c *client.Config) { c.TTL = ttl }))
	}
	for round := range rounds {
		var kept []*client.KeptLease
		var locks []*client.Lock
		for i, m := range all {
			<-time.After(ttl/17 + time.Duration(i)) // renewals come at different times
			g, err := m.fs.Leases().Grant(t.Context(), ttl, 0)
			must(t, err)
			k, err := m.fs.Leases().KeepAlive(t.Context(), g.ID)
			must(t, err)
			kept = append(kept, k)
			lock, err := m.fs.Lock(t.Context(), fmt.Sprintf("/lock%d-%d", round, i), client.LockOptions{})
			must(t, err)
			locks = append(locks, lock)
		}
		<-time.After(20*time.Second + time.Duration(round)*timeout/7)
		began := time.Now()
		old := f.active()
		old.crash()
		f.waitActive()
		l.longest = max(l.longest, time.Since(began))
		<-time.After(time.Second)
		old.start()
		<-time.After(ttl/2 + timeout)
		for i := range all {
			l.leases++
			l.locks++
			if kept[i].Context().Err() != nil {
				l.lostLeases++
			}
			if _, err := all[i].fs.Leases().TimeToLive(t.Context(), kept[i].ID(), false); errors.Is(err, client.ErrNotFound) {
				l.ended++
			}
			select {
			case <-locks[i].Jeopardy():
				l.jeopardies++
			default:
			}
			if locks[i].Context().Err() != nil {
				l.lostLocks++
			}
			kept[i].Stop()
			_ = locks[i].Unlock(t.Context()) // it may be lost
		}
	}
	f.end()
	return l
}
