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
	budget int64 // of the bytes of incomplete messages

	mu    sync.Mutex
	open  map[*Conn]struct{}
	idle  list.List // of *Conn; the first has been idle for longest
	stats Stats
}

// Stats are figures of a Table.
type Stats struct {
	Open       int
	Refused    uint64 // for which there was no room
	Ended      uint64 // idle ones that made room for others
	Overloaded uint64 // ended because of incomplete messages
	Unfinished int64  // bytes of incomplete messages
}

// New returns a Table with room for so many connections, and so many bytes of
// incomplete messages.
func New(most int, budget int64) *Table {
	return &Table{most: int64(most), limit: share.New(int64(most)), budget: budget, open: map[*Conn]struct{}{}}
}

// Bound has each address have no more connections than quota says. It comes before the first one.
func (t *Table) Bound(quota share.Quota) { t.limit = share.Of(t.most, share.Connections, quota) }

// Limit is that of connections.
func (t *Table) Limit() *share.Limit { return t.limit }

// Stats returns the figures of this moment.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Open = len(t.open)
	return s
}

// Listener returns l, bounded by the table: what it accepts is a *Conn.
func (t *Table) Listener(l net.Listener) net.Listener { return &listener{l, t} }

type listener struct {
	net.Listener
	table *Table
}

// Accept returns the next connection for which there is room.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.table.admit(raw); c != nil {
			endUnanswered(raw)
			return c, nil
		}
		_ = raw.Close() // its client tries again
	}
}

// unanswered is after how long a connection ends whose other side confirms
// nothing of what is sent.
const unanswered = 10 * time.Second

// endUnanswered sets that. Where it cannot be set, probes of the protocol above
// end such a connection, later.
func endUnanswered(raw net.Conn) {
	t, ok := raw.(*net.TCPConn)
	if !ok {
		return
	}
	if rc, err := t.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unanswered.Milliseconds())) //nolint:gosec // a descriptor
		})
	}
}

// admit returns nil if there is no room.
func (t *Table) admit(raw net.Conn) *Conn {
	addr := raw.RemoteAddr()
	from := &known{addr, addr.String(), Taker(addr)}
	c := &Conn{Conn: raw, table: t, from: from}
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
	requests   int
	idle       *list.Element // nil: it has requests under way, or is closed
	closed     bool
	ending     bool  // because of its incomplete messages, which do not count any more
	unfinished int64 // bytes of incomplete messages that were read from it
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.from }

// Begin notes that a request is under way: until End the connection is not idle.
func (c *Conn) Begin() {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.requests++
	if c.idle != nil {
		t.idle.Remove(c.idle)
		c.idle = nil
	}
}

// End notes that a request has ended.
func (c *Conn) End() {
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
		delete(t.open, c)
		if c.idle != nil {
			t.idle.Remove(c.idle)
			c.idle = nil
		}
		t.stats.Unfinished -= c.unfinished
		t.mu.Unlock()
		t.limit.Give(1, c.from.who)
	})
	return err
}

// count adds n bytes to, or takes them from, those of incomplete messages.
func (c *Conn) count(n int64) {
	if most := c.table.count(c, n); most != nil {
		_ = most.Close() // its client tries again, or is not one
	}
}

// count returns the connection that has most of the bytes, if they are too many.
func (t *Table) count(c *Conn, n int64) (most *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.closed || c.ending {
		return nil
	}
	c.unfinished += n
	t.stats.Unfinished += n
	if n <= 0 || t.stats.Unfinished <= t.budget {
		return nil
	}
	most = c
	for o := range t.open {
		if o.unfinished > most.unfinished {
			most = o
		}
	}
	t.stats.Overloaded++
	t.stats.Unfinished -= most.unfinished // at once: others need not end for it, too
	most.unfinished, most.ending = 0, true
	return most
}
