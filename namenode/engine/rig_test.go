package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

// memory is a journal in memory. What is appended is durable at once, unless it is
// held back.
type memory struct {
	journal.Journal // the rest is not called

	backlog int64
	refuse  error // of Append

	mu      sync.Mutex
	records []journal.Record
	held    bool
	durable uint64
	grown   chan struct{} // closed when durable has grown, or broken is set
	broken  error         // of WaitDurable
}

func (m *memory) Append(r journal.Record) error {
	if m.refuse != nil {
		return m.refuse
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	if !m.held {
		m.durable = r.TxID
	}
	return nil
}

func (m *memory) Durable() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.durable
}

func (m *memory) WaitDurable(ctx context.Context, txid uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.durable < txid && m.broken == nil {
		grown := m.grown
		m.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
		}
		m.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return m.broken
}

func (m *memory) Backlog() int64 { return m.backlog }

// hold keeps what is appended from becoming durable until release.
func (m *memory) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.grown = true, make(chan struct{})
}

// release makes all durable, or breaks the journal.
func (m *memory) release(broken error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
	if m.held = broken != nil; !m.held && len(m.records) > 0 {
		m.durable = m.records[len(m.records)-1].TxID
	}
	close(m.grown)
}

// reign is a reign as a test sets it.
type reign struct {
	active, window error
	failed         []error
}

func (r *reign) Active() error { return r.active }
func (r *reign) Window() error { return r.window }

func (r *reign) Fail(why error) {
	r.failed = append(r.failed, why)
	r.active = fserror.New(fserror.NotActive, "", "", "the reign has ended")
}

// rooms are the other parts of a namenode as a test sets them.
type rooms struct {
	admit  error // when something grows
	refuse error
	park   error
	taker  share.Taker

	applied []namespace.Entry
	parked  int // now
}

func (r *rooms) Admit(grows bool) error {
	if grows {
		return r.admit
	}
	return nil
}

func (r *rooms) Park(context.Context) (func(), error) {
	if r.park != nil {
		return nil, r.park
	}
	r.parked++
	return func() { r.parked-- }, nil
}

func (r *rooms) Taker(context.Context, *namespace.Call) share.Taker { return r.taker }

func (r *rooms) Refuse(*Tx, namespace.SessionID, namespace.Op) error { return r.refuse }

func (r *rooms) Applied(_ *Tx, e namespace.Entry, _ namespace.Result) {
	r.applied = append(r.applied, e)
}

// rig is an engine in its first reign.
type rig struct {
	*Engine
	t       *testing.T
	clock   *clock.Fake
	journal *memory
	reign   *reign
	rooms   *rooms
	logged  []string
}

const start = 1_700_000_000_000 // the time of day

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: new(clock.Fake), journal: new(memory), reign: new(reign), rooms: new(rooms)}
	r.clock.ShiftWall(time.UnixMilli(start).Sub(r.clock.Wall()))
	r.Engine = New(Config{
		Clock: r.clock, Log: slog.New(recorder{slog.DiscardHandler, r}), CacheTerm: 10 * time.Second, ObserveWait: func(time.Duration) {}, Reign: r.reign, Rooms: r.rooms,
	})
	r.Open(namespace.New(), r.journal)
	r.BeginReign(1)
	r.must(r.Do(t.Context(), Request{Plan: plans(&namespace.OpActivate{Term: 1, NamespaceID: [16]byte{1}, User: "root", Group: "wheel"})}))
	return r
}

// recorder keeps the messages that are logged.
type recorder struct {
	slog.Handler
	r *rig
}

func (h recorder) Enabled(context.Context, slog.Level) bool { return true }
func (h recorder) Handle(_ context.Context, m slog.Record) error {
	h.r.logged = append(h.r.logged, m.Message)
	return nil
}

// plans is a plan that always makes the record.
func plans(op namespace.Op) func(*Tx) (namespace.Op, error) {
	return func(*Tx) (namespace.Op, error) { return op, nil }
}

// mkdir is a call that makes a directory.
func mkdir(path string) Request {
	c := &namespace.Call{User: "root", Super: true}
	return Request{Call: c, Plan: func(tx *Tx) (namespace.Op, error) {
		return OrNil(namespace.PlanMkdir(tx.Tree, c, namespace.At(path), 0o755, false))
	}}
}

// numbered gives a request the id of a session's call.
func (r Request) numbered(session byte, seq uint64) Request {
	r.ID = namespace.CallID{Session: namespace.SessionID{session}, Seq: seq}
	return r
}

func (r *rig) must(out Outcome, err error) Outcome {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// last is the txid of the last record of the tree.
func (r *rig) last() uint64 { return r.Facts().Last }

// there reports whether the tree has something at a path.
func (r *rig) there(path string) (ok bool) {
	r.Look(func(tree *namespace.Tree) {
		_, err := tree.Stat(nil, namespace.At(path))
		ok = err == nil
	})
	return ok
}

// unchanged runs fn, which must apply and journal nothing.
func (r *rig) unchanged(what string, fn func()) {
	r.t.Helper()
	last, records, applied := r.last(), len(r.journal.records), len(r.rooms.applied)
	fn()
	if r.last() != last || len(r.journal.records) != records || len(r.rooms.applied) != applied {
		r.t.Errorf("%s: %d records applied, %d journalled, %d told of", what, r.last()-last, len(r.journal.records)-records, len(r.rooms.applied)-applied)
	}
}

func wantKind(t *testing.T, what string, err error, kind fserror.Kind) {
	t.Helper()
	if err == nil || fserror.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// cacher is a session that caches.
type cacher struct {
	id     readlease.SessionID
	stream *readlease.Stream
	told   chan readlease.Revocation
}

// caches begins a session that may answer from what it has read.
func (r *rig) caches(id byte) *cacher {
	r.t.Helper()
	c := &cacher{id: readlease.SessionID{id}, told: make(chan readlease.Revocation, 10)}
	c.stream = r.Caches().Connect(c.id, string(id), 1, func(v readlease.Revocation) { c.told <- v })
	if c.stream.Renew() == 0 {
		r.t.Fatal("the session has no term")
	}
	return c
}

// keeps lets a session keep the attributes of what is at a path, and reports whether
// it may.
func (r *rig) keeps(c *cacher, path string, own bool) (lent bool) {
	r.t.Helper()
	call := &namespace.Call{User: "root", Super: true, Collect: true}
	if err := r.Read(func(tx *Tx) error {
		_, err := tx.Tree.Stat(call, namespace.At(path))
		lent = err == nil && tx.Lend(call, c.id[:], own)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return lent
}

// begins runs fn beside the test. done has its error; it is not yet over.
func begins(fn func() error) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// pending fails the test if something is over already.
func pending(t *testing.T, what string, done chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s is over already: %v", what, err)
	default:
	}
}

var errTest = errors.New("as the test says")

func (r *rig) failedWith(err error) bool {
	return slices.ContainsFunc(r.reign.failed, func(e error) bool { return errors.Is(e, err) })
}
