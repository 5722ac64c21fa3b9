package leases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

var errTest = errors.New("as the test says")

// The table follows each record: what is opened, taken over, closed, granted and ended.
func TestFollowsRecords(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	st, ok := r.State(uint64(f.Inode))
	if !ok || st.Epoch != f.Epoch || st.Holder.Client != "client1" || st.Holder.Host != "h" || st.Holder.User != "ann" {
		t.Fatalf("after a create: %+v, %t", st, ok)
	}
	r.apply(&namespace.OpOpen{Inode: f.Inode, Holder: holder(2), Token: namespace.Token{2}})
	if st, _ := r.State(uint64(f.Inode)); st.Holder.Client != "client2" || st.Epoch == f.Epoch {
		t.Errorf("after it was taken over: %+v", st)
	}
	lost := r.Renew(leasemanager.Renewal{Session: leasemanager.SessionID{1}, Version: 1, HasSet: true, Open: []leasemanager.Ref{refOf(f)}}).Lost
	if len(lost) != 1 || lost[0].Reason != leasemanager.ReasonTakenOver || lost[0].By == nil || lost[0].By.Client != "client2" {
		t.Errorf("the holder before is told %+v", lost)
	}
	r.apply(&namespace.OpRecover{Inode: f.Inode, Reason: "test"})
	if _, ok := r.State(uint64(f.Inode)); ok {
		t.Error("known after it was closed")
	}
	r.create("g", 2)
	r.apply(&namespace.OpDelete{Parent: namespace.RootID, Name: "g", Inode: mustFind(r, "g").Inode})
	if s := r.Stats(); s.Leases != 0 {
		t.Errorf("%+v", s)
	}
	r.grant(7, time.Minute)
	if n := r.granted(); n != 1 {
		t.Errorf("%d granted leases after a grant", n)
	}
	r.apply(&namespace.OpEnd{ID: 7, Reason: namespace.LeaseRevoked})
	if n := r.granted(); n != 0 {
		t.Errorf("%d granted leases after its end", n)
	}
}

func mustFind(r *rig, name string) namespace.OpenFile {
	f, open := r.find(name)
	if !open {
		r.t.Fatalf("%s is not open", name)
	}
	return f
}

// A reign begins with what the tree has, as old as it was journalled; the ages of holders
// that hold nothing any more are dropped, those of others stay. Safe mode lasts.
func TestBegin(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	r.grant(7, time.Hour)
	r.apply(&namespace.OpAges{Ages: []namespace.Age{
		{AgeKey: namespace.AgeKey{Session: namespace.SessionID{1}}, MS: 90_000},
		{AgeKey: namespace.AgeKey{Session: namespace.SessionID{2}}, MS: 90_000},
	}})
	r.begin(r.Engine)
	st, ok := r.State(uint64(f.Inode))
	if !ok || st.Epoch != f.Epoch || st.Holder.Client != "client1" || st.Idle != 90*time.Second || r.granted() != 1 {
		t.Errorf("%+v, %t, %+v", st, ok, r.Stats())
	}
	r.Engine.Look(func(tree *namespace.Tree) {
		a := JournalledAge(tree, leasemanager.AgeKey{Session: leasemanager.SessionID{1}})
		b := JournalledAge(tree, leasemanager.AgeKey{Session: leasemanager.SessionID{2}})
		if a != 90*time.Second || b != 0 {
			t.Errorf("ages %s of a holder, %s of one who holds nothing", a, b)
		}
	})
	r.apply(&namespace.OpSafeMode{On: true})
	r.begin(r.Engine)
	r.clock.Advance(time.Hour)
	if n := r.Expire(10); len(n) > 0 {
		t.Errorf("%v expired in safe mode", n)
	}
}

// A reign cannot begin if the journal takes nothing.
func TestBeginWithABrokenJournal(t *testing.T) {
	r := newRig(t)
	r.apply(&namespace.OpAges{Ages: []namespace.Age{{AgeKey: namespace.AgeKey{Session: namespace.SessionID{2}}, MS: 90_000}}})
	r.journal.broken = errTest
	if err := r.RebuildFromTree(t.Context()); !errors.Is(err, errTest) {
		t.Error(err)
	}
}

// A writer's record renews its session; a file that the table has lost is put back, and
// one whose lease is being ended is refused for the moment.
func TestRenewWriter(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	write := func() (err error) {
		_ = r.Engine.Update(func(tx *engine.Tx) error {
			err = r.RenewWriter(tx, &namespace.OpAppendTail{Inode: f.Inode, Data: []byte("x")})
			return nil
		})
		return err
	}
	idle := func() time.Duration { st, _ := r.State(uint64(f.Inode)); return st.Idle }
	r.clock.Advance(30 * time.Second)
	if before := idle(); write() != nil || before != 30*time.Second || idle() != 0 {
		t.Errorf("idle for %s, then for %s", before, idle())
	}
	r.forget(f)
	if err := write(); err != nil || !r.known(f) {
		t.Errorf("%v; put back: %t", err, r.known(f))
	}
	r.clock.Advance(hard + time.Second)
	if len(r.Expire(1)) != 1 {
		t.Fatal("not past its limit")
	}
	if err := write(); !errors.Is(err, fserror.Retry) || err.Error() != ErrEnding().Error() {
		t.Errorf("while it is being ended: %v", err)
	}
	_ = r.Engine.Update(func(tx *engine.Tx) error {
		if err := r.RenewWriter(tx, &namespace.OpSafeMode{}); err != nil {
			t.Errorf("a record of no writer: %v", err)
		}
		return nil
	})
}

// Take knows what the tree knows, also of a file that the table has lost.
func TestTake(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	for _, lost := range []bool{false, true} {
		if lost {
			r.forget(f)
		}
		if v, st := r.Take(f, holder(2)); v != leasemanager.Held || st.Holder.Client != "client1" {
			t.Errorf("lost %t: %s, %+v", lost, v, st)
		}
		if v, _ := r.Take(f, holder(1)); v != leasemanager.SameSession {
			t.Errorf("lost %t, its own: %s", lost, v)
		}
	}
	r.clock.Advance(soft + time.Second)
	if v, _ := r.Take(f, holder(2)); v != leasemanager.Takeable {
		t.Errorf("past its soft limit: %s", v)
	}
}

// A renewal puts back only what the inode says is that session's, under that epoch.
func TestRepairRenewed(t *testing.T) {
	r := newRig(t)
	f, g := r.create("f", 1), r.create("g", 2)
	r.forget(f)
	r.forget(g)
	one := leasemanager.SessionID{1}
	stale := refOf(f)
	stale.Epoch++
	if r.RepairRenewed(one, []leasemanager.Ref{stale, refOf(g), {Inode: 4711, Epoch: 1}}) || r.known(f) || r.known(g) {
		t.Error("put back under another epoch, or another's")
	}
	if !r.RepairRenewed(one, []leasemanager.Ref{refOf(f)}) || !r.known(f) {
		t.Error("not put back")
	}
	if r.RepairRenewed(one, []leasemanager.Ref{refOf(f)}) {
		t.Error("put back twice")
	}
}

// Passes of repair go through all open files, a slice at a time, and begin again.
func TestRepair(t *testing.T) {
	r := newRig(t)
	var files []namespace.OpenFile
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, r.create(name, 1))
		r.forget(files[len(files)-1])
	}
	at := r.Repair(0, 2)
	if at != files[1].Inode || !r.known(files[0]) || !r.known(files[1]) || r.known(files[2]) {
		t.Errorf("the first slice ends at %d", at)
	}
	if at = r.Repair(at, 2); at != 0 || !r.known(files[2]) {
		t.Errorf("the second slice ends at %d", at)
	}
	r.forget(files[0])
	pass := r.RepairPass()
	for range 2 {
		if err := pass(t.Context()); err != nil || !r.known(files[0]) {
			t.Error(err, r.known(files[0]))
		}
	}
}

// Silent leases' ages are journalled as they grow, and 0 once they are renewed; what did
// not change is not journalled again.
func TestCheckpointAges(t *testing.T) {
	r := newRig(t)
	f := r.create("f", 1)
	age := func() (age time.Duration) {
		r.Engine.Look(func(tree *namespace.Tree) {
			age = JournalledAge(tree, leasemanager.AgeKey{Session: leasemanager.SessionID{1}})
		})
		return age
	}
	checkpoint := func(records int) {
		t.Helper()
		before := len(r.records)
		if err := r.CheckpointAges(t.Context()); err != nil || len(r.records)-before != records {
			t.Errorf("%v, %d records, want %d", err, len(r.records)-before, records)
		}
	}
	checkpoint(0)
	r.clock.Advance(2 * time.Minute)
	checkpoint(1)
	checkpoint(0)
	if age() != 2*time.Minute {
		t.Errorf("an age of %s", age())
	}
	r.clock.Advance(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.CheckpointAges(ctx); err != nil || age() != 2*time.Minute {
		t.Errorf("under a context that has ended: %v, %s", err, age())
	}
	checkpoint(1)
	r.renew(1, f)
	r.clock.Advance(time.Second)
	if err := r.JournalLastAges(t.Context()); err != nil || age() != 0 {
		t.Errorf("%v; an age of %s after a renewal", err, age())
	}
	r.clock.Advance(50 * time.Second) // more than a renewal period
	before := len(r.records)
	if err := r.JournalLastAges(t.Context()); err != nil || age() != 51*time.Second || len(r.records) != before+1 {
		t.Errorf("%v; a last age of %s, %d records", err, age(), len(r.records)-before)
	}
	r.clock.Advance(time.Minute)
	r.journal.broken = errTest
	if err := r.JournalLastAges(t.Context()); err == nil {
		t.Error("a journal that takes nothing is no error")
	}
}

// A lease's id is shown in hexadecimal.
func TestName(t *testing.T) {
	if n := Name(0xab); n != "ab" {
		t.Error(n)
	}
}
