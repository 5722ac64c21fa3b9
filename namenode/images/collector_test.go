package images

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

var sink []byte

// TestHoldCollector: while an image is loaded, garbage is not looked for unless memory is
// short; afterwards it is again, as before.
func TestHoldCollector(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	const before = 77
	defer debug.SetGCPercent(debug.SetGCPercent(before))
	passes := func(release func()) uint32 {
		defer release()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		began := m.NumGC
		for range 256 {
			sink = make([]byte, 1<<20)
		}
		runtime.ReadMemStats(&m)
		return m.NumGC - began
	}
	percent := func() int {
		p := debug.SetGCPercent(-1)
		debug.SetGCPercent(p)
		return p
	}

	debug.SetMemoryLimit(math.MaxInt64)
	if n := passes(holdCollector()); n == 0 {
		t.Error("garbage grows without a limit of memory")
	}
	debug.SetMemoryLimit(1 << 40)
	outer := holdCollector()
	if n := passes(holdCollector()); n > 0 {
		t.Errorf("%d passes while an image is loaded", n)
	}
	if p := percent(); p != -1 {
		t.Errorf("the collector is set to %d while another image is loaded", p)
	}
	outer()
	if p := percent(); p != before {
		t.Errorf("the collector is set to %d afterwards, %d before", p, before)
	}
	debug.SetMemoryLimit(64 << 20)
	if n := passes(holdCollector()); n == 0 {
		t.Error("garbage grows although memory is short")
	}
}
