package engine

import (
	"math"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

const (
	// slew bounds how much faster or slower than the clock the journal's time
	// runs while it comes back to the time of day: by one part in so many.
	slew = 20
	// longStop is from when on the log tells how far the time of day is beyond
	// the last record of the reign before.
	longStop = 24 * time.Hour
)

// journalTime is the time of records: mtimes are set by it, and what it adds up
// to within reigns is what results and garbage age by (Tree.Reigned). The time
// of day can be set, by hand or by NTP, to anything: so within a reign this one
// goes by a clock that only runs on (Boot, which counts a suspended machine's
// time too), and comes back to the time of day slowly. It never goes back.
//
// Who follows another's journal lets it continue from the records as they come
// (heard). So it need not ask the time of day how long the reign before has
// ended.
type journalTime struct {
	clock clock.Clock

	mu     sync.Mutex
	at     time.Duration // the clock's Boot when ns was the time
	ns     int64         // Unix nanoseconds: before a reign, the least that it can be
	latest int64         // the same, the most that it can be when a reign begins
}

func (j *journalTime) init(c clock.Clock) {
	j.clock, j.at, j.latest = c, c.Boot(), math.MaxInt64
}

// Longest is how much of the journal's time goes by in d of the clock at most.
func Longest(d time.Duration) time.Duration { return d + d/slew }

// pass lets the time that went by since the last look pass. The caller holds mu.
func (j *journalTime) pass() (passed int64) {
	boot := j.clock.Boot()
	passed = int64(max(boot-j.at, 0))
	j.at, j.ns = boot, j.ns+passed
	if j.latest < math.MaxInt64 {
		j.latest += passed
	}
	return passed
}

// heard is called with the time (Unix milliseconds) of each record that another
// wrote when it is read: so much it is at least.
func (j *journalTime) heard(ms int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pass()
	j.ns = max(j.ns, ms*int64(time.Millisecond))
}

// atMost says that no more than idle has gone by since the last record (Unix
// milliseconds), by a clock other than this machine's.
func (j *journalTime) atMost(lastMS int64, idle time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pass()
	j.latest = lastMS*int64(time.Millisecond) + int64(idle)
}

// begin sets the time of a reign, the last record before it being of lastMS
// (Unix milliseconds): that of day, but not before what was heard and not after
// what can be. beyond is how far it is after the last record.
//
// If that is far, the namenode was stopped for as long, or the time of day is
// wrong; a namenode alone cannot tell. A long stop is common, and the time of
// day right then: so it is taken. If it was wrong mtimes are, and nothing else.
func (j *journalTime) begin(lastMS int64) (beyond time.Duration) {
	j.heard(lastMS)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pass()
	j.ns = max(j.ns, min(j.clock.Wall().UnixNano(), j.latest))
	if lastMS == 0 {
		return 0
	}
	return time.Duration(j.ns) - time.Duration(lastMS)*time.Millisecond
}

// now is the time in Unix milliseconds.
func (j *journalTime) now() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	passed := j.pass()
	j.ns += max(min(j.clock.Wall().UnixNano()-j.ns, passed/slew), -passed/slew)
	return j.ns / int64(time.Millisecond)
}
