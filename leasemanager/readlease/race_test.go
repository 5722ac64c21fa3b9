package readlease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// All methods at once, with a lock as the server has one. While the namespace
// lock is held exclusively and a change is waited for no more, nobody may hold
// its keys but those who have not acknowledged and whose term is over.
func TestConcurrent(t *testing.T) {
	var ns sync.RWMutex
	fake := new(clock.Fake)
	tab := New(Config{Clock: fake, MaxKeys: 20, MaxKeysTotal: 70, Penalty: time.Second})
	const sessions, keys, steps = 6, 40, 100
	var over atomic.Bool
	var values [keys]atomic.Int64
	var wg sync.WaitGroup
	for n := range sessions {
		wg.Go(func() { // a holder
			rnd := rand.New(rand.NewPCG(1, uint64(n)))
			id := SessionID{byte(n + 1)}
			var mu sync.Mutex
			has := map[Key]int64{} // valid until the acknowledgement
			var queue []Revocation
			var st *Stream
			number := uint64(0)
			for !over.Load() {
				switch rnd.IntN(20) {
				case 0:
					if st == nil || rnd.IntN(10) == 0 {
						mu.Lock()
						queue = nil
						mu.Unlock()
						clear(has)
						number++
						st = tab.Connect(id, string(id[:]), number, func(r Revocation) {
							mu.Lock()
							defer mu.Unlock()
							queue = append(queue, r)
						})
					}
				case 1:
					if rnd.IntN(10) == 0 {
						st.Disconnect()
						st = nil
						clear(has)
					}
				case 2, 3:
					renewOn(tab, id)
				case 4, 5, 6, 7, 8:
					mu.Lock()
					told := queue
					queue = nil
					mu.Unlock()
					for _, r := range told {
						if r.All {
							clear(has)
						}
						for _, k := range r.Keys {
							delete(has, k)
						}
						tab.Ack(id, r.Seq)
					}
				default:
					i := rnd.Uint64N(keys)
					k := Key{Inode: i, Name: fmt.Sprint(i % 3)}
					ns.RLock()
					v := values[i].Load()
					if tab.Grant(id, []Key{k}) {
						if old, ok := has[k]; ok && old != v {
							mu.Lock()
							if len(queue) == 0 { // the clock stands still: no term is over
								t.Errorf("session %d holds %d of %v, which has %d", n, old, k, v)
							}
							mu.Unlock()
						}
						has[k] = v
					}
					ns.RUnlock()
				}
			}
			st.Disconnect()
		})
	}
	var changing sync.WaitGroup
	for n := range 3 {
		changing.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(n)))
			for range steps {
				i, j := rnd.Uint64N(keys), rnd.Uint64N(keys)
				some := []Key{{Inode: i, Name: fmt.Sprint(i % 3)}, {Inode: j, Name: fmt.Sprint(j % 3)}}
				ns.Lock()
				c := tab.Revoke(some[:1])
				for again := c.Pending(); ; again = c.More(some) {
					if !again {
						break
					}
					ns.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					err := c.Wait(ctx)
					cancel()
					ns.Lock()
					if err != nil {
						c.Done()
						c = nil
						break
					}
				}
				if c != nil {
					values[i].Add(1)
				}
				ns.Unlock()
				c.Done()
			}
		})
	}
	changing.Go(func() {
		for i := range uint64(steps) {
			for _, id := range tab.Gone(3) {
				tab.Forget(id)
			}
			tab.Stats()
			tab.Recover([]SessionID{{200}}, 0)
			runtime.Gosched()
			tab.Connect(SessionID{200}, "", i+1, func(Revocation) {}).Disconnect()
		}
	})
	changing.Wait()
	over.Store(true)
	wg.Wait()
	fake.Advance(time.Hour)
	for _, id := range tab.Gone(1000) {
		if !tab.Forget(id) {
			t.Error("not forgotten")
		}
	}
	st := tab.Stats()
	if tab.keyCount() != 0 || st.Holdings != 0 {
		t.Errorf("left: %+v", st)
	}
	for _, s := range tab.check() {
		t.Error(s)
	}
	t.Logf("%+v", st)
}

// The same with time that passes: terms end while everything else continues. Only
// what is inside is checked.
func TestConcurrentTime(t *testing.T) {
	fake := new(clock.Fake)
	tab := New(Config{Clock: fake, MaxKeys: 20, Penalty: time.Second})
	var ns sync.RWMutex
	var wg sync.WaitGroup
	var number atomic.Uint64
	for n := range 5 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(n)))
			id := SessionID{byte(n%3 + 1)}
			var last atomic.Uint64
			var st *Stream
			for range 5000 {
				k := Key{Inode: rnd.Uint64N(30)}
				switch rnd.IntN(12) {
				case 0:
					st = tab.Connect(id, string(id[:]), number.Add(1), func(r Revocation) { last.Store(r.Seq) })
				case 1:
					st.Disconnect()
				case 2, 3:
					renewOn(tab, id)
				case 4, 5:
					tab.Ack(id, last.Load())
				case 6:
					ns.Lock()
					c := tab.Revoke([]Key{k})
					ns.Unlock()
					fake.Advance(DefaultTerm + DefaultMargin)
					if err := c.Wait(t.Context()); err != nil {
						t.Error(err)
					}
					c.Done()
				case 7:
					fake.Advance(time.Second)
				case 8:
					for _, id := range tab.Gone(1) {
						tab.Forget(id)
					}
				default:
					ns.RLock()
					tab.Grant(id, []Key{k, {Inode: 1}})
					ns.RUnlock()
				}
			}
		})
	}
	wg.Wait()
	for _, s := range tab.check() {
		t.Error(s)
	}
}

// What 200,000 held keys take: names of 12 bytes, one holder each, and each
// held by ten.
func TestMemory(t *testing.T) {
	held := 200_000
	if testing.Short() {
		held = 50_000
	}
	for _, holders := range []int{1, 10} {
		n := held / holders
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("file%08d", i)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		tab := New(Config{Clock: new(clock.Fake), MaxKeys: n})
		for s := range holders {
			p := join(t, tab, byte(s+1))
			for i := range names {
				wantGrant(t, p, true, Key{1, 1, names[i]})
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		bytes := float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
		t.Logf("%d keys with %d holders: %.0f bytes a key", n, holders, bytes)
		if limit := 220 + 40*float64(holders); bytes > limit {
			t.Errorf("%.0f bytes a key, at most %.0f", bytes, limit)
		}
		runtime.KeepAlive(tab)
		runtime.KeepAlive(names)
	}
}

// keyCount is how many keys are held or marked.
func (t *Table) keyCount() (n int) {
	for i := range t.keys.shards {
		sh := &t.keys.shards[i]
		sh.mu.Lock()
		for _, set := range sh.entries {
			n += len(set)
		}
		sh.mu.Unlock()
	}
	return n
}
