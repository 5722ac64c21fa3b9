package waiting

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func by(who byte) namespace.Holder {
	return namespace.Holder{Session: namespace.SessionID{who}}
}

// A place is kept for one who asks again, for a while, and for nobody else.
func TestWaitersKeepTheirPlaces(t *testing.T) {
	w := New(Config{})
	a, b := w.join(1, by('a'), 0), w.join(1, by('b'), 0)
	want := func(at *waiter, now time.Duration, mine bool, in time.Duration) {
		t.Helper()
		if m, i := w.look(at, now); m != mine || i != in {
			t.Fatalf("at %s: its turn %v, in %s; want %v, %s", now, m, i, mine, in)
		}
	}
	want(a, 0, true, 0)
	want(b, 0, false, 0)
	w.keep(a, time.Second)
	<-b.turn // goes by the clock from now on
	want(b, time.Second, false, placeKept+1)
	want(b, time.Second+placeKept, false, 1)
	if n := w.Waiting(1, time.Second); n != 2 {
		t.Fatalf("%d wait", n)
	}
	a = w.join(1, by('a'), 2*time.Second)
	want(a, 2*time.Second, true, 0)
	want(b, 2*time.Second, false, 0)
	w.keep(a, 2*time.Second)
	now := 2*time.Second + placeKept + 1
	want(b, now, true, 0)
	a = w.join(1, by('a'), now) // too late: behind
	want(a, now, false, 0)
	w.leave(b)
	<-a.turn
	want(a, now, true, 0)
	w.leave(a)
	if w.Any() || w.away != 0 {
		t.Fatalf("left behind: %+v", w)
	}
}

// Many who never come back are forgotten, whatever they waited for.
func TestWaitersWhoStayAwayAreForgotten(t *testing.T) {
	w := New(Config{})
	var now time.Duration
	for i := range 100_000 {
		now += time.Millisecond
		w.keep(w.join(namespace.InodeID(i), by(byte(i)), now), now)
	}
	if most := 2*int(placeKept/time.Millisecond) + 64; len(w.queues) > most || w.away != len(w.queues) {
		t.Fatalf("%d queues with %d who are away, want at most %d", len(w.queues), w.away, most)
	}
}

// However many sessions of one user say that they come back, and do not, few places are kept for
// them, and there is room for another's.
func TestPlacesOfOneUserAreBounded(t *testing.T) {
	w := New(Config{})
	for i := range 3 * maxAwayOfUser {
		greedy := namespace.Holder{User: "greedy", Session: namespace.SessionID{1, byte(i), byte(i >> 8)}}
		w.keep(w.join(1, greedy, time.Second), time.Second)
	}
	if n := len(w.queues[1]); n != maxAwayOfUser || w.away != n {
		t.Errorf("%d places are kept, want %d", n, maxAwayOfUser)
	}
	modest := namespace.Holder{User: "modest", Session: namespace.SessionID{'m'}}
	w.keep(w.join(1, modest, time.Second), time.Second)
	again := w.join(1, modest, time.Second)
	if n := len(w.queues[1]); n != maxAwayOfUser+1 {
		t.Errorf("%d places are kept, want one of a modest user more than %d", n, maxAwayOfUser)
	}
	w.leave(again)
	late := namespace.Holder{User: "greedy", Session: namespace.SessionID{'m'}}
	w.keep(w.join(2, late, time.Second+2*placeKept), time.Second+2*placeKept)
	if w.away != 1 || w.users["greedy"] != 1 || len(w.users) != 1 {
		t.Errorf("%d places are kept when their time is over, of %v", w.away, w.users)
	}
}

// The first who wait are told by name, with how long they have waited in all.
func TestWaitersAreNamed(t *testing.T) {
	w := New(Config{})
	who := namespace.Holder{User: "ann", Client: "batch", Host: "h7", PID: 3, Session: namespace.SessionID{1}}
	w.keep(w.join(1, who, time.Second), 3*time.Second)
	w.join(1, who, 4*time.Second)
	for i := range 3 * byte(mostTold) {
		w.join(2, by(i+2), 5*time.Second)
	}
	l := new(pb.Lease)
	w.Tell(l, 1, 6*time.Second)
	w.Tell(l, 2, 6*time.Second)
	w.Tell(l, 3, 6*time.Second)
	if n := len(l.GetWaiters()); l.GetWaiting() != 1+3*mostTold || n != mostTold {
		t.Errorf("%d wait, %d are named", l.GetWaiting(), n)
	}
	want := &pb.LeaseWaiter{Inode: 1, Who: &pb.HolderInfo{User: "ann", Client: "batch", Host: "h7", Pid: 3, Session: pb.SessionName(who.Session[:]), SinceMs: 5000}}
	if first := l.GetWaiters()[0]; !proto.Equal(first, want) || l.GetWaiters()[1].GetWho().GetSinceMs() != 1000 {
		t.Errorf("%v, want %v", first, want)
	}
}

// A record that frees no file asks nothing of the queues: the namespace is locked.
func TestAppliedWithoutAFile(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		w := New(Config{})
		w.mu.Lock() // with which this would never end
		w.Applied(namespace.Result{})
		w.mu.Unlock()
	})
}

// Random waiters are served in the order in which they came, those who asked
// again in time at their old places.
func TestWaitersAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	w := New(Config{})
	type entry struct {
		by    namespace.Holder
		here  *waiter // nil: away
		until time.Duration
	}
	var model []entry
	var now time.Duration
	for range 20_000 {
		now += time.Duration(r.IntN(1000)) * time.Millisecond
		model = slices.DeleteFunc(model, func(e entry) bool { return e.here == nil && now > e.until })
		i := -1
		if len(model) > 0 {
			i = r.IntN(len(model))
		}
		switch {
		case r.IntN(3) == 0:
			who := by(byte(r.IntN(20)))
			old := slices.IndexFunc(model, func(e entry) bool { return e.here == nil && e.by == who })
			e := entry{by: who, here: w.join(7, who, now)}
			if old >= 0 {
				model[old] = e
			} else {
				model = append(model, e)
			}
		case i >= 0 && model[i].here != nil && r.IntN(2) == 0:
			w.keep(model[i].here, now)
			model[i].here, model[i].until = nil, now+placeKept
		case i >= 0 && model[i].here != nil:
			w.leave(model[i].here)
			model = slices.Delete(model, i, i+1)
		}
		if n := w.Waiting(7, now); n != len(model) {
			t.Fatalf("%d wait, want %d", n, len(model))
		}
		for i, e := range model {
			if e.here == nil {
				continue
			}
			if mine, _ := w.look(e.here, now); mine != (i == 0) {
				t.Fatalf("number %d of %d: its turn %v", i, len(model), mine)
			}
		}
	}
}
