package simnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is one end of a connection. The network's lock is held for its fields.
type conn struct {
	host        *Host
	peer        *conn
	local, away addr
	line        *Line // from the peer to here

	coming  []segment // written by the peer, not read here yet
	size    int       // bytes in coming
	lost    bool      // what the peer writes does not arrive any more
	err     error     // of this end; nil while it is open
	closed  bool      // here, by Close
	changed chan struct{}

	readBy, writeBy time.Time // deadlines
}

// segment is what one Write wrote; without data it is the end.
type segment struct {
	data []byte
	due  time.Time
}

func newPair(a *Host, at addr, b *Host, bt addr) (*conn, *conn) {
	here := &conn{host: a, local: at, away: bt, line: a.net.line(b.name, a.name), changed: make(chan struct{})}
	there := &conn{host: b, local: bt, away: at, line: a.net.line(a.name, b.name), changed: make(chan struct{})}
	here.peer, there.peer = there, here
	return here, there
}

// wake has all that wait at this end look again.
func (c *conn) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
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

// await waits, without the lock, until something has changed here, on the line, or
// the moment or the deadline has come.
func (c *conn) await(line <-chan struct{}, moment, deadline time.Time) {
	changed := c.changed
	c.host.net.mu.Unlock()
	defer c.host.net.mu.Lock()
	if moment.IsZero() || !deadline.IsZero() && deadline.Before(moment) {
		moment = deadline
	}
	var timer <-chan time.Time
	if !moment.IsZero() {
		t := time.NewTimer(time.Until(moment))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-line:
	case <-timer:
	}
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case expired(c.readBy):
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case c.err != nil:
			return 0, c.opError("read", c.err)
		case len(p) == 0:
			return 0, nil
		}
		var due time.Time
		if len(c.coming) > 0 && !c.line.held() {
			first := &c.coming[0]
			due = first.due
			if !due.After(time.Now()) {
				if len(first.data) == 0 {
					return 0, io.EOF
				}
				n := copy(p, first.data)
				if first.data = first.data[n:]; len(first.data) == 0 {
					c.coming = c.coming[1:]
				}
				c.size -= n
				c.peer.wake()
				return n, nil
			}
		}
		c.await(c.line.changed, due, c.readBy)
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	for len(p) > 0 {
		switch to := c.peer; {
		case c.closed:
			return n, c.opError("write", net.ErrClosed)
		case expired(c.writeBy):
			return n, c.opError("write", os.ErrDeadlineExceeded)
		case c.err != nil:
			return n, c.opError("write", c.err)
		case to.size < window:
			part := min(len(p), window-to.size)
			to.push(append([]byte{}, p[:part]...))
			n += part
			p = p[part:]
		default:
			c.await(nil, time.Time{}, c.writeBy)
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
	c.wake()
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
	return c.set(func() { c.readBy, c.writeBy = t, t })
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.set(func() { c.readBy = t }) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.set(func() { c.writeBy = t }) }

func (c *conn) set(fn func()) error {
	c.host.net.mu.Lock()
	defer c.host.net.mu.Unlock()
	if c.closed {
		return c.opError("set deadline", net.ErrClosed)
	}
	fn()
	c.wake()
	return nil
}
