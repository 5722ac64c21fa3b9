package waiting

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/namenode/namespace"
)

func placeOf(inode namespace.InodeID, who byte) place {
	return place{inode, namespace.SessionID{who}}
}

// A place is kept for one who asks again, for a while, and for nobody else.
func TestWaitersKeepTheirPlaces(t *testing.T) {
	w := New(Config{})
	a, b := w.join(placeOf(1, 'a'), 0), w.join(placeOf(1, 'b'), 0)
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
	a = w.join(placeOf(1, 'a'), 2*time.Second)
	want(a, 2*time.Second, true, 0)
	want(b, 2*time.Second, false, 0)
	w.keep(a, 2*time.Second)
	now := 2*time.Second + placeKept + 1
	want(b, now, true, 0)
	a = w.join(placeOf(1, 'a'), now) // too late: behind
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
		w.keep(w.join(placeOf(namespace.InodeID(i), byte(i)), now), now)
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
		greedy := w.join(place{1, namespace.SessionID{1, byte(i), byte(i >> 8)}}, time.Second)
		greedy.user = "greedy"
		w.keep(greedy, time.Second)
	}
	if n := len(w.queues[1]); n != maxAwayOfUser || w.away != n {
		t.Errorf("%d places are kept, want %d", n, maxAwayOfUser)
	}
	modest := w.join(placeOf(1, 'm'), time.Second)
	modest.user = "modest"
	w.keep(modest, time.Second)
	again := w.join(placeOf(1, 'm'), time.Second)
	if n := len(w.queues[1]); n != maxAwayOfUser+1 {
		t.Errorf("%d places are kept, want one of a modest user more than %d", n, maxAwayOfUser)
	}
	w.leave(again)
	late := w.join(placeOf(2, 'm'), time.Second+2*placeKept)
	late.user = "greedy"
	w.keep(late, time.Second+2*placeKept)
	if w.away != 1 || w.users["greedy"] != 1 || len(w.users) != 1 {
		t.Errorf("%d places are kept when their time is over, of %v", w.away, w.users)
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
		at    place
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
			at := placeOf(7, byte(r.IntN(20)))
			old := slices.IndexFunc(model, func(e entry) bool { return e.here == nil && e.at == at })
			e := entry{at: at, here: w.join(at, now)}
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
