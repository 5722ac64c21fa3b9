package readlease

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/clock"
)

// The model is the whole protocol with holders that do what the package comment
// asks of them: messages wait in queues, streams are cut, namenodes fail over,
// and a holder's clock runs slower or faster by what the margin allows.
type world struct {
	clock   *clock.Fake
	t       *Table
	reign   uint64
	holders []*modelHolder
	keys    []Key
	version map[Key]int
	changes []*modelChange
	hits    int // beliefs seen that were true
}

const (
	testTerm    = 10 * time.Second
	testMargin  = time.Second
	testPenalty = 30 * time.Second
)

type modelHolder struct {
	id     SessionID
	number uint64   // of its latest stream
	late   []uint64 // streams that it has given up; their Hellos are on the way
	rate   float64  // of its clock
	now    time.Duration
	ends   time.Duration // of its term, by its clock
	began  time.Duration // of its connection
	epoch  int           // raised by each drop of everything
	overs  map[Key]int   // when each key was revoked last
	count  int           // of revocations
	has    map[Key]int   // the versions that it believes in
	stream *Stream       // the namenode's end; nil: it knows that it is cut
	inbox  []Revocation
	acks   []uint64
	reads  []modelReply
	sent   []time.Duration // renewals on their way
	terms  []modelTerm     // answers to renewals
}

type modelReply struct {
	key          Key
	version      int
	granted      bool
	epoch, count int
}

type modelTerm struct{ sent, term time.Duration }

type modelChange struct {
	c     *Change
	keys  []Key
	until time.Duration // the latest end of its wait
	done  bool          // applied, not durable
}

func newWorld(sessions, keys int) *world {
	w := &world{clock: new(clock.Fake), version: map[Key]int{}}
	for i := range sessions {
		w.holders = append(w.holders, &modelHolder{
			id: SessionID{byte(i + 1)}, rate: []float64{1, 0.915, 1.3}[i%3], has: map[Key]int{}, overs: map[Key]int{},
		})
	}
	for i := range keys {
		w.keys = append(w.keys, Key{Kind: uint8(i % 2), Inode: uint64(i / 2), Name: []string{"", "a"}[i%2]}) //nolint:gosec // small
	}
	w.activate()
	return w
}

func (w *world) activate() {
	w.reign++
	w.t = New(Config{
		Clock: w.clock, Term: testTerm, Margin: testMargin, Penalty: testPenalty,
		MaxKeys: 4, MaxKeysTotal: 9, FirstSeq: w.reign << 32,
	})
}

func (h *modelHolder) dropAll() {
	clear(h.has)
	h.epoch++
}

func (h *modelHolder) apply(r Revocation) {
	h.count++
	if r.All {
		h.dropAll()
	}
	for _, k := range r.Keys {
		delete(h.has, k)
		h.overs[k] = h.count
	}
}

func (h *modelHolder) believes(k Key) (int, bool) {
	v, ok := h.has[k]
	return v, ok && h.now < h.ends
}

func (w *world) connect(h *modelHolder) {
	h.stream, h.inbox, h.acks = nil, nil, nil
	h.number++
	h.stream = w.t.Connect(h.id, string(h.id[:]), h.number, func(r Revocation) { h.inbox = append(h.inbox, r) })
	h.dropAll()
	h.ends, h.began = 0, h.now
}

// read is what the namenode does; the answer is on its way.
func (w *world) read(h *modelHolder, k Key) {
	h.reads = append(h.reads, modelReply{
		key: k, version: w.version[k], granted: w.t.Grant(h.id, []Key{k}), epoch: h.epoch, count: h.count,
	})
}

func (w *world) deliverRead(h *modelHolder, i int) {
	r := h.reads[i]
	h.reads = slices.Delete(h.reads, i, i+1)
	if r.granted && r.epoch == h.epoch && h.overs[r.key] <= r.count {
		h.has[r.key] = r.version
	}
}

// begin is Revoke, under the namespace lock, and the change itself if nothing
// is to be waited for.
func (w *world) begin(keys []Key) {
	ch := &modelChange{c: w.t.Revoke(keys), keys: keys, until: w.clock.Mono() + testTerm + testMargin}
	w.changes = append(w.changes, ch)
	w.advanceChange(ch)
}

// advanceChange applies a change that waits for nothing more.
func (w *world) advanceChange(ch *modelChange) {
	if ch.done || ch.c.Pending() {
		return
	}
	for _, k := range ch.keys {
		w.version[k]++
	}
	ch.done = true
}

func (w *world) deliver(h *modelHolder) {
	r := h.inbox[0]
	h.inbox = h.inbox[1:]
	h.apply(r)
	h.acks = append(h.acks, r.Seq)
}

// renew is what a holder that works does every few seconds.
func (w *world) renew(h *modelHolder) {
	if h.stream == nil {
		w.connect(h)
	}
	for len(h.inbox) > 0 {
		w.deliver(h)
	}
	for _, a := range h.acks {
		w.t.Ack(h.id, a)
	}
	h.acks = nil
	if term := h.stream.Renew(); term > 0 {
		h.ends = max(h.ends, h.now+term)
	}
}

func (w *world) advance(d time.Duration) {
	w.clock.Advance(d)
	for _, h := range w.holders {
		h.now += time.Duration(float64(d) * h.rate)
	}
}

// failover replaces the namenode. Changes that were under way never happen;
// answers that were under way still come.
func (w *world) failover() {
	for _, ch := range w.changes {
		ch.c.Done()
	}
	w.changes = nil
	var ids []SessionID
	for _, h := range w.holders {
		ids = append(ids, h.id)
		h.stream, h.inbox, h.acks, h.sent = nil, nil, nil, nil
	}
	w.activate()
	w.t.Recover(ids, 0)
}

func (w *world) check(t *rapid.T) {
	for _, h := range w.holders {
		for _, k := range w.keys {
			v, ok := h.believes(k)
			if ok && v != w.version[k] {
				t.Fatalf("session %d believes version %d of %v, which has %d", h.id[0], v, k, w.version[k])
			}
			if ok {
				w.hits++
			}
		}
	}
	for _, ch := range w.changes {
		if !ch.done && w.clock.Mono() >= ch.until && ch.c.Pending() {
			t.Fatalf("a change of %v waits beyond the term", ch.keys)
		}
	}
	for _, s := range w.t.check() {
		t.Error(s)
	}
}

func TestModel(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(4, 6)
		holder := func(t *rapid.T) *modelHolder { return rapid.SampledFrom(w.holders).Draw(t, "holder") }
		some := func(t *rapid.T) []Key {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(w.keys), 1, 3, rapid.ID[Key]).Draw(t, "keys")
		}
		read := func(t *rapid.T) {
			h := holder(t)
			w.read(h, rapid.SampledFrom(w.keys).Draw(t, "key"))
			if rapid.IntRange(0, 2).Draw(t, "late") > 0 {
				w.deliverRead(h, len(h.reads)-1)
			}
		}
		renew := func(t *rapid.T) { w.renew(holder(t)) }
		t.Repeat(map[string]func(*rapid.T){
			"": w.check,
			"heal": func(*rapid.T) { // a calm moment: all is delivered, and all is read
				for _, h := range w.holders {
					w.renew(h)
				}
				for i, h := range w.holders {
					w.read(h, w.keys[i])
					w.deliverRead(h, len(h.reads)-1)
					w.read(h, w.keys[0])
					w.deliverRead(h, len(h.reads)-1)
				}
			},
			"scan": func(t *rapid.T) {
				h := holder(t)
				for _, k := range rapid.Permutation(w.keys).Draw(t, "order") {
					w.read(h, k)
					w.deliverRead(h, len(h.reads)-1)
				}
			},
			"readBeforeAck": func(t *rapid.T) { // the read overtakes the acknowledgement
				h := holder(t)
				for len(h.inbox) > 0 {
					w.deliver(h)
				}
				for _, k := range w.keys {
					w.read(h, k)
					w.deliverRead(h, len(h.reads)-1)
				}
				for _, a := range h.acks {
					w.t.Ack(h.id, a)
				}
				h.acks = nil
			},
			"renew":  renew,
			"renew2": renew,
			"read":   read,
			"read2":  read,
			"read3":  read,
			"connect": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					w.connect(holder(t))
				}
			},
			"cutHere": func(t *rapid.T) {
				h := holder(t)
				if h.stream != nil {
					h.stream.Disconnect()
				}
				if rapid.Bool().Draw(t, "noticed") {
					h.stream, h.inbox, h.acks = nil, nil, nil
				}
			},
			"leave": func(t *rapid.T) {
				if h := holder(t); h.stream != nil {
					h.dropAll()
					h.stream.Leave()
					h.stream, h.inbox, h.acks = nil, nil, nil
				}
			},
			"giveUp": func(t *rapid.T) { // a stream that takes too long
				if h := holder(t); h.stream == nil {
					h.dropAll()
					h.number++
					h.late = append(h.late, h.number)
				}
			},
			"late": func(t *rapid.T) {
				if h := holder(t); len(h.late) > 0 {
					st := w.t.Connect(h.id, string(h.id[:]), h.late[0], func(Revocation) {})
					h.late = h.late[1:]
					if rapid.Bool().Draw(t, "noticed") {
						st.Disconnect()
					}
				}
			},
			"reply": func(t *rapid.T) {
				if h := holder(t); len(h.reads) > 0 {
					w.deliverRead(h, rapid.IntRange(0, len(h.reads)-1).Draw(t, "which"))
				}
			},
			"revocation": func(t *rapid.T) {
				if h := holder(t); len(h.inbox) > 0 {
					w.deliver(h)
				}
			},
			"ack": func(t *rapid.T) {
				if h := holder(t); len(h.acks) > 0 {
					w.t.Ack(h.id, h.acks[0])
					h.acks = h.acks[1:]
				}
			},
			"renewSent": func(t *rapid.T) {
				h := holder(t)
				h.sent = append(h.sent, h.now)
			},
			"renewTaken": func(t *rapid.T) {
				if h := holder(t); len(h.sent) > 0 {
					h.terms = append(h.terms, modelTerm{h.sent[0], h.stream.Renew()})
					h.sent = h.sent[1:]
				}
			},
			"renewAnswered": func(t *rapid.T) {
				if h := holder(t); len(h.terms) > 0 {
					a := h.terms[0]
					h.terms = h.terms[1:]
					if a.term > 0 && a.sent >= h.began {
						h.ends = max(h.ends, a.sent+a.term)
					}
				}
			},
			"change":  func(t *rapid.T) { w.begin(some(t)) },
			"change2": func(t *rapid.T) { w.begin(some(t)) },
			"replan": func(t *rapid.T) {
				if len(w.changes) == 0 {
					t.Skip()
				}
				ch := rapid.SampledFrom(w.changes).Draw(t, "change")
				if ch.done || ch.c == nil || ch.c.Pending() {
					return
				}
				more := some(t)
				ch.keys = append(ch.keys, more...)
				slices.SortFunc(ch.keys, func(a, b Key) int { return int(a.Inode*2+uint64(a.Kind)) - int(b.Inode*2+uint64(b.Kind)) }) //nolint:gosec // small
				ch.keys = slices.Compact(ch.keys)
				ch.until = w.clock.Mono() + testTerm + testMargin
				if pending := ch.c.More(more); pending != ch.c.Pending() {
					t.Fatalf("More says %v", pending)
				}
				w.advanceChange(ch)
			},
			"apply": func(*rapid.T) {
				for _, ch := range w.changes {
					w.advanceChange(ch)
				}
			},
			"durable": func(t *rapid.T) {
				if len(w.changes) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(w.changes)-1).Draw(t, "change")
				if !w.changes[i].done && rapid.Bool().Draw(t, "keep") {
					return // else it is given up
				}
				w.changes[i].c.Done()
				w.changes = slices.Delete(w.changes, i, i+1)
			},
			"advance": func(t *rapid.T) {
				w.advance(rapid.SampledFrom([]time.Duration{
					1, time.Millisecond, time.Second, testTerm / 2, testTerm - 1, testTerm, testMargin, testTerm + testMargin, testPenalty,
				}).Draw(t, "d"))
			},
			"advance2": func(*rapid.T) { w.advance(time.Second / 4) },
			"gone": func(t *rapid.T) {
				for _, id := range w.t.Gone(2) {
					if !w.t.Forget(id) {
						t.Fatal("gone, and not forgotten")
					}
				}
			},
			"failover": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					w.failover()
				}
			},
		})
		// In the end nothing is left over.
		for _, ch := range w.changes {
			ch.c.Done()
		}
		w.advance(time.Hour)
		for _, h := range w.holders {
			if h.stream != nil {
				h.stream.Disconnect()
			}
			h.number++
			w.t.Connect(h.id, string(h.id[:]), h.number, func(Revocation) {}).Disconnect() // of a late one, too
		}
		for i := 0; w.t.active.Load() > 0; i++ {
			if i == 2 {
				t.Fatalf("left: %+v", w.t.Stats())
			}
			for _, id := range w.t.Gone(1000) {
				w.t.Forget(id)
			}
			w.advance(time.Hour)
		}
		if st := w.t.Stats(); w.t.keyCount() != 0 || st.Holdings != 0 {
			t.Fatalf("left: %+v", st)
		}
		hits += w.hits
	})
	t.Logf("%d beliefs checked", hits)
}
