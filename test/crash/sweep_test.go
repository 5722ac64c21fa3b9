package crash

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/size"
)

// bootPoints is about how many points a boot has.
const bootPoints = 14

type pbCreate = pb.CreateRequest

func seal(data string) ([]byte, uint32) { return blockstore.Seal([]byte(data)) }

// each runs fn for all jobs, a few at a time.
func each[J any](t *testing.T, jobs []J, fn func(J) error) {
	t.Helper()
	several(t, 2*runtime.GOMAXPROCS(0), jobs, fn)
}

// several runs fn for all jobs, so many at a time.
func several[J any](t *testing.T, atOnce int, jobs []J, fn func(J) error) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int32
	todo := make(chan J)
	for range atOnce {
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
	t.Parallel()
	for _, d := range days {
		r := &run{day: d.name, opts: d.opts}
		began := time.Now()
		if err := r.play(d.script); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d points, %d calls, %s", d.name, r.disk.Ops(), len(r.trace), time.Since(began))
	}
}

// TestScenario46CrashAtEveryPoint is the sweep; see the package comment. In full
// size it takes every point, else every forty-seventh.
func TestScenario46CrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	stride, atLeast := size.Of(47, 1), size.Of(35, 2000)
	crashAtPoints(t, days, stride, atLeast)
}

// journals are the ways in which the journal's segments get room ahead, besides
// that of boot.
var journals = []struct {
	name   string
	option option
}{
	{"growing", func(c *namenode.Config) { c.JournalAhead = -1 }},
	{"as ever", func(c *namenode.Config) { c.JournalAhead = 64 << 10 }},
	{"no room", func(c *namenode.Config) { c.FS = noRoom{c.FS} }},
}

// TestScenario46RoomAhead is the sweep for other ways of the journal.
func TestScenario46RoomAhead(t *testing.T) {
	t.Parallel()
	stride, atLeast := size.Of(389, 31), size.Of(3, 60)
	for _, way := range journals {
		t.Run(way.name, func(t *testing.T) {
			var ds []day
			for _, d := range days {
				d.name += ", journal " + way.name
				d.opts = append(slices.Clone(d.opts), way.option)
				ds = append(ds, d)
			}
			crashAtPoints(t, ds, stride, atLeast)
		})
	}
}

func crashAtPoints(t *testing.T, days []day, stride, atLeast int) {
	type job struct {
		day day
		n   int
	}
	var jobs []job
	for _, d := range days {
		for n := 1; n <= d.points(t); n += stride {
			jobs = append(jobs, job{d, n})
		}
	}
	var points atomic.Int64
	began := time.Now()
	each(t, jobs, func(j job) error {
		seed := uint64(j.n)
		ways := []variant{{mode: crashfs.Strict}, {mode: crashfs.Torn, seed: seed}, {mode: crashfs.Kill}}
		r := &run{day: j.day.name, opts: j.day.opts, crashAt: j.n, main: ways[j.n%3]}
		r.branches = []variant{ways[(j.n+1)%3], ways[(j.n+2)%3], {crashfs.Torn, seed + 1000, j.n%bootPoints + 1}}
		if j.n%4 == 0 {
			r.again = j.n%50 + 1
		}
		err := r.play(j.day.script)
		points.Add(int64(r.crashes))
		return err
	})
	t.Logf("%d points of %d deaths in %s", points.Load(), len(jobs), time.Since(began))
	if points.Load() < int64(atLeast) && !t.Failed() {
		t.Errorf("only %d points, want %d", points.Load(), atLeast)
	}
}

// TestScenario40SameCallAcrossRestart sends every call of the days again after
// a power failure: the same answer, one effect.
func TestScenario40SameCallAcrossRestart(t *testing.T) {
	t.Parallel()
	each(t, days, func(d day) error {
		r := &run{day: d.name + " (echo)", opts: d.opts, echo: true}
		return r.play(d.script)
	})
}

// repeat sends a call again to what a power failure leaves.
func (r *run) repeat(c *call, first any) {
	m := r.mustBoot(r.disk.Clone().Crash(crashfs.Strict))
	defer r.stop(m, false)
	second, err := c.send(m)
	if err != nil {
		r.failf("%s, sent again after a restart: %v", c.name, err)
	}
	r.match(m, r.want)
	if c.answers {
		a, b := first.(proto.Message), second.(proto.Message)
		if !proto.Equal(a, b) {
			r.failf("%s, sent again after a restart, answers %v, not %v", c.name, b, a)
		}
	}
}

// counter counts by name, from several goroutines.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name] += n
}

func (c *counter) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}
