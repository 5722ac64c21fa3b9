package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/fspath"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// lines are the session streams of a client that caches, one a machine.
type lines struct {
	mu sync.Mutex
	on map[*machine]bool
	n  uint64
}

// caches has each call sent on a stream of the client's that caches and says yes
// to every revocation: without it a change would wait for a term of a clock that
// nobody turns.
func (c *client) caches(l *lines, call *call) *call {
	send := call.send
	call.send = func(m *machine) (any, error) {
		if err := c.connect(l, m); err != nil {
			return nil, err
		}
		return send(m)
	}
	return call
}

// connect begins a stream, unless there is one, and has a term when it returns.
// The stream ends with the machine.
func (c *client) connect(l *lines, m *machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on[m] {
		return nil
	}
	ctx, cancel := background()
	stream, err := m.api.Session(ctx)
	if err != nil {
		cancel()
		return wire.FromStatus(err)
	}
	l.n++
	hello := &pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: c.who(), Cache: true, Stream: l.n}}}
	renew := &pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: 1}}}
	err = errors.Join(stream.Send(hello), stream.Send(renew))
	term := make(chan error, 1)
	if err == nil {
		go func() {
			defer cancel()
			for {
				r, err := stream.Recv()
				if err != nil {
					select {
					case term <- wire.FromStatus(err):
					default:
					}
					return
				}
				if r.GetCacheTerm().GetTermMs() > 0 {
					term <- nil
				}
				if rev := r.GetCacheRevocation(); rev != nil {
					_ = stream.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Seq: rev.GetSeq()}}})
				}
			}
		}()
		err = <-term
	}
	if err != nil {
		cancel()
		return err
	}
	l.on[m] = true
	return nil
}

// numbered makes a file and asks for the delegation of its directory, and for
// numbers; first is the first of them.
func (c *client) numbered(l *lines, path string, first *uint64) *call {
	out := c.create("", path, "asks", true, func(q *pbCreate) { q.Cache, q.Creations, q.Numbers = true, true, true })
	effect := out.effect
	out.effect = func(m *model, answer any) {
		effect(m, answer)
		if a, ok := answer.(*pb.OpenResponse); ok {
			*first = a.GetFirstInode()
		}
	}
	out.answers = false // a repeated one may have other numbers
	return c.caches(l, out)
}

// numbers asks until it has some: a disk that fails or dies when the file is made
// may leave none.
func (c *client) numbers(l *lines, path string, first *uint64) {
	for i := range 3 {
		if c.r.do(c.numbered(l, fmt.Sprintf("%s%d", path, i), first)); *first != 0 {
			return
		}
	}
	c.r.failf("no numbers were set aside")
}

// draft makes a file with a number, in a directory by inode.
func (c *client) draft(l *lines, id, path, data string, whole bool, number, dir uint64) *call {
	out := c.create(id, path, data, whole, func(q *pbCreate) {
		_, name := fspath.Split(path)
		q.At, q.As, q.Cache = &pb.Ref{Base: dir, Path: name}, number, true
	})
	effect := out.effect
	out.effect = func(m *model, answer any) {
		effect(m, answer)
		m.nodes[path].inode = number
	}
	out.answers = false // what it looks like now is part of it
	return c.caches(l, out)
}

// drafts: files of a session that makes them with numbers set aside for it, which
// are good over restarts, and nobody else's.
func drafts(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	l := &lines{on: make(map[*machine]bool)}
	// A change waits for those who cached before a crash.
	r.booted = func(m *machine) { _ = a.connect(l, m) } // else its next call says why
	var first, second, dir uint64
	r.do(a.caches(l, a.mkdir("/d")))
	r.do(a.caches(l, &call{name: "stat /d", send: func(m *machine) (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := m.api.Stat(ctx, &pb.StatRequest{Caller: a.who(), At: pb.At("/d")})
		return s, wire.FromStatus(err)
	}, effect: func(_ *model, out any) {
		if s, ok := out.(*pb.StatResponse); ok {
			dir = s.GetAttr().GetInode()
		}
	}}))
	a.numbers(l, "/d/first", &first)
	r.do(a.draft(l, "1", "/d/1", text("whole", 300), true, first, dir))
	r.do(a.draft(l, "2", "/d/2", "begun", false, first+1, dir))
	r.do(a.caches(l, b.create("b", "/d/b", "b", true)))
	r.do(op.checkpoint())
	r.do(a.caches(l, a.close("2", " and ended")))
	r.do(a.draft(l, "3", "/d/3", "3", true, first+1023, dir))
	r.restart()
	r.do(a.draft(l, "4", "/d/4", "4", true, first+2, dir))
	r.do(a.caches(l, b.create("n", "/d/n", "next", true)))
	a.numbers(l, "/d/second", &second)
	if second < first+1024 {
		r.failf("numbers from %d are set aside, after those from %d", second, first)
	}
	r.do(a.draft(l, "5", "/d/5", "5", true, second, dir), a.caches(l, b.create("m", "/d/m", "at once", true)))
	r.do(a.draft(l, "6", "/d/6", "6", true, first+3, dir))
	r.do(op.checkpoint())
	r.do(a.caches(l, b.delete("/d/1")))
}
