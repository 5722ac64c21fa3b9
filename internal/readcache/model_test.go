package readcache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/leasemanager/readlease"
)

// The model puts both halves together: the namenode's table and real caches, on
// clocks of their own that run slower or faster by what the margin allows, with
// every message in a queue. A request i depends on the keys i and i+1; its
// answer is made of their versions.
type world struct {
	clock    *clock.Fake
	t        *readlease.Table
	reign    uint64
	clients  []*client
	versions []int
	changes  []*change
	hits     int
}

type client struct {
	id    readlease.SessionID
	rate  float64
	clk   *split
	cache *Cache[int, int]

	number  uint64            // of its latest stream
	late    []uint64          // given up; their Hellos are on the way
	stream  *readlease.Stream // the namenode's end
	welcome bool              // the first message is on its way
	inbox   []readlease.Revocation
	acks    []uint64
	replies []reply
	sent    []clock.Reading
	terms   []answer
}

type reply struct {
	ticket  Ticket
	k, v    int
	granted bool
}

type answer struct {
	sent clock.Reading
	term time.Duration
}

type change struct {
	c       *readlease.Change
	keys    []int
	applied bool
}

const requests = 5

func tableKey(i int) readlease.Key {
	return readlease.Key{Kind: 1, Inode: uint64(i % requests)} //nolint:gosec // small
}

func tableKeys(is []int) (keys []readlease.Key) {
	for _, i := range is {
		keys = append(keys, tableKey(i))
	}
	return keys
}

func newWorld() *world {
	w := &world{clock: new(clock.Fake), versions: make([]int, requests)}
	for i, rate := range []float64{1, 0.915, 1.3} {
		clk := new(split)
		w.clients = append(w.clients, &client{
			id: readlease.SessionID{byte(i + 1)}, rate: rate, clk: clk,
			cache: New(Config[int, int]{Clock: clk, MaxEntries: 4}),
		})
	}
	w.activate()
	return w
}

func (w *world) activate() {
	w.reign++
	w.t = readlease.New(readlease.Config{
		Clock: w.clock, Penalty: 30 * time.Second, MaxKeys: 4, FirstSeq: w.reign << 32,
	})
}

func (w *world) value(k int) int { return w.versions[k]*1000 + w.versions[(k+1)%requests] }

// ask is a new stream's way to the namenode; its welcome comes later.
func (w *world) ask(c *client) {
	c.cache.Disconnected()
	c.inbox, c.acks = nil, nil
	c.welcome = true
	c.number++
	c.stream = w.t.Connect(c.id, fmt.Sprint(c.id), c.number, func(r readlease.Revocation) { c.inbox = append(c.inbox, r) })
}

// hear takes the next message of the stream in.
func (c *client) hear() bool {
	switch {
	case c.welcome:
		c.welcome = false
		c.cache.Connected()
	case len(c.inbox) > 0:
		r := c.inbox[0]
		c.inbox = c.inbox[1:]
		keys := make([]Key, 0, len(r.Keys))
		for _, k := range r.Keys {
			keys = append(keys, Key(k))
		}
		c.cache.Revoke(keys, r.All)
		c.acks = append(c.acks, r.Seq)
	default:
		return false
	}
	return true
}

func (w *world) read(c *client, k int) {
	ticket := c.cache.Ticket()
	keys := tableKeys([]int{k, k + 1})
	c.replies = append(c.replies, reply{ticket, k, w.value(k), w.t.Grant(c.id, keys)})
}

func (c *client) answered(i int) {
	r := c.replies[i]
	c.replies = slices.Delete(c.replies, i, i+1)
	if r.granted {
		c.cache.Put(r.ticket, r.k, r.v, []Key{Key(tableKey(r.k)), Key(tableKey(r.k + 1))})
	}
}

func (w *world) renew(c *client) {
	for c.hear() {
	}
	for _, a := range c.acks {
		w.t.Ack(c.id, a)
	}
	c.acks = nil
	sent := c.cache.Now()
	c.cache.Extend(sent, c.stream.Renew())
}

// apply makes a change that nobody is waited for any more.
func (w *world) apply(ch *change) {
	if ch.applied || ch.c.Pending() {
		return
	}
	ch.applied = true
	for _, k := range ch.keys {
		w.versions[k]++
	}
}

func (w *world) advance(d time.Duration) {
	w.clock.Advance(d)
	for _, c := range w.clients {
		c.clk.pass(time.Duration(float64(d)*c.rate), time.Duration(float64(d)*c.rate))
	}
}

func (w *world) failover() {
	for _, ch := range w.changes {
		ch.c.Done()
	}
	w.changes = nil
	var ids []readlease.SessionID
	for _, c := range w.clients {
		ids = append(ids, c.id) // they have not noticed
		c.inbox, c.acks, c.sent, c.welcome, c.stream = nil, nil, nil, false, nil
	}
	w.activate()
	w.t.Recover(ids, 0)
}

func (w *world) check(t *rapid.T) {
	for i, c := range w.clients {
		for k := range requests {
			v, ok := c.cache.Get(k)
			if ok && v != w.value(k) {
				t.Fatalf("client %d answers %d with %d, not %d", i, k, v, w.value(k))
			}
			if ok {
				w.hits++
			}
		}
		sound(t, c.cache)
	}
}

func TestModel(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		some := func(t *rapid.T) *client { return rapid.SampledFrom(w.clients).Draw(t, "client") }
		request := func(t *rapid.T) int { return rapid.IntRange(0, requests-1).Draw(t, "request") }
		change1 := func(t *rapid.T) {
			ch := &change{keys: rapid.SliceOfNDistinct(rapid.IntRange(0, requests-1), 1, 2, rapid.ID[int]).Draw(t, "keys")}
			ch.c = w.t.Revoke(tableKeys(ch.keys))
			w.changes = append(w.changes, ch)
			w.apply(ch)
		}
		read := func(t *rapid.T) {
			c := some(t)
			w.read(c, request(t))
			if rapid.Bool().Draw(t, "now") {
				c.answered(len(c.replies) - 1)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": w.check,
			"heal": func(*rapid.T) {
				for i, c := range w.clients {
					if c.stream == nil {
						w.ask(c)
					}
					w.renew(c)
					w.read(c, i)
					c.answered(len(c.replies) - 1)
				}
			},
			"ask": func(t *rapid.T) {
				if c := some(t); c.stream == nil || rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					w.ask(c)
				}
			},
			"cut": func(t *rapid.T) {
				c := some(t)
				if c.stream != nil {
					c.stream.Disconnect()
				}
				if rapid.Bool().Draw(t, "noticed") {
					c.cache.Disconnected()
					c.inbox, c.acks, c.welcome, c.stream = nil, nil, false, nil
				}
			},
			"giveUp": func(t *rapid.T) { // a stream that takes too long
				if c := some(t); c.stream == nil {
					c.cache.Disconnected()
					c.number++
					c.late = append(c.late, c.number)
				}
			},
			"late": func(t *rapid.T) {
				if c := some(t); len(c.late) > 0 {
					st := w.t.Connect(c.id, fmt.Sprint(c.id), c.late[0], func(readlease.Revocation) {})
					c.late = c.late[1:]
					if rapid.Bool().Draw(t, "noticed") {
						st.Disconnect()
					}
				}
			},
			"read": read, "read2": read, "read3": read,
			"readBeforeAck": func(t *rapid.T) {
				c := some(t)
				for c.hear() {
				}
				for k := range requests {
					w.read(c, k)
					c.answered(len(c.replies) - 1)
				}
				for _, a := range c.acks {
					w.t.Ack(c.id, a)
				}
				c.acks = nil
			},
			"reply": func(t *rapid.T) {
				if c := some(t); len(c.replies) > 0 {
					c.answered(rapid.IntRange(0, len(c.replies)-1).Draw(t, "which"))
				}
			},
			"hear": func(t *rapid.T) { some(t).hear() },
			"ack": func(t *rapid.T) {
				if c := some(t); len(c.acks) > 0 {
					w.t.Ack(c.id, c.acks[0])
					c.acks = c.acks[1:]
				}
			},
			"renew": func(t *rapid.T) { w.renew(some(t)) },
			"renewSent": func(t *rapid.T) {
				c := some(t)
				c.sent = append(c.sent, c.cache.Now())
			},
			"renewTaken": func(t *rapid.T) {
				if c := some(t); len(c.sent) > 0 {
					c.terms = append(c.terms, answer{c.sent[0], c.stream.Renew()})
					c.sent = c.sent[1:]
				}
			},
			"renewAnswered": func(t *rapid.T) {
				if c := some(t); len(c.terms) > 0 {
					c.cache.Extend(c.terms[0].sent, c.terms[0].term)
					c.terms = c.terms[1:]
				}
			},
			"change": change1, "change2": change1,
			"apply": func(*rapid.T) {
				for _, ch := range w.changes {
					w.apply(ch)
				}
			},
			"done": func(t *rapid.T) {
				if len(w.changes) > 0 {
					w.changes[0].c.Done() // made or not
					w.changes = w.changes[1:]
				}
			},
			"advance": func(t *rapid.T) {
				w.advance(rapid.SampledFrom([]time.Duration{
					time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second, 11 * time.Second, 30 * time.Second,
				}).Draw(t, "d"))
			},
			"advance2": func(*rapid.T) { w.advance(time.Second / 4) },
			"suspend": func(t *rapid.T) { // a client's machine; the day may be wrong then
				c := some(t)
				d := rapid.SampledFrom([]time.Duration{time.Second, 11 * time.Second}).Draw(t, "d")
				w.advance(d)
				c.clk.pass(0, -rapid.SampledFrom([]time.Duration{0, d, time.Hour}).Draw(t, "back"))
			},
			"gone": func(*rapid.T) {
				for _, id := range w.t.Gone(2) {
					w.t.Forget(id)
				}
			},
			"failover": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					w.failover()
				}
			},
		})
		hits += w.hits
	})
	t.Logf("%d hits checked", hits)
}
