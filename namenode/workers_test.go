package namenode_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/test/env"
)

// However many sessions there are, none has a goroutine that is kept for calls:
// their streams last, and all such goroutines would be theirs.
func TestSessionsTakeNoWorkers(t *testing.T) {
	n := env.Start(t)
	const sessions = 80
	for range sessions {
		defer n.Raw(t, "s").Connect()()
	}
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	streams, workers := 0, 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, "(*streams).Session(") {
			continue
		}
		streams++
		if strings.Contains(stack, "serverWorker") {
			workers++
		}
	}
	if streams != sessions || workers != 0 {
		t.Errorf("of %d sessions, %d streams are served, %d of them by workers", sessions, streams, workers)
	}
}
