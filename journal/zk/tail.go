package zk

import (
	"context"
	"errors"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/journal"
	"github.com/leasefs/leasefs/zkconn"
)

// sighting is what a standby has last seen of the active.
type sighting struct {
	known  bool
	number uint64        // of the batch that would be next
	beat   int32         // version of the beat node
	at     time.Duration // by Clock.Mono: when it was first so
	txid   uint64        // as the beat node says
}

// Tail follows the writer: it calls fn for each record behind what Replay has
// read, in order, until ctx ends (its error then is ctx's) or something does not
// fit. It goes on over lost sessions by itself. ErrPurged if it fell so far
// behind that records are gone: start from an image. TakeOver goes on where Tail
// has stopped.
//
// It watches two nodes: the next batch, and the beat node, which the writer
// writes at least every third of its lease, and with it a look at the next batch.
func (j *Journal) Tail(ctx context.Context, fn func(journal.Record) error) error {
	outer := ctx
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	if err := j.lockReading(ctx); err != nil {
		return err
	}
	defer j.unlockReading()
	j.mu.Lock()
	c := j.cur
	var err error
	switch {
	case !j.positioned:
		err = errors.New("journal: Tail before a Replay to the end")
	case j.begun:
		err = errors.New("journal: Tail by the writer")
	}
	j.mu.Unlock()
	if err != nil {
		return err
	}
	err = j.retry(ctx, func(s *zkconn.Session) error { return j.follow(ctx, s, &c, fn) })
	if outer.Err() != nil && errors.Is(err, context.Cause(outer)) {
		return outer.Err()
	}
	return err
}

// follow is Tail on one session.
func (j *Journal) follow(ctx context.Context, s *zkconn.Session, c *cursor, fn func(journal.Record) error) error {
	var next, beat <-chan zookeeper.Event
	var nextOf uint64
	var beatVersion int32
	var beatTxID uint64
	for {
		if beat == nil {
			data, stat, ch, err := s.GetW(ctx, j.path(beatNode))
			if err != nil {
				return err
			}
			beat, beatVersion = ch, stat.Version
			if f, err := decodeLine(j.path(beatNode), beatNode, data); err == nil {
				beatTxID = f.uint("txid")
			}
		}
		// In this order: a batch that comes after the look sets off the watch.
		if next == nil || nextOf != c.number {
			there, ch, err := s.ExistsW(ctx, j.batchPath(c.number))
			if err != nil {
				return err
			}
			if !there {
				next, nextOf = ch, c.number
			}
		}
		err := j.walkOn(ctx, s, c, c.txid, 0, fn)
		j.saw(c, beatVersion, beatTxID)
		if err == nil && beatTxID >= c.txid {
			// The writer had written that before its beat.
			_, err = j.anywhere(ctx, s, c.number)
		}
		if err != nil {
			return err
		}
		if nextOf != c.number {
			continue
		}
		select {
		case <-next:
			next = nil
		case <-beat:
			beat = nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Done():
			return zkconn.ErrLost
		}
	}
}

// saw keeps how far a standby is, and when it first saw the last write.
func (j *Journal) saw(c *cursor, beat int32, txid uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.moveTo(c)
	if !j.sight.known || j.sight.number != c.number || j.sight.beat != beat {
		j.sight.number, j.sight.beat, j.sight.at = c.number, beat, j.clock.Mono()
	}
	j.sight.known = true
	j.sight.txid = max(j.sight.txid, txid, c.txid-1)
}

// Observed is what Tail last saw of the active: the last txid that it says to be
// durable, and when, by Clock.Mono, its last write came. Durable is how far this
// standby is.
func (j *Journal) Observed() (txid uint64, at time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sight.txid, j.sight.at
}
