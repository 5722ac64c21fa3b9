package page

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Every is how often figures are noted, and keep how many of them are kept: of an hour.
const (
	Every = 5 * time.Second
	keep  = int(time.Hour / Every)
)

// sample is what was measured in one period.
type sample struct {
	N  int64 `json:"n"`  // its number; each has one more than the last
	At int64 `json:"at"` // its end, Unix milliseconds
	// Gauges are those of gauges that this namenode has, and of counters their growth a second.
	Gauges map[string]float64 `json:"gauges"`
	// Calls of each operation that there were: how many a second, and how long half of them
	// and 99 of 100 took at most, in milliseconds.
	Calls map[string][3]float64 `json:"calls"`
}

// gauges are the metrics, without "leasefs_", that are kept.
var gauges = []string{
	"txid", "durable_txid", "image_txid", "journal_bytes", "journal_backlog_bytes", "zookeeper_journal_bytes", "tail_bytes", "garbage_bytes", "trash_bytes",
	"open_files", "leases", "granted_leases", "sessions_connected", "watchers", "connections", "lease_oldest_overdue_seconds",
	"leases_expired_total", "shares_refused_total", "calls_shed_total", "calls_delayed_seconds_total", "watchers_too_slow_total",
}

// figures are the samples of the last hour.
type figures struct {
	mu       sync.Mutex
	samples  []sample      // the oldest first
	last     time.Duration // when the last was noted, or New was called
	counters map[string]float64
	calls    map[string]buckets
}

// buckets is a histogram: how many calls took at most so long.
type buckets struct {
	bounds []float64 // seconds
	counts []uint64  // as many, each with those before
	all    uint64
}

// Sample notes the figures of the period since the last one, or since New. It is called each Every.
func (p *Page) Sample(context.Context) error {
	families, err := p.cfg.Rates.Gather()
	if err != nil {
		return err
	}
	f := &p.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	now := p.cfg.Clock.Mono()
	period := (now - f.last).Seconds()
	s := sample{At: p.cfg.Clock.Wall().UnixMilli(), Gauges: map[string]float64{}, Calls: map[string][3]float64{}}
	counters, calls := map[string]float64{}, map[string]buckets{}
	for _, m := range families {
		name := strings.TrimPrefix(m.GetName(), "leasefs_")
		switch {
		case name == "call_seconds":
			for _, h := range m.GetMetric() {
				calls[labelOf(h)] = bucketsOf(h.GetHistogram())
			}
		case slices.Contains(gauges, name) && len(m.GetMetric()) == 1:
			v := m.GetMetric()[0]
			if m.GetType() != dto.MetricType_COUNTER {
				s.Gauges[name] = v.GetGauge().GetValue()
				break
			}
			counters[name] = v.GetCounter().GetValue()
			if period > 0 {
				s.Gauges[name] = max(0, counters[name]-f.counters[name]) / period
			}
		}
	}
	for op, b := range calls {
		if grown := b.since(f.calls[op]); grown.all > 0 && period > 0 {
			s.Calls[op] = [3]float64{float64(grown.all) / period, 1000 * grown.quantile(0.5), 1000 * grown.quantile(0.99)}
		}
	}
	f.last, f.counters, f.calls = now, counters, calls
	if n := len(f.samples); n > 0 {
		s.N = f.samples[n-1].N + 1
	} else {
		s.N = 1
	}
	if len(f.samples) == keep {
		f.samples = slices.Delete(f.samples, 0, 1)
	}
	f.samples = append(f.samples, s)
	return nil
}

func labelOf(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	return m.GetLabel()[0].GetValue()
}

func bucketsOf(h *dto.Histogram) buckets {
	b := buckets{all: h.GetSampleCount()}
	for _, c := range h.GetBucket() {
		b.bounds, b.counts = append(b.bounds, c.GetUpperBound()), append(b.counts, c.GetCumulativeCount())
	}
	return b
}

// since is what has come to b since it was as before.
func (b buckets) since(before buckets) buckets {
	grown := buckets{bounds: b.bounds, counts: slices.Clone(b.counts), all: b.all - min(before.all, b.all)}
	for i := range before.counts {
		grown.counts[i] -= min(before.counts[i], grown.counts[i])
	}
	return grown
}

// quantile is the bound below which that part of the calls is, as exact as the buckets are.
func (b buckets) quantile(part float64) float64 {
	want, low, below := part*float64(b.all), 0.0, 0.0
	for i, bound := range b.bounds {
		if n := float64(b.counts[i]); n >= want {
			return low + (bound-low)*(want-below)/max(n-below, 1)
		}
		low, below = bound, float64(b.counts[i])
	}
	return low
}

// tellFigures tells of the samples after one.
func (p *Page) tellFigures(r *http.Request, a *asked, answer answers) error {
	var req struct {
		After int64 `json:"after"` // the number of the last sample that is known; -1: none are wanted
	}
	if err := json.Unmarshal(a.Request, &req); err != nil {
		return fserror.New(fserror.InvalidArgument, "", "", "the request is none for figures: %v", err)
	}
	if err := p.knows(r, a); err != nil {
		return err
	}
	f := &p.figures
	f.mu.Lock()
	if n := len(f.samples); n == 0 || req.After > f.samples[n-1].N { // of a namenode that has ended
		req.After = 0
	}
	from, _ := slices.BinarySearchFunc(f.samples, req.After+1, func(s sample, n int64) int { return cmp.Compare(s.N, n) })
	samples := append([]sample{}, f.samples[from:]...)
	if req.After < 0 { // only the limits are asked for
		samples = []sample{}
	}
	f.mu.Unlock()
	b, err := json.Marshal(struct {
		Now     int64    `json:"now_unix_ms"`
		Every   int64    `json:"every_ms"`
		Soft    int64    `json:"soft_limit_ms"`
		Hard    int64    `json:"hard_limit_ms"`
		Samples []sample `json:"samples"`
	}{p.cfg.Clock.Wall().UnixMilli(), Every.Milliseconds(), p.cfg.Soft.Milliseconds(), p.cfg.Hard.Milliseconds(), samples})
	if err != nil {
		return err
	}
	return answer(b)
}
