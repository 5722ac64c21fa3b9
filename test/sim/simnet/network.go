package simnet

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes one way of a connection holds.
const window = 256 << 10

// Network is a set of hosts, each of which reaches each other one. Its methods and
// those of its parts are safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*Host
	lines map[[2]string]*Line
	conns map[*conn]bool // one of each pair

	coming []arrival   // in their order
	next   *time.Timer // calls arrive when the first of coming is due; nil: nothing came yet
}

// arrival is when an end has something to read.
type arrival struct {
	due time.Time
	at  *conn
}

// New returns a network without hosts.
func New() *Network {
	return &Network{hosts: map[string]*Host{}, lines: map[[2]string]*Line{}, conns: map[*conn]bool{}}
}

// Host returns the host of that name, and makes it if there is none.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &Host{net: n, name: name, up: true, listeners: map[int]*listener{}, port: 40_000, changed: make(chan struct{})}
		n.hosts[name] = h
	}
	return h
}

// Line is the way from one host to another. The way back is another Line.
type Line struct {
	net      *Network
	from, to string
	delay    time.Duration
	cut      bool
	changed  chan struct{} // closed, and replaced, when delay or cut change
	waiting  []*conn       // ends that have something to read as soon as it is not held
}

// Line returns the way from one host to another.
func (n *Network) Line(from, to string) *Line {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.line(from, to)
}

func (n *Network) line(from, to string) *Line {
	key := [2]string{from, to}
	l := n.lines[key]
	if l == nil {
		l = &Line{net: n, from: from, to: to, changed: make(chan struct{})}
		n.lines[key] = l
	}
	return l
}

// SetDelay has what is written from now on arrive so much later.
func (l *Line) SetDelay(d time.Duration) { l.change(func() { l.delay = d }) }

// Cut stops all that is on its way and all that is written, until Mend.
func (l *Line) Cut() { l.change(func() { l.cut = true }) }

// Mend ends Cut: what was stopped arrives.
func (l *Line) Mend() { l.change(func() { l.cut = false }) }

func (l *Line) change(fn func()) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	fn()
	l.wake()
}

// wake has all that wait for the line look again. The lock is held.
func (l *Line) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
	for _, c := range l.waiting {
		c.arrived.Broadcast()
	}
	l.waiting = nil
}

// schedule has an end look again at a moment, by one timer for all. The lock is held.
func (n *Network) schedule(due time.Time, c *conn) {
	i := len(n.coming)
	for i > 0 && n.coming[i-1].due.After(due) {
		i--
	}
	n.coming = slices.Insert(n.coming, i, arrival{due, c})
	switch {
	case n.next == nil:
		n.next = time.AfterFunc(time.Until(due), n.arrive)
	case i == 0:
		n.next.Reset(time.Until(due))
	}
}

// arrive wakes the ends that have something to read by now.
func (n *Network) arrive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, i := time.Now(), 0
	for ; i < len(n.coming) && !n.coming[i].due.After(now); i++ {
		n.coming[i].at.arrived.Broadcast()
	}
	n.coming = slices.Delete(n.coming, 0, i)
	if len(n.coming) > 0 {
		n.next.Reset(time.Until(n.coming[0].due))
	}
}

// held reports whether nothing arrives now. The lock is held.
func (l *Line) held() bool { return l.cut || l.net.paused(l.from) || l.net.paused(l.to) }

func (n *Network) paused(host string) bool {
	h := n.hosts[host]
	return h != nil && h.paused
}

// Reset breaks the connections between two hosts; both sides get ECONNRESET. It
// returns how many there were.
func (n *Network) Reset(a, b string) int { return n.each(a, b, func(c *conn) { c.reset() }) }

// Forget has the connections between two hosts carry nothing any more, for good.
func (n *Network) Forget(a, b string) int { return n.each(a, b, func(c *conn) { c.forget() }) }

// each calls fn, with the lock held, for the connections between two hosts; an
// empty name means any.
func (n *Network) each(a, b string, fn func(*conn)) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	is := func(h *Host, name string) bool { return name == "" || h.name == name }
	for c := range n.conns {
		if is(c.host, a) && is(c.peer.host, b) || is(c.host, b) && is(c.peer.host, a) {
			fn(c)
			delete(n.conns, c)
			count++
		}
	}
	return count
}

// Connections is how many connections are open.
func (n *Network) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// Host is one machine of a Network.
type Host struct {
	net  *Network
	name string

	// The network's lock is held for these.
	up        bool
	paused    bool
	listeners map[int]*listener
	port      int           // given out last
	changed   chan struct{} // closed, and replaced, when the host comes back or resumes
}

// Crash has the host fall silent until Restart. Its listeners are gone, and its
// connections are broken on its own side and forgotten on the other.
func (h *Host) Crash() {
	h.net.each(h.name, "", func(c *conn) {
		c.forget()
		for _, end := range []*conn{c, c.peer} {
			if end.host == h {
				end.fail(net.ErrClosed)
			}
		}
	})
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.up = false
	for _, l := range h.listeners {
		l.shut()
	}
}

// Restart brings a crashed host back; who listened there listens again by himself.
func (h *Host) Restart() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.up = true
	close(h.changed)
	h.changed = make(chan struct{})
}

// Pause has the host stand still until Resume: nothing that it writes leaves, nothing
// that others have written arrives, and connections stay open. Who dials it waits.
func (h *Host) Pause() { h.setPaused(true) }

// Resume ends Pause: what was held arrives.
func (h *Host) Resume() { h.setPaused(false) }

func (h *Host) setPaused(paused bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.paused = paused
	close(h.changed)
	h.changed = make(chan struct{})
	for _, l := range h.net.lines {
		if l.from == h.name || l.to == h.name {
			l.wake()
		}
	}
}

// addr is a host and a port.
type addr struct {
	host string
	port int
}

// Network implements net.Addr. It says tcp, since programs look at it.
func (addr) Network() string { return "tcp" }

// String implements net.Addr.
func (a addr) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// Listen takes connections at a port of the host; port 0 is any that is free. The
// host in address may be empty or the host's own name.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	at, err := parse(address)
	if err == nil && at.host != "" && at.host != h.name {
		err = syscall.EADDRNOTAVAIL
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if at.port == 0 {
		h.port++
		at.port = h.port
	}
	if err == nil && h.listeners[at.port] != nil {
		err = syscall.EADDRINUSE
	}
	if err == nil && !h.up {
		err = syscall.ENETDOWN
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: at, Err: err}
	}
	at.host = h.name
	l := &listener{host: h, addr: at, done: make(chan struct{}), queue: make(chan *conn, 128)}
	h.listeners[at.port] = l
	return l, nil
}

func parse(address string) (addr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return addr{}, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return addr{}, fmt.Errorf("port %q of %q is no number", port, address)
	}
	return addr{host, number}, nil
}

// DialContext connects to "host:port" and waits while the other host is down or
// the way there or back is cut.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := parse(address)
	var c *conn
	if err == nil {
		c, err = h.dial(ctx, to)
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
	}
	return c, nil
}

func (h *Host) dial(ctx context.Context, to addr) (*conn, error) {
	for {
		h.net.mu.Lock()
		other := h.net.hosts[to.host]
		if other == nil {
			h.net.mu.Unlock()
			return nil, &net.DNSError{Err: "no such host", Name: to.host, IsNotFound: true}
		}
		there, back := h.net.line(h.name, to.host), h.net.line(to.host, h.name)
		var wait <-chan struct{}
		switch {
		case !h.up:
			h.net.mu.Unlock()
			return nil, syscall.ENETDOWN
		case h.paused:
			wait = h.changed
		case !other.up || other.paused:
			wait = other.changed
		case there.cut:
			wait = there.changed
		case back.cut:
			wait = back.changed
		}
		roundTrip := there.delay + back.delay
		h.net.mu.Unlock()
		if wait == nil {
			if err := pause(ctx, roundTrip); err != nil {
				return nil, err
			}
			return h.connect(other, to.port)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Host) connect(other *Host, port int) (*conn, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	l := other.listeners[port]
	if l == nil || !other.up {
		return nil, syscall.ECONNREFUSED
	}
	h.port++
	here, there := newPair(h, addr{h.name, h.port}, other, l.addr)
	select {
	case l.queue <- there:
	default:
		return nil, syscall.ECONNREFUSED // nobody accepts, and the backlog is full
	}
	h.net.conns[here] = true
	return here, nil
}

type listener struct {
	host  *Host
	addr  addr
	once  sync.Once
	done  chan struct{}
	queue chan *conn
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close implements net.Listener. Connections that nobody has accepted are reset.
func (l *listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	l.shut()
	return nil
}

// shut is Close with the lock held.
func (l *listener) shut() {
	l.once.Do(func() {
		close(l.done)
		if l.host.listeners[l.addr.port] == l {
			delete(l.host.listeners, l.addr.port)
		}
		for {
			select {
			case c := <-l.queue:
				c.reset()
			default:
				return
			}
		}
	})
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }
