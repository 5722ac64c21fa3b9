package zk

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/zkconn"
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
// fit. It continues over lost sessions by itself. ErrPurged if it fell so far
// behind that records are gone: start from an image. TakeOver continues where Tail
// has stopped.
//
// It watches the beat node alone, which the writer writes with each batch and at
// least every third of its lease.
func (j *Journal) Tail(ctx context.Context, fn func(journal.Record) error) error {
	outer := ctx
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	unlock, err := j.lockReading(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	j.mu.Lock()
	c := j.cur
	switch {
	case !j.positioned:
		err = errors.New("journal: Tail before a Replay to the end")
	case j.term > 0:
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

// follow is Tail on one session. It has one watch, on a node that is always there:
// one on a batch that comes before the server has heard of the watch would stay
// until that batch is purged.
func (j *Journal) follow(ctx context.Context, s *zkconn.Session, c *cursor, fn func(journal.Record) error) error {
	path := j.path(beatNode)
	looked := j.clock.Mono() // for what was purged
	for late := false; ; {
		// In this order: a batch that comes after the look sets off the watch.
		data, stat, written, err := s.GetW(ctx, path)
		if err != nil {
			return err
		}
		beat, _ := decodeLine(path, beatNode, data) // what it says is no more than a hint
		txid := beat.uint("txid")
		upTo := txid // no read finds that there is nothing behind it
		if txid == 0 || late {
			upTo = math.MaxUint64
		}
		for again := true; again; {
			err := j.walkOn(ctx, s, c, c.txid, 0, upTo, fn)
			j.saw(c, stat.Version, txid)
			again = false
			if err == nil && txid >= c.txid {
				// What the beat says was written with it, or before.
				again, err = j.anywhere(ctx, s, c.number)
			}
			if err != nil {
				return err
			}
		}
		late = false
		if now := j.clock.Mono(); now-looked >= lookAgain {
			looked = now
			if _, _, err := j.readFirst(ctx, s); err != nil {
				return err
			}
		}
		select {
		case <-written:
		case <-time.After(lookAgain):
			late = true
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Done():
			return zkconn.ErrLost
		}
	}
}

// lookAgain is after how long without an event Tail looks by itself, also behind what
// the last beat said: a standby must not stand still because one event did not come. As often
// it looks up what was purged, of which no event tells.
const lookAgain = 10 * time.Second

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
