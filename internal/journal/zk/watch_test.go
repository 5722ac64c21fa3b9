package zk_test

import (
	"runtime"
	"testing"

	"github.com/leasefs/leasefs/test/env/journaltest"
)

// TestStandbyWatchesOneNode: however many batches a standby follows, it has one
// watch at its server and no goroutine for those that came.
func TestStandbyWatchesOneNode(t *testing.T) {
	const last = 1500
	watches := func() (n int64) {
		for i := range 3 {
			n += ensemble.Server(i).Stat(t, "zk_watch_count")
		}
		return n
	}
	path := root()
	a, b := open(t, ensemble.Addrs(), path), open(t, ensemble.Addrs(), path)
	begin(t, a, 1, 0)
	oneByOne(t, a, 1, 1)
	journaltest.Check(t, b, 1, 1)
	before := watches()
	tail := follow(t, b)
	oneByOne(t, a, 2, 2)
	tail.reach(2)
	running := runtime.NumGoroutine()
	oneByOne(t, a, 3, last)
	tail.reach(last)
	if n := watches() - before; n > 1 {
		t.Errorf("%d batches later there are %d watches", last, n)
	}
	if n := runtime.NumGoroutine() - running; n > 50 { // some read ahead
		t.Errorf("%d batches later there are %d goroutines more", last, n)
	}
}
