package leases

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

// memory is a journal in memory, in which all is durable at once, unless it is broken or
// held.
type memory struct {
	journal.Journal // the rest is not called
	last            uint64
	held            uint64 // if it is not 0, no later record is durable
	broken          error
}

func (m *memory) Append(r journal.Record) error {
	if m.broken == nil {
		m.last = r.TxID
	}
	return m.broken
}

func (m *memory) Durable() uint64 {
	if m.held != 0 {
		return m.held
	}
	return m.last
}

func (m *memory) WaitDurable(context.Context, uint64) error { return m.broken }
func (m *memory) Backlog() int64                            { return 0 }

// rig is a lease table over an engine in its first reign. It is the engine's reign and
// its other rooms, too.
type rig struct {
	*Table
	t       *testing.T
	clock   *clock.Fake
	journal *memory
	active  error
	records []namespace.Op // that were applied
	held    []time.Duration
}

const soft, hard = time.Minute, 10 * time.Minute

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: new(clock.Fake), journal: new(memory)}
	r.clock.Advance(time.Hour)
	e := engine.New(engine.Config{
		Clock: r.clock, Log: slog.New(slog.DiscardHandler), CacheTerm: 10 * time.Second, ObserveWait: func(time.Duration) {}, Reign: r, Rooms: r,
	})
	e.Open(namespace.New(), r.journal)
	r.begin(e)
	r.apply(&namespace.OpActivate{Term: 1, NamespaceID: [16]byte{1}, User: "root", Group: "wheel"})
	return r
}

// begin begins a reign with an empty table.
func (r *rig) begin(e *engine.Engine) {
	r.t.Helper()
	r.Table = New(Config{
		Clock: r.clock, Log: slog.New(slog.DiscardHandler), Engine: e, Soft: soft, Hard: hard, AgesEvery: 30 * time.Second, ReapRate: 1000,
		ObservePass: func(d time.Duration) { r.held = append(r.held, d) },
	})
	e.BeginReign(1)
	if err := r.RebuildFromTree(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) Active() error  { return r.active }
func (r *rig) Window() error  { return nil }
func (r *rig) Fail(why error) { r.active = why }

func (r *rig) Admit(bool) error                                           { return nil }
func (r *rig) Park(context.Context) (func(), error)                       { return func() {}, nil }
func (r *rig) Taker(context.Context, *namespace.Call) share.Taker         { return share.Taker{} }
func (r *rig) Refuse(*engine.Tx, namespace.SessionID, namespace.Op) error { return nil }
func (r *rig) Applied(_ *engine.Tx, e namespace.Entry, n namespace.Result) {
	r.records = append(r.records, e.Op)
	r.Table.Applied(n)
}

func (r *rig) apply(op namespace.Op) {
	r.t.Helper()
	if _, err := r.Engine.Do(r.t.Context(), engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return op, nil }}); err != nil {
		r.t.Fatal(err)
	}
}

// holder is a client's session.
func holder(session byte) namespace.Holder {
	return namespace.Holder{User: "ann", Client: fmt.Sprint("client", session), Session: namespace.SessionID{session}, Host: "h"}
}

// create makes a file in the root that a session has open.
func (r *rig) create(name string, session byte) namespace.OpenFile {
	r.t.Helper()
	r.apply(&namespace.OpCreate{Parent: namespace.RootID, Name: name, User: "ann", Group: "ann", Mode: 0o644, Holder: holder(session), Token: namespace.Token{1}})
	f, _ := r.find(name)
	return f
}

// attached makes a closed file that is attached to a granted lease.
func (r *rig) attached(name string, id namespace.LeaseID) {
	r.t.Helper()
	r.apply(&namespace.OpCreate{Parent: namespace.RootID, Name: name, User: "ann", Group: "ann", Mode: 0o644, Closed: true, Lease: id})
}

func (r *rig) grant(id namespace.LeaseID, ttl time.Duration) {
	r.t.Helper()
	r.apply(&namespace.OpGrant{ID: id, TTL: ttl.Milliseconds(), Owner: namespace.Owner{User: "ann", Client: "c", Host: "h"}})
}

// there reports whether the tree has a name.
func (r *rig) there(name string) (ok bool) {
	r.Engine.Look(func(tree *namespace.Tree) {
		_, err := tree.Stat(nil, namespace.At("/"+name))
		ok = err == nil
	})
	return ok
}

// find returns a file by name, and whether it is open.
func (r *rig) find(name string) (f namespace.OpenFile, open bool) {
	r.t.Helper()
	r.Engine.Look(func(tree *namespace.Tree) {
		a, err := tree.Stat(nil, namespace.At("/"+name))
		if err != nil {
			r.t.Fatal(err)
		}
		f, open = tree.OpenFile(a.ID)
	})
	return f, open
}

// open reports whether a file is open in the tree.
func (r *rig) open(name string) bool {
	r.t.Helper()
	_, open := r.find(name)
	return open
}

// known reports whether the table knows an open file.
func (r *rig) known(f namespace.OpenFile) bool {
	st, ok := r.State(uint64(f.Inode))
	return ok && st.Epoch == f.Epoch
}

// granted is how many granted leases the table knows.
func (r *rig) granted() (n int) {
	for id := range uint64(10) {
		if _, _, ok := r.TimeToLive(id); ok {
			n++
		}
	}
	return n
}

// forget takes a file out of the table alone.
func (r *rig) forget(f namespace.OpenFile) {
	r.t.Helper()
	r.Close(uint64(f.Inode), f.Epoch, "test", nil)
	if r.known(f) {
		r.t.Fatal("the table still knows the file")
	}
}

// renew renews a session with its set of open files.
func (r *rig) renew(session byte, files ...namespace.OpenFile) {
	n := leasemanager.Renewal{Session: leasemanager.SessionID{session}, Version: 1, HasSet: true}
	for _, f := range files {
		n.Open = append(n.Open, refOf(f))
	}
	r.Renew(n)
}

// monitor is one that does passes when the test says.
func (r *rig) monitor() *monitor { return &monitor{Table: r.Table, aside: make(map[end]*aside)} }

// cacher is a session that keeps attributes, and says nothing until told.
type cacher struct {
	id   readlease.SessionID
	told chan readlease.Revocation
	r    *rig
}

// caches begins a session that keeps the attributes of what has a name.
func (r *rig) caches(session byte, name string) *cacher {
	r.t.Helper()
	c := &cacher{id: readlease.SessionID{session}, told: make(chan readlease.Revocation, 100), r: r}
	st := r.Engine.Caches().Connect(c.id, fmt.Sprint(session), 1, func(v readlease.Revocation) { c.told <- v })
	call := &namespace.Call{User: "root", Super: true, Collect: true}
	if err := r.Engine.Read(func(tx *engine.Tx) error {
		_, err := tx.Tree.Stat(call, namespace.At("/"+name))
		if st.Renew() == 0 || !tx.Lend(call, c.id[:], session == 9) { // 9 is a holder
			r.t.Fatal("not lent")
		}
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// ack acknowledges what the session was told.
func (c *cacher) ack() {
	c.r.t.Helper()
	if len(c.told) == 0 {
		c.r.t.Fatal("the session was not asked")
	}
	for len(c.told) > 0 {
		c.r.Engine.Caches().Ack(c.id, (<-c.told).Seq)
	}
}
