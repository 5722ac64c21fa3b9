package crash

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// sweep plays a script with a crash at each of its points from the first on that
// counts; every branch is looked at before anything is sent again, too. It
// returns how many points there were.
func sweep(t *testing.T, d day, first func(*run) int) int {
	t.Helper()
	dry := &run{day: d.name, opts: d.opts, hasty: d.hasty}
	if err := dry.play(d.script); err != nil {
		t.Fatal(err)
	}
	from := 1
	if first != nil {
		from = first(dry)
	}
	var points atomic.Int64
	var jobs []int
	for n := from; n <= dry.points; n++ {
		jobs = append(jobs, n)
	}
	several(t, 16, jobs, func(n int) error { // they wait more than they work
		r := &run{day: d.name, opts: d.opts, hasty: d.hasty, crashAt: n, untried: true}
		r.branches = []variant{{mode: crashfs.Kill}, {mode: crashfs.Torn, seed: uint64(n)}}
		err := r.play(d.script)
		points.Add(int64(r.crashes))
		return err
	})
	return int(points.Load())
}

// TestScenario27RecoveryIsOneRecord: after a crash before, in and after the
// record that recovers a file it is untouched and its writer continues, or closed
// (or another's) under a new epoch and the old writer fenced; never between.
func TestScenario27RecoveryIsOneRecord(t *testing.T) {
	t.Parallel()
	short := func(c *namenode.Config) { c.SoftLimit, c.HardLimit = 100*time.Millisecond, 150*time.Millisecond }
	for _, way := range []struct {
		name string
		opts []option
		take func(r *run)
	}{
		{"recover --force", nil, func(r *run) { r.do(r.by("b").recover("/f")) }},
		{"append past the soft limit", nil, func(r *run) { r.do(r.by("b").appendTo("f", "/f", 61*time.Second)) }},
		{"append by a new process", nil, func(r *run) { r.do(r.by("a/2").appendTo("f", "/f", 0)) }},
		{"close by a new process", nil, func(r *run) { r.do(r.by("a/2").closeAbandoned("/f")) }},
		{"create over it past the soft limit", nil, func(r *run) {
			c := r.by("b").create("f2", "/f", "b's", false, overwrite)
			send := c.send
			c.send = func(m *machine) (any, error) { m.clock.Advance(61 * time.Second); return send(m) }
			r.do(c)
		}},
		{"hard limit", []option{short}, func(r *run) { r.do(r.by("b").expires("/f")) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			began := 0
			points := sweep(t, day{way.name, func(r *run) {
				a := r.by("a")
				r.do(a.create("f", "/f", "flushed", false))
				r.do(a.flush("f", " too"))
				if r.crashAt == 0 {
					began = r.disk.Ops()
				}
				way.take(r)
			}, way.opts, way.opts != nil}, func(*run) int { return began })
			t.Logf("%d points", points)
			if points < 6 {
				t.Errorf("only %d points", points)
			}
		})
	}
}

// expires lets the hard limit pass and waits until the monitor has closed the
// file.
func (c *client) expires(path string) *call {
	q := &pb.StatRequest{Caller: c.who(), At: pb.At(path)}
	return &call{name: path + " expires", send: func(m *machine) (any, error) {
		m.clock.Advance(time.Second)
		return nil, c.r.until(m, func() error {
			ctx, cancel := background()
			defer cancel()
			st, err := m.api.Stat(ctx, q)
			if err == nil && st.GetAttr().GetOpen() != nil {
				m.clock.Advance(time.Millisecond)
				err = errors.New("still open")
			}
			return err
		})
	}, effect: func(m *model, _ any) { m.fence(m.nodes[path]); m.nodes[path].mtime = 0 }}
}

// pressed is how many bytes of tails make the namenode seal them in that day.
const pressed = 3000

// TestScenario46ColdTails is a day on which the namenode seals tails by itself,
// and merges them with the short blocks before them.
func TestScenario46ColdTails(t *testing.T) {
	t.Parallel()
	tight := func(c *namenode.Config) { c.TailBudget = 2 * pressed } // beyond a half of it tails are sealed each second
	began := 0
	points := sweep(t, day{"cold tails", func(r *run) {
		a := r.by("a")
		r.do(a.create("f", "/f", "", false))
		a.put("f", text("a long block", 5000))
		r.do(a.close("f", text("not merged", 1240)))
		r.do(a.create("g", "/g", "", false))
		a.put("g", text("a short block", 100))
		r.do(a.close("g", text("merged", 1200)))
		if r.crashAt == 0 {
			began = r.disk.Ops()
		}
		r.do(a.create("h", "/h", text("alone", 1100), true)) // the one too many
		r.do(a.sealed("/f", 2))                              // the longest first
		r.do(a.create("i", "/i", text("again", 1000), true))
		r.do(a.sealed("/g", 1))
		r.do(a.appendTo("g", "/g", 0))
		r.do(a.flush("g", "open tails stay"))
	}, []option{tight}, false}, func(*run) int { return began })
	t.Logf("%d points", points)
	if points < 20 {
		t.Errorf("only %d points", points)
	}
}

// sealed waits until a file has so many blocks and no tail, or until there is no
// reason any more to seal it.
func (c *client) sealed(path string, blocks uint64) *call {
	q := &pb.StatRequest{Caller: c.who(), At: pb.At(path)}
	return &call{name: "seal of " + path, send: func(m *machine) (any, error) {
		return nil, c.r.until(m, func() error {
			ctx, cancel := background()
			defer cancel()
			if _, err := m.disk.Stat("/"); err != nil {
				return err
			}
			st, err := m.api.Stat(ctx, q)
			if err != nil {
				return err
			}
			all, err := m.admin.Status(ctx, &pb.StatusRequest{Caller: root})
			if err != nil {
				return err
			}
			if a := st.GetAttr(); a.GetTailLength() > 0 && all.GetTailBytes() > pressed || a.GetTailLength() == 0 && a.GetBlocks() != blocks {
				return errors.New("not sealed")
			}
			return nil
		})
	}, effect: nothing}
}
