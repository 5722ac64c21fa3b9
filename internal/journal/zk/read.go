package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// readAhead is how many batches are asked for at a time.
const readAhead = 16

// Replay implements journal.Journal. It first asks ZooKeeper for all that was
// written by then, also by others. Tail, TakeOver and BeginTerm continue where the
// last one ended; one of the writer that asks for what follows the one before reads
// nothing twice, unless that was purged. Bodies may be kept. Without a connection it tries until
// ctx ends. BeginTerm, TakeOver, Purge and Tail wait for it.
func (j *Journal) Replay(ctx context.Context, from uint64, fn func(journal.Record) error) (uint64, error) {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	unlock, err := j.lockReading(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	from = max(from, 1)
	j.mu.Lock()
	first, begun, read := !j.positioned, j.term > 0, j.read
	j.mu.Unlock()
	if err := j.Err(); first && err != nil {
		return 0, err
	}
	var limit uint64
	if begun {
		limit = uint64(j.batches.Load()) //nolint:gosec // batches
	}
	c := &read
	purged := read.number < uint64(j.keptBefore.Load()) //nolint:gosec // batches
	if !read.anchored || from < read.txid || purged {
		err = j.retry(ctx, func(s *zkconn.Session) (err error) {
			c, err = j.seek(ctx, s, from)
			return err
		})
	}
	if err != nil {
		return 0, err
	}
	start := c.offset
	err = j.walk(ctx, c, from, limit, fn)
	j.mu.Lock()
	defer j.mu.Unlock()
	if begun {
		j.read = *c
	}
	if err != nil {
		return 0, err
	}
	if first {
		j.group.SetSinceRoll(int64(c.offset - start)) //nolint:gosec // bytes
		j.positioned = true
	}
	if !begun {
		j.moveTo(c)
	}
	return c.txid - 1, nil
}

// seek returns a cursor at the batch that holds record from, or behind the last
// one if it is yet to come.
func (j *Journal) seek(ctx context.Context, s *zkconn.Session, from uint64) (*cursor, error) {
	if err := s.Sync(ctx, j.cfg.Path); err != nil {
		return nil, err
	}
	first, _, err := j.readFirst(ctx, s)
	if err != nil {
		return nil, err
	}
	if from < first.txid {
		return nil, journal.Purged(from, first.txid)
	}
	h, err := j.search(ctx, s, first.number, from)
	if err != nil {
		return nil, err
	}
	c := &cursor{}
	c.number, c.txid, c.offset = h.number-uint64(h.part), h.first, h.offset
	return c, nil
}

// search returns the header of the first batch, from number low on, after which
// record txid is complete, or of the last batch if there is none.
func (j *Journal) search(ctx context.Context, s *zkconn.Session, low, txid uint64) (header, error) {
	var last header // of the last batch known to be there
	probe := func(number uint64) (there, found bool, err error) {
		h, err := j.readHeader(ctx, s, number)
		if errors.Is(err, zookeeper.ErrNoNode) {
			return false, false, nil
		}
		if err != nil {
			return false, false, err
		}
		if h.first+uint64(h.count) > txid {
			return true, true, nil
		}
		if h.number >= last.number {
			last = h
		}
		return true, false, nil
	}
	// Gallop to a batch that is far enough or not there, then halve.
	there, found, err := probe(low)
	if err != nil {
		return last, err
	}
	if !there {
		var first firstInfo
		if there, err = j.anywhere(ctx, s, low); err == nil && !there {
			first, _, err = j.readFirst(ctx, s) // now: a purge writes it before it removes anything
		}
		switch {
		case err != nil:
		case there, first.number > low:
			err = fmt.Errorf("%w: it came, or was purged, meanwhile", zkconn.ErrLost) // look again
		default:
			err = damaged(j.batchPath(low), 0, txid, "is missing: it is the oldest that is kept")
		}
		return last, err
	}
	ok, high := low, low // ok: not far enough; high: far enough or not there
	for step := uint64(1); !found && there; step *= 2 {
		ok, high = high, high+step
		if there, found, err = probe(high); err != nil {
			return last, err
		}
	}
	for high-ok > 1 {
		mid := ok + (high-ok)/2
		there, found, err := probe(mid)
		switch {
		case err != nil:
			return last, err
		case there && !found:
			ok = mid
		default:
			high = mid
		}
	}
	h, err := j.readHeader(ctx, s, high)
	if errors.Is(err, zookeeper.ErrNoNode) {
		return last, nil
	}
	return h, err
}

func (j *Journal) readHeader(ctx context.Context, s *zkconn.Session, number uint64) (header, error) {
	path := j.batchPath(number)
	node, _, err := s.Get(ctx, path)
	if err != nil {
		return header{}, err
	}
	h, off, err := decodeNode(node)
	if err == nil && h.number != number {
		off, err = 16, fmt.Errorf("holds batch %d", h.number)
	}
	if err != nil {
		return h, damaged(path, off, 0, err.Error())
	}
	return h, nil
}

func (j *Journal) readFirst(ctx context.Context, s *zkconn.Session) (firstInfo, int32, error) {
	data, stat, err := s.Get(ctx, j.path(firstNode))
	if err != nil {
		return firstInfo{}, 0, err
	}
	f, err := decodeFirst(j.path(firstNode), data)
	if err == nil {
		j.purgedTo(f)
	}
	return f, stat.Version, err
}

// walk reads to the end of the journal, or to batch number limit if that is not
// 0, over new sessions if need be.
func (j *Journal) walk(ctx context.Context, c *cursor, from, limit uint64, fn func(journal.Record) error) error {
	return j.retry(ctx, func(s *zkconn.Session) error {
		if limit > 0 {
			return j.walkOn(ctx, s, c, from, limit, math.MaxUint64, fn)
		}
		return j.walkToEnd(ctx, s, c, from, fn)
	})
}

// walkToEnd reads until there is no batch that was written before it was called.
// That a server has no further one does not say so: the session may be new, and
// the server behind that of the one before; a leader that was replaced may not
// know it yet; and a server can have lost what the others have (ZOOKEEPER-4785,
// in 3.8.0). So all of them are asked, by a transaction that looks at the batch
// after the last, and changes nothing.
func (j *Journal) walkToEnd(ctx context.Context, s *zkconn.Session, c *cursor, from uint64, fn func(journal.Record) error) error {
	// Whoever writes meanwhile does so behind what was written before, which is
	// there after the second time.
	for range 3 {
		if err := j.walkOn(ctx, s, c, from, 0, math.MaxUint64, fn); err != nil {
			return err
		}
		if there, err := j.anywhere(ctx, s, c.number); err != nil || !there {
			return err
		}
	}
	return nil
}

// anywhere reports whether the ensemble has a batch, and this server with it. One
// that has lost it is left: the session ends, and the error is ErrLost.
func (j *Journal) anywhere(ctx context.Context, s *zkconn.Session, number uint64) (bool, error) {
	path := j.batchPath(number)
	_, err := s.Multi(ctx, &zookeeper.CheckVersionRequest{Path: path, Version: 0})
	if errors.Is(err, zookeeper.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// This server has carried out the transaction, and so all before it.
	if there, err := s.Exists(ctx, path); err != nil || there {
		return there, err
	}
	j.log.Warn("journal: a ZooKeeper server has lost what the others have; reading from another (stop it, remove its data, and start it again: it then copies all from the leader)", "server", s.Server(), "node", path)
	_ = s.Close()
	return false, fmt.Errorf("%w: %s is missing in server %s, and not in the others", zkconn.ErrLost, path, s.Server())
}

// sure is look, which asks this server for a batch; but ErrNoNode is the word of the
// whole ensemble.
func (j *Journal) sure(ctx context.Context, s *zkconn.Session, number uint64, look func() error) error {
	for {
		none := look()
		if !errors.Is(none, zookeeper.ErrNoNode) {
			return none
		}
		if there, err := j.anywhere(ctx, s, number); err != nil || !there {
			return cmp.Or(err, none)
		}
	}
}

// found is a batch that was asked for.
type found struct {
	data []byte
	made int64 // by ZooKeeper's clock, Unix milliseconds
	err  error
}

// walkOn is walk on one session, and ends behind record upTo. An error of fn comes
// back as it is.
func (j *Journal) walkOn(ctx context.Context, s *zkconn.Session, c *cursor, from, limit, upTo uint64, fn func(journal.Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var asked []chan found // batches from c.number on
	next := c.number
	ahead := 1     // a standby mostly finds one
	defer func() { // nobody may still be reading for us when the caller continues
		cancel()
		for _, ch := range asked {
			<-ch
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if c.txid > upTo {
			return nil
		}
		for len(asked) < ahead && (limit == 0 || next < limit) {
			ch, path := make(chan found, 1), j.batchPath(next)
			go func() {
				data, stat, err := s.Get(ctx, path)
				f := found{data: data, err: err}
				if err == nil {
					f.made = stat.Ctime
				}
				ch <- f
			}()
			asked = append(asked, ch)
			next++
		}
		if len(asked) == 0 {
			return nil
		}
		f := <-asked[0]
		asked = asked[1:]
		if errors.Is(f.err, zookeeper.ErrNoNode) {
			there, err := j.atEnd(ctx, s, c, &asked, limit)
			if err != nil || !there {
				return err
			}
			next = c.number // it came meanwhile
			continue
		}
		if f.err != nil {
			return f.err
		}
		if err := c.take(j.batchPath(c.number), f.data, f.made, from, fn); err != nil {
			return err
		}
		j.taken.Add(1)
		ahead = min(2*ahead, readAhead)
	}
}

// atEnd looks at a batch that was not there: it is the next one to be written,
// or it came meanwhile (there is true), or it was purged, or it is missing.
func (j *Journal) atEnd(ctx context.Context, s *zkconn.Session, c *cursor, asked *[]chan found, limit uint64) (there bool, err error) {
	later := false
	for _, ch := range *asked {
		f := <-ch
		later = later || f.err == nil
	}
	*asked = nil
	if later {
		if there, err = s.Exists(ctx, j.batchPath(c.number)); there || err != nil {
			return there, err
		}
	}
	missing := later || c.number < limit
	if missing {
		if there, err = j.anywhere(ctx, s, c.number); there || err != nil {
			return there, err
		}
	}
	first, _, err := j.readFirst(ctx, s) // now: a purge writes it before it removes anything
	switch {
	case err != nil:
		return false, err
	case c.number < first.number:
		return false, journal.Purged(c.txid, first.txid)
	case missing:
		return false, damaged(j.batchPath(c.number), 0, c.txid, "is missing, and there are later batches")
	}
	return false, nil
}

// retry calls fn with a session until it ends with anything but an unknown
// outcome, over new sessions if need be.
func (j *Journal) retry(ctx context.Context, fn func(*zkconn.Session) error) error {
	pause := firstPause
	for {
		s, err := j.link.session(ctx)
		if err != nil {
			return err
		}
		before := j.taken.Load()
		err = fn(s)
		if err == nil || !errors.Is(err, zkconn.ErrLost) {
			return err
		}
		if pause = min(2*pause, longPause); j.taken.Load() > before {
			pause = firstPause // it got somewhere
		}
		if err := clock.Pause(ctx, pause); err != nil {
			return err
		}
	}
}
