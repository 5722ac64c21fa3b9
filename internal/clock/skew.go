package clock

import "time"

// Skew says how far one time of day is ahead of another, below 0 behind it, as
// far as the two could be compared: the truth is between Ahead − Bound and
// Ahead + Bound.
type Skew struct{ Ahead, Bound time.Duration }

// Beyond reports whether the clocks surely differ by more than d.
func (s Skew) Beyond(d time.Duration) bool { return max(s.Ahead, -s.Ahead)-s.Bound > d }

// Within reports whether the clocks surely differ by no more than d.
func (s Skew) Within(d time.Duration) bool { return max(s.Ahead, -s.Ahead)+s.Bound <= d }

// Compare is called before another machine is asked for its time of day. What it
// returns is called as soon as the answer is there, with that time, which was cut
// to a multiple of unit, and tells how far c is ahead. The other machine looked at
// its clock somewhen between the two calls: the longer they are apart, the wider
// is the bound.
func Compare(c Clock) (answered func(other time.Time, unit time.Duration) Skew) {
	wall, boot := c.Wall(), c.Boot()
	return func(other time.Time, unit time.Duration) Skew {
		took := c.Boot() - boot
		least := wall.Sub(other) - unit // as if it had been asked at once, and its clock about to show the next unit
		return Skew{Ahead: least + (took+unit)/2, Bound: (took + unit + 1) / 2}
	}
}
