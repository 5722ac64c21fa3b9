package namenode

import (
	"sync"
	"time"

	"github.com/leasefs/leasefs/clock"
)

const (
	// slew bounds how much faster or slower than the clock the journal's time
	// runs while it comes back to the time of day: by one part in so many.
	slew = 20
	// longStop is from when on the log tells how far the time of day is beyond
	// the last record of the reign before.
	longStop = 24 * time.Hour
)

// journalTime is the time of records. By it mtimes are set, results of calls are
// forgotten and garbage ages. The time of day can be set, by hand or by NTP, to
// anything: so within a reign this one goes by a clock that only runs on (Boot,
// which counts a suspended machine's time too), and comes back to the time of
// day slowly. It never goes back.
type journalTime struct {
	clock clock.Clock

	mu sync.Mutex
	at time.Duration // the clock's Boot when ns was the time
	ns int64         // Unix nanoseconds
}

// begin sets the time of a reign: that of day, but not before the last record
// (Unix milliseconds). beyond is how far it is after that.
//
// If that is far, the namenode was stopped for as long, or the time of day is
// wrong; nothing here can tell. A long stop is common, and the time of day
// right then: so it is taken. If it was wrong, mtimes are; but what is counted
// by this time still comes to its end, since it runs on from there.
func (j *journalTime) begin(c clock.Clock, lastMS int64) (beyond time.Duration) {
	wall, last := c.Wall(), time.UnixMilli(lastMS)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clock, j.at, j.ns = c, c.Boot(), wall.UnixNano()
	if wall.Before(last) {
		j.ns = last.UnixNano()
	}
	if lastMS == 0 {
		return 0
	}
	return wall.Sub(last)
}

// now is the time in Unix milliseconds.
func (j *journalTime) now() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	boot := j.clock.Boot()
	passed := int64(max(boot-j.at, 0))
	j.at, j.ns = boot, j.ns+passed
	j.ns += max(min(j.clock.Wall().UnixNano()-j.ns, passed/slew), -passed/slew)
	return j.ns / int64(time.Millisecond)
}
