package env

import "os"

// Full asks for tests in full size: with make test-full they take minutes, and with
// make test they do the same on less.
var Full = os.Getenv("LEASEFS_TEST_SIZE") == "full"

// Sized is n in a full run, else the smaller one.
func Sized[T any](everyDay, n T) T {
	if Full {
		return n
	}
	return everyDay
}
