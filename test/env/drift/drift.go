// Package drift tells whether something grew for as long as it was sampled. It looks at the
// last half of the samples, since what has just begun fills its caches and tables, and is not
// misled by single samples, nor by a saw's teeth, as of memory between collections.
package drift

import (
	"math"
	"slices"
	"time"
)

// Sample is a value at a time since the sampling began.
type Sample struct {
	At    time.Duration
	Value float64
}

// Bound is by how much a value may have grown: by Part of its median, or by Floor in its own
// unit, whichever is more.
type Bound struct {
	Part, Floor float64
}

// Trend is what the last half of some samples shows.
type Trend struct {
	Median float64       // of the half
	Grown  float64       // from its beginning to its end, by the slope; negative: it has fallen
	Over   time.Duration // how long the half is
}

// least is how many pieces of the half have to have a sample: fewer are no trend.
const least = 8

// Of is the trend of samples in the order of time. The half is cut into 40 pieces of equal
// length; if fewer than eight of them have a sample, ok is false.
//
// The slope is the median of the slopes between each two pieces' medians (Theil and Sen), so
// nearly a third of the pieces may be anything.
func Of(samples []Sample) (t Trend, ok bool) { return of(samples, 40, median) }

// OfSaw is the trend of what is left between the teeth of a saw, which are few, long and
// unlike: of the least value of each of ten pieces. A piece has to be longer than a tooth.
func OfSaw(samples []Sample) (t Trend, ok bool) {
	return of(samples, 10, func(v []float64) float64 { return slices.Min(v) })
}

// of cuts the half into pieces, of which each counts with one value.
func of(samples []Sample, pieces int, value func([]float64) float64) (t Trend, ok bool) {
	if len(samples) == 0 {
		return t, false
	}
	from, to := samples[0].At, samples[len(samples)-1].At
	from += (to - from) / 2
	t.Over = to - from
	in := make([][]float64, pieces)
	var all []float64
	for _, s := range samples {
		if s.At < from || t.Over <= 0 {
			continue
		}
		i := min(int(int64(s.At-from)*int64(pieces)/int64(t.Over)), pieces-1)
		in[i] = append(in[i], s.Value)
		all = append(all, s.Value)
	}
	var slopes, ones, at []float64
	for i, values := range in {
		if len(values) > 0 {
			ones, at = append(ones, value(values)), append(at, float64(i))
		}
	}
	if len(ones) < least {
		return t, false
	}
	for i := range ones {
		for j := range i {
			slopes = append(slopes, (ones[i]-ones[j])/(at[i]-at[j]))
		}
	}
	t.Median, t.Grown = median(all), median(slopes)*float64(pieces)
	return t, true
}

// Exceeds reports whether that is more than b allows.
func (t Trend) Exceeds(b Bound) bool {
	return t.Grown > math.Max(b.Part*math.Abs(t.Median), b.Floor)
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
