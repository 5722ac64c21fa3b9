package clock

import (
	"testing"
	"time"
)

func TestFake(t *testing.T) {
	var f Fake
	wall := f.Wall()
	f.Advance(time.Minute)
	f.ShiftWall(-time.Hour)
	f.Advance(-time.Hour) // no clock goes back
	if f.Mono() != time.Minute || f.Boot() != time.Minute {
		t.Errorf("mono %s, boot %s", f.Mono(), f.Boot())
	}
	if got := f.Wall().Sub(wall); got != time.Minute-time.Hour {
		t.Errorf("wall moved %s", got)
	}
}

func TestSystemGoesForward(t *testing.T) {
	var c Clock = System{}
	m, b := c.Mono(), c.Boot()
	if c.Mono() < m || c.Boot() < b || b <= 0 || c.Wall().IsZero() {
		t.Errorf("mono %s, boot %s, wall %s", m, b, c.Wall())
	}
}

// The clock that ran further counts, and a stamp never goes back.
func TestStamp(t *testing.T) {
	var f Fake
	var s Stamp
	first := Read(&f)
	f.ShiftWall(time.Hour) // suspended, by a kernel whose other clock stood still
	s.Renew(Read(&f))
	if age := s.Age(Read(&f)); age != 0 {
		t.Errorf("just renewed, and %s old", age)
	}
	f.Advance(time.Minute)
	s.Renew(first)
	f.ShiftWall(-time.Hour)
	if age := s.Age(Read(&f)); age != time.Minute {
		t.Errorf("%s old, want a minute", age)
	}
	f.ShiftWall(2 * time.Hour)
	if age := s.Age(Read(&f)); age != time.Hour+time.Minute {
		t.Errorf("%s old, want an hour and a minute", age)
	}
}

// A holder lets go before its grantor: of a short lease by a twentieth, of a long one
// by a second.
func TestSure(t *testing.T) {
	for granted, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 950 * time.Millisecond, 20 * time.Second: 19 * time.Second, time.Hour: time.Hour - time.Second,
	} {
		if got := Sure(granted); got != want {
			t.Errorf("of %s, %s", granted, got)
		}
	}
}
