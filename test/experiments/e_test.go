package experiments

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// deadTTL is the time to live of the dead lease in experiment E.
const deadTTL = 10 * time.Second

// leastReign is how long a reign is that counts, with the default limits (docs/LEASES.md).
const leastReign = 3 * time.Second

// forever is how long a lease is looked at that may never end.
const forever = 30 * deadTTL

// deadLeases has servers end again and again while nobody keeps a lease alive.
func deadLeases(t *testing.T, r *report.Result) {
	intervals := sizes([]time.Duration{2 * time.Second, 8 * time.Second}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 9 * time.Second, 12 * time.Second, 20 * time.Second})
	// etcd runs in real time: beside the rest, all at once.
	watched := sizes(13*time.Second, time.Minute)
	ofEtcd := make([]string, len(intervals))
	withCheckpoints := slices.Repeat([]string{"–"}, len(intervals))
	var running sync.WaitGroup
	for i, every := range intervals {
		if *etcd == "" || every < 2*time.Second { // it is hardly up by then
			ofEtcd[i] = "–"
			continue
		}
		running.Go(func() { ofEtcd[i] = deadInEtcd(t, every, watched) })
		if *whole {
			running.Go(func() {
				withCheckpoints[i] = deadInEtcd(t, every, watched, "--experimental-enable-lease-checkpoint")
			})
		}
	}
	table := report.Table{
		Title: fmt.Sprintf("How long a lease of %s lives that nobody keeps alive, by how long each reign lasts. Limit, of reigns over 3 s: %s. "+
			"etcd %s in real processes, looked at for %s.", report.Show(deadTTL), report.Show(3*deadTTL), etcdVersion(), report.Show(watched)),
		Columns: []string{"a reign lasts", "leasefs, restarts", "leasefs, two namenodes", "its lease manager", "the same without checkpoints", "etcd", "etcd with checkpoints"},
	}
	chart := report.Chart{Name: "life", Title: "How long a dead lease of 10 s lives", X: report.Axis{Label: "a reign lasts, seconds"}, Y: report.Axis{Label: "seconds", Log: true}}
	lines := []report.Series{{Name: "leasefs, restarts"}, {Name: "leasefs, two namenodes"}, {Name: "its lease manager"}, {Name: "without checkpoints (300: for ever)"}}
	for i, every := range intervals {
		lives := make([]time.Duration, 4)
		synctest.Test(t, func(t *testing.T) { lives[0] = deadInFleet(t, fleetConfig{}, every) })
		if every >= leastReign { // a failover takes longer
			synctest.Test(t, func(t *testing.T) {
				lives[1] = deadInFleet(t, fleetConfig{namenodes: 2, session: 2 * time.Second, times: namenode.LeaseTimes{MinLeaseTTL: time.Second}}, every)
			})
		}
		lives[2], lives[3] = deadInManager(every, true), deadInManager(every, false)
		row := []any{every}
		for j, d := range lives {
			if lines[j].Add(every.Seconds(), d.Seconds()); d == 0 {
				lines[j].Points[len(lines[j].Points)-1][1] = math.Inf(-1)
				lines[j].Points = lines[j].Points[:len(lines[j].Points)-1]
			}
			switch {
			case d == 0:
				row = append(row, "–")
			case d >= forever:
				row = append(row, "for ever")
			default:
				row = append(row, d)
			}
			if j < 3 && every > leastReign && d > 3*deadTTL {
				t.Errorf("reigns of %v: the lease lives for %v", every, d)
			}
		}
		running.Wait()
		table.Row(append(row, ofEtcd[i], withCheckpoints[i])...)
	}
	chart.Series = lines
	r.Tables, r.Charts = []report.Table{table}, []report.Chart{chart}
}

// deadInFleet has the active namenode killed at the end of each reign, and returns how long
// a lease lives that nobody keeps alive.
func deadInFleet(t *testing.T, cfg fleetConfig, every time.Duration) time.Duration {
	f := newFleet(t, cfg)
	m := f.client("c")
	g, err := m.fs.Leases().Grant(t.Context(), deadTTL, 0)
	must(t, err)
	if g.TTL != deadTTL {
		t.Fatalf("the lease lives for %v", g.TTL)
	}
	began := time.Now()
	ended := make(chan time.Duration)
	ctx, cancel := context.WithTimeout(t.Context(), forever)
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := m.fs.Leases().TimeToLive(ctx, g.ID, false); errors.Is(err, client.ErrNotFound) {
				ended <- time.Since(began)
				return
			}
			<-time.After(100 * time.Millisecond)
		}
	}()
	lived := forever
	for over := false; !over; {
		select {
		case d, ok := <-ended:
			if over = true; ok {
				lived = d
			}
		case <-time.After(every):
			n := f.active()
			n.kill()
			if cfg.namenodes > 1 {
				f.waitActive()
			} else {
				<-time.After(200 * time.Millisecond) // until it is started
			}
			n.start()
		}
	}
	cancel()
	for range ended { //nolint:revive // until it is closed
	}
	f.end()
	return lived
}

// deadInManager is the same with the lease manager alone, with or without the ages that
// the namenode journals.
func deadInManager(every time.Duration, checkpoints bool) time.Duration {
	c := new(clock.Fake)
	m := leasemanager.New(leasemanager.Config{Clock: c, AgeEvery: namenode.DefaultAgesEvery})
	lease := leasemanager.Granted{ID: 1, TTL: deadTTL}
	granted := iter.Seq[leasemanager.Granted](func(yield func(leasemanager.Granted) bool) { yield(lease) })
	none := func(func(leasemanager.Holder, leasemanager.Ref) bool) {}
	ages := map[leasemanager.AgeKey]time.Duration{}
	m.Rebuild(none, nil, nil)
	m.Grant(lease.Holder, lease.ID, lease.TTL)
	const step = 50 * time.Millisecond
	for lived, reign := time.Duration(0), time.Duration(0); lived < forever; lived += step {
		if reign >= every {
			reign = 0
			m.Rebuild(none, granted, func(k leasemanager.AgeKey) time.Duration { return ages[k] })
		}
		if len(m.ExpireGranted(1)) > 0 {
			return lived
		}
		if checkpoints {
			told := m.AgesJournalled(m.CheckAges(10))
			for _, a := range told {
				ages[a.AgeKey] = a.Age
			}
			m.AgesDurable(told)
		}
		c.Advance(step)
		reign += step
	}
	return forever
}

// deadInEtcd is the same with a single etcd, which is killed and started again at the end
// of each reign.
func deadInEtcd(t *testing.T, every, watched time.Duration, args ...string) string {
	s := startEtcd(t, args...)
	c := etcdClient(t, s.clients)
	ctx, cancel := context.WithTimeout(t.Context(), watched+30*time.Second)
	defer cancel()
	g, err := c.Grant(ctx, int64(deadTTL.Seconds()))
	if err != nil {
		t.Error(err)
		return "–"
	}
	if _, err := c.Put(ctx, "key", "value", clientv3.WithLease(g.ID)); err != nil {
		t.Error(err)
		return "–"
	}
	began, reign := time.Now(), time.Now()
	for time.Since(began) < watched {
		if time.Since(reign) >= every {
			s.kill()
			s.start(t)
			reign = time.Now()
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		got, err := c.Get(soon, "key")
		cancel()
		if err == nil && len(got.Kvs) == 0 {
			return report.Show(time.Since(began).Round(100 * time.Millisecond))
		}
		<-time.After(50 * time.Millisecond)
	}
	return "over " + report.Show(watched)
}

func etcdVersion() string {
	if *etcd == "" {
		return "(not there)"
	}
	text, _ := commandOutput(*etcd, "--version")
	_, rest, _ := strings.Cut(text, "etcd Version: ")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}

// etcdClient connects to an etcd.
func etcdClient(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 10 * time.Second, Logger: quietLog})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
