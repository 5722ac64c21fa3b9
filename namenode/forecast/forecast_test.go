package forecast

import (
	"math"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/leasefs/leasefs/internal/clock"
)

// sampled is a table after samples of one resource, each ten seconds. used tells how
// much is used, and of how much; a limit of 0: it is not known.
func sampled(resource string, n int, used func(i int) (used, limit int64)) *Table {
	h := &clock.Fake{}
	t := New(h)
	for i := range n {
		u, l := used(i)
		t.sample([]Reading{{resource, u, l}})
		h.Advance(every)
	}
	return t
}

const (
	minute = int(time.Minute / every)
	hour   = int(time.Hour / every)
)

// TestSaws: what rises and falls within less than a quarter of an hour never grows, from the start on.
func TestSaws(t *testing.T) {
	t.Parallel()
	h := &clock.Fake{}
	table := New(h)
	for i := range 3 * hour {
		table.sample([]Reading{{"disk", 600 + int64(i%(14*minute)), 1000}})
		if f := table.All()[0]; f.Grows {
			t.Fatalf("after %s: %+v", h.Mono(), f)
		}
		h.Advance(every)
	}
}

// TestForecast: what grows is told with when it is full, within a tenth, and what does not is not.
func TestForecast(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	never := time.Duration(-1)
	grows := func(from, aMinute, limit int64) func(int) (int64, int64) {
		return func(i int) (int64, int64) { return from + aMinute*int64(i)/int64(minute), limit }
	}
	for _, c := range []struct {
		name     string
		resource string
		samples  int
		used     func(i int) (used, limit int64)
		full     time.Duration
	}{
		{"steadily", "disk", 2 * hour, grows(500, 1, 1000), 380 * time.Minute},
		{"from the first hour on", "disk", hour, grows(500, 1, 1000), 440 * time.Minute},
		{"not known before", "disk", 50 * minute, grows(500, 1, 1000), never},
		{"in a month", "disk", 2 * hour, grows(5e12, 25e6, 6e12), 665 * time.Hour},
		{"less than half full", "disk", 2 * hour, grows(300, 1, 1000), never},
		{"full", "disk", 1, grows(1000, 0, 1000), 0},
		{"more than full", "disk", 1, grows(1200, 0, 1000), 0},
		{"flat", "memory", 2 * hour, grows(900, 0, 1000), never},
		{"falling", "memory", 2 * hour, grows(100000, -1, 100000), never},
		{"a disk that was cleared half an hour ago", "disk", hour, func(i int) (int64, int64) {
			if i < hour/2 {
				return 900 + int64(i)/int64(minute), 1000
			}
			return 600, 1000
		}, never},
		{"a disk that is cleared and fills up", "disk", 3 * hour, func(i int) (int64, int64) {
			if i < hour {
				return 990, 1000
			}
			return 500 + int64((i-hour)/minute), 1000
		}, 380 * time.Minute},
		{"a disk that was made larger", "disk", 2 * hour, func(i int) (int64, int64) {
			return 500 + int64(i/minute), map[bool]int64{true: 700, false: 1000}[i < hour*3/2]
		}, 380 * time.Minute},
		{"a limit that was lowered below what there is", "sessions", 2 * hour, func(i int) (int64, int64) {
			return 900, map[bool]int64{true: 1000, false: 800}[i < hour*3/2]
		}, 0},
		{"a saw", "zookeeper", 3 * hour, func(i int) (int64, int64) { // images every ten minutes
			return 500 + int64(i%(10*minute))*25/int64(minute), 768
		}, never},
		{"a saw that climbs", "zookeeper", 3*hour - minute, func(i int) (int64, int64) {
			return 320 + int64(i/minute) + int64(i%(10*minute))*5/int64(minute), 768
		}, 220 * time.Minute},
		{"a journal between two images", "zookeeper", hour, grows(450, 1, 768), never},
		{"a spike", "disk", 2 * hour, func(i int) (int64, int64) { // an image on its way
			if i > 2*hour-5*minute {
				return 900, 1000
			}
			return 600, 1000
		}, never},
		{"noise", "memory", 2 * hour, func(i int) (int64, int64) { return 3*gib + int64(i*7919%1000)<<10, 4 * gib }, never},
		{"growth in noise", "memory", 2 * hour, func(i int) (int64, int64) {
			return 2*gib + int64(i/minute)<<20 + int64(i*7919%1000)<<10, 3 * gib
		}, 900 * time.Minute},
		{"a step three quarters of an hour ago", "store", 2 * hour, func(i int) (int64, int64) {
			return map[bool]int64{true: 600, false: 700}[i < hour*5/4], 1000
		}, never},
		{"a step half an hour ago", "store", 2 * hour, func(i int) (int64, int64) {
			return map[bool]int64{true: 600, false: 700}[i < hour*3/2-1], 1000
		}, never},
		{"a store that did not answer now and then", "store", 2 * hour, func(i int) (int64, int64) {
			return 500 + int64(i/minute), map[bool]int64{true: 0, false: 1000}[i%10 > 6]
		}, 380 * time.Minute},
		{"a step an hour ago", "store", 3 * hour, func(i int) (int64, int64) {
			return map[bool]int64{true: 600, false: 700}[i < 2*hour-1], 1000
		}, never},
		{"not known in between", "tails", 2 * hour, func(i int) (int64, int64) { // a standby has none
			if i < 2*hour-5*minute {
				return 500 + int64(i/minute), map[bool]int64{true: 0, false: 1000}[i > 2*hour-7*minute]
			}
			return 700 + int64(i/minute), 1000
		}, never},
	} {
		table := sampled(c.resource, c.samples, c.used)
		all := table.All()
		if len(all) != 1 || all[0].Resource != c.resource || all[0].Refused == "" {
			t.Errorf("%s: %+v", c.name, all)
			continue
		}
		switch f := all[0]; {
		case f.Grows != (c.full != never):
			t.Errorf("%s: %+v, want %s", c.name, f, c.full)
		case f.Grows && math.Abs((f.Full-c.full).Seconds()) > c.full.Seconds()/10:
			t.Errorf("%s: full in %s, want %s", c.name, f.Full, c.full)
		}
	}
}

// The time of day counts for nothing, and time passes between samples, too; irregular samples
// tell the same rate.
func TestForecastsByTheMonotonicClock(t *testing.T) {
	t.Parallel()
	h, used := &clock.Fake{}, int64(0)
	table := New(h)
	for i := range 200 { // a machine that stalls now and then
		h.Advance(every * time.Duration(1+i%3))
		h.ShiftWall(time.Duration(i%5-2) * 24 * time.Hour)
		used = 500 + int64(h.Mono()/time.Minute)
		table.sample([]Reading{{"disk", used, 1000}})
	}
	want := time.Duration(1000-used) * time.Minute
	for range 2 {
		f := table.All()[0]
		if !f.Grows || (f.Full-want).Abs() > want/10 {
			t.Errorf("full in %s (%t), want %s", f.Full, f.Grows, want)
		}
		h.Advance(stale)
		want -= stale
	}
	if all := table.All(); len(all) != 0 {
		t.Errorf("of what was read two minutes ago: %+v", all)
	}
}

// What is refused first comes first, and what nothing is known of is not there; memory is bounded.
func TestFirstComesWhatIsRefusedFirst(t *testing.T) {
	t.Parallel()
	h := &clock.Fake{}
	table := New(h)
	readings := func() []Reading {
		n := int64(h.Mono() / time.Minute)
		return []Reading{
			{"tails", 10, 1000}, {"watches", 990, 1000}, {"memory", 500 + n, 1000}, {"disk", 600 + n, 1000},
			{"store", 0, 0}, {"owners", 5, 5}, {"no such thing", 1, 1},
		}
	}
	if all := table.All(); len(all) != 0 {
		t.Errorf("before the first sample: %+v", all)
	}
	for range 5 * hour {
		h.Advance(every)
		table.sample(readings())
	}
	var names []string
	for _, f := range table.All() {
		names = append(names, f.Resource)
	}
	if want := []string{"owners", "disk", "memory", "watches", "tails"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for name, s := range table.samples {
		if len(s) > keep {
			t.Errorf("%d samples of %s", len(s), name)
		}
	}
	shown := map[string]float64{}
	ch := make(chan prometheus.Metric, 2*len(resources))
	table.Measure(ch)
	close(ch)
	for m := range ch {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		name := regexp.MustCompile(`leasefs_\w+`).FindString(m.Desc().String())
		shown[name+" "+d.GetLabel()[0].GetValue()] = d.GetGauge().GetValue()
	}
	if _, grows := shown["leasefs_limit_full_seconds watches"]; grows || shown["leasefs_limit_used_ratio watches"] != 0.99 || shown["leasefs_limit_used_ratio owners"] != 1 || shown["leasefs_limit_full_seconds disk"] < 3600 || len(shown) != 8 {
		t.Errorf("%v", shown)
	}
}
