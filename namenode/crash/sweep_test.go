package crash

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/blockstore"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/vfs/crashfs"
)

type pbCreate = pb.CreateRequest

func seal(data string) ([]byte, uint32) { return blockstore.Seal([]byte(data)) }

// each runs fn for all jobs, a few at a time.
func each[J any](t *testing.T, jobs []J, fn func(J) error) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int32
	todo := make(chan J)
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range todo {
				if failed.Load() >= 5 {
					continue
				}
				if err := fn(j); err != nil {
					failed.Add(1)
					t.Error(err)
				}
			}
		})
	}
	for _, j := range jobs {
		todo <- j
	}
	close(todo)
	wg.Wait()
}

// TestDaysGoWell is the days without a crash; what it proves is that the model
// and the scripts are right.
func TestDaysGoWell(t *testing.T) {
	for _, d := range days {
		r := &run{day: d.name, opts: d.opts}
		began := time.Now()
		if err := r.play(d.script); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d points, %d calls, %s", d.name, r.disk.Ops(), len(r.trace), time.Since(began))
	}
}

// TestScenario46CrashAtEveryPoint is the sweep; see the package comment.
func TestScenario46CrashAtEveryPoint(t *testing.T) {
	stride, atLeast := 1, 2000
	if testing.Short() {
		stride, atLeast = 11, 150
	}
	type job struct {
		day day
		n   int
	}
	var jobs []job
	for _, d := range days {
		dry := &run{day: d.name, opts: d.opts}
		if err := dry.play(d.script); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= dry.disk.Ops(); n += stride {
			jobs = append(jobs, job{d, n})
		}
	}
	var points atomic.Int64
	began := time.Now()
	each(t, jobs, func(j job) error {
		r := &run{day: j.day.name, opts: j.day.opts, crashAt: j.n, main: variant{mode: crashfs.Strict}}
		seed := uint64(j.n)
		r.branches = []variant{{crashfs.Torn, seed, 0}, {crashfs.Kill, 0, 0}, {crashfs.Torn, seed + 1000, j.n%12 + 1}}
		err := r.play(j.day.script)
		points.Add(int64(r.crashes))
		return err
	})
	t.Logf("%d points of %d deaths in %s", points.Load(), len(jobs), time.Since(began))
	if points.Load() < int64(atLeast) && !t.Failed() {
		t.Errorf("only %d points, want %d", points.Load(), atLeast)
	}
}

var _ = fmt.Sprint
