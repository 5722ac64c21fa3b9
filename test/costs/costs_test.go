package costs

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// countingDisk counts what waits for the disk.
type countingDisk struct {
	vfs.FS
	syncs atomic.Int64
}

type countedFile struct {
	vfs.File
	d *countingDisk
}

func (f countedFile) Sync() error {
	f.d.syncs.Add(1)
	return f.File.Sync()
}

func (d *countingDisk) SyncDir(dir string) error {
	d.syncs.Add(1)
	return d.FS.SyncDir(dir)
}

func (d *countingDisk) counted(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countedFile{f, d}, nil
}

func (d *countingDisk) Create(name string) (vfs.File, error) { return d.counted(d.FS.Create(name)) }

func (d *countingDisk) CreateExclusive(name string) (vfs.File, error) {
	return d.counted(d.FS.CreateExclusive(name))
}

func (d *countingDisk) OpenWrite(name string) (vfs.File, error) {
	return d.counted(d.FS.OpenWrite(name))
}

// rig is a namenode, a client of it, and what both have used. Their clock stands still, so
// nothing is renewed, checked or written beside the calls.
type rig struct {
	t    testing.TB
	fs   *client.FS
	disk *countingDisk
	log  *client.Writer // open for write
}

const (
	warm   = 200 // calls before any is counted: tables and buffers grow
	counts = 500 // calls of a mean
	listed = 100 // entries of the directory that is listed
)

func newRig(t testing.TB) *rig {
	t.Helper()
	_, still := env.FakeClock()
	r := &rig{t: t, disk: &countingDisk{FS: vfs.OS()}}
	n := env.Start(t, still, func(c *namenode.Config) { c.FS = r.disk })
	r.fs = n.Client(t)
	for i := range listed {
		r.must(r.fs.WriteFile(t.Context(), fmt.Sprintf("/listed/f%03d", i), nil, client.WithParents()))
	}
	for _, dir := range []string{"/made", "/renamed"} {
		r.must(r.fs.Mkdir(t.Context(), dir, 0o755))
	}
	for i := range warm + counts {
		r.must(r.fs.WriteFile(t.Context(), fmt.Sprintf("/old/f%d", i), nil, client.WithParents()))
	}
	var err error
	r.log, err = r.fs.Create(t.Context(), "/log")
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// calls are what is counted: with each, the most allocations that it may take, of client and
// namenode, and how often it waits for the disk, which is durable before it is answered.
//
// The bounds are what go1.26 takes on amd64 and a twentieth more. Who makes a call dearer on
// purpose raises its bound, and says why in the commit.
var calls = []struct {
	name        string
	allocations float64
	syncs       float64
	call        func(r *rig, i int) error
}{
	{"create and close", 143, 1, func(r *rig, i int) error {
		return r.fs.WriteFile(r.t.Context(), fmt.Sprintf("/made/f%d", i), nil)
	}},
	{"mkdir", 137, 1, func(r *rig, i int) error {
		return r.fs.Mkdir(r.t.Context(), fmt.Sprintf("/made/d%d", i), 0o755)
	}},
	{"rename", 151, 1, func(r *rig, i int) error {
		return r.fs.Rename(r.t.Context(), fmt.Sprintf("/old/f%d", i), fmt.Sprintf("/renamed/f%d", i), false)
	}},
	{"delete", 141, 1, func(r *rig, i int) error {
		return r.fs.Remove(r.t.Context(), fmt.Sprintf("/renamed/f%d", i))
	}},
	{"stat", 98, 0, func(r *rig, _ int) error {
		_, err := r.fs.Stat(r.t.Context(), "/listed/f007")
		return err
	}},
	{"list 100", 1270, 0, func(r *rig, _ int) error {
		entries, err := r.fs.ReadDir(r.t.Context(), "/listed")
		if err == nil && len(entries) != listed {
			err = fmt.Errorf("%d entries", len(entries))
		}
		return err
	}},
	{"flush 100 bytes", 122, 1, func(r *rig, _ int) error {
		if _, err := r.log.Write(make([]byte, 100)); err != nil {
			return err
		}
		return r.log.Flush(r.t.Context())
	}},
}

// cost is what a call takes, in the mean.
type cost struct {
	allocations, syncs float64
	processor          time.Duration
}

// measure makes the calls of one kind, in their order since each may work on what the one
// before has made.
func (r *rig) measure(call func(r *rig, i int) error) cost {
	r.t.Helper()
	for i := range warm {
		r.must(call(r, i))
	}
	runtime.GC()
	var before, after runtime.MemStats
	syncs, processor := r.disk.syncs.Load(), processorTime(r.t)
	runtime.ReadMemStats(&before)
	for i := range counts {
		r.must(call(r, warm+i))
	}
	runtime.ReadMemStats(&after)
	return cost{
		allocations: float64(after.Mallocs-before.Mallocs) / counts,
		syncs:       float64(r.disk.syncs.Load()-syncs) / counts,
		processor:   (processorTime(r.t) - processor) / counts,
	}
}

// TestCalls holds each call to its bounds. It is alone in its package, since allocations are
// those of the whole process.
func TestCalls(t *testing.T) {
	var over []string
	for range 3 { // beside other tests, collections come at other moments, and what they empty is made again
		over = nil
		r := newRig(t)
		for _, c := range calls {
			got := r.measure(c.call)
			t.Logf("%-16s %6.1f allocations, %5.3f syncs", c.name, got.allocations, got.syncs)
			if got.allocations > c.allocations {
				over = append(over, fmt.Sprintf("%s takes %.1f allocations, of client and namenode; at most %g", c.name, got.allocations, c.allocations))
			}
			// A new journal file may be begun meanwhile, which is some syncs more.
			if got.syncs < c.syncs || got.syncs > c.syncs+0.02 {
				t.Errorf("%s waits for the disk %.3f times, want %g", c.name, got.syncs, c.syncs)
			}
		}
		if over == nil {
			return
		}
	}
	t.Error(strings.Join(over, "\n"))
}

// BenchmarkCalls prints the processor time of each call, of client and namenode together.
func BenchmarkCalls(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		for _, c := range calls {
			b.ReportMetric(float64(r.measure(c.call).processor.Nanoseconds())/1000, strings.ReplaceAll(c.name, " ", "-")+"-cpu-us")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// processorTime is what this process has used.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
