package zkmodel

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// errLost ends a connection whose write, or its answer, the test has lost.
var errLost = errors.New("lost by the test")

// change serves a write. It takes effect at once at the leader; the answer waits
// until the server has applied it.
func (k *conn) change(xid, op int32, r *reader) error {
	switch op {
	case opCreate, opDelete, opSetData, opSetACL, opMulti, opClose:
	default:
		k.later(0, func() []byte { return frame(xid, k.s.applied, unimplemented, nil) })
		return nil
	}
	e := k.s.e
	if k.s.isolated {
		return nil // it gets to no leader; the connection breaks when the server notices
	}
	if k.s.loses(LostRequest) {
		return errLost
	}
	var code zk.ErrCode
	var body func(*writer)
	c := e.begin(k.session.id, k.who)
	switch {
	case e.sessions[k.session.id] == nil:
		code = sessionExpired
	case k.session.conn != k:
		code = sessionMoved
	case op == opClose:
		delete(e.sessions, k.session.id)
		c.closeSession(k.session.id)
		k.ends = true
	case op == opMulti:
		body = c.multi(r)
	default:
		code, body = c.one(op, r)
	}
	if r.err != nil {
		return r.err
	}
	if code == ok {
		e.commit(c)
	} else {
		c.events = nil
		e.spread(c)
	}
	if k.s.loses(LostReply) {
		return errLost
	}
	k.later(c.zxid, func() []byte { return frame(xid, c.zxid, code, body) })
	return nil
}

// one carries out a single operation; body is what the answer says of it.
func (c *change) one(op int32, r *reader) (code zk.ErrCode, body func(*writer)) {
	path := r.string()
	switch op {
	case opCreate:
		data, acl, flags := r.bytes(), r.acl(), r.int32()
		made, code := c.create(path, data, acl, flags)
		return code, func(w *writer) { w.string(made) }
	case opDelete:
		return c.delete(path, r.int32()), nil
	case opSetData:
		data := r.bytes()
		stat, code := c.set(path, data, r.int32())
		return code, func(w *writer) { w.stat(stat) }
	case opSetACL:
		acl := r.acl()
		stat, code := c.setACL(path, acl, r.int32())
		return code, func(w *writer) { w.stat(stat) }
	case opCheck:
		return c.check(path, r.int32()), nil
	default:
		return unimplemented, nil
	}
}

// multi carries out all of several operations, or, if one fails, none.
func (c *change) multi(r *reader) (body func(*writer)) {
	type result struct {
		op   int32
		code zk.ErrCode
		body func(*writer)
	}
	before := c.tree.clone()
	var results []result
	failed := false
	for {
		op, done := r.int32(), r.bool()
		r.int32()
		if done || r.err != nil {
			break
		}
		if failed { // what stands behind a failure is taken apart and not done
			(&change{tree: before.clone(), zxid: c.zxid}).one(op, r)
			results = append(results, result{code: runtimeInconsistency})
			continue
		}
		code, body := c.one(op, r)
		results = append(results, result{op, code, body})
		failed = code != ok
	}
	if failed {
		c.tree, c.events = before, nil
	}
	return func(w *writer) {
		for _, res := range results {
			if failed {
				res.op = -1
			}
			w.int32(res.op)
			w.bool(false)
			if failed {
				w.int32(int32(res.code))
				w.int32(int32(res.code))
				continue
			}
			w.int32(0)
			if res.body != nil {
				res.body(w)
			}
		}
		w.int32(-1)
		w.bool(true)
		w.int32(-1)
	}
}

// String names a server as ZooKeeper does, by its number.
func (s *Server) String() string { return fmt.Sprintf("server.%d", s.number) }
