package space

import (
	"runtime"
	"runtime/debug"
	"testing"
)

var sink []byte

// Dead objects, which the next collection frees, are no shortage of memory.
func TestDeadObjectsTakeNoMemory(t *testing.T) {
	const dead = 64 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := HeapBytes()
	sink = make([]byte, dead)
	sink = nil
	if grown := HeapBytes() - before; grown > dead/2 {
		t.Errorf("%d MiB grown by nothing that lives", grown>>20)
	}
	sink = make([]byte, dead)
	runtime.GC()
	if grown := HeapBytes() - before; grown < dead/2 {
		t.Errorf("%d bytes grown by %d that live", grown, dead)
	}
	sink = nil
}
