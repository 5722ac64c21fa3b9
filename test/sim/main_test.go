package sim_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage grow to four times what lives: a world has little of that.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
