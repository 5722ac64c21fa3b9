package crash

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/size"
)

// fault is a way in which a disk goes bad, from one point on.
type fault struct {
	name  string
	begin func(*crashfs.FS)
	says  string // what the namenode must then say among other things
}

var faults = []fault{
	{"every sync fails", func(d *crashfs.FS) { d.FailSync("*", nil) }, syscall.EIO.Error()},
	{"every write fails", func(d *crashfs.FS) { d.FailWrite("*", nil) }, syscall.EIO.Error()},
	{"full", fill, syscall.ENOSPC.Error()},
	{"read-only", func(d *crashfs.FS) { d.ReadOnly(true) }, syscall.EROFS.Error()},
}

// fill leaves no byte free.
func fill(d *crashfs.FS) {
	free, total, err := d.Usage("/")
	if err == nil {
		d.Capacity(total - free)
	}
}

// failing is a disk that goes bad at a point.
type failing struct {
	*crashfs.FS
	at    int
	begin func(*crashfs.FS)
	done  chan struct{} // closed when it has begun

	mu  sync.Mutex
	off bool // it does not begin any more
}

// disarm lets it not begin any more, if it has not.
func (f *failing) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
}

func (f *failing) check() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.off && f.Ops()+1 >= f.at {
		f.off = true
		close(f.done)
		f.begin(f.FS)
	}
}

func (f *failing) wrap(in vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &failingFile{in, f}, nil
}

func (f *failing) Create(name string) (vfs.File, error) { f.check(); return f.wrap(f.FS.Create(name)) }
func (f *failing) CreateExclusive(name string) (vfs.File, error) {
	f.check()
	return f.wrap(f.FS.CreateExclusive(name))
}
func (f *failing) OpenWrite(name string) (vfs.File, error) { return f.wrap(f.FS.OpenWrite(name)) }
func (f *failing) Rename(from, to string) error            { f.check(); return f.FS.Rename(from, to) }
func (f *failing) Link(from, to string) error              { f.check(); return f.FS.Link(from, to) }
func (f *failing) Remove(name string) error                { f.check(); return f.FS.Remove(name) }
func (f *failing) MkdirAll(name string) error              { f.check(); return f.FS.MkdirAll(name) }
func (f *failing) SyncDir(name string) error               { f.check(); return f.FS.SyncDir(name) }

type failingFile struct {
	vfs.File
	f *failing
}

func (h *failingFile) Write(p []byte) (int, error) { h.f.check(); return h.File.Write(p) }
func (h *failingFile) WriteAt(p []byte, off int64) (int, error) {
	h.f.check()
	return h.File.WriteAt(p, off)
}
func (h *failingFile) Sync() error            { h.f.check(); return h.File.Sync() }
func (h *failingFile) Truncate(n int64) error { h.f.check(); return h.File.Truncate(n) }

// noRoom is a disk that has room for batches of the journal, and for nothing
// ahead of them: of a write of zeros it takes half.
type noRoom struct{ vfs.FS }

type noRoomFile struct{ vfs.File }

func (d noRoom) OpenWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenWrite(name)
	return noRoomFile{f}, err
}

func (h noRoomFile) WriteAt(p []byte, off int64) (int, error) {
	if len(bytes.Trim(p, "\x00")) > 0 {
		return h.File.WriteAt(p, off)
	}
	n, err := h.File.WriteAt(p[:len(p)/2], off)
	return n, errors.Join(err, syscall.ENOSPC)
}

// medium is the disk as the namenode gets it.
func (r *run) medium() vfs.FS {
	if r.faultAt == 0 {
		return r.disk
	}
	if r.bad == nil {
		r.bad = &failing{FS: r.disk, at: r.faultAt, begin: r.fault.begin, done: make(chan struct{})}
	}
	return r.bad
}

// faulty reports whether the disk has begun to fail, and is not repaired.
func (r *run) faulty() bool {
	if r.faultAt == 0 || r.bad == nil {
		return false
	}
	select {
	case <-r.bad.done:
		return true
	default:
		return false
	}
}

// wasFull reports whether the disk was full at some time.
func (r *run) wasFull() bool {
	if r.bad == nil || r.fault.name != "full" {
		return false
	}
	select {
	case <-r.bad.done:
		return true
	default:
		return false
	}
}

// repair is what happens after an error of a failing disk: the namenode must
// not acknowledge what it cannot keep; it is stopped, the disk repaired, and
// the namenode started again.
func (r *run) repair(may []*model) {
	r.crashes++
	if r.m != nil && r.m.nn != nil {
		may = r.probes(may)
		r.stop(r.m, true)
		r.m = nil
	}
	r.faultAt = 0
	// While the disk is still bad a start fails or tells the truth.
	sick := r.disk.Clone()
	r.fault.begin(sick)
	if m, err := boot(sick, r.wall, r.opts...); err == nil {
		r.match(m, may...)
		r.stop(m, true)
	} else if err.Error() == "" || strings.Contains(err.Error(), "panic") {
		r.failf("the start on the failing disk says: %v", err)
	}
	// Power off at once.
	r.where = ", power off"
	left := r.mustBoot(r.disk.Clone().Crash(crashfs.Strict))
	r.match(left, may...)
	r.stop(left, false)
	// Only the process is started again: it reads the page cache, and what it
	// shows from there must survive the next power failure.
	r.where = ", process started again"
	if len(r.trace) == 0 {
		// A format that failed. The folders that it made are not made again, so
		// what a failed sync forgot of them stays forgotten: it starts, but only
		// what a power failure leaves can be trusted.
		m := r.mustBoot(r.disk.Clone())
		r.match(m, may...)
		r.stop(m, false)
		r.disk = r.disk.Crash(crashfs.Strict)
	} else {
		r.disk = r.disk.Crash(crashfs.Kill)
	}
	r.m = r.mustBoot(r.disk)
	was := r.match(r.m, may...)
	r.where = ", process started again, then power off"
	r.powerFails(r.disk, was)
	r.where = ""
	r.retry(r.m, r.want, r.later)
	r.later = nil
}

// probes asks for more changes of a namenode whose disk fails. Each that is
// acknowledged counts. If it gave up it must say why, and refuse all.
func (r *run) probes(may []*model) []*model {
	ctx, cancel := background()
	defer cancel()
	rounds := 3
	for _, m := range may {
		if m.safe {
			rounds = 0 // everything is refused anyway
		}
	}
	short := false
	for i := range rounds {
		path := fmt.Sprintf("/probe-%d", i)
		c := r.by("prober").mkdir(path)
		out, err := c.send(r.m)
		if err == nil {
			c.effect(r.want, out)
			for _, m := range may {
				c.effect(m, out)
			}
			continue
		}
		if k := fserror.KindOf(err); k != fserror.NotActive && k != fserror.Unknown && k != fserror.NoSpace {
			r.failf("%s on a failing disk: %v (%v)", path, err, k)
		}
		if errors.Is(err, fserror.NoSpace) && (strings.Contains(err.Error(), "are kept for deleting") || strings.Contains(err.Error(), "disk cannot be written") || strings.Contains(err.Error(), "the block store is full")) {
			short = true // it noticed before the journal did: nothing was tried
			r.later = append(r.later, c)
			continue
		}
		if !strings.Contains(err.Error(), r.fault.says) {
			r.failf("the refusal does not say %q: %v", r.fault.says, err)
		}
		var more []*model
		for _, m := range may {
			with := m.clone()
			c.effect(with, nil)
			more = append(more, with)
		}
		may = append(may, more...)
		// What is made must not be missed by the rest of the day.
		r.later = append(r.later, c)
	}
	select {
	case <-r.m.nn.Done():
		if err := r.m.nn.Err(); err == nil || !strings.Contains(err.Error(), r.fault.says) {
			r.failf("the namenode ended and says only: %v", err)
		}
		_, err := r.m.api.Stat(ctx, &pb.StatRequest{Caller: root, At: pb.At("/")})
		if err = wire.FromStatus(err); !errors.Is(err, fserror.NotActive) && !errors.Is(err, fserror.Unavailable) {
			r.failf("a namenode whose journal failed answers: %v", err)
		}
	default:
		if len(r.later) > 0 && !short {
			r.failf("changes are refused, but the namenode keeps running")
		}
	}
	return may
}

// TestScenario47DiskFails lets the disk go bad at points of all days.
func TestScenario47DiskFails(t *testing.T) {
	t.Parallel()
	stride := size.Of(257, 7)
	type job struct {
		day day
		f   fault
		n   int
	}
	var jobs []job
	for _, d := range days {
		points := d.points(t)
		for i, f := range faults {
			for n := 1 + i; n <= points; n += stride {
				jobs = append(jobs, job{d, f, n})
			}
		}
	}
	hit := counter{}
	each(t, jobs, func(j job) error {
		r := &run{day: j.day.name, opts: j.day.opts, faultAt: j.n, fault: &j.f}
		err := r.play(j.day.script)
		hit.add(j.f.name, r.crashes)
		return err
	})
	for _, f := range faults {
		t.Logf("%s: %d times", f.name, hit.get(f.name))
		if hit.get(f.name) < 5 && !t.Failed() {
			t.Errorf("%s: only %d times", f.name, hit.get(f.name))
		}
	}
}

// TestScenario47SpaceAgain fills the disk up to the reserve: what needs space is
// refused, deleting and closing continue, and with space again all is as before.
func TestScenario47SpaceAgain(t *testing.T) {
	t.Parallel()
	disk := crashfs.New()
	const reserve = 1 << 20
	disk.Capacity(10 * reserve)
	m, err := boot(disk, epoch, func(c *namenode.Config) { c.Reserve = reserve })
	if err != nil {
		t.Fatal(err)
	}
	r := &run{day: "space again", disk: disk, m: m, want: newModel(), clients: map[string]*client{}}
	err = r.guard(func() {
		a := r.by("a")
		r.do(a.create("f", "/f", "open", false))
		r.do(a.create("g", "/g", "closed", true))
		free, total, _ := disk.Usage("/")
		disk.Capacity(total - free + reserve/2)
		n := 0
		err := r.until(m, func() error {
			n++
			c := a.create("", fmt.Sprintf("/n%d", n), "", true)
			out, err := c.send(m)
			if err == nil {
				c.effect(r.want, out)
				return errors.New("still making files on a full disk")
			}
			if !errors.Is(err, fserror.NoSpace) || !strings.Contains(err.Error(), "full") {
				r.failf("%v, want NO_SPACE and why", err)
			}
			return nil
		})
		if err != nil {
			r.failf("%v", err)
		}
		if _, err := a.flush("f", "more").send(m); !errors.Is(err, fserror.NoSpace) {
			r.failf("flush on a full disk: %v", err)
		}
		r.do(a.delete("/g"))
		r.do(a.close("f", ""))
		if _, err := a.rename("/f", "/f2").send(m); !errors.Is(err, fserror.NoSpace) {
			r.failf("rename on a full disk: %v", err)
		}
		disk.Capacity(20 * reserve)
		again := a.create("", "/again", "x", true)
		if err := r.until(m, func() error { _, err := again.send(m); return err }); err != nil {
			r.failf("with space again: %v", err)
		}
		again.effect(r.want, nil)
		r.settle(m, r.want)
		r.powerFails(disk, r.want)
		r.stop(m, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// until tries something until it succeeds, for as long as the patience lasts.
func (r *run) until(m *machine, try func() error) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if _, gone := m.disk.Stat("/"); err == nil || gone != nil {
			return err
		}
		select {
		case <-over.C:
			return err
		case <-m.nn.Done():
			return err
		case <-tick.C:
		}
	}
}
