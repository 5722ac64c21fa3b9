package waiting

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/share"
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
	if w.Any() || w.away.Used() != 0 {
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
	if most := 2*int(placeKept/time.Millisecond) + 64; len(w.queues) > most || w.away.Used() != int64(len(w.queues)) {
		t.Fatalf("%d queues with %d who are away, want at most %d", len(w.queues), w.away.Used(), most)
	}
}

// However many sessions of one user or address say that they come back, and do not, under whatever
// names, few places are kept for them, and there is room for another's.
func TestPlacesOfOneAreBounded(t *testing.T) {
	for name, greedy := range map[string]func(i int) []string{
		"a user":     func(i int) []string { return []string{fmt.Sprint("192.0.2.", i%250), "user greedy"} },
		"an address": func(i int) []string { return []string{"192.0.2.1", fmt.Sprint("user ", i)} },
	} {
		w := New(Config{})
		keep := func(inode namespace.InodeID, by namespace.Holder, now time.Duration, names ...string) {
			one := w.join(inode, by, now)
			one.who = share.Taker{Names: names}
			w.keep(one, now)
		}
		for i := range 3 * maxAwayOfOne {
			keep(1, namespace.Holder{Session: namespace.SessionID{1, byte(i), byte(i >> 8)}}, time.Second, greedy(i)...)
		}
		if n := len(w.queues[1]); n != maxAwayOfOne || w.away.Used() != int64(n) {
			t.Errorf("%s: %d places are kept, %d counted, want %d", name, n, w.away.Used(), maxAwayOfOne)
		}
		keep(1, by('m'), time.Second, "198.51.100.1", "user modest")
		again := w.join(1, by('m'), time.Second)
		if n := len(w.queues[1]); n != maxAwayOfOne+1 {
			t.Errorf("%s: %d places are kept, want one of a modest user more than %d", name, n, maxAwayOfOne)
		}
		w.leave(again)
		keep(2, by('m'), time.Second+2*placeKept, greedy(0)...)
		if w.away.Used() != 1 {
			t.Errorf("%s: %d places are kept when their time is over", name, w.away.Used())
		}
	}
}

// TestPlacesOfManyLeaveRoom: many who have few places each leave some for who has none.
func TestPlacesOfManyLeaveRoom(t *testing.T) {
	w := New(Config{})
	for i := range 2 * maxAway {
		one := w.join(namespace.InodeID(i%1000+1), namespace.Holder{Session: namespace.SessionID{1, byte(i), byte(i >> 8)}}, time.Second)
		one.who = share.Taker{Names: []string{fmt.Sprint("192.0.2.", i%20)}}
		w.keep(one, time.Second)
	}
	if one := w.join(1, by('m'), time.Second); !w.away.Fits(1, share.Taker{Names: []string{"user modest"}}) {
		t.Errorf("%d places are kept, and there is none for %v", w.away.Used(), one.place)
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

// The name for which some wait leads to another file now, as after a rename: they keep the order in
// which they came, before one who came later and waits for that file already.
func TestWaitersMoveWithTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Clock: clock.System{}, Stopping: t.Context().Done()})
		var mu sync.Mutex
		var got []byte
		free, inode := false, namespace.InodeID(1)
		said := make(chan error)
		wait := func(who byte) {
			c := &Call{
				By: by(who), ComesBack: func() bool { return false },
				Inode: func() (namespace.InodeID, error) {
					mu.Lock()
					defer mu.Unlock()
					return inode, nil
				},
				Held: &fserror.Error{Kind: fserror.Held, Holder: &fserror.Holder{}, TakeableIn: time.Hour},
			}
			held := c.Held
			c.Try = func() error {
				mu.Lock()
				defer mu.Unlock()
				if !free {
					return held
				}
				got = append(got, who)
				return nil
			}
			go func() { said <- w.Wait(t.Context(), c) }()
			<-time.After(10 * time.Millisecond)
		}
		wait('a')
		wait('b')
		wait('c')
		mu.Lock()
		inode = 2
		mu.Unlock()
		wait('d')
		<-time.After(10 * time.Second) // all have looked
		if n, m := w.Waiting(1, 0), w.Waiting(2, 0); n != 0 || m != 4 {
			t.Errorf("%d wait for the old file, %d for the new one", n, m)
		}
		mu.Lock()
		free = true
		mu.Unlock()
		w.Applied(namespace.Result{Closed: []calls.ClosedFile{{Inode: 2}}})
		for range 4 {
			if err := <-said; err != nil {
				t.Error(err)
			}
		}
		if string(got) != "abcd" || w.Any() {
			t.Errorf("served in the order %s; left: %v", got, w.Any())
		}
	})
}

// A call that ends when its name has just got another file keeps its place for the next one there.
func TestPlaceMovesAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Clock: clock.System{}, Stopping: t.Context().Done()})
		inode := namespace.InodeID(1)
		over := make(chan time.Time, 1)
		said := make(chan error)
		held := &fserror.Error{Kind: fserror.Held, Holder: &fserror.Holder{}, TakeableIn: time.Hour}
		c := &Call{
			By: by('a'), Held: held, Again: true, Over: over, ComesBack: func() bool { return false },
			Inode: func() (namespace.InodeID, error) { return inode, nil },
			Try:   func() error { return held },
		}
		go func() { said <- w.Wait(t.Context(), c) }()
		synctest.Wait()
		inode = 2
		over <- time.Now()
		if err := <-said; !errors.Is(err, ErrOver) {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if old, now := len(w.queues[1]), len(w.queues[2]); old != 0 || now != 1 {
			t.Errorf("%d places are kept for the old file, %d for the new one", old, now)
		}
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
