package readlease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/clock"
)

// Rapid's own 100 runs of 30 steps are too few for what takes milliseconds; its
// flags on the command line still count.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.steps": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

var (
	attrs = Key{Kind: 1, Inode: 7}
	name  = Key{Kind: 2, Inode: 1, Name: "f"}
)

// peer is a session with a stream whose revocations are kept.
type peer struct {
	t    *Table
	id   SessionID
	of   string
	n    uint64 // of the stream
	st   *Stream
	told []Revocation
}

func (p *peer) connect() {
	p.told = nil
	p.n++
	p.st = p.t.Connect(p.id, p.of, p.n, func(r Revocation) { p.told = append(p.told, r) })
}

func (p *peer) ackAll() {
	for _, r := range p.told {
		p.t.Ack(p.id, r.Seq)
	}
}

func join(t testing.TB, tab *Table, n byte) *peer {
	t.Helper()
	p := &peer{t: tab, id: SessionID{n}, of: string(rune(n))}
	p.connect()
	if term := renewOn(tab, p.id); term != tab.cfg.Term {
		t.Fatalf("session %d: a term of %v", n, term)
	}
	return p
}

func fresh(t testing.TB, change ...func(*Config)) (*Table, *clock.Fake) {
	t.Helper()
	c := new(clock.Fake)
	cfg := Config{Clock: c}
	for _, f := range change {
		f(&cfg)
	}
	tab := New(cfg)
	t.Cleanup(func() {
		for _, s := range tab.check() {
			t.Error(s)
		}
	})
	return tab, c
}

func wantGrant(t testing.TB, p *peer, want bool, keys ...Key) {
	t.Helper()
	if got := p.t.Grant(p.id, keys); got != want {
		t.Errorf("session %d, %v: granted is %v", p.id[0], keys, got)
	}
}

func wantPending(t testing.TB, c *Change, want bool) {
	t.Helper()
	if got := c.Pending(); got != want {
		t.Errorf("pending is %v", got)
	}
}

func TestNobodyCaches(t *testing.T) {
	tab, _ := fresh(t)
	c := tab.Revoke([]Key{attrs})
	if c != nil || c.Pending() || c.More([]Key{attrs}) || c.Wait(t.Context()) != nil {
		t.Error("a change of a table that nobody uses has something to do")
	}
	c.Done()
	if tab.Grant(SessionID{1}, []Key{attrs}) || renewOn(tab, SessionID{1}) != 0 || tab.Gone(9) != nil || !tab.Forget(SessionID{1}) {
		t.Error("an unknown session got something")
	}
	tab.Ack(SessionID{1}, 1)
	var none *Stream
	none.Disconnect()
}

// Scenario 55: the change waits for the acknowledgement of everybody.
func TestScenario55(t *testing.T) {
	tab, _ := fresh(t)
	a, b := join(t, tab, 1), join(t, tab, 2)
	wantGrant(t, a, true, attrs, name)
	wantGrant(t, b, true, attrs, name)
	c := tab.Revoke([]Key{attrs, name})
	wantPending(t, c, true)
	if len(a.told) != 1 || len(b.told) != 1 || len(b.told[0].Keys) != 2 {
		t.Errorf("told %v and %v", a.told, b.told)
	}
	if renewOn(tab, b.id) != 0 || renewOn(tab, a.id) != 0 {
		t.Error("renewed with a revocation unacknowledged")
	}
	b.ackAll()
	wantPending(t, c, true)
	a.ackAll()
	wantPending(t, c, false)
	if renewOn(tab, b.id) == 0 {
		t.Error("not renewed after the acknowledgement")
	}
	// Not cachable before it is durable, and then it is.
	wantGrant(t, b, false, attrs)
	wantGrant(t, b, true, Key{Inode: 99})
	if !c.More([]Key{attrs, {Inode: 99}}) {
		t.Error("nothing to wait for after the new plan")
	}
	b.ackAll()
	wantPending(t, c, false)
	c.Done()
	c.Done()
	wantGrant(t, b, true, attrs)
	wantGrant(t, a, true, attrs)
	if st := tab.Stats(); st.Sessions != 2 || tab.connected.Load() != 2 || tab.keyCount() != 1 || st.Holdings != 2 ||
		st.Grants != 5 || st.Refused != 1 || st.RefusedMarked != 1 || st.Revocations != 3 {
		t.Errorf("%+v", st)
	}
}

// Scenario 56: while one does not answer, a third gets no lease; another change
// of the same key counts its own mark.
func TestScenario56(t *testing.T) {
	tab, c := fresh(t)
	a, b := join(t, tab, 1), join(t, tab, 2)
	wantGrant(t, a, true, attrs)
	first := tab.Revoke([]Key{attrs})
	wantGrant(t, b, false, attrs)
	second := tab.Revoke([]Key{attrs})
	wantPending(t, second, true)
	if len(a.told) != 1 {
		t.Errorf("told %v", a.told)
	}
	first.Done() // given up
	wantGrant(t, b, false, attrs)
	c.Advance(DefaultTerm + DefaultMargin - 1)
	wantPending(t, second, true)
	c.Advance(1)
	wantPending(t, second, false)
	second.Done()
	renewOn(tab, b.id)
	wantGrant(t, b, true, attrs)
	wantGrant(t, a, false, attrs) // it has lost its lease
	if st := tab.Stats(); st.Lost != 1 || st.Holdings != 1 {
		t.Errorf("%+v", st)
	}
}

// What a session held that was withdrawn by a change that was given up is still
// waited for by the next.
func TestGivenUp(t *testing.T) {
	tab, _ := fresh(t)
	a := join(t, tab, 1)
	wantGrant(t, a, true, attrs)
	tab.Revoke([]Key{attrs}).Done()
	wantGrant(t, a, false, attrs) // it may hold it yet
	next := tab.Revoke([]Key{attrs})
	wantPending(t, next, true)
	a.ackAll()
	wantPending(t, next, false)
	next.Done()
}

// A new stream frees everything at once; the old one's end says nothing.
func TestReconnect(t *testing.T) {
	tab, _ := fresh(t)
	a := join(t, tab, 1)
	wantGrant(t, a, true, attrs)
	old := a.st
	c := tab.Revoke([]Key{attrs})
	wantPending(t, c, true)
	seq := a.told[0].Seq
	a.connect()
	wantPending(t, c, false)
	c.Done()
	old.Disconnect()
	if renewOn(tab, a.id) == 0 {
		t.Error("the old stream's end took the new one's term")
	}
	wantGrant(t, a, true, attrs)
	// An acknowledgement of what was told on the old stream, and the Hello of
	// one that the client had given up, come late: nothing is freed by them.
	c = tab.Revoke([]Key{attrs})
	tab.Ack(a.id, seq)
	for n := range a.n + 1 {
		if tab.Connect(a.id, "", n, nil) != nil {
			t.Errorf("stream %d after stream %d", n, a.n)
		}
	}
	wantPending(t, c, true)
	c.Done()
	a.ackAll()
	wantGrant(t, a, true, attrs)
	if st := tab.Stats(); tab.connected.Load() != 1 || st.Holdings != 1 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
	a.st.Disconnect()
	wantGrant(t, a, false, name)
	if renewOn(tab, a.id) != 0 {
		t.Error("renewed without a stream")
	}
	wantPending(t, tab.Revoke([]Key{attrs}), true)
}

func TestPenalty(t *testing.T) {
	tab, c := fresh(t)
	a := join(t, tab, 1)
	wantGrant(t, a, true, attrs, name)
	ch := tab.Revoke([]Key{attrs})
	c.Advance(DefaultTerm + DefaultMargin)
	wantPending(t, ch, false)
	tab.Ack(a.id, a.told[0].Seq) // too late
	if len(a.told) != 2 || !a.told[1].All || tab.Stats().Holdings != 0 {
		t.Fatalf("told %v, %+v", a.told, tab.Stats())
	}
	if renewOn(tab, a.id) != 0 {
		t.Error("renewed before it has dropped everything")
	}
	c.Advance(DefaultPenalty)
	if renewOn(tab, a.id) != 0 {
		t.Error("the penalty began before it was heard of")
	}
	a.ackAll()
	c.Advance(DefaultPenalty - 1)
	if renewOn(tab, a.id) != 0 {
		t.Error("renewed in the penalty")
	}
	a.connect() // helps nothing
	if renewOn(tab, a.id) != 0 {
		t.Error("renewed in the penalty")
	}
	c.Advance(1)
	if renewOn(tab, a.id) == 0 {
		t.Error("not renewed after the penalty")
	}

	// One without a stream: the penalty begins when it comes back, and it is
	// remembered for as long.
	wantGrant(t, a, true, name)
	a.st.Disconnect()
	tab.Revoke([]Key{name}).Done()
	c.Advance(DefaultTerm + DefaultMargin)
	if got := tab.Gone(9); len(got) != 0 {
		t.Errorf("gone: %v", got)
	}
	a.connect()
	c.Advance(DefaultPenalty - 1)
	if renewOn(tab, a.id) != 0 || tab.Stats().Lost != 2 {
		t.Errorf("renewed in the penalty, or %+v", tab.Stats())
	}
	c.Advance(1)
	if renewOn(tab, a.id) == 0 {
		t.Error("not renewed after the penalty")
	}
}

// A term that ended with nothing asked of the session: no penalty, nobody waits
// for it, and no new term before it has taken in what it missed.
func TestLapsed(t *testing.T) {
	tab, c := fresh(t)
	a := join(t, tab, 1)
	wantGrant(t, a, true, attrs, name)
	c.Advance(DefaultTerm + DefaultMargin)
	ch := tab.Revoke([]Key{attrs})
	wantPending(t, ch, false)
	ch.Done()
	if len(a.told) != 1 || renewOn(tab, a.id) != 0 {
		t.Errorf("told %v, or renewed", a.told)
	}
	a.ackAll()
	if renewOn(tab, a.id) == 0 || tab.Stats().Lost != 0 || tab.Stats().Holdings != 1 {
		t.Errorf("%+v", tab.Stats())
	}
	wantPending(t, tab.Revoke([]Key{name}), true)
}

// Scenario 57: after an activation the first change waits for who may hold what
// the former one granted.
func TestScenario57(t *testing.T) {
	tab, _ := fresh(t)
	ids := []SessionID{{1}, {2}}
	tab.Recover(ids, 0)
	ch := tab.Revoke([]Key{attrs})
	wantPending(t, ch, true)
	if st := tab.Stats(); len(tab.rec.ids) != 2 || st.Sessions != 2 {
		t.Errorf("%+v", st)
	}
	join(t, tab, 1)
	wantPending(t, ch, true)
	join(t, tab, 2)
	wantPending(t, ch, false)
	wantPending(t, tab.Revoke([]Key{name}), false)
}

// One that does not come back is waited for once, and forgotten.
func TestScenario57Gone(t *testing.T) {
	ids := []SessionID{{1}, {2}}
	tab, c := fresh(t)
	c.Advance(time.Second)
	tab.Recover(ids, 0)
	ch := tab.Revoke([]Key{attrs})
	c.Advance(DefaultTerm + DefaultMargin - 1)
	wantPending(t, ch, true)
	if tab.Gone(9) != nil || tab.Forget(SessionID{1}) {
		t.Error("gone too early")
	}
	c.Advance(1)
	wantPending(t, ch, false)
	wantPending(t, tab.Revoke([]Key{name}), false)
	if got := tab.Gone(1); len(got) != 1 {
		t.Errorf("gone: %v", got)
	}
	for _, id := range tab.Gone(9) {
		if !tab.Forget(id) {
			t.Error("not forgotten")
		}
	}
	if tab.Revoke([]Key{name}) != nil {
		t.Error("nobody caches, and there is something to do")
	}
}

func TestLimits(t *testing.T) {
	tab, c := fresh(t, func(c *Config) { c.MaxKeys, c.MaxKeysTotal, c.MaxSessions = 3, 5, 2 })
	a, b := join(t, tab, 1), join(t, tab, 2)
	if tab.Connect(SessionID{3}, "", 1, nil) != nil {
		t.Error("a session too many")
	}
	keys := func(from, n uint64) (ks []Key) {
		for i := range n {
			ks = append(ks, Key{Inode: from + i})
		}
		return ks
	}
	wantGrant(t, a, false)
	wantGrant(t, a, false, keys(1, 4)...) // more than it may ever have
	wantGrant(t, a, true, keys(1, 3)...)
	wantGrant(t, a, true, keys(1, 3)...)
	if len(a.told) != 0 {
		t.Errorf("told %v", a.told)
	}
	wantGrant(t, a, false, keys(4, 1)...)
	if len(a.told) != 1 || !a.told[0].All {
		t.Fatalf("told %v", a.told)
	}
	wantGrant(t, a, false, keys(1, 1)...) // what it held counts until it answers
	ch := tab.Revoke(keys(1, 1))
	wantPending(t, ch, true)
	a.ackAll()
	wantPending(t, ch, false)
	ch.Done()
	wantGrant(t, a, true, keys(4, 3)...)
	wantGrant(t, b, true, keys(4, 2)...)
	wantGrant(t, b, false, keys(6, 1)...) // too many together
	if len(a.told) != 2 || !a.told[1].All || len(b.told) != 0 {
		t.Errorf("told %v and %v", a.told, b.told)
	}
	a.ackAll()
	wantGrant(t, b, true, keys(6, 1)...)
	c.Advance(shedEvery)
	if st := tab.Stats(); st.Holdings != 3 || st.Full != 1 || st.RefusedLimit != 3 || st.DropAlls != 2 {
		t.Errorf("%+v", st)
	}
}

// A revocation of very many keys becomes one of everything.
func TestManyKeys(t *testing.T) {
	tab, _ := fresh(t)
	a := join(t, tab, 1)
	var keys []Key
	for i := range uint64(maxPush + 1) {
		keys = append(keys, Key{Inode: i, Name: fmt.Sprint(i)})
	}
	for part := range slices.Chunk(keys, 100) {
		wantGrant(t, a, true, part...)
	}
	ch := tab.Revoke(keys)
	if len(a.told) != 1 || !a.told[0].All {
		t.Errorf("told %d", len(a.told))
	}
	wantPending(t, ch, true)
	a.ackAll()
	wantPending(t, ch, false)
	ch.Done()
	if n := tab.keyCount(); n != 0 {
		t.Error(n)
	}
}

// bubble is the clock of a synctest bubble, where timers run too.
type bubble struct{ start time.Time }

func (b bubble) Wall() time.Time     { return time.Now() }
func (b bubble) Mono() time.Duration { return time.Since(b.start) }
func (b bubble) Boot() time.Duration { return b.Mono() }

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestWait(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(t *testing.T, a, b *peer, cancel func())
		took time.Duration
		err  error
		late uint64
	}{
		{"acknowledged", func(_ *testing.T, a, b *peer, _ func()) {
			pass(time.Second)
			b.ackAll()
			pass(time.Second)
			a.ackAll()
		}, 2 * time.Second, nil, 0},
		{"one comes back", func(_ *testing.T, a, b *peer, _ func()) {
			a.ackAll()
			pass(time.Second)
			b.connect()
		}, time.Second, nil, 0},
		{"never", func(*testing.T, *peer, *peer, func()) {}, DefaultTerm + DefaultMargin, nil, 2},
		{"the longer one", func(_ *testing.T, _, b *peer, _ func()) { b.ackAll() }, DefaultTerm + DefaultMargin - 3*time.Second, nil, 1},
		{"given up", func(_ *testing.T, _, _ *peer, cancel func()) {
			pass(time.Second)
			cancel()
		}, time.Second, context.Canceled, 0},
		{"refused", func(t *testing.T, a, b *peer, _ func()) {
			for range 20 {
				pass(time.Second / 2)
				if renewOn(a.t, a.id)+renewOn(b.t, b.id) != 0 {
					t.Error("renewed")
				}
			}
		}, DefaultTerm + DefaultMargin, nil, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []time.Duration
				tab := New(Config{Clock: bubble{time.Now()}, ObserveWait: func(d time.Duration) { seen = append(seen, d) }})
				a := join(t, tab, 1)
				pass(3 * time.Second)
				b := join(t, tab, 2)
				wantGrant(t, a, true, attrs)
				wantGrant(t, b, true, attrs)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := tab.Revoke([]Key{attrs})
				began := time.Now()
				ended := make(chan struct{})
				var err error
				var took time.Duration
				go func() {
					defer close(ended)
					err = c.Wait(ctx)
					took = time.Since(began)
				}()
				tc.then(t, a, b, cancel)
				<-ended
				c.Done()
				if took != tc.took || !errors.Is(err, tc.err) || len(seen) != 1 || seen[0] != took {
					t.Errorf("took %v, seen %v: %v", took, seen, err)
				}
				st := tab.Stats()
				if st.Lost != tc.late || (st.WaitsByTerm == 1) != (tc.late > 0) || st.Waits != 1 {
					t.Errorf("%+v", st)
				}
				if err := c.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The wait for a former reign's sessions ends with the last of them.
func TestWaitRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := New(Config{Clock: bubble{time.Now()}})
		tab.Recover([]SessionID{{1}, {2}}, 0)
		began := time.Now()
		go func() {
			join(t, tab, 1)
			pass(time.Second)
			join(t, tab, 2)
		}()
		if err := tab.Revoke([]Key{attrs}).Wait(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		tab = New(Config{Clock: bubble{time.Now()}})
		began = time.Now()
		tab.Recover([]SessionID{{1}}, 0)
		c := tab.Revoke([]Key{attrs})
		if err := c.Wait(t.Context()); err != nil || time.Since(began) != DefaultTerm+DefaultMargin || c.Pending() {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
