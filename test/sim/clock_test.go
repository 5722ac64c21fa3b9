package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// What a machine's clocks show when it stood still: the time of day and Boot as
// another's, and Mono as another's unless it was suspended.
func TestClockThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, suspend := range []bool{false, true} {
			c, other := newClock(), newClock()
			<-time.After(time.Second)
			if !c.stop(suspend) || c.stop(suspend) {
				t.Error("a clock stands still twice")
			}
			time.AfterFunc(time.Minute, c.resume)
			<-time.After(time.Second)
			if c.Boot() != time.Second || c.Mono() != time.Second || other.Wall().Sub(c.Wall()) != time.Second {
				t.Errorf("suspend %v, standing still: Boot %v, Mono %v, Wall %v", suspend, c.Boot(), c.Mono(), c.Wall())
			}
			c.await()
			mono := time.Minute + time.Second
			if suspend {
				mono = time.Second
			}
			if c.Boot() != other.Boot() || c.Mono() != mono || !c.Wall().Equal(other.Wall()) {
				t.Errorf("suspend %v, resumed: Boot %v, Mono %v, Wall %v", suspend, c.Boot(), c.Mono(), c.Wall())
			}
			if still, stops := c.stands(); still || stops != 1 {
				t.Errorf("it stands still: %v, %d times", still, stops)
			}
		}
	})
}
