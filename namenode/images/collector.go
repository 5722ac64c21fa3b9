package images

import (
	"math"
	"runtime/debug"
	"sync"
)

// collector is whether the garbage collector is held off, for the whole process.
var collector struct {
	sync.Mutex
	holds   int // by how many loads
	percent int // what it is set to otherwise
}

// holdCollector keeps the collector from running until release is called, since nearly
// nothing that is made when an image is loaded is garbage, and to find that out takes as
// long as half of the load. It still runs where memory gets short: without a limit
// of memory it is not held off.
func holdCollector() (release func()) {
	collector.Lock()
	defer collector.Unlock()
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		return func() {}
	}
	if collector.holds++; collector.holds == 1 {
		collector.percent = debug.SetGCPercent(-1)
	}
	return func() {
		collector.Lock()
		defer collector.Unlock()
		if collector.holds--; collector.holds == 0 {
			debug.SetGCPercent(collector.percent)
		}
	}
}
