package crash

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// variant is one way in which a machine may come back.
type variant struct {
	mode  crashfs.Mode
	seed  uint64
	again int // die once more at this point of the boot; 0: no
}

func (v variant) String() string {
	s := [...]string{"strict", "torn", "kill"}[v.mode]
	if v.mode == crashfs.Torn {
		s += fmt.Sprint(v.seed)
	}
	if v.again > 0 {
		s += fmt.Sprintf(", again at %d of the boot", v.again)
	}
	return s
}

// run is one run of a day.
type run struct {
	day      string
	opts     []option
	crashAt  int       // point of the disk, 0: never
	main     variant   // how the day continues after the crash
	branches []variant // other ways, each looked at and left
	again    int       // die again so many points after each crash; 0: no
	hasty    bool      // see day
	untried  bool      // branches look at what the crash left before the retry too
	echo     bool      // each call is sent again after a power failure
	booted   func(*machine)
	faultAt  int // point at which the disk begins to fail, 0: never
	fault    *fault

	disk    *crashfs.FS
	bad     *failing
	later   []*call     // refused by a failing disk
	points  int         // of the script
	kept    *crashfs.FS // the disk at some time of the day, and what was on it
	known   *model
	m       *machine
	wall    time.Time
	want    *model
	clients map[string]*client
	crashes int // machines that died and came back, branches included
	where   string
	trace   []string
}

// failure is what failf panics with.
type failure struct{ text string }

func (r *run) failf(format string, args ...any) {
	last := r.trace[max(0, len(r.trace)-8):]
	at := fmt.Sprintf("crash at %d (%s)", r.crashAt, r.main)
	if r.fault != nil {
		at = fmt.Sprintf("%s from %d on", r.fault.name, r.bad.at)
	}
	panic(failure{fmt.Sprintf("%s, %s%s: %s\n\tlast calls: %s", r.day, at, r.where, fmt.Sprintf(format, args...), strings.Join(last, " → "))})
}

// play runs a day from the format to the last power failure.
func (r *run) play(script func(*run)) error {
	r.disk, r.wall, r.want, r.clients = crashfs.New(r.main.seed), epoch, newModel(), map[string]*client{}
	r.disk.CrashAt(r.crashAt)
	return r.guard(func() {
		r.start()
		script(r)
		r.points = r.disk.Ops()
		r.end()
	})
}

// guard makes an error of what failf says.
func (r *run) guard(fn func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			err = errors.New(f.text)
			if r.m != nil && r.m.nn != nil {
				_ = r.m.halt()
			}
		}
	}()
	fn()
	return nil
}

// by returns the client process of that name; with /2 it is another process.
func (r *run) by(name string) *client {
	c := r.clients[name]
	if c == nil {
		stable, _, _ := strings.Cut(name, "/")
		c = &client{r: r, name: stable, session: []byte((name + "----------------")[:16])}
		r.clients[name] = c
	}
	return c
}

func died(d *crashfs.FS) bool {
	_, err := d.Stat("/")
	return errors.Is(err, crashfs.ErrCrashed)
}

// start boots on the run's disk as it is.
func (r *run) start() {
	var err error
	if r.m, err = r.boot(r.medium()); err == nil {
		return
	}
	r.fails("start", err)
	r.recover(nil, nil)
}

// fails ends the run if err has no good reason: a disk that is dead or fails.
func (r *run) fails(what string, err error) {
	if !died(r.disk) && !r.faulty() {
		r.failf("%s: %v", what, err)
	}
}

// mustBoot boots on a disk after a crash, which nothing may prevent.
func (r *run) mustBoot(d *crashfs.FS) *machine {
	m, err := r.boot(d)
	if err != nil {
		r.failf("the namenode does not start after the crash: %v", err)
	}
	return m
}

// boot boots on a disk, and has the clients come back that do so by themselves.
func (r *run) boot(d vfs.FS) (*machine, error) {
	m, err := boot(d, r.wall, r.opts...)
	if err == nil && r.booted != nil {
		r.booted(m)
	}
	return m, err
}

// stop ends a machine. Only faults of the namenode itself matter if its disk
// is dead.
func (r *run) stop(m *machine, dead bool) {
	if m == nil || m.nn == nil {
		return
	}
	if m == r.m {
		r.wall = m.clock.Wall().Add(time.Second)
	}
	if err := m.halt(); err != nil && (!dead || m.log.fault() != "") {
		r.failf("stop: %v", err)
	}
}

// restart is an orderly stop and start on the same disk.
func (r *run) restart() {
	r.trace = append(r.trace, "restart")
	r.stop(r.m, r.crashAt > 0 || r.faultAt > 0)
	r.start()
}

// do sends calls, all at once, and sees to it that each happened, whatever the
// disk does.
func (r *run) do(calls ...*call) {
	outs, errs := make([]any, len(calls)), make([]error, len(calls))
	began := r.m.clock.Mono()
	var wg sync.WaitGroup
	for i, c := range calls {
		r.trace = append(r.trace, c.name)
		if len(calls) == 1 {
			outs[i], errs[i] = c.send(r.m)
			break
		}
		wg.Go(func() { outs[i], errs[i] = c.send(r.m) })
	}
	wg.Wait()
	// Who repeats a call after a crash relies on its result, which is kept for so
	// long and no longer.
	if took := r.m.clock.Mono() - began; len(calls) > 1 && took >= tables.SessionTTL*time.Millisecond {
		r.failf("one of the calls moved the clock on by %s while the others were under way: move it before them", took)
	}
	var pending []*call
	var seen []func(*model) bool
	for i, c := range calls {
		switch {
		case errs[i] != nil:
			r.fails(c.name, errs[i])
			pending = append(pending, c)
		case c.seen != nil:
			seen = append(seen, func(m *model) bool { return c.seen(m, outs[i]) })
		default:
			c.effect(r.want, outs[i])
		}
	}
	for len(pending) > 0 {
		r.recover(pending, seen)
		seen = nil // and checked
		pending = r.sendAgain(pending)
	}
	for _, ok := range seen {
		if !ok(r.want) {
			r.failf("a reader was shown what nobody wrote")
		}
	}
	if r.echo && len(calls) == 1 {
		r.repeat(calls[0], outs[0])
	}
}

// sendAgain sends calls until the machine dies once more; it returns those that
// are still to be sent.
func (r *run) sendAgain(pending []*call) []*call {
	for i, c := range pending {
		out, err := c.send(r.m)
		if err != nil {
			r.fails(c.name+", sent again", err)
			return pending[i:]
		}
		c.effect(r.want, out)
	}
	return nil
}

// retry sends calls again, under their own ids.
func (r *run) retry(m *machine, want *model, pending []*call) {
	for _, c := range pending {
		out, err := c.send(m)
		if err != nil {
			r.failf("%s, sent again: %v", c.name, err)
		}
		c.effect(want, out)
	}
}

// candidates are the states that may be found: everything acknowledged, and of
// the calls under way any, as long as all that was shown is there.
func (r *run) candidates(pending []*call, seen []func(*model) bool) []*model {
	type effect = func(*model, any)
	var effects []effect
	for _, c := range pending {
		effects = append(effects, c.effect)
	}
	var out []*model
next:
	for set := range 1 << len(effects) {
		m := r.want.clone()
		for i, e := range effects {
			if set&(1<<i) != 0 {
				e(m, nil)
			}
		}
		for _, ok := range seen {
			if !ok(m) {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

// match wants the machine's state to be one of the candidates.
// It returns which.
func (r *run) match(m *machine, candidates ...*model) *model {
	got, err := m.state()
	if err != nil {
		r.failf("reading everything: %v", err)
	}
	return r.which(got, candidates)
}

func (r *run) which(got *model, candidates []*model) *model {
	var why []string
	for _, want := range candidates {
		d := differs(want, got)
		if d == "" {
			return want
		}
		why = append(why, d)
	}
	r.failf("the state is none of %d that may be: %s", len(candidates), strings.Join(why, "\n\tor: "))
	return nil
}

// recover takes the machine up after its disk died or failed.
func (r *run) recover(pending []*call, seen []func(*model) bool) {
	may := r.candidates(pending, seen)
	if r.faulty() {
		r.repair(may)
		return
	}
	r.stop(r.m, true)
	r.m = nil
	branches := r.branches
	if r.crashes > 0 {
		branches = nil // the day died before
	}
	for _, v := range branches {
		r.where = ", branch " + v.String()
		r.branch(r.disk.Clone(), v, may, pending)
		r.where = ""
		r.crashes++
	}
	for r.revive(may); died(r.disk); r.revive(may) {
		r.stop(r.m, true)
		r.m = nil
	}
}

// revive boots on what the crash left, and looks at it, until the next crash.
func (r *run) revive(may []*model) {
	r.crashes++
	r.disk = r.disk.Crash(r.main.mode)
	if r.again > 0 {
		r.again += 7 // further each time, so that a day has an end
		r.disk.CrashAt(r.again)
	}
	m, err := r.boot(r.disk)
	if err != nil {
		if !died(r.disk) {
			r.failf("the namenode does not start after the crash: %v", err)
		}
		return
	}
	r.m = m
	got, err := m.state()
	if err == nil {
		r.which(got, may)
	} else if !died(r.disk) {
		r.failf("reading everything: %v", err)
	}
}

// branch looks at one other way in which the machine may come back.
func (r *run) branch(dead *crashfs.FS, v variant, may []*model, pending []*call) {
	dead.Reseed(v.seed)
	disk := dead.Crash(v.mode)
	if v.again > 0 {
		disk.CrashAt(v.again)
		m, err := boot(disk, r.wall, r.opts...)
		if err != nil && !died(disk) {
			r.failf("start: %v", err)
		}
		r.stop(m, true)
		disk = disk.Crash(v.mode)
	}
	if r.untried {
		r.look(disk.Clone(), may)
	}
	m := r.mustBoot(disk)
	defer r.stop(m, false)
	r.match(m, may...)
	want := r.want.clone()
	r.retry(m, want, pending)
	r.settle(m, want)
	r.powerFails(disk, want)
}

// look wants one of the states, with the writers that go with it.
func (r *run) look(disk *crashfs.FS, may []*model) {
	m := r.mustBoot(disk)
	defer r.stop(m, false)
	r.settle(m, r.match(m, may...).clone())
}

// settle holds the machine against the model in every way there is.
func (r *run) settle(m *machine, want *model) {
	r.match(m, want)
	if want.safe {
		if _, err := r.by("operator").safeMode(false).send(m); err != nil {
			r.failf("leaving safe mode: %v", err)
		}
		want.safe = false
	}
	r.writers(m, want)
	if !r.hasty || !want.isOpen() {
		if err := m.collected(); err != nil {
			r.failf("collecting: %v", err)
		}
	}
	if err := m.fsck(); err != nil {
		r.failf("%v", err)
	}
	r.match(m, want)
}

// writers lets all writers flush: those that hold a file can, the others are
// told that they lost it.
func (r *run) writers(m *machine, want *model) {
	ctx, cancel := background()
	defer cancel()
	flush := func(w *pb.WriterId, at int) error {
		_, err := m.api.AppendTail(ctx, &pb.AppendTailRequest{Writer: w, Offset: int64(at), Data: []byte("!"), Crc32C: crc([]byte("!"))})
		return wire.FromStatus(err)
	}
	for p, n := range want.nodes {
		if n.open == nil || n.open.id == nil {
			continue
		}
		if err := flush(n.open.id, len(n.data)); err != nil {
			r.failf("the writer of %s lost it: %v", p, err)
		}
		n.data, n.mtime = n.data+"!", 0
	}
	for _, w := range want.stale {
		if err := flush(w, 0); !errors.Is(err, fserror.LeaseLost) {
			r.failf("the fenced writer %d of inode %d is told: %v", w.GetEpoch(), w.GetInode(), err)
		}
	}
}

// powerFails ends the machine with no warning, and looks at what is left.
func (r *run) powerFails(disk *crashfs.FS, want *model) {
	left := disk.Clone().Crash(crashfs.Strict)
	m := r.mustBoot(left)
	r.match(m, want)
	r.stop(m, false)
}

// end is the evening: all is checked, two images leave only what is needed.
func (r *run) end() {
	if r.bad != nil {
		r.bad.disarm() // the namenode works behind the day's back, too
	}
	if died(r.disk) || r.faulty() {
		r.recover(nil, nil)
	}
	r.disk.CrashAt(0)
	r.faultAt = 0
	r.settle(r.m, r.want)
	op := r.by("operator")
	r.do(op.checkpoint())
	r.do(op.mkdir("/evening"))
	r.do(op.checkpoint())
	left, err := r.m.litter()
	if err != nil || len(left) > 0 {
		r.failf("left on the disk for good: %v, %v", left, err)
	}
	images, err := r.disk.List(dataDir + "/image")
	if err != nil || len(images) != 2 {
		r.failf("images %v, %v; want two", images, err)
	}
	r.powerFails(r.disk, r.want)
	r.stop(r.m, false)
}
