// Package sessions knows whom to tell what others have done to what was theirs:
// writers of the files that they lost, sessions that cache of revocations, and those
// who keep granted leases alive of their ends. It hands that to streams, and waits for
// none.
package sessions

import (
	"strings"
	"sync"
	"unicode"
	"unique"

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
	// maxRelease is how many bytes the name of a client's release has, maxReleases how many are
	// told apart.
	maxRelease, maxReleases = 64, 64
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
	table   *Table
	id      namespace.SessionID
	number  uint64                // the client's, of the stream
	release unique.Handle[string] // what the client says of itself

	mu      sync.Mutex // of the rest
	losses  []Loss     // to be sent, as revoked
	revoked []readlease.Revocation
	send    Send
	// A goroutine sends revocations, another one losses: those wait until they are durable,
	// and a revocation must not.
	revoking, losing bool
	tellers          sync.WaitGroup // of both
}

// Send sends revocations, or a loss when it is durable, to a session. It returns false if it
// cannot: then no more is sent. It may be called for both at once.
type Send func(revoked []readlease.Revocation, loss *Loss) bool

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

// Connect makes a stream its session's current one; nil if the client has opened
// that one later. release is that of the client, if it says so. connect runs under
// the table's lock, as disconnect does in Disconnect, so that the lease table hears of
// streams in the order in which they became current.
func (t *Table) Connect(id namespace.SessionID, number uint64, release string, connect func()) *Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[namespace.SessionID]*Line{}
	}
	if old := t.lines[id]; old != nil && number < old.number {
		return nil
	}
	if len(release) > maxRelease || strings.ContainsFunc(release, func(r rune) bool { return !unicode.IsPrint(r) }) {
		release = ""
	}
	l := &Line{table: t, id: id, number: number, release: unique.Make(release)}
	t.lines[id] = l
	connect()
	return l
}

// Releases is how many sessions have a stream, by the release that they say; empty: they say none.
// If they say many, the rest is "others".
func (t *Table) Releases() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]uint64{}
	for _, l := range t.lines {
		name := l.release.Value()
		if _, known := all[name]; !known && len(all) >= maxReleases {
			name = "others"
		}
		all[name]++
	}
	return all
}

// Disconnect runs disconnect if the stream was the session's current one.
func (l *Line) Disconnect(disconnect func()) {
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
	line.mu.Lock()
	defer line.mu.Unlock()
	if len(line.losses) < maxLosses {
		line.losses = append(line.losses, l)
		line.due()
	}
}

// Revoke hands a revocation to the stream. It does not wait.
func (l *Line) Revoke(r readlease.Revocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.revoked) == maxRevoked {
		clear(l.revoked)
		l.revoked, r = l.revoked[:0], readlease.Revocation{Seq: r.Seq, All: true}
	}
	l.revoked = append(l.revoked, r)
	l.due()
}

// Begin begins to send what the session has to be told: what waits, and at once what comes.
// The goroutine that does that is there only while there is something.
func (l *Line) Begin(send Send) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.send = send
	l.due()
}

// Stop stops sending. If something is being sent, it has interrupt end that, and waits; if that
// returns false, which says that it cannot, what is being sent ends later.
func (l *Line) Stop(interrupt func() bool) {
	l.mu.Lock()
	l.send = nil
	telling := l.revoking || l.losing
	l.mu.Unlock()
	if telling && interrupt() {
		l.tellers.Wait()
	}
}

// due has what waits sent. The caller holds mu.
func (l *Line) due() {
	if l.send == nil {
		return
	}
	if !l.revoking && len(l.revoked) > 0 {
		l.revoking = true
		l.tellers.Go(func() { l.tell(&l.revoking, l.takeRevoked) })
	}
	if !l.losing && len(l.losses) > 0 {
		l.losing = true
		l.tellers.Go(func() { l.tell(&l.losing, l.takeLoss) })
	}
}

// tell sends what take returns until there is nothing, or it could not be sent.
func (l *Line) tell(telling *bool, take func() (revoked []readlease.Revocation, loss *Loss)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.send != nil {
		revoked, loss := take()
		if revoked == nil && loss == nil {
			break
		}
		send := l.send
		l.mu.Unlock()
		sent := send(revoked, loss)
		l.mu.Lock()
		if !sent {
			l.send = nil
		}
	}
	*telling = false
}

// takeRevoked takes all revocations. The caller holds mu.
func (l *Line) takeRevoked() (revoked []readlease.Revocation, _ *Loss) {
	revoked, l.revoked = l.revoked, nil
	return revoked, nil
}

// takeLoss takes one loss, which waits for the disk. The caller holds mu.
func (l *Line) takeLoss() (_ []readlease.Revocation, loss *Loss) {
	switch len(l.losses) {
	case 0:
	case 1:
		loss, l.losses = &l.losses[0], nil
	default:
		loss, l.losses = &l.losses[0], l.losses[1:]
	}
	return nil, loss
}

func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
