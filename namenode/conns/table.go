package conns

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/namenode/share"
)

// Table is all connections of a process. It is safe for concurrent use.
type Table struct {
	most   int64
	limit  *share.Limit
	budget int64 // of the bytes of each kind
	silent time.Duration
	equal  bool // see ShareLocally

	mu    sync.Mutex
	held  [kinds]int64
	open  map[*Conn]struct{}
	idle  list.List // of *Conn; the first has been idle for longest
	stats Stats
}

// Stats are figures of a Table.
type Stats struct {
	Open       int
	Refused    uint64 // for which there was no room
	Ended      uint64 // idle ones that made room for others
	Overloaded uint64 // ended because of what is kept for them
	Unfinished int64  // bytes of incomplete messages
	Unsent     int64  // bytes of answers that were not taken
}

// kind is one of what is kept in memory for a client that may not be one.
type kind int

const (
	unfinished kind = iota // messages from it that are not complete
	unsent                 // messages to it that it has not taken
	kinds
)

// New returns a Table with room for so many connections, for so many bytes of incomplete
// messages, and for as many of answers that clients have not taken.
func New(most int, budget int64) *Table {
	return &Table{most: int64(most), limit: share.New(int64(most)), budget: budget, silent: unanswered, open: map[*Conn]struct{}{}}
}

// EndUnanswered says after how long a connection ends whose other side takes nothing of what is
// sent: 10 s if it is not called. That holds for one that has gone and for one that does not
// read for so long, since the kernel does not tell them apart; so it has to be as long as
// a client may pause. It comes before the first connection.
func (t *Table) EndUnanswered(after time.Duration) { t.silent = after }

// ShareLocally gives the machine's own connections no more than others', for a server whose clients are
// there. It comes before the first one.
func (t *Table) ShareLocally() { t.equal = true }

// Bound has each address have no more connections than quota says. It comes before the first one.
func (t *Table) Bound(quota share.Quota) { t.limit = share.Of(t.most, share.Connections, quota) }

// Limit is that of connections.
func (t *Table) Limit() *share.Limit { return t.limit }

// Stats returns the figures of this moment.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Open, s.Unfinished, s.Unsent = len(t.open), t.held[unfinished], t.held[unsent]
	return s
}

// At most maxArriving connections of a listener arrive at once: they were accepted, for at
// most arrivesWithin, and their first requests have not come yet. So if thousands come back
// together, those that have arrived do not queue behind the others, which wait in the kernel.
// Those who connect and say nothing hold a place no longer than arrivesWithin, so at least
// 6,400 connections a second are accepted.
const (
	maxArriving   = 128
	arrivesWithin = 20 * time.Millisecond
)

// Listener returns l, bounded by the table: what it accepts is a *Conn.
func (t *Table) Listener(l net.Listener) net.Listener {
	return &listener{l, t, make(chan struct{}, maxArriving)}
}

type listener struct {
	net.Listener
	table    *Table
	arriving chan struct{} // has an element for each that arrives
}

// Accept returns the next connection for which there is room.
func (l *listener) Accept() (net.Conn, error) {
	l.arriving <- struct{}{}
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			<-l.arriving
			return nil, err
		}
		if c := l.table.admit(raw); c != nil {
			endUnanswered(raw, l.table.silent)
			c.arrives(l.arriving)
			return c, nil
		}
		_ = raw.Close() // its client tries again
	}
}

// arrives has the connection take its element out of arriving when it has arrived.
func (c *Conn) arrives(arriving <-chan struct{}) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.arriving = arriving
	c.late = time.AfterFunc(arrivesWithin, func() {
		c.table.mu.Lock()
		defer c.table.mu.Unlock()
		c.arrived()
	})
}

// arrived is called with the table's lock held.
func (c *Conn) arrived() {
	if c.arriving != nil {
		c.late.Stop()
		<-c.arriving // does not wait: its element is there
		c.arriving, c.late = nil, nil
	}
}

// unanswered is that of EndUnanswered where nobody says another.
const unanswered = 10 * time.Second

// endUnanswered has the kernel end a connection after so long. Where it cannot be set, probes of the protocol above
// end such a connection, later.
func endUnanswered(raw net.Conn, after time.Duration) {
	t, ok := raw.(*net.TCPConn)
	if !ok {
		return
	}
	if rc, err := t.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds())) //nolint:gosec // a descriptor
		})
	}
}

// admit returns nil if there is no room.
func (t *Table) admit(raw net.Conn) *Conn {
	addr := raw.RemoteAddr()
	from := &known{addr, addr.String(), Taker(addr), nil}
	from.who.Reserve = from.who.Reserve && !t.equal
	c := &Conn{Conn: raw, table: t, from: from}
	from.c = c
	for !t.limit.Take(1, from.who) {
		victim := t.longestIdle(from.who)
		if victim == nil {
			t.mu.Lock()
			t.stats.Refused++
			t.mu.Unlock()
			return nil
		}
		_ = victim.Close() // it had nothing under way
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[c] = struct{}{}
	c.idle = t.idle.PushBack(c)
	return c
}

// longestIdle takes the idle connection that ends for a new one of who out of
// the list: one of his own, if he has many.
func (t *Table) longestIdle(who share.Taker) *Conn {
	little := who.Reserve || t.limit.Little(who) && !t.limit.Over(1, who)
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.idle.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Conn)
		if !little && c.from.who.Names[0] != who.Names[0] {
			continue
		}
		t.idle.Remove(e)
		c.idle = nil
		t.stats.Ended++
		return c
	}
	return nil
}

// Taker is who connects: his address. A connection of the machine's own may
// take the reserve. Of a connection of a Listener it is known already.
func Taker(addr net.Addr) share.Taker {
	if known, ok := addr.(*known); ok {
		return known.who
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return share.Taker{Names: []string{addr.String()}}
	}
	return share.Taker{Names: []string{AddressName(at.Addr())}, Reserve: at.Addr().Unmap().IsLoopback()}
}

// AddressName is the name under which an address takes its share: what one
// machine can have many of, the addresses of an IPv6 network, is one.
func AddressName(a netip.Addr) string {
	a = a.Unmap()
	if a.Is6() {
		if net, err := a.WithZone("").Prefix(64); err == nil {
			return net.String()
		}
	}
	return a.String()
}

// known is the address of a connection, and who it is: that is asked of each call.
type known struct {
	net.Addr
	text string
	who  share.Taker
	c    *Conn
}

// String implements net.Addr.
func (k *known) String() string { return k.text }

// Conn is one connection.
type Conn struct {
	net.Conn
	table *Table
	from  *known
	once  sync.Once

	// Guarded by the table's lock.
	requests int
	idle     *list.Element // nil: it has requests under way, or is closed
	closed   bool
	ending   bool         // because of what is kept for it, which does not count any more
	held     [kinds]int64 // bytes

	arriving <-chan struct{} // nil: it has arrived
	late     *time.Timer     // of arriving
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.from }

// MarkBusy notes that a request is under way: until MarkIdle the connection is not idle.
func (c *Conn) MarkBusy() {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.arrived()
	c.requests++
	if c.idle != nil {
		t.idle.Remove(c.idle)
		c.idle = nil
	}
}

// MarkIdle notes that a request has ended.
func (c *Conn) MarkIdle() {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.requests--; c.requests == 0 && !c.closed {
		c.idle = t.idle.PushBack(c)
	}
}

// Close ends the connection and gives back its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		t := c.table
		t.mu.Lock()
		c.closed = true
		c.arrived()
		delete(t.open, c)
		if c.idle != nil {
			t.idle.Remove(c.idle)
			c.idle = nil
		}
		t.letGo(c)
		t.mu.Unlock()
		t.limit.Give(1, c.from.who)
	})
	return err
}

// letGo ends the counting of what is kept for a connection. The table's lock is held.
func (t *Table) letGo(c *Conn) {
	for k := range c.held {
		t.held[k] -= c.held[k]
		c.held[k] = 0
	}
}

// count adds n bytes to, or takes them from, those of a kind.
func (c *Conn) count(k kind, n int64) {
	if most := c.table.count(c, k, n); most != nil {
		_ = most.Close() // its client tries again, or is not one
	}
}

// If there are too many bytes, count returns the connection to end: the largest of the address whose
// connections have the most together. So who spreads them over many connections loses one of his own.
func (t *Table) count(c *Conn, k kind, n int64) (most *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed || c.ending {
		return nil
	}
	c.held[k] += n
	t.held[k] += n
	if n <= 0 || t.held[k] <= t.budget {
		return nil
	}
	of := make(map[string]int64, 1)
	for o := range t.open {
		of[o.from.who.Names[0]] += o.held[k]
	}
	most = c
	for o := range t.open {
		his, more := of[o.from.who.Names[0]], of[most.from.who.Names[0]]
		if his > more || his == more && o.held[k] > most.held[k] {
			most = o
		}
	}
	t.stats.Overloaded++
	t.letGo(most) // at once: others need not end for it, too
	most.ending = true
	return most
}
