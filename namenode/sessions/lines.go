// Package sessions knows whom to tell what others have done to what was theirs:
// writers of the files that they lost, sessions that cache of revocations, and those
// who keep granted leases alive of their ends. It hands that to streams, and waits for
// none.
package sessions

import (
	"sync"

	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	// maxLosses is how many losses wait for one session's stream. More are left to
	// the session's next renewal, which tells all.
	maxLosses = 64
	// maxRevoked is how many revocations wait for one session's stream. If there
	// are more, everything is revoked.
	maxRevoked = 1024
)

// Table knows each session's current stream: when a client reconnects, the end of
// its old stream must not disconnect it. The zero value is ready.
type Table struct {
	mu    sync.Mutex
	lines map[namespace.SessionID]*Line

	lost    lostTable
	keepers keeperTable
}

// Line is what one stream of a session has to be told.
type Line struct {
	table  *Table
	id     namespace.SessionID
	number uint64 // the client's, of the stream
	losses chan Loss

	revokedMu sync.Mutex
	revoked   []readlease.Revocation // to be sent
	revoking  chan struct{}          // has an element when there are some
}

// Loss is a file that a session does not have any more, by another's doing.
type Loss struct {
	TxID uint64 // to be told when this is durable
	namespace.ClosedFile
	By *namespace.Holder // who has it now; nil: nobody
}

// Applied tells those whom a record concerns. The namespace is locked.
func (t *Table) Applied(r namespace.Result) {
	var by *namespace.Holder
	if r.Opened != nil {
		h := r.Opened.Holder
		by = &h
	}
	for _, f := range r.Closed {
		if f.Reason != namespace.ReasonClosed {
			t.lost.add(f, by)
			t.tell(Loss{r.TxID, f, by})
		}
	}
	if r.LeaseEnded {
		t.keepers.ended(uint64(r.Lease), r.Reason, r.TxID)
	}
}

// Begin makes a stream its session's current one; nil if the client has opened
// that one later. connect runs under the table's lock, as disconnect does in
// End, so that the lease table hears of streams in the order in which they
// became current.
func (t *Table) Begin(id namespace.SessionID, number uint64, connect func()) *Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[namespace.SessionID]*Line{}
	}
	if old := t.lines[id]; old != nil && number < old.number {
		return nil
	}
	l := &Line{table: t, id: id, number: number, losses: make(chan Loss, maxLosses), revoking: make(chan struct{}, 1)}
	t.lines[id] = l
	connect()
	return l
}

// End runs disconnect if the stream was the session's current one.
func (l *Line) End(disconnect func()) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.table.lines[l.id] == l {
		delete(l.table.lines, l.id)
		disconnect()
	}
}

// tell hands a loss to the session's stream, if it has one with room.
func (t *Table) tell(l Loss) {
	t.mu.Lock()
	line := t.lines[l.Session]
	t.mu.Unlock()
	if line == nil {
		return
	}
	select {
	case line.losses <- l:
	default:
	}
}

// Losses has the files that the session has lost.
func (l *Line) Losses() <-chan Loss { return l.losses }

// Revoke hands a revocation to the stream. It does not wait.
func (l *Line) Revoke(r readlease.Revocation) {
	l.revokedMu.Lock()
	if len(l.revoked) == maxRevoked {
		clear(l.revoked)
		l.revoked, r = l.revoked[:0], readlease.Revocation{Seq: r.Seq, All: true}
	}
	l.revoked = append(l.revoked, r)
	l.revokedMu.Unlock()
	wake(l.revoking)
}

// Revoking has an element when Revoked has some.
func (l *Line) Revoking() <-chan struct{} { return l.revoking }

// Revoked takes the revocations that wait.
func (l *Line) Revoked() []readlease.Revocation {
	l.revokedMu.Lock()
	defer l.revokedMu.Unlock()
	waiting := l.revoked
	l.revoked = nil
	return waiting
}

func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
