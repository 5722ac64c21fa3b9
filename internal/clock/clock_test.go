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
