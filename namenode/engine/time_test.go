package engine

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// The journal's time advances by the monotonic clock, comes back to the time of
// day slowly, and never goes back.
func TestJournalTime(t *testing.T) {
	var clk clock.Fake
	clk.ShiftWall(56 * 365 * 24 * time.Hour)
	var j journalTime
	begin := func(lastMS int64) time.Duration {
		j = journalTime{}
		j.init(&clk)
		return j.begin(lastMS)
	}
	ahead := clk.Wall().Add(time.Minute)
	if beyond := begin(ahead.UnixMilli()); beyond != 0 || j.now() != ahead.UnixMilli() {
		t.Fatalf("after a record of a time to come: %s, %d", beyond, j.now())
	}
	day := clk.Wall()
	if beyond := begin(day.Add(-time.Hour).UnixMilli()); beyond != time.Hour || j.now() != day.UnixMilli() {
		t.Fatalf("after an hour's stop: %s, %d", beyond, j.now())
	}
	off := func() time.Duration { return time.Duration(j.now()-clk.Wall().UnixMilli()) * time.Millisecond }
	last := j.now()
	pass := func(d, step time.Duration) {
		t.Helper()
		for ; d > 0; d -= step {
			clk.Advance(step)
			now := j.now()
			if grown := time.Duration(now-last) * time.Millisecond; grown < step-step/slew-time.Millisecond || grown > step+step/slew+time.Millisecond {
				t.Fatalf("%s passed as %s", step, grown)
			}
			last = now
		}
	}
	pass(time.Hour, time.Minute)
	if off() != 0 {
		t.Fatalf("%s off the time of day", off())
	}
	const century = 74 * 365 * 24 * time.Hour
	clk.ShiftWall(century)
	pass(10*time.Second, 100*time.Millisecond)
	clk.ShiftWall(-century)
	if off() > time.Second {
		t.Fatalf("%s ahead after ten seconds in another century", off())
	}
	pass(time.Minute, time.Second)
	if off() != 0 {
		t.Fatalf("%s off the time of day after a minute", off())
	}
	clk.ShiftWall(10 * time.Minute)
	pass(time.Minute, time.Second)
	clk.ShiftWall(-time.Hour)
	pass(time.Minute, time.Second)
}

// Who followed another's journal continues from there: not before what was heard,
// nor after what another clock says, however its own time of day is set.
func TestJournalTimeOfOneThatFollowed(t *testing.T) {
	const last = 1_800_000_000_000
	for _, tt := range []struct {
		name   string
		wall   time.Duration // from the last record's time on, when the reign begins
		idle   time.Duration // by ZooKeeper; below 0: not known
		before time.Duration // between the last record's reading and that
		after  time.Duration // between that and the reign
		want   time.Duration // from the last record's time on
	}{
		{name: "all agree", wall: 9 * time.Second, idle: 5 * time.Second, before: 5 * time.Second, after: 4 * time.Second, want: 9 * time.Second},
		{name: "its time of day is ahead", wall: 11 * time.Minute, idle: 5 * time.Second, before: 5 * time.Second, after: 4 * time.Second, want: 9 * time.Second},
		{name: "its time of day is behind", wall: -11 * time.Minute, idle: 5 * time.Second, before: 5 * time.Second, after: 4 * time.Second, want: 9 * time.Second},
		{name: "it read the last record late", wall: time.Hour + time.Second, idle: time.Hour + 2*time.Second, before: time.Second, want: time.Hour + time.Second},
		{name: "that, and its time of day is ahead", wall: 24 * time.Hour, idle: time.Hour, before: time.Second, want: time.Hour},
		{name: "ZooKeeper's clock was set back", wall: 9 * time.Second, idle: 0, before: 5 * time.Second, after: 4 * time.Second, want: 9 * time.Second},
		{name: "ZooKeeper's clock was set ahead", wall: 9 * time.Second, idle: time.Hour, before: 9 * time.Second, want: 9 * time.Second},
		{name: "nothing is known", wall: time.Hour, idle: -1, before: time.Second, want: time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var clk clock.Fake
			clk.ShiftWall(time.UnixMilli(last).Sub(clk.Wall()) + tt.wall - tt.before - tt.after)
			var j journalTime
			j.init(&clk)
			j.heard(last - 1000)
			j.heard(last)
			clk.Advance(tt.before)
			if tt.idle >= 0 {
				j.atMost(last, tt.idle)
			}
			clk.Advance(tt.after)
			j.begin(last)
			if got := time.Duration(j.now()-last) * time.Millisecond; got != tt.want {
				t.Errorf("the reign begins %s after the last record, want %s", got, tt.want)
			}
		})
	}
}
