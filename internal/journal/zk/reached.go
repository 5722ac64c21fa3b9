package zk

import (
	"context"
	"errors"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// Reached is how far a journal was read or written, so that one that lacks something of
// that can be told from it.
type Reached struct {
	TxID  uint64 // the last record that is known to have been durable
	Batch uint64 // the last batch that was read, or became durable here
	Chain uint32 // its CRC
}

// Reached is how far this process has read the journal, or written it. Its TxID may be
// further than its Batch: a standby is told of records before it has them.
func (j *Journal) Reached() Reached {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Reached{TxID: max(j.sight.txid, j.Durable()), Batch: j.cur.number - 1, Chain: j.cur.chain}
}

// Lacks is a *journal.DamageError if the journal, which was read to its end, has not all
// that another process reached: acknowledged records are gone.
func (j *Journal) Lacks(ctx context.Context, r Reached) error {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	if err := j.Ends(r.TxID); err != nil {
		return err
	}
	return j.retry(ctx, func(s *zkconn.Session) error { return j.holds(ctx, s, r) })
}

// Ends is a *journal.DamageError if the journal, which was read to its end, ends before
// record txid, which was durable.
func (j *Journal) Ends(txid uint64) error {
	now := j.Reached()
	if last := j.Durable(); last < txid {
		return lost(j.batchPath(now.Batch+1), last+1, "is missing: the journal ends at record "+utoa(last)+", and had "+utoa(txid)+" before")
	}
	return nil
}

// holds makes sure that a batch that was read, or became durable here, is there still, or
// was purged.
func (j *Journal) holds(ctx context.Context, s *zkconn.Session, r Reached) error {
	path := j.batchPath(r.Batch)
	var h header
	err := j.sure(ctx, s, r.Batch, func() (err error) {
		h, err = j.readHeader(ctx, s, r.Batch)
		return err
	})
	switch {
	case errors.Is(err, zookeeper.ErrNoNode):
		first, _, err := j.readFirst(ctx, s)
		if err == nil && r.Batch >= first.number {
			err = lost(path, r.TxID, "is missing, though it was there before")
		}
		return err
	case err == nil && h.crc != r.Chain:
		return lost(path, r.TxID, "is another one than was there before")
	}
	return err
}

// stands is holds for the batch before a cursor.
func (j *Journal) stands(ctx context.Context, s *zkconn.Session, c *cursor) error {
	if !c.anchored {
		return nil
	}
	return j.holds(ctx, s, Reached{c.txid - 1, c.number - 1, c.chain})
}

const remedyLost = "ZooKeeper has lost changes that were acknowledged: stop all namenodes, and put back the data folders of the ZooKeeper server that has the most; " +
	"if none has more, restore the namespace from what is archived, or from a backup"

// lost is the damage of a journal whose acknowledged batches are gone.
func lost(path string, txid uint64, detail string) error {
	return &journal.DamageError{Segment: "ZooKeeper node " + path, TxID: txid, Detail: detail, Remedy: remedyLost}
}
