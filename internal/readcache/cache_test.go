package readcache

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
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

const term = 10 * time.Second

var (
	attrs = Key{Kind: 1, Inode: 7}
	name  = Key{Kind: 2, Inode: 1, Name: "f"}
)

// split is a clock whose hands move one by one.
type split struct {
	clock.Fake
	boot time.Duration
}

func (s *split) Boot() time.Duration { return s.boot }

func (s *split) pass(boot, wall time.Duration) {
	s.boot += boot
	s.ShiftWall(wall)
}

func fresh(t testing.TB, change ...func(*Config[string, int])) (*Cache[string, int], *split) {
	t.Helper()
	clk := new(split)
	cfg := Config[string, int]{Clock: clk}
	for _, f := range change {
		f(&cfg)
	}
	c := New(cfg)
	c.Connected()
	c.Extend(c.Now(), term)
	t.Cleanup(func() { sound(t, c) })
	return c, clk
}

func sound[K comparable, V any](t interface{ Errorf(string, ...any) }, c *Cache[K, V]) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, bytes, links := 0, int64(0), 0
	for e := c.ring.next; e != &c.ring; e = e.next {
		n++
		bytes += e.size
		links += len(e.deps)
		if c.entries[e.k] != e || e.next.prev != e {
			t.Errorf("%v is in the list and not in the map", e.k)
		}
		for i, x := range e.deps {
			if c.deps[x.d.key] != x.d || x.d.list[x.at].e != e || x.d.list[x.at].at != i {
				t.Errorf("%v: its dependency %v is not linked", e.k, x.d.key)
			}
		}
	}
	for _, d := range c.deps {
		links -= len(d.list)
	}
	if n != len(c.entries) || bytes != c.bytes || links != 0 {
		t.Errorf("%d in the list, %d in the map; %d bytes, counted %d; %d links too many", n, len(c.entries), bytes, c.bytes, links)
	}
	if n > max(c.cfg.MaxEntries, 0) || bytes > max(c.cfg.MaxBytes, 0) {
		t.Errorf("%d entries, %d bytes", n, bytes)
	}
	if len(c.revoked.last) > remembered || len(c.revoked.ring) > remembered {
		t.Errorf("%d keys remembered", len(c.revoked.last))
	}
}

func wantGet(t testing.TB, c *Cache[string, int], k string, v int) {
	t.Helper()
	if got, ok := c.Get(k); !ok || got != v {
		t.Errorf("%s: %d, %v; want %d", k, got, ok, v)
	}
}

func wantMiss(t testing.TB, c *Cache[string, int], k string) {
	t.Helper()
	if got, ok := c.Get(k); ok {
		t.Errorf("%s: %d", k, got)
	}
}

func put(t testing.TB, c *Cache[string, int], k string, v int, deps ...Key) {
	t.Helper()
	if !c.Put(c.Ticket(), k, v, deps) {
		t.Errorf("%s: not stored", k)
	}
}

// Scenario 55, the reader's side.
func TestScenario55(t *testing.T) {
	c, _ := fresh(t)
	put(t, c, "/f", 1, attrs, name)
	put(t, c, "/g", 2, name)
	put(t, c, "/h", 3, Key{Kind: 1, Inode: 8})
	wantGet(t, c, "/f", 1)
	c.Revoke([]Key{attrs, {Kind: 9}}, false)
	wantMiss(t, c, "/f")
	wantGet(t, c, "/g", 2)
	put(t, c, "/f", 4, attrs, name)
	c.Revoke([]Key{name}, false)
	wantMiss(t, c, "/f")
	wantMiss(t, c, "/g")
	c.Revoke(nil, true)
	wantMiss(t, c, "/h")
	want := Stats{Hits: 2, Misses: 4, Stored: 4, Revocations: 3, Drops: 4, DropAlls: 2}
	if st := c.Stats(); st != want {
		t.Errorf("%+v", st)
	}
}

// Scenario 55a: the reply was overtaken by its own revocation.
func TestScenario55a(t *testing.T) {
	c, _ := fresh(t)
	early := c.Ticket()
	c.Revoke([]Key{attrs}, false)
	late := c.Ticket()
	if c.Put(early, "/f", 1, []Key{name, attrs}) {
		t.Error("stored what was revoked")
	}
	if !c.Put(early, "/g", 1, []Key{name}) || !c.Put(late, "/f", 2, []Key{name, attrs}) {
		t.Error("not stored what was not revoked")
	}
	wantGet(t, c, "/f", 2)
	for i, drop := range []func(){
		func() { c.Revoke(nil, true) },
		func() { c.Connected() },
		func() { c.Disconnected(); c.Connected() },
	} {
		ticket := c.Ticket()
		drop()
		if c.Put(ticket, "/f", 1, []Key{attrs}) {
			t.Errorf("%d: stored", i)
		}
	}
	if c.Put(Ticket{}, "/f", 1, []Key{attrs}) || c.Put(c.Ticket(), "/f", 1, nil) {
		t.Error("stored without a ticket, or what depends on nothing")
	}
	if st := c.Stats(); st.Overtaken != 4 {
		t.Errorf("%+v", st)
	}
}

// What is remembered of revocations is bounded: the oldest reads are not stored.
func TestRemembered(t *testing.T) {
	c, _ := fresh(t)
	first := c.Ticket()
	revoke := func(n uint64) { c.Revoke([]Key{{Kind: 3, Inode: n}}, false) }
	for i := range uint64(remembered) {
		revoke(i)
	}
	if !c.Put(first, "/f", 1, []Key{attrs}) {
		t.Error("not stored, and all is remembered")
	}
	if c.Put(first, "/f", 1, []Key{{Kind: 3, Inode: 0}}) || c.Put(first, "/f", 1, []Key{{Kind: 3, Inode: remembered - 1}}) {
		t.Error("stored what was revoked")
	}
	second := c.Ticket()
	revoke(0) // again, so that it is remembered by its later number
	if c.Put(first, "/f", 1, []Key{attrs}) {
		t.Error("stored, and it is not known whether it was revoked")
	}
	for i := range uint64(remembered - 1) {
		if c.Put(second, "/f", 1, []Key{{Kind: 3, Inode: 0}}) {
			t.Fatal("stored what was revoked")
		}
		revoke(1 + i)
	}
	if !c.Put(second, "/f", 1, []Key{attrs}) {
		t.Error("not stored, and all is remembered")
	}
	revoke(3)
	if c.Put(second, "/f", 1, []Key{attrs}) {
		t.Error("stored, and it is not known whether it was revoked")
	}
	if len(c.revoked.last) > remembered {
		t.Errorf("%d remembered", len(c.revoked.last))
	}
}

// A partition: nothing comes any more, and the cache answers until its term is
// over by either clock, counted from before the renewal was sent.
func TestTerm(t *testing.T) {
	for name, tc := range map[string]struct {
		boot, wall time.Duration
		over       bool
	}{
		"in time":                {term - 1, term - 1, false},
		"over":                   {term, term, true},
		"the process slept":      {term, 0, true},
		"no clock that counts":   {0, term, true}, // suspended, on a kernel without BOOTTIME
		"the day was set back":   {term - 1, -time.Hour, false},
		"back, and it is over":   {term, -time.Hour, true},
		"the day was set ahead":  {1, time.Hour, true},
		"suspended and set back": {time.Hour, -time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, clk := fresh(t)
			put(t, c, "/f", 1, attrs)
			clk.pass(tc.boot, tc.wall)
			if tc.over {
				wantMiss(t, c, "/f")
			} else {
				wantGet(t, c, "/f", 1)
			}
			if st := c.Stats(); (st.Expired == 1) != tc.over {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestExtend(t *testing.T) {
	c, clk := fresh(t)
	put(t, c, "/f", 1, attrs)
	sent := c.Now()
	clk.pass(8*time.Second, 8*time.Second) // the answer takes long
	c.Extend(sent, term)
	later := c.Now()
	clk.pass(2*time.Second, 2*time.Second)
	wantMiss(t, c, "/f")
	c.Extend(later, 0) // refused
	wantMiss(t, c, "/f")
	c.Extend(later, term)
	wantGet(t, c, "/f", 1)
	c.Extend(sent, term) // an old one comes late
	wantGet(t, c, "/f", 1)
	clk.pass(8*time.Second, 0)
	wantMiss(t, c, "/f")

	// A new stream has no term, and an answer from before it gives none.
	before := c.Now()
	clk.pass(1, 1)
	c.Connected()
	c.Extend(before, term)
	put(t, c, "/f", 1, attrs)
	wantMiss(t, c, "/f")
	c.Extend(c.Now(), term)
	wantGet(t, c, "/f", 1)
	c.Connected()
	put(t, c, "/f", 1, attrs)
	wantMiss(t, c, "/f") // the old stream's term would still run
	clk.pass(1, 1)
	c.Disconnected()
	wantMiss(t, c, "/f")
	c.Extend(c.Now(), term)
	if c.sent.Boot > before.Boot+1 {
		t.Error("extended without a stream")
	}
}

func TestNotConnected(t *testing.T) {
	c := New(Config[string, int]{Clock: new(clock.Fake)})
	c.Extend(c.Now(), term)
	if c.Put(c.Ticket(), "/f", 1, []Key{attrs}) {
		t.Error("stored without a stream")
	}
	wantMiss(t, c, "/f")
	c.Connected()
	c.Extend(c.Now(), term)
	put(t, c, "/f", 1, attrs)
	c.Close()
	wantMiss(t, c, "/f")
	c.Connected()
	if c.Put(c.Ticket(), "/f", 1, []Key{attrs}) {
		t.Error("stored after Close")
	}
	c.Close()
}

func TestEviction(t *testing.T) {
	c, _ := fresh(t, func(c *Config[string, int]) {
		c.MaxEntries = 3
		c.MaxBytes = 3*(entryBytes+depBytes) + 100
		c.Size = func(_ string, v int) int64 { return int64(v) }
	})
	put(t, c, "a", 1, attrs)
	put(t, c, "b", 2, attrs)
	put(t, c, "c", 3, attrs)
	wantGet(t, c, "a", 1)
	put(t, c, "d", 4, attrs) // b goes
	wantMiss(t, c, "b")
	wantGet(t, c, "a", 1)
	put(t, c, "d", 98, attrs) // too much together: c goes, then a, though it was used
	wantMiss(t, c, "c")
	wantGet(t, c, "d", 98)
	put(t, c, "e", 3, attrs)
	put(t, c, "a", 3, attrs)
	if st := c.Stats(); st.Entries > 3 || st.Evictions < 2 {
		t.Errorf("%+v", st)
	}
	if c.Put(c.Ticket(), "d", 1<<20, []Key{attrs}) {
		t.Error("stored what is too large")
	}
	wantMiss(t, c, "d") // the old answer does not stay
	for i := range 100 {
		put(t, c, fmt.Sprint(i), 0, attrs, name)
		wantGet(t, c, fmt.Sprint(i), 0)
		sound(t, c)
	}
	c.Revoke([]Key{name}, false)
	if st := c.Stats(); st.Entries != 0 || st.Bytes != 0 || len(c.deps) != 0 {
		t.Errorf("%+v, %d keys", st, len(c.deps))
	}

	off, _ := fresh(t, func(c *Config[string, int]) { c.MaxEntries = -1 })
	if off.Put(off.Ticket(), "a", 1, []Key{attrs}) {
		t.Error("stored, and nothing is to be kept")
	}
}

// An entry that names a key twice.
func TestTwice(t *testing.T) {
	c, _ := fresh(t)
	put(t, c, "a", 1, attrs, attrs, name)
	put(t, c, "b", 1, attrs, name, attrs)
	put(t, c, "a", 2, name, attrs, attrs)
	sound(t, c)
	c.Revoke([]Key{attrs}, false)
	if st := c.Stats(); st.Entries != 0 || st.Drops != 2 {
		t.Errorf("%+v", st)
	}
}

// All methods at once. A value is the sum of the versions of its keys; what was
// put and not revoked is the latest.
func TestConcurrent(t *testing.T) {
	clk := new(clock.Fake)
	c := New(Config[int, uint64]{Clock: clk, MaxEntries: 50})
	c.Connected()
	c.Extend(c.Now(), term)
	const keys, steps = 64, 20_000
	var state sync.RWMutex // the namenode's
	var versions [keys]uint64
	var wg, readers sync.WaitGroup
	stop := make(chan struct{})
	for n := range 4 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(n)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := rnd.IntN(keys)
				b := (a + 1) % keys
				state.RLock() // a change is applied when its revocation was
				if v, ok := c.Get(a); ok && v != versions[a]+versions[b] {
					t.Errorf("%d: %d, not %d", a, v, versions[a]+versions[b])
				}
				state.RUnlock()
				ticket := c.Ticket()
				state.RLock()
				v := versions[a] + versions[b]
				state.RUnlock()
				runtime.Gosched()
				c.Put(ticket, a, v, []Key{{Inode: uint64(a)}, {Inode: uint64(b)}})
				if rnd.IntN(1000) == 0 {
					c.Extend(c.Now(), term)
					c.Stats()
				}
			}
		})
	}
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(2, 0))
		for i := range steps {
			k := rnd.Uint64N(keys)
			state.Lock()
			versions[k]++
			c.Revoke([]Key{{Inode: k}}, i%1000 == 0)
			state.Unlock()
			switch i % 5000 {
			case 1000:
				c.Disconnected()
			case 1001:
				c.Connected()
				c.Extend(c.Now(), term)
			}
		}
	})
	wg.Wait()
	close(stop)
	readers.Wait()
	sound(t, c)
	t.Logf("%+v", c.Stats())
	c.Close()
}
