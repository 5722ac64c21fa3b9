package spawn_test

import (
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/test/env/spawn"
)

// A program that is started lives on when others, and what started them, end.
func TestStart(t *testing.T) {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	exited, err := spawn.Start(cat)
	if err != nil {
		t.Fatal(err)
	}
	// More of them than this process has threads: some begin on a thread that has
	// started a program before, if such threads are used again.
	for range 50 {
		var wg sync.WaitGroup
		for range 2 * runtime.NumCPU() {
			wg.Go(func() {
				other, err := spawn.Start(exec.Command("true"))
				if err != nil {
					t.Error(err)
					return
				}
				<-other
			})
		}
		wg.Wait()
	}
	select {
	case <-exited:
		t.Fatalf("it has ended: %s", cat.ProcessState)
	default:
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if <-exited; !cat.ProcessState.Success() {
		t.Fatalf("it ended otherwise than by itself: %s", cat.ProcessState)
	}
}

// What cannot be started is said.
func TestStartNothing(t *testing.T) {
	exited, err := spawn.Start(exec.Command("/no/such/program"))
	if err == nil {
		t.Fatal("no error")
	}
	<-exited
}
