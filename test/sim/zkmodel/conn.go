package zkmodel

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// Numbers of operations and special request numbers, as in ZooDefs.
const (
	opCreate       = 1
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSetData      = 5
	opGetACL       = 6
	opSetACL       = 7
	opGetChildren  = 8
	opSync         = 9
	opPing         = 11
	opGetChildren2 = 12
	opCheck        = 13
	opMulti        = 14
	opClose        = -11
	opAuth         = 100
	opSetWatches   = 101

	xidEvent = -1
)

// maxQueue is how many replies may wait for a client that does not read.
const maxQueue = 100_000

// conn is one client's connection to one server. Its requests are answered in
// their order: what must wait for the server's state waits in pending, and all
// that comes after it, too.
type conn struct {
	s       *Server
	c       net.Conn
	session *session
	who     []zk.ACL
	dropped bool
	ends    bool // after the last reply
	watches [watchKinds]map[string]bool
	pending []reply
	queue   [][]byte
	wake    chan struct{} // has one message when there is something in queue, or the end
}

// reply is an answer that waits until the server has applied zxid.
type reply struct {
	zxid   int64
	answer func() []byte
}

func newConn(s *Server, c net.Conn) *conn {
	k := &conn{s: s, c: c, wake: make(chan struct{}, 1)}
	for i := range k.watches {
		k.watches[i] = map[string]bool{}
	}
	return k
}

// drop breaks the connection. The lock is held.
func (k *conn) drop() {
	if k.dropped {
		return
	}
	k.dropped = true
	delete(k.s.conns, k)
	if k.session != nil && k.session.conn == k {
		k.session.conn = nil
	}
	_ = k.c.Close()
	k.rouse()
}

func (k *conn) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// write sends what is in the queue until the connection is dropped.
func (k *conn) write() {
	for range k.wake {
		k.s.e.mu.Lock()
		frames, over, ends := k.queue, k.dropped, k.ends && len(k.pending) == 0
		k.queue = nil
		k.s.e.mu.Unlock()
		if over {
			return
		}
		for _, f := range frames {
			if _, err := k.c.Write(f); err != nil {
				k.lost()
				return
			}
		}
		if ends {
			k.lost()
			return
		}
	}
}

func (k *conn) lost() {
	k.s.e.mu.Lock()
	defer k.s.e.mu.Unlock()
	k.drop()
}

// read serves requests until the connection breaks.
func (k *conn) read() {
	defer k.lost()
	for first := true; ; first = false {
		p, err := readFrame(k.c)
		if err != nil {
			return
		}
		k.s.e.mu.Lock()
		switch {
		case k.dropped:
			err = net.ErrClosed
		case k.s.frozen:
		case first:
			err = k.greet(&reader{buf: p})
		default:
			err = k.request(&reader{buf: p})
		}
		k.s.e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func readFrame(c io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a request of %d bytes", n)
	}
	p := make([]byte, n)
	_, err := io.ReadFull(c, p)
	return p, err
}

func (k *conn) send(f []byte) {
	if k.dropped {
		return
	}
	if len(k.queue) >= maxQueue {
		k.drop()
		return
	}
	k.queue = append(k.queue, f)
	k.rouse()
}

// later answers when the server has applied zxid and all before is answered.
func (k *conn) later(zxid int64, answer func() []byte) {
	k.pending = append(k.pending, reply{zxid, answer})
	k.answer()
}

// answer sends what need not wait any more.
func (k *conn) answer() {
	for len(k.pending) > 0 && k.pending[0].zxid <= k.s.applied && !k.dropped {
		r := k.pending[0]
		k.pending = k.pending[1:]
		k.send(r.answer())
	}
}

// greet answers the first request of a connection: a session is made, or moves here.
func (k *conn) greet(r *reader) error {
	r.int32() // the protocol's version
	seen, asked, id, password := r.int64(), r.int32(), r.int64(), r.bytes()
	if r.err != nil {
		return r.err
	}
	e := k.s.e
	if !k.s.serves() || seen > k.s.applied {
		return fmt.Errorf("the client has seen %d, server %d has %d", seen, k.s.number, k.s.applied)
	}
	var s *session
	zxid := int64(0)
	if id == 0 {
		s = e.newSession(time.Duration(asked) * time.Millisecond)
		zxid = e.zxid
	} else if s = e.sessions[id]; s != nil && string(s.password) != string(password) {
		s = nil
	}
	k.later(zxid, func() []byte { return greeting(s) })
	if s == nil {
		k.ends = true
		return nil
	}
	if s.conn != nil {
		s.conn.drop()
	}
	k.session, s.conn, s.heard = s, k, time.Now()
	s.from, _, _ = net.SplitHostPort(k.c.RemoteAddr().String()) // empty if it is none
	return nil
}

// greeting is the answer to a connect request; nil says that the session is over.
func greeting(s *session) []byte {
	w := writer{buf: make([]byte, 4, 64)}
	w.int32(0)
	if s == nil {
		s = &session{password: make([]byte, 16)}
	}
	w.int32(int32(s.timeout.Milliseconds())) //nolint:gosec // 20 ticks at most
	w.int64(s.id)
	w.bytes(s.password)
	return w.sealed()
}

// request serves one request. An error breaks the connection.
func (k *conn) request(r *reader) error {
	xid, op := r.int32(), r.int32()
	if r.err != nil {
		return r.err
	}
	if k.session == nil {
		return fmt.Errorf("a request without a session")
	}
	k.s.e.asked[Asked{k.session.from, op}]++
	if !k.s.isolated {
		k.session.heard = time.Now()
	}
	switch op {
	case opPing:
		k.send(frame(xid, k.s.applied, ok, nil))
	case opAuth:
		r.int32()
		id, code := identity(r.string(), r.bytes())
		if code == ok {
			k.who = append(k.who, id)
		}
		k.send(frame(xid, k.s.applied, code, nil))
		k.ends = k.ends || code != ok
	case opSync:
		if k.s.isolated {
			return nil // as a write: it gets to no leader
		}
		path := r.string()
		k.later(k.s.e.zxid, func() []byte { return frame(xid, k.s.applied, ok, func(w *writer) { w.string(path) }) })
	case opSetWatches:
		k.later(0, func() []byte { return k.setWatches(xid, r) })
	case opExists, opGetData, opGetACL, opGetChildren, opGetChildren2:
		k.later(0, func() []byte { return k.look(xid, op, r) })
	default:
		return k.change(xid, op, r)
	}
	return r.err
}

// look answers a read from the server's state.
func (k *conn) look(xid, op int32, r *reader) []byte {
	path := r.string()
	watch := op != opGetACL && r.bool()
	n, code := k.s.tree.get(path), ok
	switch {
	case r.err != nil:
		code = marshallingError
	case !validPath(path):
		code = badArguments
	case n == nil:
		code = noNode
	case op != opExists && op != opGetACL && !may(n, k.who, zk.PermRead),
		op == opGetACL && !may(n, k.who, zk.PermRead|zk.PermAdmin):
		code = noAuth
	}
	if watch {
		switch {
		case op == opExists && (code == ok || code == noNode):
			k.watches[watchExist][path] = true
		case op == opGetData && code == ok:
			k.watches[watchData][path] = true
		case code == ok:
			k.watches[watchChild][path] = true
		}
	}
	return frame(xid, k.s.applied, code, func(w *writer) {
		switch op {
		case opGetData:
			w.bytes(n.data)
		case opGetACL:
			w.acl(n.acl)
		case opGetChildren, opGetChildren2:
			w.strings(k.s.tree.children(path))
		}
		if op != opGetChildren {
			w.stat(n.stat)
		}
	})
}

// setWatches sets the watches of a client that comes back, and tells it what it
// has missed since the zxid it names.
func (k *conn) setWatches(xid int32, r *reader) []byte {
	since := r.int64()
	for kind := range watchKinds {
		for _, path := range r.strings() {
			n := k.s.tree.get(path)
			switch {
			case n == nil && kind != watchExist:
				k.event(event{zk.EventNodeDeleted, path})
			case n == nil:
				k.watches[kind][path] = true
			case kind == watchExist && n.stat.Czxid > since:
				k.event(event{zk.EventNodeCreated, path})
			case kind == watchChild && n.stat.Pzxid > since:
				k.event(event{zk.EventNodeChildrenChanged, path})
			case kind == watchData && n.stat.Mzxid > since:
				k.event(event{zk.EventNodeDataChanged, path})
			default:
				k.watches[kind][path] = true
			}
		}
	}
	return frame(xid, k.s.applied, ok, nil)
}

// notify tells of an event if there is a watch, and takes the watch away.
func (k *conn) notify(ev event) {
	told := false
	for _, kind := range touches(ev.kind) {
		if k.watches[kind][ev.path] {
			delete(k.watches[kind], ev.path)
			told = true
		}
	}
	if told {
		k.event(ev)
	}
}

func (k *conn) event(ev event) {
	k.send(frame(xidEvent, -1, ok, func(w *writer) {
		w.int32(int32(ev.kind))
		w.int32(int32(zk.StateSyncConnected))
		w.string(ev.path)
	}))
}
