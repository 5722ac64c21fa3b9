package drift

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// samples are n of them, five seconds apart.
func samples(n int, value func(i int) float64) (all []Sample) {
	for i := range n {
		all = append(all, Sample{time.Duration(i) * 5 * time.Second, value(i)})
	}
	return all
}

func TestTrend(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	noise := func() float64 { return 1 + r.NormFloat64()/10 }
	bound := Bound{Part: 0.25, Floor: 10}
	for _, test := range []struct {
		name  string
		value func(i int) float64
		grows bool
	}{
		{"the same", func(int) float64 { return 100 }, false},
		{"noise", func(int) float64 { return 100 * noise() }, false},
		{"a start that fills its tables", func(i int) float64 { return 100 * math.Min(1, float64(i)/300) * noise() }, false},
		{"a saw", func(i int) float64 { return 100 + float64(i*7%60) }, false},
		{"it falls", func(i int) float64 { return 500 - float64(i)/4 }, false},
		{"a fifth of the samples are far off", func(i int) float64 { return 100 + 900*float64(i%5/4) }, false},
		{"a burst near the end", func(i int) float64 {
			if i > 600 && i < 650 {
				return 500
			}
			return 100
		}, false},
		{"a leak of half", func(i int) float64 { return 100 * (1 + float64(i)/720) * noise() }, true},
		{"a leak beneath a saw", func(i int) float64 { return 100 + float64(i*7%60) + float64(i)/4 }, true},
		{"a leak with restarts, which begins again from what is kept", func(i int) float64 { return 100 + float64(i)/6 - 30*float64(i/50%2) }, true},
		{"a little, of little", func(i int) float64 { return float64(i) / 90 }, false},
		{"a lot, of little", func(i int) float64 { return float64(i) / 20 }, true},
	} {
		trend, ok := Of(samples(720, test.value))
		if !ok || trend.Exceeds(bound) != test.grows {
			t.Errorf("%s: %+v, %v, want growth: %v", test.name, trend, ok, test.grows)
		}
	}
}

// TestScale: a slope is what the values say, over the half.
func TestScale(t *testing.T) {
	trend, ok := Of(samples(721, func(i int) float64 { return 1000 + float64(i) }))
	if !ok || trend.Over != 30*time.Minute || math.Abs(trend.Grown-360) > 10 || math.Abs(trend.Median-1540) > 10 {
		t.Errorf("%+v, %v", trend, ok)
	}
}

func TestTooFew(t *testing.T) {
	for n := range 14 {
		if trend, ok := Of(samples(n, func(i int) float64 { return float64(i) })); ok {
			t.Errorf("%d samples: %+v", n, trend)
		}
	}
	same := []Sample{{time.Second, 1}, {time.Second, 2}}
	if trend, ok := Of(same); ok {
		t.Errorf("at one time: %+v", trend)
	}
	if _, ok := Of(samples(20, func(int) float64 { return 1 })); !ok {
		t.Error("20 samples are no trend")
	}
}

// TestOfSaw: teeth of one to two minutes, which are as steep as they like, are no growth of
// what is left between them; a leak beneath them is.
func TestOfSaw(t *testing.T) {
	bound := Bound{Part: 0.25, Floor: 200}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible
		value, left, steep := 0.0, 0, 0.0
		saw := func(int) float64 {
			if left--; left < 0 {
				value, left, steep = 200+100*r.Float64(), 12+r.IntN(12), 40+100*r.Float64()
			}
			value += steep
			return value
		}
		if trend, ok := OfSaw(samples(720, saw)); !ok || trend.Exceeds(bound) {
			t.Errorf("seed %d: a saw: %+v, %v", seed, trend, ok)
		}
		leak := func(i int) float64 { return saw(i) + 4*float64(i) }
		if trend, ok := OfSaw(samples(720, leak)); !ok || !trend.Exceeds(bound) {
			t.Errorf("seed %d: a saw on what grows: %+v, %v", seed, trend, ok)
		}
	}
}
