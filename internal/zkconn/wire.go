package zkconn

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	opMulti      = 14 // as in ZooDefs.OpCode
	opSetAuth    = 100
	opSetWatches = 101

	watchPause = 100 * time.Millisecond
)

// wire is one connection to one server, between the client and the network.
//
// The client writes each request with one call of Write, in the order in which
// they leave. That is where the order of multis is taken from: the next one is
// handed to the client only when the one before has passed here.
//
// A write that fails is not told to the client: it would answer that request, and
// answer it again when it clears up behind the connection. For the second answer
// of a request to log in, and the third of any, there is no room, and the client
// would stand still for ever, neither reconnecting nor ending. Instead the
// connection is closed, whereupon the client's next Read fails: then it clears
// up, once.
//
// Until the server has answered the greeting, the deadline is the wire's own.
//
// On a new connection the client tells the server its watches and what it saw
// last, so that it learns what it missed. What it saw last it looks up while
// answers already come in (a data race, and a watch that is missed, if an answer
// is newer than the event). So the first answer is held back until the watches
// have been sent; but not those to logging in, which the client waits for first,
// and which say nothing that is new.
type wire struct {
	net.Conn
	s      *Session
	server string

	greeting bool   // the next Write is the first: the connect request
	hello    []byte // the server's answer to it, as far as it came
	mu       sync.Mutex
	greeted  bool  // hello is whole
	failure  error // of the first Read or Write that failed

	rewatch   sync.Once
	rewatched chan struct{} // closed when the watches were sent, or cannot be
	hold      bool          // the first answer waits for that
	loggingIn atomic.Bool   // the last request was to log in
}

// Write implements net.Conn. It never fails: see above.
func (w *wire) Write(p []byte) (int, error) {
	op := uint32(0)
	switch {
	case w.greeting:
		w.greeting = false
	case len(p) >= 12:
		op = binary.BigEndian.Uint32(p[8:])
	}
	w.loggingIn.Store(op == opSetAuth)
	switch op {
	case opMulti:
		w.s.calls.passed()
	case opSetWatches:
		w.stopHolding()
	}
	if _, err := w.Conn.Write(p); err != nil {
		_ = w.fail(err) // the next Read says so
	}
	return len(p), nil
}

func (w *wire) stopHolding() { w.rewatch.Do(func() { close(w.rewatched) }) }

// fail closes the connection for a Read or a Write that failed, and returns why
// the first one did. What is not with the client yet is kept from it.
func (w *wire) fail(err error) error {
	w.mu.Lock()
	if w.failure == nil {
		w.failure = err
	}
	err = w.failure
	w.mu.Unlock()
	w.shut()
	w.stopHolding()
	w.s.disconnected(w)
	return err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	_ = w.fail(net.ErrClosed)
	return nil
}

// shut ends the connection, without TLS's word of farewell: on a line that is
// stuck it would take five seconds.
func (w *wire) shut() {
	c := w.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close() // that it ends is all
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	greeting := w.ownDeadline()
	n, err := w.Conn.Read(p)
	if greeting {
		err = w.greet(p[:n], err)
	}
	if err != nil {
		return 0, w.fail(err) // no bytes: the client would go by them before the error
	}
	if !greeting && w.hold && !w.loggingIn.Load() {
		w.hold = false
		w.awaitWatches()
	}
	return n, nil
}

// greet takes what was read of the answer to the greeting.
func (w *wire) greet(p []byte, err error) error {
	w.hello = append(w.hello, p...) // length, version, granted time-out in milliseconds, …
	if err == nil && len(w.hello) >= 4 && alien(w.hello) {
		err = errAlien
	}
	if err != nil {
		if lasting(err) {
			w.s.hosts.failure(w.server, err)
		}
		return err
	}
	if len(w.hello) >= 12 && len(w.hello) >= 4+int(binary.BigEndian.Uint32(w.hello)) {
		w.s.timeout.Store(int64(time.Duration(binary.BigEndian.Uint32(w.hello[8:])) * time.Millisecond))
		w.mu.Lock()
		w.greeted = true
		w.mu.Unlock()
		_ = w.Conn.SetDeadline(time.Time{}) // a broken connection shows at the next use
	}
	return nil
}

// awaitWatches waits for the watches to leave. They do unless the last one has
// just gone off: then the pause ends it.
func (w *wire) awaitWatches() {
	t := time.NewTimer(watchPause)
	defer t.Stop()
	select {
	case <-w.rewatched:
	case <-t.C:
	case <-w.s.life.Done():
	}
}

func (w *wire) ownDeadline() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.greeted
}

// SetReadDeadline implements net.Conn.
func (w *wire) SetReadDeadline(t time.Time) error {
	if w.ownDeadline() {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (w *wire) SetWriteDeadline(t time.Time) error {
	if w.ownDeadline() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}
