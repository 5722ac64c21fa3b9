package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/share"
)

// A change is the next record: applied, journalled as it was applied, and told of, under
// a time that does not go back.
func TestDo(t *testing.T) {
	r := newRig(t)
	first := r.must(r.Do(t.Context(), mkdir("/a").numbered(7, 1)))
	r.clock.ShiftWall(-time.Hour)
	second := r.must(r.Do(t.Context(), mkdir("/b").numbered(7, 2)))
	if !r.there("/a") || !r.there("/b") || first.TxID != 2 || second.TxID != 3 || first.Inode == 0 || first.Repeat || first.Noop {
		t.Errorf("%+v, %+v", first, second)
	}
	for i, e := range r.rooms.applied {
		typ, body := namespace.EncodeOp(nil, e.Call, e.Op)
		if rec := r.journal.records[i]; rec.TxID != e.TxID || rec.Time != e.Time || rec.Type != typ || string(rec.Body) != string(body) || e.TxID != uint64(i+1) { //nolint:gosec // an index
			t.Errorf("record %d: %+v was applied as %+v", i, rec, e)
		}
	}
	if n := len(r.rooms.applied); n != 3 || r.rooms.applied[2].Time < r.rooms.applied[1].Time || r.rooms.applied[1].Time != start {
		t.Errorf("%d records, %+v", n, r.rooms.applied)
	}
}

// A call that happened before gets its first answer, whatever would stand against it now.
func TestRepeatedCall(t *testing.T) {
	r := newRig(t)
	req := mkdir("/a").numbered(7, 1)
	first := r.must(r.Do(t.Context(), req))
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpSafeMode{On: true})}))
	r.rooms.refuse, r.rooms.admit, r.journal.backlog = errTest, errTest, maxBacklog+1
	r.unchanged("the repeated call", func() {
		again := r.must(r.Do(t.Context(), req))
		if !again.Repeat || again.CallResult != first.CallResult {
			t.Errorf("%+v, first %+v", again, first)
		}
	})
}

// Where there is nothing to change, nothing is.
func TestNoop(t *testing.T) {
	r := newRig(t)
	for name, req := range map[string]Request{
		"of the namenode": {Plan: plans(nil)},
		"of a caller":     {Call: new(namespace.Call), Plan: plans(nil)},
		"of a known call": Request{Call: new(namespace.Call), Plan: plans(nil)}.numbered(7, 1),
		"of a typed nil":  {Plan: func(*Tx) (namespace.Op, error) { return OrNil[namespace.OpMkdir](nil, nil) }},
	} {
		r.unchanged(name, func() {
			if out := r.must(r.Do(t.Context(), req)); !out.Noop {
				t.Errorf("%s: %+v", name, out)
			}
		})
	}
	if op, err := OrNil(&namespace.OpMkdir{}, errTest); op != nil || !errors.Is(err, errTest) {
		t.Error(op, err)
	}
}

// What is refused changes nothing, and the refusals have an order: the reign, the room
// (of a call with an id before its plan, of others after), the plan, the rooms.
func TestRefusals(t *testing.T) {
	plan := func(*Tx) (namespace.Op, error) { return nil, fserror.New(fserror.Exists, "", "", "x") }
	safe := func(r *rig) {
		r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpSafeMode{On: true})}))
	}
	for _, c := range []struct {
		name        string
		set         func(*rig)
		plan        func(*Tx) (namespace.Op, error) // nil: it would be made
		known, grow bool
		want        error // what the error is; nil: it is made
	}{
		{name: "not active", set: func(r *rig) { r.reign.active = errTest }, plan: plan, known: true, want: errTest},
		{name: "safe mode", set: safe, want: fserror.Retry},
		{name: "safe mode before the plan", set: safe, plan: plan, known: true, want: fserror.Retry},
		{name: "the plan before safe mode", set: safe, plan: plan, want: fserror.Exists},
		{name: "no room", set: func(r *rig) { r.rooms.admit = errTest }, grow: true, want: errTest},
		{name: "no room before the plan", set: func(r *rig) { r.rooms.admit = errTest }, plan: plan, grow: true, known: true, want: errTest},
		{name: "no room for what takes none", set: func(r *rig) { r.rooms.admit = errTest }},
		{name: "the disk is behind", set: func(r *rig) { r.journal.backlog = maxBacklog + 1 }, want: fserror.Retry},
		{name: "the disk is nearly behind", set: func(r *rig) { r.journal.backlog = maxBacklog }},
		{name: "a room refuses", set: func(r *rig) { r.rooms.refuse = errTest }, want: errTest},
		{name: "the plan before a room", set: func(r *rig) { r.rooms.refuse = errTest }, plan: plan, want: fserror.Exists},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.set(r)
			req := mkdir("/a")
			if c.plan != nil {
				req.Plan = c.plan
			}
			if req.Grows = c.grow; c.known {
				req = req.numbered(7, 1)
			}
			if c.want == nil {
				r.must(r.Do(t.Context(), req))
				return
			}
			r.unchanged(c.name, func() {
				if _, err := r.Do(t.Context(), req); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			})
			if len(r.reign.failed) > 0 {
				t.Errorf("the reign ended: %v", r.reign.failed)
			}
		})
	}
}

// The namenode's own changes are made in safe mode, and however little room there is.
func TestOwnChanges(t *testing.T) {
	r := newRig(t)
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpSafeMode{On: true})}))
	r.rooms.admit, r.journal.backlog = errTest, maxBacklog+1
	r.must(r.Do(t.Context(), Request{Grows: true, Plan: plans(&namespace.OpGrant{ID: 5, TTL: 1000, Owner: namespace.Owner{User: "ann"}})}))
	if r.Granted() != 1 {
		t.Error("nothing was granted")
	}
}

// After End nothing is applied, not even the namenode's own work, and what runs only
// while the reign lasts does not.
func TestEnd(t *testing.T) {
	r := newRig(t)
	ran := 0
	r.WhileItLasts(func() { ran++ })
	if ran != 1 || r.Over() {
		t.Fatal("it is over before its end")
	}
	r.End(func() {
		if r.Over() || r.mu.TryRLock() {
			t.Error("the last work is not under the lock, before the end")
		}
	})
	r.reign.active = errTest
	r.WhileItLasts(func() { ran++ })
	r.unchanged("after the end", func() {
		if _, err := r.Do(t.Context(), Request{Plan: plans(&namespace.OpSafeMode{On: true})}); !errors.Is(err, errTest) {
			t.Error(err)
		}
	})
	if ran != 1 || !r.Over() {
		t.Errorf("over: %t, work ran %d times", r.Over(), ran)
	}
}

// A planned record that does not apply is a fault of the program: an error that changes
// and journals nothing, and does not end the reign.
func TestMisfit(t *testing.T) {
	r := newRig(t)
	r.unchanged("the misfit", func() {
		_, err := r.Do(t.Context(), Request{Plan: plans(&namespace.OpMkdir{Parent: 4711, Names: []string{"a"}})})
		wantKind(t, "a record that does not apply", err, fserror.Internal)
	})
	if len(r.reign.failed) > 0 || len(r.logged) != 1 {
		t.Error(r.reign.failed, r.logged)
	}
}

// A journal that takes nothing, or confirms nothing, ends the reign; the caller hears
// what the reign says, not the journal.
func TestBrokenJournal(t *testing.T) {
	for _, broken := range []error{journal.ErrFailed, journal.ErrFenced, journal.ErrClosed} {
		r := newRig(t)
		r.journal.hold()
		done := begins(func() error { _, err := r.Do(t.Context(), mkdir("/a")); return err })
		r.journal.release(fmt.Errorf("%w: x", broken))
		wantKind(t, broken.Error(), <-done, fserror.NotActive)
		if !r.failedWith(broken) {
			t.Errorf("%v: failed with %v", broken, r.reign.failed)
		}
	}
	r := newRig(t)
	r.journal.refuse = journal.ErrFull
	_, err := r.Do(t.Context(), mkdir("/a"))
	wantKind(t, "not appended", err, fserror.NotActive)
	if !r.failedWith(journal.ErrFull) {
		t.Errorf("failed with %v", r.reign.failed)
	}
}

// A panic in the middle of a change ends the reign, and is not caught.
func TestPanicEndsTheReign(t *testing.T) {
	r := newRig(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was caught")
			}
		}()
		_ = r.Update(func(*Tx) error { panic("x") })
	}()
	if len(r.reign.failed) != 1 {
		t.Errorf("failed with %v", r.reign.failed)
	}
	if err := r.Update(func(*Tx) error { return errTest }); !errors.Is(err, errTest) || len(r.reign.failed) != 1 {
		t.Errorf("an error: %v, failed with %v", err, r.reign.failed)
	}
}

// No answer is given before what it shows is durable: of a change, of a read, of an
// error, of a call without a change, of a copy of the tree.
func TestAnswersWaitUntilDurable(t *testing.T) {
	call := &namespace.Call{User: "root", Super: true}
	stat := func(tx *Tx) error { _, err := tx.Tree.Stat(call, namespace.At("/a")); return err }
	for name, c := range map[string]struct {
		do   func(context.Context, *rig) error
		want error
	}{
		"a change": {func(ctx context.Context, r *rig) error { _, err := r.Do(ctx, mkdir("/a/b")); return err }, nil},
		"a read":   {func(ctx context.Context, r *rig) error { return r.View(ctx, call, stat) }, nil},
		"a failed read": {func(ctx context.Context, r *rig) error {
			return r.View(ctx, call, func(tx *Tx) error { _ = stat(tx); return errTest })
		}, errTest},
		"an error of a change": {func(ctx context.Context, r *rig) error { _, err := r.Do(ctx, mkdir("/a")); return err }, fserror.Exists},
		"nothing to change": {func(ctx context.Context, r *rig) error {
			_, err := r.Do(ctx, Request{Call: call, Plan: func(tx *Tx) (namespace.Op, error) { return nil, stat(tx) }})
			return err
		}, nil},
		"a copy of the tree": {func(ctx context.Context, r *rig) error { _, err := r.Snapshot(ctx); return err }, nil},
		"a change with an Answer": {answered(func(ctx context.Context, r *rig) error {
			_, err := r.DoAnswer(ctx, mkdir(fmt.Sprintf("/a/%d", r.last())))
			return err
		}), nil},
		"an error with an Answer": {answered(func(ctx context.Context, r *rig) error { _, err := r.DoAnswer(ctx, mkdir("/a")); return err }), fserror.Exists},
		"a read with an Answer":   {answered(func(ctx context.Context, r *rig) error { return r.ViewAnswer(ctx, call, stat) }), nil},
		"two reads with an Answer": {answered(func(ctx context.Context, r *rig) error {
			return errors.Join(r.ViewAnswer(ctx, call, stat), r.ViewAnswer(ctx, &namespace.Call{User: "root", Super: true}, func(*Tx) error { return nil }))
		}), nil},
		"an Answer to nobody": {func(ctx context.Context, r *rig) error { return r.ViewAnswer(ctx, call, stat) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				*call = namespace.Call{User: "root", Super: true}
				r.journal.hold()
				out, wait, err := r.Submit(t.Context(), mkdir("/a")) // applied, and not durable
				if err != nil || wait != out.TxID || wait != 2 {
					t.Fatal(out, wait, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				gone := begins(func() error { return c.do(ctx, r) })
				synctest.Wait()
				pending(t, name, gone)
				cancel()
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Errorf("whose context has ended: %v", err)
				}
				*call = namespace.Call{User: "root", Super: true}
				done := begins(func() error {
					if name == "a change" { // the first has made it by now
						_, err := r.Do(t.Context(), mkdir("/a/c"))
						return err
					}
					return c.do(t.Context(), r)
				})
				synctest.Wait()
				pending(t, name, done)
				r.journal.release(nil)
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if len(r.reign.failed) > 0 {
					t.Errorf("failed with %v", r.reign.failed)
				}
			})
		})
	}
}

// answered gives a call an Answer. The call itself must not wait.
func answered(do func(context.Context, *rig) error) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		ctx, a := WithAnswer(ctx, func(context.Context) { r.t.Error("the call waits by itself") })
		err := do(ctx, r)
		if a.Ready() != (r.Facts().Last == r.journal.Durable()) {
			r.t.Errorf("the answer is ready: %t", a.Ready())
		}
		if werr := a.Wait(ctx); werr != nil {
			return werr
		}
		return err
	}
}

// A call that waits for the disk by itself says so before, and only if it has to.
func TestCallsSayThatTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		said := 0
		ctx, a := WithAnswer(t.Context(), func(context.Context) { said++ })
		if err := r.WaitDurable(ctx, r.last()); err != nil || said > 0 {
			t.Errorf("of what is durable: %v, said %d times", err, said)
		}
		r.journal.hold()
		done := begins(func() error { _, err := r.Do(ctx, mkdir("/a")); return err })
		synctest.Wait()
		pending(t, "a change", done)
		r.journal.release(nil)
		if err := <-done; err != nil || said != 1 || !a.Ready() {
			t.Errorf("%v, said %d times, ready: %t", err, said, a.Ready())
		}
	})
}

// An answer that cannot be given says why, in the place of what the call said: that of a call that has
// changed something, that its outcome is not known, since the record may become durable yet.
func TestAnswersOfABrokenJournal(t *testing.T) {
	call := &namespace.Call{User: "root", Super: true}
	stat := func(tx *Tx) error { _, err := tx.Tree.Stat(call, namespace.At("/a")); return err }
	nobody := func(context.Context) {}
	for name, c := range map[string]struct {
		do   func(context.Context, *rig) error
		want fserror.Kind
	}{
		"a read with an Answer":   {func(ctx context.Context, r *rig) error { return r.ViewAnswer(ctx, call, stat) }, fserror.NotActive},
		"a read":                  {func(ctx context.Context, r *rig) error { return r.View(ctx, call, stat) }, fserror.NotActive},
		"a change with an Answer": {func(ctx context.Context, r *rig) error { _, err := r.DoAnswer(ctx, mkdir("/a/b")); return err }, fserror.Unknown},
		"a change":                {func(ctx context.Context, r *rig) error { _, err := r.Do(ctx, mkdir("/a/b")); return err }, fserror.Unknown},
	} {
		for ended, breaks := range map[string]func(*rig, context.CancelFunc){
			"the journal breaks": func(r *rig, _ context.CancelFunc) { r.journal.release(journal.ErrFenced) },
			"the window closes": func(r *rig, _ context.CancelFunc) {
				r.reign.window = fserror.New(fserror.NotActive, "", "", "the window is closed")
				r.journal.release(nil)
			},
			"its time is over": func(_ *rig, over context.CancelFunc) { over() },
		} {
			t.Run(name+", "+ended, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					*call = namespace.Call{User: "root", Super: true}
					r.journal.hold()
					if _, _, err := r.Submit(t.Context(), mkdir("/a")); err != nil {
						t.Fatal(err)
					}
					ctx, over := context.WithCancel(t.Context())
					defer over()
					ctx, a := WithAnswer(ctx, nobody)
					done := begins(func() error {
						if err := c.do(ctx, r); err != nil {
							return err
						}
						return a.Wait(ctx)
					})
					synctest.Wait()
					pending(t, "an answer", done)
					breaks(r, over)
					err := <-done
					if c.want == fserror.NotActive && ended == "its time is over" {
						if !errors.Is(err, context.Canceled) || fserror.KindOf(err) == fserror.Unknown {
							t.Error(err)
						}
						return
					}
					wantKind(t, "an answer", err, c.want)
					if ended == "the journal breaks" && !r.failedWith(journal.ErrFenced) {
						t.Errorf("failed with %v", r.reign.failed)
					}
				})
			})
		}
	}
}

// A read of what is durable does not wait for what is not; outside the window nothing is
// answered.
func TestReadsOfWhatIsDurable(t *testing.T) {
	r := newRig(t)
	r.must(r.Do(t.Context(), mkdir("/a")))
	r.journal.hold()
	defer r.journal.release(nil)
	if _, _, err := r.Submit(t.Context(), mkdir("/b")); err != nil {
		t.Fatal(err)
	}
	call := &namespace.Call{User: "root", Super: true}
	look := func(tx *Tx) error {
		if to := tx.ListedTo(); to != 2 {
			t.Errorf("all up to %d are durable, want 2", to)
		}
		_, err := tx.Tree.Stat(call, namespace.At("/a"))
		return err
	}
	if err := r.View(t.Context(), call, look); err != nil {
		t.Error(err)
	}
	r.reign.window = errTest
	if err := r.View(t.Context(), call, look); !errors.Is(err, errTest) {
		t.Errorf("outside the window: %v", err)
	}
	r.reign.active = errTest
	if err := r.Read(func(*Tx) error { t.Error("it was read"); return nil }); !errors.Is(err, errTest) {
		t.Errorf("not active: %v", err)
	}
	if _, err := r.Snapshot(t.Context()); !errors.Is(err, errTest) {
		t.Errorf("a copy while not active: %v", err)
	}
}

// A copy of the tree stays as it was.
func TestCopiesStay(t *testing.T) {
	r := newRig(t)
	snapshot, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	clone := r.Clone()
	r.must(r.Do(t.Context(), mkdir("/a")))
	for _, tree := range []*namespace.Tree{snapshot, clone} {
		if last, _ := tree.Last(); last != 1 || tree.Counts().Dirs != r.Facts().Dirs-1 {
			t.Errorf("a copy is as of %d with %d directories", last, tree.Counts().Dirs)
		}
	}
	if f := r.Facts(); f.Last != 2 || f.Term != 1 || f.SafeMode {
		t.Errorf("%+v", f)
	}
	if user, group := r.Superuser(); user != "root" || group != "wheel" {
		t.Error(user, group)
	}
}

// Who follows applies what others wrote; its reign continues from their time, but not from
// later than it can be, whatever its own time of day is.
func TestFollow(t *testing.T) {
	r := newRig(t)
	const later = start + 3600_000
	if err := r.Follow(later, func(tree *namespace.Tree) error {
		_, err := tree.Apply(namespace.Entry{TxID: 2, Time: later, Op: &namespace.OpSafeMode{On: true}})
		return err
	}); err != nil || !r.Facts().SafeMode {
		t.Fatal(err, r.Facts())
	}
	if err := r.Follow(later, func(*namespace.Tree) error { return errTest }); !errors.Is(err, errTest) {
		t.Error(err)
	}
	r.clock.ShiftWall(100 * time.Hour)
	r.Idle(time.Minute)
	r.BeginReign(2)
	if now := r.Now(); now != later+60_000 {
		t.Errorf("the reign begins %d ms after the last record, want a minute", now-later)
	}
	if len(r.logged) > 0 {
		t.Errorf("logged %q", r.logged)
	}
}

// A reign that begins long after the last record says so.
func TestLongStop(t *testing.T) {
	for _, c := range []struct {
		stop time.Duration
		told int
	}{{longStop, 0}, {longStop + time.Second, 1}} {
		r := newRig(t)
		e := New(r.cfg)
		r.clock.Advance(c.stop)
		e.Open(r.Clone(), r.journal)
		e.BeginReign(2)
		if len(r.logged) != c.told {
			t.Errorf("after %s: logged %q", c.stop, r.logged)
		}
	}
}

// A change waits until the sessions that keep what it changes have given that up, is
// planned again, and only then made; nobody can keep it meanwhile.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.must(r.Do(t.Context(), mkdir("/a")))
		c := r.caches(7)
		if !r.keeps(c, "/a", false) {
			t.Fatal("not lent")
		}
		planned := 0
		req := mkdir("/a/b")
		plan := req.Plan
		req.Plan = func(tx *Tx) (namespace.Op, error) { planned++; return plan(tx) }
		done := begins(func() error { _, err := r.Do(t.Context(), req); return err })
		told := <-c.told
		synctest.Wait()
		pending(t, "the change", done)
		if r.there("/a/b") || r.rooms.parked != 1 || r.keeps(c, "/a", false) {
			t.Errorf("made: %t, parked: %d, or lent", r.there("/a/b"), r.rooms.parked)
		}
		r.must(r.Do(t.Context(), mkdir("/other"))) // nobody keeps the root
		r.Caches().Ack(c.id, told.Seq)
		if err := <-done; err != nil || planned != 2 || !r.there("/a/b") || r.rooms.parked != 0 {
			t.Errorf("%v, planned %d times, parked %d", err, planned, r.rooms.parked)
		}
		c.stream.Renew()
		if !r.keeps(c, "/a", false) {
			t.Error("not lent after the change")
		}
	})
}

// Who gave up what a change makes is not asked for it.
func TestRecallOfWhatWasGivenUp(t *testing.T) {
	r := newRig(t)
	r.must(r.Do(t.Context(), mkdir("/a")))
	c := r.caches(7)
	if !r.keeps(c, "/a", false) {
		t.Fatal("not lent")
	}
	req := mkdir("/a/b")
	var keys []readlease.Key
	r.Look(func(tree *namespace.Tree) {
		a, err := tree.Stat(nil, namespace.At("/a"))
		if err != nil {
			t.Fatal(err)
		}
		keys = (&Tx{Tree: tree, e: r.Engine}).revokedBy(&namespace.OpMkdir{Parent: a.ID, Names: []string{"b"}})
	})
	req.Given = &readlease.GivenUp{Session: c.id, Stream: 1, Keys: keys}
	r.must(r.Do(t.Context(), req))
	if len(c.told) > 0 {
		t.Errorf("asked for %+v", <-c.told)
	}
}

// Who waits with a deadline is told in time what for; nothing is changed. A call that
// finds no place to wait fails.
func TestRecallThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.must(r.Do(t.Context(), mkdir("/a")))
		c := r.caches(7)
		if !r.keeps(c, "/a", false) {
			t.Fatal("not lent")
		}
		r.unchanged("what was not given up", func() {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, err := r.Do(ctx, mkdir("/a/b"))
			wantKind(t, "before the deadline", err, fserror.Retry)
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("told after %s of 4 s, want 3 s", took)
			}
			ctx, cancel = context.WithCancel(t.Context())
			done := begins(func() error { _, err := r.Do(ctx, mkdir("/a/b")); return err })
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("whose context has ended: %v", err)
			}
			r.rooms.park = errTest
			if _, err := r.Do(t.Context(), mkdir("/a/b")); !errors.Is(err, errTest) {
				t.Errorf("without a place to wait: %v", err)
			}
		})
	})
}

// The reign may end while a change waits for sessions: then it is not made, not even one
// of the namenode's own.
func TestReignEndsDuringARecall(t *testing.T) {
	t.Run("a call", func(t *testing.T) { testReignEndsDuringARecall(t, mkdir("/a/b")) })
	own := mkdir("/a/b")
	own.Call = nil
	t.Run("the namenode's own", func(t *testing.T) { testReignEndsDuringARecall(t, own) })
}

func testReignEndsDuringARecall(t *testing.T, req Request) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.must(r.Do(t.Context(), mkdir("/a")))
		c := r.caches(7)
		if !r.keeps(c, "/a", false) {
			t.Fatal("not lent")
		}
		r.unchanged("after the reign", func() {
			done := begins(func() error { _, err := r.Do(t.Context(), req); return err })
			told := <-c.told
			synctest.Wait()
			r.reign.active = errTest
			r.Caches().Ack(c.id, told.Seq)
			if err := <-done; !errors.Is(err, errTest) {
				t.Error(err)
			}
		})
	})
}

// What is lent: only answers that collect what they look at, are durable, depend on little
// enough, and are of no file that another has open.
func TestLend(t *testing.T) {
	r := newRig(t)
	c, holder := r.caches(7), r.caches(8)
	root := &namespace.Call{User: "root", Super: true}
	create := func(path string, session byte) {
		r.must(r.Do(t.Context(), Request{Call: root, Plan: func(tx *Tx) (namespace.Op, error) {
			return OrNil(namespace.PlanCreate(tx.Tree, root, namespace.CreateRequest{
				At: namespace.At(path), Close: session == 0, Token: namespace.Token{1},
				Holder: namespace.Holder{User: "root", Client: "c", Session: namespace.SessionID{session}},
			}))
		}}))
	}
	create("/open", 8)
	create("/closed", 0)
	for _, k := range []struct {
		who  *cacher
		path string
		own  bool
		want bool
	}{
		{c, "/closed", false, true}, {c, "/open", false, false}, {c, "/open", true, false},
		{holder, "/open", false, false}, {holder, "/open", true, true},
	} {
		if got := r.keeps(k.who, k.path, k.own); got != k.want {
			t.Errorf("%s to %d, own %t: %t", k.path, k.who.id[0], k.own, got)
		}
	}
	lend := func(session []byte, change func(*namespace.Call)) (lent bool) {
		t.Helper()
		call := &namespace.Call{User: "root", Super: true, Collect: true}
		if err := r.Read(func(tx *Tx) error {
			_, err := tx.Tree.Stat(call, namespace.At("/closed"))
			change(call)
			lent = tx.Lend(call, session, false)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return lent
	}
	looks := func(n int) func(*namespace.Call) {
		return func(c *namespace.Call) { c.Looks = make([]namespace.Change, n) }
	}
	for name, got := range map[string][2]bool{
		"as it is":           {lend(c.id[:], func(*namespace.Call) {}), true},
		"not collected":      {lend(c.id[:], func(c *namespace.Call) { c.Collect = false }), false},
		"by no session":      {lend(c.id[:5], func(*namespace.Call) {}), false},
		"by one not caching": {lend(make([]byte, 16), func(*namespace.Call) {}), false},
		"of many things":     {lend(c.id[:], looks(maxLooks)), true},
		"of too many things": {lend(c.id[:], looks(maxLooks+1)), false},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %t, want %t", name, got[0], got[1])
		}
	}
	r.journal.hold()
	defer r.journal.release(nil)
	if _, _, err := r.Submit(t.Context(), Request{Plan: plans(&namespace.OpMkdir{Parent: namespace.RootID, Names: []string{"late"}, User: "root", Group: "wheel", Mode: 0o755})}); err != nil {
		t.Fatal(err)
	}
	if r.keeps(c, "/late", false) {
		t.Error("what is not durable was lent")
	}
}

// A listing lends each entry by itself: a change of one does not recall the others.
func TestLendEntries(t *testing.T) {
	r := newRig(t)
	c := r.caches(7)
	for _, path := range []string{"/d", "/d/a", "/d/b", "/e", "/e/a"} {
		r.must(r.Do(t.Context(), mkdir(path)))
	}
	r.must(r.Do(t.Context(), Request{Plan: func(tx *Tx) (namespace.Op, error) {
		a, err := tx.Tree.Stat(nil, namespace.At("/e"))
		return &namespace.OpSetAttr{Inode: a.ID, SetMode: true, Mode: 0o744}, err
	}}))
	list := func(path string, change func(*namespace.Call)) (keep []bool) {
		t.Helper()
		call := &namespace.Call{User: "root", Super: true, Collect: true}
		if err := r.Read(func(tx *Tx) error {
			dir, entries, _, err := tx.Tree.List(call, namespace.At(path), "", 10)
			change(call)
			keep = tx.LendEntries(call, c.id[:], dir, entries)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return keep
	}
	if keep := list("/d", func(*namespace.Call) {}); len(keep) != 2 || !keep[0] || !keep[1] {
		t.Errorf("lent %v", keep)
	}
	if keep := list("/d", func(c *namespace.Call) { c.Collect = false }); keep != nil {
		t.Errorf("lent %v of what was not collected", keep)
	}
	if keep := list("/d", func(c *namespace.Call) { c.User, c.Super = "ann", false }); len(keep) != 2 {
		t.Errorf("lent %v to who may search it", keep)
	}
	if keep := list("/e", func(c *namespace.Call) { c.User, c.Super = "ann", false }); keep != nil {
		t.Errorf("lent %v to who may not search it", keep)
	}
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpMkdir{Parent: namespace.RootID, Names: []string{"elsewhere"}, User: "root", Group: "wheel"})}))
	if len(c.told) > 0 {
		t.Errorf("a change elsewhere recalled %+v", <-c.told)
	}
}

// A directory is delegated to one session, and to none beside who keeps its entries; a
// file made in it by another recalls that.
func TestDelegate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.must(r.Do(t.Context(), mkdir("/d")))
		var dir namespace.InodeID
		r.Look(func(tree *namespace.Tree) {
			a, err := tree.Stat(nil, namespace.At("/d"))
			if err != nil {
				t.Fatal(err)
			}
			dir = a.ID
		})
		a, b := r.caches(7), r.caches(8)
		delegate := func(c *cacher) (ok bool) {
			_ = r.Read(func(tx *Tx) error { ok = tx.Delegate(c.id, dir); return nil })
			return ok
		}
		if r.Delegated(a.id, dir) || !delegate(a) || !r.Delegated(a.id, dir) || delegate(b) || r.Delegated(b.id, dir) || r.Delegated(a.id, namespace.RootID) {
			t.Fatal("delegated to nobody, or to two, or another directory")
		}
		done := begins(func() error { _, err := r.Do(t.Context(), mkdir("/d/x")); return err })
		told := <-a.told
		if want := (readlease.Key{Kind: KeyDelegation, Inode: uint64(dir)}); len(told.Keys) != 1 || told.Keys[0] != want {
			t.Errorf("recalled %v, want %v", told.Keys, want)
		}
		synctest.Wait()
		pending(t, "the change", done)
		r.Caches().Ack(a.id, told.Seq)
		if err := <-done; err != nil || r.Delegated(a.id, dir) {
			t.Errorf("%v, still delegated: %t", err, r.Delegated(a.id, dir))
		}
	})
}

// A quota refuses what others ask for, not what the namenode does itself; and below it nobody
// makes files without asking, nor is about to when it is set.
func TestQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		at := func(path string) (id namespace.InodeID) {
			r.Look(func(tree *namespace.Tree) {
				a, err := tree.Stat(nil, namespace.At(path))
				if err != nil {
					t.Fatal(err)
				}
				id = a.ID
			})
			return id
		}
		r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpLevel{State: levels.State{Level: levels.Newest()}})}))
		for _, path := range []string{"/d", "/d/sub", "/other"} {
			r.must(r.Do(t.Context(), mkdir(path)))
		}
		a := r.caches(7)
		delegate := func(path string) (ok bool) {
			_ = r.Read(func(tx *Tx) error { ok = tx.Delegate(a.id, at(path)); return nil })
			return ok
		}
		if !delegate("/d/sub") || !delegate("/other") {
			t.Fatal("not delegated")
		}
		set := func(names int64) error {
			_, err := r.Do(t.Context(), Request{Plan: plans(&namespace.OpQuota{Inode: at("/d"), Limits: quota.Limits{Names: names, Bytes: quota.None}})})
			return err
		}
		done := begins(func() error { return set(2) })
		told := <-a.told
		if len(told.Keys) != 1 || told.Keys[0] != delegation(at("/d/sub")) {
			t.Errorf("recalled %v", told.Keys)
		}
		synctest.Wait()
		pending(t, "the quota", done)
		r.Caches().Ack(a.id, told.Seq)
		if err := <-done; err != nil || !delegate("/other") || delegate("/d") || delegate("/d/sub") {
			t.Errorf("%v, or delegated below a quota, or not elsewhere", err)
		}
		r.unchanged("what exceeds a quota", func() {
			if _, err := r.Do(t.Context(), mkdir("/d/sub/x")); fserror.ReasonOf(err) != fserror.ReasonQuotaNames {
				t.Error(err)
			}
		})
		r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpMkdir{Parent: at("/d"), Names: []string{"own"}})}))
		if err := set(quota.None); err != nil || len(a.told) > 0 || !delegate("/d/sub") {
			t.Errorf("%v, or not delegated without a quota", err)
		}
	})
}

// Of what all share there is only so much: one user's leases, results and names leave
// room for others.
func TestShares(t *testing.T) {
	r := newRig(t)
	r.Share(1, Limits{Granted: 4, Results: 4})
	r.rooms.taker = share.Taker{Names: []string{"user greedy"}}
	grant := func(id namespace.LeaseID, user string) {
		r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpGrant{ID: id, TTL: 1000, Owner: namespace.Owner{User: user}})}))
	}
	check := func(user string) (err error) {
		_ = r.Read(func(tx *Tx) error {
			err = tx.CheckGranted(t.Context(), &namespace.Call{User: user})
			return nil
		})
		return err
	}
	for id := range namespace.LeaseID(3) {
		if err := check("greedy"); err != nil {
			t.Fatal(err)
		}
		grant(id+1, "greedy")
	}
	wantKind(t, "a fourth lease of four", check("greedy"), fserror.Retry)
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpEnd{ID: 1, Reason: namespace.LeaseRevoked})}))
	if err := check("greedy"); err != nil || r.Granted() != 2 {
		t.Errorf("after one has ended: %v, %d", err, r.Granted())
	}
	r.Share(2, Limits{Granted: 2, Results: 4})
	wantKind(t, "leases of an earlier reign count", check("greedy"), fserror.Retry)

	for i := range 3 {
		r.must(r.Do(t.Context(), mkdir(fmt.Sprint("/", i)).numbered(byte(i+1), 1)))
	}
	r.unchanged("a call of a fourth session", func() {
		_, err := r.Do(t.Context(), mkdir("/3").numbered(4, 1))
		wantKind(t, "a fourth session with results", err, fserror.Retry)
	})
	r.must(r.Do(t.Context(), mkdir("/3").numbered(3, 2))) // of one that has some
	r.must(r.Do(t.Context(), mkdir("/4")))                // without an id there is no result
	r.clock.Advance(48 * time.Hour)
	r.must(r.Do(t.Context(), mkdir("/5").numbered(3, 3))) // and the old results are forgotten
	r.must(r.Do(t.Context(), mkdir("/6").numbered(4, 1)))
}

// An address that has brought many users makes no further one an owner, and so of groups.
func TestNewOwners(t *testing.T) {
	r := newRig(t)
	r.rooms.taker = share.Taker{Names: []string{"address 192.0.2.1"}}
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpSetAttr{Inode: namespace.RootID, SetMode: true, Mode: 0o777})}))
	make1 := func(user string) error {
		c := &namespace.Call{User: user}
		_, err := r.Do(t.Context(), Request{Call: c, Plan: func(tx *Tx) (namespace.Op, error) {
			return OrNil(namespace.PlanMkdir(tx.Tree, c, namespace.At("/"+user), 0o755, false))
		}})
		return err
	}
	before := r.limits.owners.Used()
	if err := make1("ann"); err != nil || r.limits.owners.Used() != before+1 {
		t.Fatalf("%v, %d owners more", err, r.limits.owners.Used()-before)
	}
	r.limits.owners = share.New(4)
	r.limits.owners.Hold(3, r.rooms.taker)
	wantKind(t, "one user too many", make1("bob"), fserror.NoSpace)
	chgrp := func(group string) error {
		c := &namespace.Call{User: "ann", Groups: []string{"known", "more", "another"}}
		_, err := r.Do(t.Context(), Request{Call: c, Plan: func(tx *Tx) (namespace.Op, error) {
			return OrNil(namespace.PlanSetAttr(tx.Tree, c, namespace.At("/ann"), namespace.OpSetAttr{Group: group}))
		}})
		return err
	}
	before = r.limits.groups.Used()
	if err := chgrp("known"); err != nil || r.limits.groups.Used() != before+1 {
		t.Fatalf("%v, %d groups more", err, r.limits.groups.Used()-before)
	}
	r.limits.groups = share.New(8)
	r.limits.groups.Hold(6, r.rooms.taker)
	wantKind(t, "one group too many", chgrp("more"), fserror.NoSpace)
	if err := chgrp("known"); err != nil {
		t.Error(err)
	}
	r.rooms.taker = share.Taker{Names: []string{"address 192.0.2.2"}}
	if err := chgrp("more"); err != nil {
		t.Errorf("of an address that has brought none: %v", err)
	}
	r.rooms.taker = share.Taker{Names: []string{"address 192.0.2.1"}}
	if err := r.Update(func(tx *Tx) error { // who is known already
		c := &namespace.Call{User: "ann"}
		tx.countOwners(t.Context(), c)()
		if c.NoNewUser {
			t.Error("a known user is a new one")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A call that is tried again may follow as many links as the first time.
func TestAttemptsBeginAtNoLinks(t *testing.T) {
	r := newRig(t)
	root := &namespace.Call{User: "root", Super: true}
	target := strings.Repeat("./", 1000)
	r.must(r.Do(t.Context(), Request{Call: root, Plan: func(tx *Tx) (namespace.Op, error) {
		return OrNil(namespace.PlanSymlink(tx.Tree, root, namespace.At("/long"), target, false))
	}}))
	for range calls.MaxLinkBytes/len(target) + 1 {
		if err := r.View(t.Context(), root, func(tx *Tx) error {
			_, err := tx.Tree.Stat(root, namespace.Follow("/long"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Do(t.Context(), Request{Call: root, Plan: func(tx *Tx) (namespace.Op, error) {
			_, err := tx.Tree.Stat(root, namespace.Follow("/long"))
			return nil, err
		}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordsAboveTheLevel: what the namespace's level does not have is refused before anything is
// journalled, of callers and of the namenode itself.
func TestRecordsAboveTheLevel(t *testing.T) {
	r := newRig(t)
	r.unchanged("a record above the level", func() {
		for _, c := range []*namespace.Call{nil, {User: "root", Super: true}} {
			_, err := r.Do(t.Context(), Request{Call: c, Plan: plans(&namespace.OpLevel{State: levels.State{Level: levels.First}})})
			if fserror.ReasonOf(err) != fserror.ReasonLevel {
				t.Errorf("%v", err)
			}
		}
	})
	if len(r.reign.failed) > 0 || len(r.logged) > 0 {
		t.Error(r.reign.failed, r.logged)
	}
}
