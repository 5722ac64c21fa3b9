package simnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection. The network's lock is held for its fields.
type conn struct {
	host        *Host
	peer        *conn
	local, away addr
	line        *Line // from the peer to here

	coming  []segment  // written by the peer, not read here yet
	size    int        // bytes in coming
	lost    bool       // what the peer writes does not arrive any more
	err     error      // of this end; nil while it is open
	closed  bool       // here, by Close
	arrived *sync.Cond // there may be something to read, or an error
	room    *sync.Cond // there may be room to write, or an error

	readBy, writeBy deadline
}

// deadline is until when something may wait; none if at is zero.
type deadline struct {
	at    time.Time
	timer *time.Timer // wakes who waits; nil if there never was one
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set has those who wait on cond look again when the time has come. The lock is held.
func (d *deadline) set(at time.Time, cond *sync.Cond) {
	d.at = at
	switch {
	case !at.IsZero() && d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), func() {
			cond.L.Lock()
			defer cond.L.Unlock()
			cond.Broadcast()
		})
	case !at.IsZero():
		d.timer.Reset(time.Until(at))
	case d.timer != nil:
		d.timer.Stop()
	}
}

// segment is what one Write wrote; without data it is the end.
type segment struct {
	data []byte
	due  time.Time
}

func newPair(a *Host, at addr, b *Host, bt addr) (*conn, *conn) {
	end := func(h *Host, local, away addr, line *Line) *conn {
		return &conn{host: h, local: local, away: away, line: line, arrived: sync.NewCond(&h.net.mu), room: sync.NewCond(&h.net.mu)}
	}
	here, there := end(a, at, bt, a.net.line(b.name, a.name)), end(b, bt, at, a.net.line(a.name, b.name))
	here.peer, there.peer = there, here
	return here, there
}

// wake has all that wait at this end look again.
func (c *conn) wake() {
	c.arrived.Broadcast()
	c.room.Broadcast()
}

func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.coming, c.size = nil, 0
	}
	c.wake()
}

// reset breaks both ends.
func (c *conn) reset() {
	c.fail(syscall.ECONNRESET)
	c.peer.fail(syscall.ECONNRESET)
}

// forget loses all that is written from now on, and what is on its way.
func (c *conn) forget() {
	for _, end := range []*conn{c, c.peer} {
		end.lost = true
		end.coming, end.size = nil, 0
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case c.readBy.passed():
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case c.err != nil:
			return 0, c.opError("read", c.err)
		case len(p) == 0:
			return 0, nil
		}
		switch n := c.take(p); {
		case n > 0:
			return n, nil
		case n < 0:
			return 0, io.EOF
		}
		c.arrived.Wait()
	}
}

// take reads what has arrived: 0 if nothing has, -1 at the end. The lock is held.
func (c *conn) take(p []byte) int {
	if len(c.coming) == 0 {
		return 0
	}
	first := &c.coming[0]
	switch {
	case c.line.held():
		c.line.waiting = append(c.line.waiting, c)
		return 0
	case first.due.After(time.Now()):
		return 0 // it is scheduled
	case len(first.data) == 0:
		return -1
	}
	n := copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		c.coming = c.coming[1:]
	}
	c.size -= n
	c.peer.room.Broadcast()
	return n
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	for len(p) > 0 {
		switch to := c.peer; {
		case c.closed:
			return n, c.opError("write", net.ErrClosed)
		case c.writeBy.passed():
			return n, c.opError("write", os.ErrDeadlineExceeded)
		case c.err != nil:
			return n, c.opError("write", c.err)
		case to.size < window:
			part := min(len(p), window-to.size)
			to.push(append([]byte{}, p[:part]...))
			n += part
			p = p[part:]
		default:
			c.room.Wait()
		}
	}
	return n, nil
}

// push puts a segment on the way to this end. What goes to an end that has closed
// breaks the connection, as it does with TCP.
func (c *conn) push(data []byte) {
	switch {
	case c.lost:
		c.size += len(data) // the sender's buffer fills
		return
	case c.closed:
		if len(data) > 0 {
			c.peer.fail(syscall.EPIPE)
		}
		return
	}
	due := time.Now().Add(c.line.delay)
	if k := len(c.coming); k > 0 && c.coming[k-1].due.After(due) {
		due = c.coming[k-1].due
	}
	c.coming = append(c.coming, segment{data, due})
	c.size += len(data)
	if due.After(time.Now()) {
		c.host.net.schedule(due, c)
	} else {
		c.arrived.Broadcast()
	}
}

// Close implements net.Conn. The other end reads what was written, then EOF.
func (c *conn) Close() error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	delete(c.host.net.conns, c)
	delete(c.host.net.conns, c.peer)
	if c.err == nil {
		c.peer.push(nil)
	}
	c.coming, c.size = nil, 0
	c.wake()
	c.peer.wake() // a Write there that waits for room
	return nil
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.away, Err: err}
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.away }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return c.set(func() {
		c.readBy.set(t, c.arrived)
		c.writeBy.set(t, c.room)
	})
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.set(func() { c.readBy.set(t, c.arrived) })
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.set(func() { c.writeBy.set(t, c.room) })
}

func (c *conn) set(fn func()) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	if c.closed {
		return c.opError("set deadline", net.ErrClosed)
	}
	fn()
	return nil
}
