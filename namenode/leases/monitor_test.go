package leases

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// A lease past its hard limit ends: its files are closed, by a record each, and its
// holder is told. One that was renewed stays.
func TestExpire(t *testing.T) {
	r := newRig(t)
	a, b := r.create("a", 1), r.create("b", 1)
	c := r.create("c", 2)
	m := r.monitor()
	r.clock.Advance(hard)
	r.renew(2, c)
	if m.pass(t.Context()); !r.open("a") {
		t.Error("closed at its limit")
	}
	r.clock.Advance(time.Millisecond)
	before := len(r.records)
	if m.pass(t.Context()); r.open("a") || r.open("b") || !r.open("c") || len(r.records) != before+2 {
		t.Errorf("open: a %t, b %t, c %t; %d records", r.open("a"), r.open("b"), r.open("c"), len(r.records)-before)
	}
	for _, op := range r.records[before:] {
		if rec, ok := op.(*namespace.OpRecover); !ok || rec.Reason != "hard limit" {
			t.Errorf("ended by %+v", op)
		}
	}
	if r.known(a) || r.known(b) || !r.known(c) || r.Stats().Leases != 1 {
		t.Errorf("%+v", r.Stats())
	}
}

// Nothing ends while it is not known who is active, nor in safe mode; the monitor comes
// back to it.
func TestNothingEnds(t *testing.T) {
	r := newRig(t)
	r.create("a", 1)
	r.grant(7, time.Minute)
	m := r.monitor()
	r.clock.Advance(hard + time.Second)
	r.active = errTest
	if sleep := m.pass(t.Context()); sleep != isolatedSleep || !r.open("a") {
		t.Errorf("not active: %s, open: %t", sleep, r.open("a"))
	}
	r.active = nil
	r.apply(&namespace.OpSafeMode{On: true}) // the table does not know yet
	if m.pass(t.Context()); !r.open("a") || r.granted() != 1 {
		t.Errorf("in safe mode: open: %t, %+v", r.open("a"), r.Stats())
	}
	r.apply(&namespace.OpSafeMode{On: false})
	r.clock.Advance(2 * time.Second)
	if m.pass(t.Context()); r.open("a") || r.granted() != 0 {
		t.Errorf("after it: open: %t, %+v", r.open("a"), r.Stats())
	}
}

// What the tree has closed, or opened again, is not ended by the table's old word.
func TestExpiredOnlyByTheTable(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	r.apply(&namespace.OpRecover{Inode: f.Inode, Reason: "test"})
	r.Open(HolderOf(holder(1)), uint64(f.Inode), f.Epoch) // a table that differs
	r.clock.Advance(hard + time.Second)
	before := len(r.records)
	if r.monitor().pass(t.Context()); len(r.records) != before || r.known(f) || r.Stats().Leases != 0 {
		t.Errorf("%d records, known: %t, %+v", len(r.records)-before, r.known(f), r.Stats())
	}
}

// A granted lease ends when its time is over, and its files go with it, however many.
func TestGrantedLeaseEnds(t *testing.T) {
	r := newRig(t)
	r.grant(7, time.Minute)
	r.grant(8, time.Hour)
	for i := range 5 {
		r.attached(fmt.Sprint("f", i), 7)
	}
	r.attached("other", 8)
	m := r.monitor()
	r.clock.Advance(time.Minute)
	if m.pass(t.Context()); !r.there("f0") {
		t.Error("ended early")
	}
	r.clock.Advance(time.Second)
	m.pass(t.Context())
	if r.there("f0") || r.there("f4") || !r.there("other") || r.granted() != 1 {
		t.Errorf("f0 %t, f4 %t, other %t, %+v", r.there("f0"), r.there("f4"), r.there("other"), r.Stats())
	}
}

// The rate bounds what is removed, and the monitor comes back soon for that. It holds up
// no end, neither of the lease that the files are of nor of others.
func TestRate(t *testing.T) {
	r := newRig(t)
	r.ReapRate = 10
	r.Table = New(r.Config) // with one at a time
	for id := range namespace.LeaseID(5) {
		r.grant(id+1, time.Minute)
		r.attached(fmt.Sprint("f", id), id+1)
	}
	attached := func() (n int) {
		r.Engine.Look(func(tree *namespace.Tree) { n = tree.Counts().Attached })
		return n
	}
	m := r.monitor()
	r.clock.Advance(time.Minute + time.Second)
	for left := 4; left >= 0; left-- {
		if sleep := m.pass(t.Context()); r.granted() != 0 || r.there("f4") || attached() != left || sleep > 10*time.Millisecond && left > 0 {
			t.Errorf("%d leases, %d files are left, want %d; sleeps for %s", r.granted(), attached(), left, sleep)
		}
		r.clock.Advance(100 * time.Millisecond)
	}
}

// A pass ends when it has ended many leases, and comes back for the others.
func TestManyEnds(t *testing.T) {
	r := newRig(t)
	for id := range namespace.LeaseID(grantedPass + 1) {
		r.grant(id+1, time.Minute)
	}
	left := func() (n int) {
		r.Engine.Look(func(tree *namespace.Tree) { n = tree.Counts().Leases })
		return n
	}
	m := r.monitor()
	r.clock.Advance(time.Minute + time.Second)
	if sleep := m.pass(t.Context()); left() != 1 || sleep > time.Millisecond {
		t.Errorf("%d leases are left; sleeps for %s", left(), sleep)
	}
	if m.pass(t.Context()); left() != 0 {
		t.Errorf("%d leases are left", left())
	}
}

// Nothing that is attached is removed before the end of its lease is durable, since a call
// that does not find it afterwards is answered at once.
func TestNothingIsRemovedBeforeTheEndIsDurable(t *testing.T) {
	r := newRig(t)
	r.grant(1, time.Minute)
	r.attached("f", 1)
	m := r.monitor()
	r.journal.held = r.journal.last
	r.apply(&namespace.OpEnd{ID: 1, Reason: namespace.LeaseRevoked})
	if left := m.reap(t.Context()); !left || r.endedLeases() != 1 {
		t.Errorf("%d ended leases wait; more to do: %t", r.endedLeases(), left)
	}
	r.journal.held = 0
	if left := m.reap(t.Context()); left || r.endedLeases() != 0 {
		t.Errorf("%d ended leases wait once the end is durable; more to do: %t", r.endedLeases(), left)
	}
}

// An end that a session's cache is in the way of is set aside: others end, and it does as
// soon as the session has answered.
func TestSetAside(t *testing.T) {
	r := newRig(t)
	r.create("kept", 9)
	r.create("free", 2)
	m := r.monitor()
	r.clock.Advance(hard + time.Second)
	c := r.caches(9, "kept")
	if sleep := m.pass(t.Context()); !r.open("kept") || r.open("free") || sleep > asideSleep || len(m.aside) != 1 {
		t.Fatalf("kept %t, free %t, %d aside, sleeps for %s", r.open("kept"), r.open("free"), len(m.aside), sleep)
	}
	c.ack()
	r.clock.Advance(2 * time.Second) // when what failed is due again
	if m.pass(t.Context()); r.open("kept") || len(m.aside) != 0 {
		t.Errorf("kept %t, %d aside", r.open("kept"), len(m.aside))
	}
}

// An end that is not due any more is not kept aside for long, and all are given up with
// the monitor: then others may keep again what it would have changed.
func TestAsideIsReleased(t *testing.T) {
	r := newRig(t)
	f := r.create("kept", 9)
	m := r.monitor()
	r.clock.Advance(hard + time.Second)
	c := r.caches(9, "kept")
	m.pass(t.Context())
	if len(m.aside) != 1 {
		t.Fatalf("%d aside", len(m.aside))
	}
	c.ack()
	r.NotEnded(stateOf(r, f).LeaseID)
	r.apply(&namespace.OpOpen{Inode: f.Inode, Holder: holder(3), Token: namespace.Token{3}}) // another has it
	r.clock.Advance(asideKept)
	if m.pass(t.Context()); len(m.aside) != 1 {
		t.Errorf("released after %s", asideKept)
	}
	r.clock.Advance(time.Millisecond)
	if m.pass(t.Context()); len(m.aside) != 0 {
		t.Errorf("%d aside after %s", len(m.aside), asideKept)
	}
}

func stateOf(r *rig, f namespace.OpenFile) leasemanager.State {
	st, ok := r.State(uint64(f.Inode))
	if !ok {
		r.t.Fatal("the table does not know the file")
	}
	return st
}

// A granted lease that does not end now is as it was: it can be kept alive.
func TestGrantedLeaseThatDoesNotEnd(t *testing.T) {
	r := newRig(t)
	r.grant(7, time.Minute)
	r.attached("f", 7)
	r.clock.Advance(time.Minute + time.Second)
	c := r.caches(4, "f")
	m := r.monitor()
	if m.pass(t.Context()); !r.there("f") || r.granted() != 1 || len(m.aside) != 1 {
		t.Fatalf("f %t, %+v, %d aside", r.there("f"), r.Stats(), len(m.aside))
	}
	if _, ok := r.KeepAlive(7); !ok {
		t.Error("it cannot be kept alive")
	}
	c.ack()
	r.clock.Advance(2 * time.Second)
	if m.pass(t.Context()); !r.there("f") {
		t.Error("ended although it was kept alive")
	}
}

// Watch works until its context ends, wakes up by itself and when it is told.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.create("a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Watch(ctx) }()
		synctest.Wait()
		r.clock.Advance(hard + time.Second)
		r.Reap()
		r.Reap() // one word is enough
		synctest.Wait()
		if r.open("a") {
			t.Error("not ended when it was told")
		}
		r.create("b", 1)
		synctest.Wait()
		r.clock.Advance(hard + time.Second)
		<-time.After(2 * time.Second) // the bubble's
		synctest.Wait()
		if r.open("b") {
			t.Error("not ended by itself")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A pass ends when it has held the lock for long, and the rest is for the next one.
func TestPassIsBounded(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.create(fmt.Sprint(i), byte(i+1))
	}
	r.clock.Advance(hard + time.Second)
	m := r.monitor()
	m.held = passLock
	m.expire(t.Context())
	if !r.open("0") {
		t.Error("a pass that has held the lock for long ended another lease")
	}
	if err := m.locked(func(*engine.Tx) error { r.clock.Advance(passLock); return nil }); err != nil || m.held != 2*passLock {
		t.Errorf("%v, held for %s", err, m.held)
	}
	if m.pass(t.Context()); r.open("0") || r.open("1") || r.open("2") {
		t.Error("the next pass did not end them")
	}
}
