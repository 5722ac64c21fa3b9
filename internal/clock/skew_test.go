package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCompare: whenever in the time of the question the other clock is looked at,
// and however coarse its answer is, the truth is within the bound; and the bound is
// no wider than half of both.
func TestCompare(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	for range 10_000 {
		var f Fake
		f.Advance(time.Duration(r.Int64N(int64(time.Hour))))
		ahead := time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
		unit := []time.Duration{1, time.Millisecond, time.Second}[r.IntN(3)]
		there, back := time.Duration(r.Int64N(int64(time.Second))), time.Duration(r.Int64N(int64(time.Second)))
		answered := Compare(&f)
		f.Advance(there)
		other := f.Wall().Add(-ahead).Truncate(unit)
		f.Advance(back)
		f.ShiftWall(time.Duration(r.Int64N(2)) * time.Hour) // too late to matter
		got := answered(other, unit)
		if got.Ahead-got.Bound > ahead || got.Ahead+got.Bound < ahead {
			t.Fatalf("%s ahead, asked for %s and %s, in units of %s: %+v", ahead, there, back, unit, got)
		}
		if most := (there+back+unit)/2 + 1; got.Bound > most {
			t.Fatalf("asked for %s and %s, in units of %s: the bound is %s, want at most %s", there, back, unit, got.Bound, most)
		}
	}
}

func TestBeyondAndWithin(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	for _, c := range []struct {
		ahead, bound   time.Duration
		beyond, within bool
	}{
		{0, time.Second, false, true},
		{time.Second, time.Second, false, true},
		{2 * time.Second, time.Second, false, false},
		{3 * time.Second, time.Second, false, false},
		{3*time.Second + 1, time.Second, true, false},
		{-3*time.Second - 1, time.Second, true, false},
		{-time.Second, time.Second, false, true},
		{time.Minute, time.Hour, false, false},
	} {
		s := Skew{c.ahead, c.bound}
		if s.Beyond(limit) != c.beyond || s.Within(limit) != c.within {
			t.Errorf("%+v: beyond %t, within %t", s, s.Beyond(limit), s.Within(limit))
		}
	}
}
