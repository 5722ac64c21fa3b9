package zk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// batch is one node that is to be created. Its bytes never change: it may be
// sent several times, and an early copy may arrive late.
type batch struct {
	path    string
	node    []byte
	header  header
	ends    bool // its group ends with it
	call    *zkconn.Call
	sends   int
	first   func() // confirm of the first time it was sent
	confirm func() // of the last time
}

// writer turns groups into batches, keeps up to InFlight of them under way, and
// takes their outcomes in order. A group is a group.Batch: it becomes one batch
// node or, if it is one large record, several. All of it belongs to one goroutine.
type writer struct {
	j      *Journal
	next   position
	flight []*batch // oldest first; those without a call are yet to be sent
	failed int      // times in a row that outcomes were unknown

	inSegment int64 // bytes written to the current segment
}

// opCheckTerm is the first operation of each transaction that a writer sends.
const opCheckTerm = 0

// run ends when the journal closes and all is written, or with its failure.
func (w *writer) run() {
	for {
		w.fill()
		var oldest <-chan struct{}
		if len(w.flight) > 0 {
			oldest = w.flight[0].call.Done()
		} else if w.j.group.Done() {
			return
		}
		select {
		case <-w.j.group.Work():
		case <-oldest:
			if err := w.settle(); err != nil {
				w.j.group.Fail(err)
				return
			}
		case <-w.j.life.Done():
			w.j.group.Fail(context.Cause(w.j.life))
			return
		}
	}
}

// fill sends what is to be sent again, then new groups as there is room, and as
// each is worth a batch of its own: at least as many records as are under way,
// so that few who write are not kept waiting, and the batches of many grow (cf.
// Nagle's rule for TCP).
func (w *writer) fill() {
	for _, b := range w.flight {
		if b.call == nil {
			w.send(b)
		}
	}
	for len(w.flight) < w.j.cfg.InFlight {
		under := uint32(0) // records
		for _, b := range w.flight {
			under += b.header.count
		}
		g := w.j.group.Take(max(under, 1))
		if g == nil {
			return
		}
		from := len(w.flight)
		w.build(g)
		for _, b := range w.flight[from:] {
			w.send(b)
		}
	}
}

// build makes the batches of a group.
func (w *writer) build(g *group.Batch) {
	room := w.j.cfg.MaxNode - headerSize
	payload := g.Buf[headerSize:]
	parts := max(1, (len(payload)+room-1)/room)
	for part := range parts {
		node := g.Buf
		if parts > 1 {
			piece := payload[part*room : min((part+1)*room, len(payload))]
			node = append(make([]byte, headerSize, headerSize+len(piece)), piece...)
		}
		h := header{
			parts: uint16(parts), part: uint16(part), count: g.Count, //nolint:gosec // MaxBody over minMaxNode
			number: w.next.number, first: g.First, term: w.next.term, epoch: w.next.epoch,
			segment: w.next.segment, offset: w.next.offset, chain: w.next.chain,
		}
		if part < parts-1 {
			h.count = 0
		}
		if part == 0 && w.rolls(g, len(payload)) {
			h.segment = h.number
		}
		h.seal(node)
		w.flight = append(w.flight, &batch{path: w.j.batchPath(h.number), node: node, header: h, ends: part == parts-1})
		c := cursor{}
		c.after(h, len(node))
		w.next = c.position
	}
}

// rolls reports whether a group begins a new segment.
func (w *writer) rolls(g *group.Batch, size int) bool {
	if !g.Roll {
		w.inSegment += int64(size)
		if w.inSegment <= w.j.cfg.SegmentBytes {
			return false
		}
	}
	w.inSegment = int64(size)
	return true
}

func (w *writer) send(b *batch) {
	b.confirm = w.j.writes()
	if b.sends++; b.sends == 1 {
		b.first = b.confirm
	}
	s := w.j.link.current()
	if s == nil {
		b.call = zkconn.LostCall()
		return
	}
	b.call = s.Start(w.j.batchOps(s, &b.header, b.node)...)
}

// batchOps is the transaction that writes a batch.
func (j *Journal) batchOps(s *zkconn.Session, h *header, node []byte) []any {
	ops := []any{
		&zookeeper.CheckVersionRequest{Path: j.path(termNode), Version: int32(h.epoch)}, //nolint:gosec // it was one
		&zookeeper.CheckVersionRequest{Path: j.batchPath(h.number - 1), Version: 0},
	}
	if h.number%folderSize == 0 {
		ops = append(ops, &zookeeper.CreateRequest{Path: j.folderPath(h.number), Acl: s.ACL()})
	}
	return append(ops,
		&zookeeper.CreateRequest{Path: j.batchPath(h.number), Data: node, Acl: s.ACL()},
		&zookeeper.SetDataRequest{Path: j.path(beatNode), Data: encodeBeat(h.term, h.first+uint64(h.count)-1), Version: -1})
}

// writes is called before a transaction that checks the term is sent; what it
// returns, when that has succeeded.
func (j *Journal) writes() (confirm func()) {
	if j.cfg.Written == nil {
		return func() {}
	}
	return j.cfg.Written()
}

// settle takes the outcomes that are there, in order. An error is final.
func (w *writer) settle() error {
	for len(w.flight) > 0 && w.flight[0].call != nil {
		b := w.flight[0]
		select {
		case <-b.call.Done():
		default:
			return nil
		}
		res, err := b.call.Result()
		if err == nil {
			w.failed = 0
			w.pop(b.confirm, b.sends == 1)
			continue
		}
		switch at := zkconn.FailedOp(res); {
		case at == opCheckTerm:
			return w.j.deposed()
		case at >= 0 && errors.Is(err, zookeeper.ErrNoAuth):
			return fmt.Errorf("write batch %s: %w: ZooKeeper does not let this user write there", b.path, err)
		}
		// NodeExists: an earlier copy arrived, or it is another's. NoNode: the
		// batch before is not there, though it was: to be looked at. All else:
		// not known.
		if err := w.resolve(); err != nil {
			return err
		}
	}
	return nil
}

// pop takes the oldest batch as durable.
func (w *writer) pop(confirm func(), reuse bool) {
	b := w.flight[0]
	w.flight[0] = nil
	w.flight = w.flight[1:]
	confirm()
	if b.ends {
		// Replay reads up to what is noted here, so it is noted before anybody is told that it is durable.
		w.j.written(b.header.offset+uint64(len(b.node)), b.header.number+1)
		w.j.group.Finish(reuse && b.header.parts == 1)
	}
}

// resolve finds out about batches whose outcome is not known: those that are
// there count, if they hold what was to be written; the others are sent again,
// the same bytes under the same numbers. An early copy that arrives after all
// makes no difference then: whichever is first, the number holds these bytes.
func (w *writer) resolve() error {
	j := w.j
	for _, b := range w.flight { // so that no copy is under way on a session that lives
		if b.call != nil {
			select {
			case <-b.call.Done():
			case <-j.life.Done():
				return context.Cause(j.life)
			}
		}
	}
	before := len(w.flight)
	for len(w.flight) > 0 {
		there, err := w.readBack(w.flight[0])
		if err != nil {
			return err
		}
		if !there {
			break
		}
		w.pop(w.flight[0].first, false)
	}
	for _, b := range w.flight {
		b.call = nil
	}
	if len(w.flight) < before {
		w.failed = 0
		return nil
	}
	w.failed++
	if w.failed == 1 {
		return nil
	}
	return clock.Pause(j.life, min(firstPause<<min(w.failed, 10), longPause))
}

// readBack reports whether a batch is there as it was to be written. That it is not
// is the word of all servers, and then the batch before must be there.
func (w *writer) readBack(b *batch) (there bool, err error) {
	j := w.j
	err = j.retry(j.life, func(s *zkconn.Session) error {
		var data []byte
		err := j.sure(j.life, s, b.header.number, func() (err error) {
			data, _, err = s.Get(j.life, b.path)
			return err
		})
		if errors.Is(err, zookeeper.ErrNoNode) {
			there = false
			return w.checkPrevious(s, b)
		}
		if err != nil {
			return err
		}
		if there = bytes.Equal(data, b.node); there {
			return nil
		}
		return w.conflict(s, b)
	})
	return there, err
}

func (w *writer) checkPrevious(s *zkconn.Session, b *batch) error {
	there, err := w.j.anywhere(w.j.life, s, b.header.number-1)
	if err != nil || there {
		return err
	}
	if err := w.checkEpoch(s); err != nil {
		return err
	}
	return damaged(w.j.batchPath(b.header.number-1), 0, b.header.first, "is missing, though it was written")
}

// conflict is the error of a batch number that holds other bytes.
func (w *writer) conflict(s *zkconn.Session, b *batch) error {
	if err := w.checkEpoch(s); err != nil {
		return err
	}
	return damaged(b.path, 0, b.header.first, "holds other bytes than this namenode wrote, and nobody else has begun a term")
}

// checkEpoch is ErrFenced if another term has begun.
func (w *writer) checkEpoch(s *zkconn.Session) error {
	t, version, err := w.j.readTerm(w.j.life, s)
	if err == nil && version != int32(w.next.epoch) { //nolint:gosec // it was one
		err = fenced(t, w.next.term)
	}
	return err
}

// deposed is the error after ZooKeeper has refused the term, and says by whom
// if that can be told at once.
func (j *Journal) deposed() error {
	ctx, cancel := context.WithTimeout(j.life, time.Second)
	defer cancel()
	s, err := j.link.session(ctx)
	if err == nil {
		var t termInfo
		if t, _, err = j.readTerm(ctx, s); err == nil {
			return fenced(t, j.term)
		}
	}
	return fmt.Errorf("%w (which could not be read: %w)", journal.ErrFenced, err)
}

func fenced(t termInfo, ours uint64) error {
	return fmt.Errorf("%w: term %d of %s has begun, this was term %d", journal.ErrFenced, t.term, cmpOr(t.holder, "another namenode"), ours)
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
