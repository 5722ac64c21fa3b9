package page

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasefs/leasefs/internal/clock"
)

// TestSamples: of each period there are the rates and times of calls, gauges, and counters a
// second; what is kept is bounded.
func TestSamples(t *testing.T) {
	clk := new(clock.Fake)
	clk.Advance(1)
	reg := prometheus.NewRegistry()
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "leasefs_call_seconds", Buckets: []float64{0.001, 0.002, 0.004}}, []string{"method"})
	txid := prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasefs_txid"})
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "leasefs_shares_refused_total"})
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasefs_other"})
	reg.MustRegister(calls, txid, refused, other)
	p := New(Config{Clock: clk, Rates: reg})
	sample := func() {
		t.Helper()
		clk.Advance(Every)
		if err := p.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	calls.WithLabelValues("stat").Observe(0.0035) // before the first sample: of the period since the start
	refused.Add(100)
	sample()
	if s := p.figures.samples[0]; s.N != 1 || s.Calls["stat"][0] != 0.2 || s.Gauges["shares_refused_total"] != 20 {
		t.Errorf("since the start: %+v", s)
	}
	for range 98 {
		calls.WithLabelValues("stat").Observe(0.0005)
	}
	for range 2 {
		calls.WithLabelValues("stat").Observe(0.003)
	}
	txid.Set(7)
	refused.Add(10)
	sample()
	s := p.figures.samples[1]
	if c := s.Calls["stat"]; c[0] != 20 || math.Abs(c[1]-0.51) > 0.01 || c[2] < 2 || c[2] > 4 {
		t.Errorf("calls: %v", c)
	}
	if s.Gauges["txid"] != 7 || s.Gauges["shares_refused_total"] != 2 || len(s.Gauges) != 2 {
		t.Errorf("gauges: %v", s.Gauges)
	}
	for range keep + 10 {
		sample()
	}
	f := p.figures.samples
	if len(f) != keep || f[0].N != f[keep-1].N-int64(keep)+1 || len(f[keep-1].Calls) != 0 {
		t.Errorf("%d samples, from %d to %d", len(f), f[0].N, f[len(f)-1].N)
	}
}
