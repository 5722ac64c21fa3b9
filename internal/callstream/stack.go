package callstream

import "runtime"

// GrowStack gives its caller's goroutine 16 KiB of stack. Grown step by step, where a call is
// deep, it takes a sixth of the processor of a stat.
func GrowStack() { growStack(false) }

// growStack has that room in its frame, which suffices; used, it would be zeroed as well.
//
//go:noinline
func growStack(use bool) {
	if use {
		var room [9 << 10]byte
		runtime.KeepAlive(&room)
	}
}
