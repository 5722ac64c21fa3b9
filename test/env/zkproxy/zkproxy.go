// Package zkproxy stands between ZooKeeper clients and one server in tests. It
// knows where a request begins and ends, so that a connection can be cut exactly
// before or after one, and it can end a session as ZooKeeper does.
package zkproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Operations, as in ZooKeeper's ZooDefs.OpCode.
const (
	OpCreate  = 1
	OpExists  = 3
	OpGetData = 4
	OpSetData = 5
	OpMulti   = 14
	opClose   = -11
)

// Action is what is done with a request.
type Action int

// Actions.
const (
	// Forward delivers the request and its reply.
	Forward Action = iota
	// CutBefore loses the request: the connection breaks.
	CutBefore
	// CutAfter delivers the request, waits for its reply, and loses that: the
	// connection breaks when the request has been carried out.
	CutAfter
	// NoNode answers that there is no such node, and does not ask the server: as
	// one does that has lost it.
	NoNode
)

// Proxy forwards connections to a server. It is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	expiring sync.Mutex // held by ExpireAll

	mu     sync.Mutex
	decide func(op int32, body []byte) Action
	down   bool
	links  map[*link]struct{}
	greets map[uint64][]byte // by session id: what names the session to a server
	closed bool
}

// link is one client's connection.
type link struct {
	client, server net.Conn
	writing        sync.Mutex // to the client
	mu             sync.Mutex
	cutAt          int32 // xid whose reply is lost
	cut            bool
	once           sync.Once
}

func (l *link) close() {
	l.once.Do(func() {
		_ = l.client.Close() // that they end is all
		_ = l.server.Close()
	})
}

// New listens on a loopback port for the server at target.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}, greets: map[uint64][]byte{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Decide makes fn choose what is done with each request from now on; nil
// forwards all. Body is the request behind its operation. Requests of one
// connection come one after the other, and fn may block.
func (p *Proxy) Decide(fn func(op int32, body []byte) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = fn
}

// Cut breaks all connections; clients can connect again.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Down breaks all connections and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Expire ends a session at the server, as its time-out would, and breaks its
// connection. It returns when the server has ended it.
func (p *Proxy) Expire(session int64) error {
	p.mu.Lock()
	hello, ok := p.greets[uint64(session)] //nolint:gosec // bits
	p.mu.Unlock()
	if !ok {
		return fmt.Errorf("zkproxy: session %x did not pass here", session)
	}
	// The client may take its session back to another server meanwhile.
	for {
		over, err := p.endSession(hello)
		if over || err != nil {
			p.Cut()
			return err
		}
	}
}

// endSession tries once to close a session, and reports whether it was over.
func (p *Proxy) endSession(hello []byte) (over bool, err error) {
	c, err := net.Dial("tcp", p.target)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	if err := writeFrame(c, hello); err != nil {
		return false, err
	}
	res, err := readFrame(c)
	if err != nil || len(res) < 16 {
		return false, nil //nolint:nilerr // it was moved in between
	}
	if binary.BigEndian.Uint64(res[8:]) == 0 {
		return true, nil
	}
	bye := int32(opClose)
	req := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 1), uint32(bye)) //nolint:gosec // bits
	if err := writeFrame(c, req); err == nil {
		_, _ = readFrame(c)
	}
	return false, nil
}

// ExpireAll is Expire for every session that passed here and has not ended.
func (p *Proxy) ExpireAll() error {
	p.expiring.Lock() // another may be under way, and ends the same ones
	defer p.expiring.Unlock()
	p.mu.Lock()
	var ids []uint64
	for id := range p.greets {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		if err := p.Expire(int64(id)); err != nil { //nolint:gosec // bits
			return err
		}
		p.mu.Lock()
		delete(p.greets, id)
		p.mu.Unlock()
	}
	return nil
}

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	defer l.close()
	p.mu.Lock()
	if p.down || p.closed {
		p.mu.Unlock()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	hello, err := p.greet(l)
	if err != nil {
		return
	}
	if id := binary.BigEndian.Uint64(hello[16:]); id != 0 {
		p.mu.Lock()
		p.greets[id] = hello
		p.mu.Unlock()
	}
	p.wg.Go(func() { defer l.close(); p.replies(l) })
	p.requests(l)
}

// greet passes the connect request and its answer, and returns a request that
// connects to the same session.
func (p *Proxy) greet(l *link) ([]byte, error) {
	req, err := readFrame(l.client)
	if err != nil {
		return nil, err
	}
	if err := writeFrame(l.server, req); err != nil {
		return nil, err
	}
	res, err := readFrame(l.server)
	if err != nil {
		return nil, err
	}
	if len(req) < 44 || len(res) < 36 {
		return nil, errors.New("zkproxy: greeting too short")
	}
	// protocol 4, last zxid 8, time-out 4, session 8, password 4+16
	hello := append([]byte{}, req[:44]...)
	clear(hello[4:12])
	copy(hello[12:16], res[4:8])
	copy(hello[16:24], res[8:16])
	copy(hello[24:44], res[16:36])
	return hello, writeFrame(l.client, res)
}

func (p *Proxy) requests(l *link) {
	for {
		frame, err := readFrame(l.client)
		if err != nil || len(frame) < 8 {
			return
		}
		xid, op := int32(binary.BigEndian.Uint32(frame)), int32(binary.BigEndian.Uint32(frame[4:])) //nolint:gosec // bits
		p.mu.Lock()
		decide := p.decide
		p.mu.Unlock()
		act := Forward
		if decide != nil && xid > 0 {
			act = decide(op, frame[8:])
		}
		switch act {
		case CutBefore:
			return
		case CutAfter:
			l.mu.Lock()
			l.cut, l.cutAt = true, xid
			l.mu.Unlock()
		case NoNode:
			if l.answer(noNode(frame)) != nil {
				return
			}
			continue
		case Forward:
		}
		if writeFrame(l.server, frame) != nil {
			return
		}
	}
}

func (p *Proxy) replies(l *link) {
	for {
		frame, err := readFrame(l.server)
		if err != nil || len(frame) < 4 {
			return
		}
		l.mu.Lock()
		lost := l.cut && l.cutAt == int32(binary.BigEndian.Uint32(frame)) //nolint:gosec // bits
		l.mu.Unlock()
		if lost || l.answer(frame) != nil {
			return
		}
	}
}

func (l *link) answer(frame []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return writeFrame(l.client, frame)
}

// noNode is the reply to a request that there is no such node: the request's
// xid, no zxid, and the error -101.
func noNode(request []byte) []byte {
	reply := binary.BigEndian.AppendUint64(append([]byte{}, request[:4]...), 0)
	return binary.BigEndian.AppendUint32(reply, 1<<32-101)
}

// PathOf is the path in the body of a request that has one first.
func PathOf(body []byte) string {
	if len(body) < 4 {
		return ""
	}
	n := binary.BigEndian.Uint32(body)
	return string(body[4:min(4+uint64(n), uint64(len(body)))])
}

const maxFrame = 8 << 20

func readFrame(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > maxFrame {
		return nil, fmt.Errorf("zkproxy: frame of %d bytes", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)) //nolint:gosec // a frame
	return err
}
