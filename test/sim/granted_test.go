package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Granted leases live as long as their holders are promised, and not much longer than they
// are kept alive, over failovers; a file goes with the lease that it is attached to,
// and with no other.
func TestGrantedLeasesOverFailovers(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calmWorld(t, Config{
					Seed: seed, Faults: regexp.MustCompile("^(crash|restart|depose|cut a|slow|reset|forget|break|expire|lose|have a machine|have a ZooKeeper|stop|isolate|leave)"),
				}, 7, func(c *worker) { c.plain = seed%2 == 0 })
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				must(t, w.operator.connect(ctx)) // the operator is never cut off
				var tenants []*tenant
				var working sync.WaitGroup
				for i, c := range w.clients {
					at := &tenant{c: c, w: w, rand: w.rand("tenant", i), dir: "/leased/" + c.name}
					tenants = append(tenants, at)
					working.Go(func() { at.work(ctx) })
					working.Go(func() { at.watch(ctx, w.operator.fs) })
				}
				w.faults(ctx, 0)
				working.Wait()
				for _, at := range tenants {
					at.stop()
				}
				<-time.After(2*longestTTL + settled)
				for _, at := range tenants {
					at.check(t.Context())
				}
				t.Log(w.Done())
				w.check(t)
			})
		})
	}
}

// longestTTL is what tenants ask for at most.
const longestTTL = 15 * time.Second

// tenant is a client that has granted leases with files, up to three alive at a time, and
// knows what must exist.
type tenant struct {
	c      *worker
	w      *World
	rand   *rand.Rand
	dir    string
	number int
	leases []*tenancy
	files  []*tenanted
	seen   atomic.Pointer[[]sight]
}

// sight is a file that must exist for as long as a lease is promised.
type sight struct {
	path  string
	kept  *client.KeptLease
	stops int
}

// show says what must exist, except for a file that is about to be renamed.
func (at *tenant) show(but *tenanted) {
	var all []sight
	for _, f := range at.files {
		if l := f.lease; f != but && !f.unsure && !f.gone && l != nil && l.kept != nil {
			all = append(all, sight{f.path, l.kept, l.stops})
		}
	}
	at.seen.Store(&all)
}

// watch has another client check, even while this one is cut off, that what must exist does.
func (at *tenant) watch(ctx context.Context, eyes *client.FS) {
	r := at.w.rand("watch of "+at.c.name, 0)
	for ; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
		all := at.seen.Load()
		if all == nil || len(*all) == 0 {
			continue
		}
		s := (*all)[r.IntN(len(*all))]
		_, err := eyes.Stat(ctx, s.path)
		if !errors.Is(err, fserror.NotFound) || s.kept.Remaining() <= 0 || at.c.stoodSince(s.stops) {
			continue
		}
		if now := at.seen.Load(); slices.Contains(*now, s) {
			at.w.truth.broken("%s is gone while its lease is alive for %v more, as %s was promised", s.path, s.kept.Remaining(), at.c.name)
		}
	}
}

// tenancy is a granted lease.
type tenancy struct {
	id    client.LeaseID
	kept  *client.KeptLease // nil: nobody keeps it alive, or it has ended
	stops int               // how often the client's machine had stood still when it was granted
	until time.Time         // when it ends at the earliest, as its holder was promised
	ended time.Time         // when it was known to have ended; zero: it is not
}

// tenanted is a file.
type tenanted struct {
	path   string
	lease  *tenancy // nil: it is attached to none
	unsure bool     // a call about it ended without an answer
	gone   bool     // it was seen to be gone, as it may be
}

func (at *tenant) work(ctx context.Context) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		at.hear()
		live := slices.DeleteFunc(slices.Clone(at.leases), func(l *tenancy) bool { return l.kept == nil })
		switch what := at.rand.IntN(16); {
		case len(live) == 0, len(live) < 3 && what == 12:
			at.grant(call, ctx)
		case what < 5:
			at.create(call, live[at.rand.IntN(len(live))])
		case what < 7:
			at.attach(call, live[at.rand.IntN(len(live))])
		case what == 7:
			at.detach(call)
		case what == 8:
			at.rename(call)
		case what == 9:
			at.revoke(call, live[at.rand.IntN(len(live))])
		case what == 10: // it ends by itself
			l := live[at.rand.IntN(len(live))]
			l.kept.Stop()
			l.kept = nil
		case what == 11 && at.rand.IntN(4) == 0:
			at.stop() // before it dies: nobody hears of them any more
			at.c.die(ctx)
		default:
			at.look(call)
		}
		cancel()
		at.show(nil)
		at.c.pause(ctx, time.Second)
	}
}

// hear notes what is promised of each lease, and which have ended.
func (at *tenant) hear() {
	for _, l := range at.leases {
		if l.kept == nil {
			continue
		}
		now := time.Now()
		if l.kept.Context().Err() == nil {
			if left := l.kept.Remaining(); left > 0 {
				l.until = now.Add(left)
			}
			continue
		}
		if why := context.Cause(l.kept.Context()); errors.Is(why, fserror.NotFound) {
			if now.Before(l.until) && !at.c.stoodSince(l.stops) {
				at.w.truth.broken("%s is told that lease %v has ended %v before it could: %v", at.c.name, l.id, l.until.Sub(now), why)
			}
			l.ended = now
		}
		l.kept = nil
	}
}

func (at *tenant) stop() {
	for _, l := range at.leases {
		if l.kept != nil {
			l.kept.Stop()
			l.kept = nil
		}
	}
}

// failed takes the error of a call, and reports whether it failed for a reason other than
// that something has ended.
func (at *tenant) failed(what string, err error) bool {
	at.w.log.note(at.c.name, "%s: %v", what, err)
	switch {
	case err == nil:
		at.w.truth.did(what)
	case !expected(err) && !errors.Is(err, fserror.NotFound):
		at.w.truth.broken("%s: %s: %v", at.c.name, what, err)
	}
	return err != nil
}

func (at *tenant) grant(call, ctx context.Context) {
	_, stops := at.c.clock.stands()
	ttl := time.Second + time.Duration(at.rand.Int64N(int64(longestTTL-time.Second)))
	name := fmt.Sprintf("%s-%d", at.c.name, at.rand.IntN(6)) // only this tenant uses it
	granting := func() (client.Granted, error) { return at.c.fs.Leases().GrantNamed(call, ttl, name) }
	named := name[len(name)-1] < '3'
	if !named {
		granting = func() (client.Granted, error) { return at.c.fs.Leases().Grant(call, ttl, 0) }
	}
	g, err := granting()
	if named && errors.Is(err, fserror.Exists) || at.failed("grant", err) {
		return // or an earlier lease has the name
	}
	if named {
		id, err := at.c.fs.Leases().Find(call, name)
		if err == nil && id != g.ID {
			at.w.truth.broken("%s: lease %s was granted as %s, which leads to %s", at.c.name, g.ID, name, id)
		} else if !errors.Is(err, fserror.NotFound) { // it may have ended since
			at.failed("find", err)
		}
	}
	l := &tenancy{id: g.ID, stops: stops}
	at.leases = append(at.leases, l)
	if l.kept, err = at.c.fs.Leases().KeepAlive(ctx, g.ID); at.failed("keep alive", err) {
		l.kept = nil
	}
}

func (at *tenant) create(call context.Context, l *tenancy) {
	at.number++
	f := &tenanted{path: fmt.Sprintf("%s/f%d", at.dir, at.number)}
	opts := []client.OpenOption{client.WithParents()}
	if at.rand.IntN(3) > 0 {
		f.lease, opts = l, append(opts, client.WithLease(l.id))
	}
	err := at.c.fs.WriteFile(call, f.path, []byte(f.path), opts...)
	if at.failed("create", err) {
		if errors.Is(err, fserror.NotFound) { // the lease has ended
			return
		}
		f.unsure = true
	}
	at.files = append(at.files, f)
}

// some is a file that may be there, nil if there is none.
func (at *tenant) some() *tenanted {
	there := slices.DeleteFunc(slices.Clone(at.files), func(f *tenanted) bool { return f.gone || f.lease != nil && !f.lease.ended.IsZero() })
	if len(there) == 0 {
		return nil
	}
	return there[at.rand.IntN(len(there))]
}

func (at *tenant) attach(call context.Context, l *tenancy) {
	f := at.some()
	if f == nil {
		return
	}
	if err := at.c.fs.Leases().Attach(call, l.id, f.path); at.failed("attach", err) {
		f.unsure = true
		return
	}
	f.lease, f.unsure = l, false
}

func (at *tenant) detach(call context.Context) {
	f := at.some()
	if f == nil {
		return
	}
	if err := at.c.fs.Leases().Detach(call, f.path); at.failed("detach", err) {
		f.unsure = true
		return
	}
	f.lease, f.unsure = nil, false
}

func (at *tenant) rename(call context.Context) {
	f := at.some()
	if f == nil || f.unsure {
		return
	}
	at.show(f)
	at.number++
	to := fmt.Sprintf("%s/r%d", at.dir, at.number)
	if err := at.c.fs.Rename(call, f.path, to, false); at.failed("rename", err) {
		f.unsure = true
		at.files = append(at.files, &tenanted{path: to, lease: f.lease, unsure: true})
		return
	}
	f.path = to
}

func (at *tenant) revoke(call context.Context, l *tenancy) {
	l.kept.Stop()
	l.kept = nil
	at.show(nil)
	if err := at.c.fs.Leases().Revoke(call, l.id); !at.failed("revoke", err) || errors.Is(err, fserror.NotFound) {
		l.ended = time.Now()
	}
}

// look checks that one file exists for as long as it must, and no longer.
func (at *tenant) look(call context.Context) {
	there := slices.DeleteFunc(slices.Clone(at.files), func(f *tenanted) bool { return f.gone })
	if len(there) == 0 {
		return
	}
	f := there[at.rand.IntN(len(there))]
	asked := time.Now()
	_, err := at.c.fs.Stat(call, f.path)
	missing := errors.Is(err, fserror.NotFound)
	switch {
	case f.unsure:
		f.gone = missing
	case missing && f.lease == nil:
		at.w.truth.broken("%s: %s is gone, and is attached to no lease", at.c.name, f.path)
	case missing && f.lease.kept != nil && f.lease.kept.Remaining() > 0 && !at.c.stoodSince(f.lease.stops):
		at.w.truth.broken("%s: %s is gone while lease %v is certainly alive", at.c.name, f.path, f.lease.id)
	case missing:
		f.gone = true
	case err == nil && f.lease != nil && !f.lease.ended.IsZero() && asked.Sub(f.lease.ended) > 2*settled:
		at.w.truth.broken("%s: %s is there %v after its lease %v was known to have ended", at.c.name, f.path, asked.Sub(f.lease.ended), f.lease.id)
	case err == nil:
		at.w.truth.did("look")
	}
}

// check checks that all leases have ended, with their files, and that all other files exist.
func (at *tenant) check(ctx context.Context) {
	for _, l := range at.leases {
		if ttl, err := at.c.fs.Leases().TimeToLive(ctx, l.id, true); !errors.Is(err, fserror.NotFound) {
			at.w.truth.broken("%s: nobody keeps lease %v alive, and it is there: %+v, %v", at.c.name, l.id, ttl, err)
		}
	}
	for _, f := range at.files {
		if f.unsure || f.gone {
			continue
		}
		switch data, err := at.c.fs.ReadFile(ctx, f.path); {
		case f.lease == nil && err != nil:
			at.w.truth.broken("%s: %s is attached to no lease, and cannot be read: %v", at.c.name, f.path, err)
		case f.lease != nil && !errors.Is(err, fserror.NotFound):
			at.w.truth.broken("%s: %s is there, and its lease %v has ended: %d bytes, %v", at.c.name, f.path, f.lease.id, len(data), err)
		}
	}
}
