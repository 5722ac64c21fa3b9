package callstream

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// A goroutine whose stack has grown once keeps it where it is while it uses up
// to half of 16 KiB: what grows is copied elsewhere.
func TestGrowStackMakesRoomAtOnce(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // collecting may shrink a stack
	moved := func(grow func()) bool {
		at := make(chan [2]uintptr)
		go func() {
			var mark byte
			grow()
			before := uintptr(unsafe.Pointer(&mark))
			deep(8)
			at <- [2]uintptr{before, uintptr(unsafe.Pointer(&mark))}
		}()
		seen := <-at
		return seen[0] != seen[1]
	}
	if !moved(func() {}) {
		t.Error("a new goroutine has room for 8 KiB: GrowStack is needless")
	}
	if moved(func() { GrowStack() }) {
		t.Error("the stack grew again within 8 KiB")
	}
}

// deep uses some n KiB of stack.
//
//go:noinline
func deep(n int) byte {
	var room [1 << 10]byte
	if n > 1 {
		room[n] = deep(n - 1)
	}
	return room[n]
}
