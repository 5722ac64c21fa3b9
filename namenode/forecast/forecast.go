// Package forecast tells when what a namenode has only so much of is used up, if that grows as
// it did of late, and what is refused then.
//
// A rate is that of the low points: how much higher the lowest of the later half of an hour is
// than that of the earlier half, or that of the last quarter than that of the one before, if
// that is less. So what comes and goes within a quarter of an hour is no growth, nor is, after half
// an hour, what has ended: an image on its way, a journal that is purged, a garbage collection.
// Nothing is forecast before a whole hour is known, or of what is less than half full, unless it is used
// up.
package forecast

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasefs/leasefs/internal/clock"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// every is how often there is a sample.
	every = 10 * time.Second
	// window is how long samples count, and keep how many there are at most.
	window = time.Hour
	keep   = int(window / every)
	// least is the part of a window that must be known before a rate is taken from it: nearly
	// all, since samples may be late.
	least = window * 9 / 10
	// stale is for how long a sample tells what is in use now: without another one
	// in that time what was before counts no more.
	stale = time.Minute
	// flat is the part of a limit by which something must grow in a whole window: less is
	// noise.
	flat = 1.0 / 4096
)

// resource is one that has a limit.
type resource struct {
	name    string
	refused string  // when it is used up
	from    float64 // the part of the limit from which on a rate counts; 0: half
}

// resources are all; a reading of another one is ignored.
var resources = []resource{
	{name: "memory", refused: "whatever makes something new"},
	{name: "disk", refused: "all but reading and deleting; one of several hands over"},
	{name: "store", refused: "all but reading and deleting"},
	// The journal goes from the older of two images on, which is up to two thirds.
	{name: "zookeeper", refused: "all changes, until an image is stored", from: 0.7},
	{name: "tails", refused: "small flushes: writers wait, or put blocks"},
	{name: "descriptors", refused: "connections"},
	{name: "connections", refused: "connections, unless an idle one can be ended"},
	{name: "sessions", refused: "sessions: mounts and programs that begin"},
	{name: "keepalives", refused: "keep-alives of granted leases"},
	{name: "watches", refused: "watches"},
	{name: "waiting", refused: "calls that would have to wait"},
	{name: "leases", refused: "leases that are asked for"},
	{name: "results", refused: "changes of sessions that begin"},
	{name: "owners", refused: "files of users who have none yet"},
	{name: "groups", refused: "files of groups that have none yet"},
}

// Reading is how much of a resource is in use.
type Reading struct {
	Resource    string // the name of one
	Used, Limit int64  // at or above Limit it is used up
}

// Forecast is what a reading leads to.
type Forecast struct {
	Reading
	Refused string // when it is used up
	// Full is after how long, from now, it is used up; 0: it is. Grows is whether it is known to come to
	// that: else Full says nothing.
	Full  time.Duration
	Grows bool
}

// Ratio is the part of the limit that is in use.
func (f *Forecast) Ratio() float64 { return float64(f.Used) / float64(f.Limit) }

// sample is a reading's value at a time of Clock.Mono.
type sample struct {
	at   time.Duration
	used int64
}

// Table keeps the readings of the last hour. Its methods are safe for concurrent use.
type Table struct {
	clock clock.Clock

	mu      sync.Mutex
	limits  map[string]int64    // by resource
	samples map[string][]sample // by resource, the oldest first
}

// New returns a Table without samples.
func New(c clock.Clock) *Table {
	return &Table{clock: c, limits: map[string]int64{}, samples: map[string][]sample{}}
}

// Run takes a sample at once and every ten seconds, until ctx is done. A reading without a limit is
// ignored. Of what a read that hangs would tell, nothing is known after a minute: several Runs may
// read different resources.
func (t *Table) Run(ctx context.Context, read func(context.Context) []Reading) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		t.sample(read(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (t *Table) sample(readings []Reading) {
	now := t.clock.Mono()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range readings {
		if r.Limit <= 0 {
			continue
		}
		past := t.samples[r.Resource]
		if n := len(past); n > 0 && now-past[n-1].at > stale {
			past = nil
		}
		past = slices.DeleteFunc(past, func(s sample) bool { return now-s.at >= window })
		t.limits[r.Resource] = r.Limit
		t.samples[r.Resource] = append(past[max(0, len(past)+1-keep):], sample{now, r.Used})
	}
}

// All are the forecasts of what is known now: what is used up first comes first, and then what
// is fullest.
func (t *Table) All() []Forecast {
	now := t.clock.Mono()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Forecast, 0, len(resources))
	for _, r := range resources {
		s := t.samples[r.name]
		if len(s) == 0 || now-s[len(s)-1].at > stale {
			continue
		}
		f := Forecast{Reading: Reading{r.name, s[len(s)-1].used, t.limits[r.name]}, Refused: r.refused}
		f.Full, f.Grows = full(s, f.Limit, cmp.Or(r.from, 0.5), now)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Forecast) int {
		if a.Grows != b.Grows {
			return cmp.Compare(flag(b.Grows), flag(a.Grows))
		}
		return cmp.Or(cmp.Compare(a.Full, b.Full), cmp.Compare(b.Ratio(), a.Ratio()), strings.Compare(a.Resource, b.Resource))
	})
	return all
}

// full is when a resource with these samples is used up.
func full(s []sample, limit int64, from float64, now time.Duration) (after time.Duration, grows bool) {
	last := s[len(s)-1]
	span := last.at - s[0].at
	switch left := float64(limit - last.used); {
	case left <= 0:
		return 0, true
	case span < least || float64(last.used) < from*float64(limit):
		return 0, false
	default:
		rate := min(growth(s, last.at-span/2, span/2), growth(s, last.at-span/4, span/4))
		if rate*window.Seconds() < flat*float64(limit) {
			return 0, false
		}
		seconds := left/rate - (now - last.at).Seconds()
		return time.Duration(max(seconds, 1) * float64(time.Second)), true
	}
}

// growth is by how much a second the low point from a time on is higher than that of a span before
// it; 0: that is not known.
func growth(s []sample, from, span time.Duration) float64 {
	late := slices.IndexFunc(s, func(s sample) bool { return s.at > from })
	early := slices.IndexFunc(s, func(s sample) bool { return s.at > from-span-1 })
	if early == late {
		return 0
	}
	return float64(lowest(s[late:])-lowest(s[early:late])) / span.Seconds()
}

func lowest(s []sample) int64 {
	return slices.MinFunc(s, func(a, b sample) int { return cmp.Compare(a.used, b.used) }).used
}

// Rooms are the forecasts as the status of a namenode has them.
func (t *Table) Rooms() (all []*pb.Room) {
	for _, f := range t.All() {
		r := &pb.Room{Resource: f.Resource, Used: f.Used, Limit: f.Limit, Refused: f.Refused}
		if f.Grows {
			ms := f.Full.Milliseconds()
			r.FullMs = &ms
		}
		all = append(all, r)
	}
	return all
}

var (
	descUsed = prometheus.NewDesc("leasefs_limit_used_ratio", "Part of a limit that is in use. At 1 something is refused.", []string{"resource"}, nil)
	descFull = prometheus.NewDesc("leasefs_limit_full_seconds", "After how long a limit is reached at the rate of the last hour; of what grows, and is more than half full.", []string{"resource"}, nil)
)

// Measure collects the forecasts.
func (t *Table) Measure(ch chan<- prometheus.Metric) {
	for _, f := range t.All() {
		ch <- prometheus.MustNewConstMetric(descUsed, prometheus.GaugeValue, f.Ratio(), f.Resource)
		if f.Grows {
			ch <- prometheus.MustNewConstMetric(descFull, prometheus.GaugeValue, f.Full.Seconds(), f.Resource)
		}
	}
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
