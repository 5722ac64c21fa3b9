// Package size tells tests how much to do: in full size, for which make test-full
// asks, they take minutes; with make test they check the same on less.
package size

import "os"

// Full tells whether the tests run in full size.
var Full = os.Getenv("LEASEFS_TEST_SIZE") == "full"

// Of is full in full size, else the smaller one.
func Of[T any](daily, full T) T {
	if Full {
		return full
	}
	return daily
}
