package zk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// Handover says what a new reign finds of the one before.
type Handover struct {
	Last     uint64 // txid of the last record
	Token    string // of this reign, also in the term's node: 16 random bytes, hexadecimal
	PrevTerm uint64 // 0: there was none
	// Released: the predecessor has ended and answers nothing; there is nothing
	// to wait for.
	Released bool
	// Idle is how long before this reign began the last record was made, both by
	// ZooKeeper's clock; below 0 if that is not known, or there is no record.
	Idle time.Duration
	// Lease is how long after a write the predecessor may answer, as it wrote
	// itself; or that of one before it, if it is longer, until a reign has ended
	// with a release.
	Lease time.Duration
	// Seen is when, by Clock.Mono, its last write was first seen here: by Tail,
	// or after its term was ended. It was sent before that. So the predecessor
	// answers nothing from Seen + Lease on (plus what the clocks may differ in
	// speed): election.AwaitEnd.
	Seen time.Duration
}

var errBehind = errors.New("records came since the journal was read; use TakeOver, or Replay again")

// BeginTerm implements journal.Journal. It is TakeOver for a journal that nobody
// else writes: if records came since the last Replay or Tail it fails, and
// another Replay and BeginTerm may follow.
func (j *Journal) BeginTerm(ctx context.Context, term uint64) error {
	_, err := j.TakeOver(ctx, term, func(r journal.Record) error {
		return fmt.Errorf("journal: BeginTerm: record %d: %w", r.TxID, errBehind)
	})
	return err
}

// TakeOver makes this process the writer under term, which must be above all that
// have begun (Term): blocks are named after it, so that two reigns must never have
// the same. First it ends all earlier reigns, by one write to the term node; then,
// on the same session, so that nothing that was written before can be missing, it
// reads to the end and calls fn for the records that Replay and Tail have not
// delivered; then the writer runs. An error of fn comes back as it is, and
// TakeOver may be called again, with another term. ErrFenced if this term or a
// later one has begun.
//
// Until Handover.Seen + Lease the predecessor may still answer reads from before;
// that this was awaited is to be told (Awaited).
func (j *Journal) TakeOver(ctx context.Context, term uint64, fn func(journal.Record) error) (Handover, error) {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	unlock, err := j.lockReading(ctx)
	if err != nil {
		return Handover{}, err
	}
	defer unlock()
	j.mu.Lock()
	err = j.group.MayBegin(j.positioned, term, j.term)
	c, sight := j.cur, j.sight
	j.mu.Unlock()
	if err != nil {
		return Handover{}, err
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails
	mine := termInfo{term: term, token: hex.EncodeToString(token[:]), holder: j.cfg.Holder}
	b := bump{j: j, mine: mine}
	err = j.retry(ctx, func(s *zkconn.Session) error {
		// Again on each session: what this one reads must be no older than it.
		if err := b.write(ctx, s); err != nil {
			return err
		}
		return j.walkToEnd(ctx, s, &c, c.txid, fn)
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.moveTo(&c) // what was delivered is not delivered again
	if err != nil {
		return Handover{}, err
	}
	h := Handover{
		Last: c.txid - 1, Token: mine.token, PrevTerm: b.before.term, Released: b.before.released || b.before.term == 0,
		Lease: time.Duration(b.before.lease) * time.Millisecond, Seen: b.at, //nolint:gosec // as it was written
	}
	h.Idle = -1
	if c.made > 0 {
		h.Idle = max(0, time.Duration(b.made-c.made)*time.Millisecond)
	}
	if sight.known && sight.number == c.number && sight.beat == b.beatBefore {
		h.Seen = sight.at
	}
	j.term, j.epoch, j.token = term, uint32(b.version), mine.token //nolint:gosec // a version
	j.lease, j.awaited = b.mine.lease, h.Released
	j.writer.next = c.position
	j.writer.next.term, j.writer.next.epoch = term, j.epoch
	j.group.Begin(j.writer.run)
	if j.cfg.StallAfter > 0 {
		j.workers.Go(j.watchProgress)
	}
	return h, nil
}

// Awaited says that no predecessor answers any more: the time that TakeOver's
// Handover tells is over. A reign that ends before does not release its successor
// from waiting.
func (j *Journal) Awaited() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.awaited = true
}

// bump is the write that ends all earlier reigns: of the term node, whose
// version all their transactions check, and of the beat node, so that it is seen
// like their other writes.
type bump struct {
	j    *Journal
	mine termInfo

	before     termInfo // what the term node held before the first of ours
	known      bool     // before is
	beatBefore int32    // version of the beat node before the first of ours
	version    int32    // of the term node, after
	made       int64    // when, by ZooKeeper's clock (Unix milliseconds)
	at         time.Duration
}

func (b *bump) write(ctx context.Context, s *zkconn.Session) error {
	j := b.j
	for {
		if err := s.Sync(ctx, j.cfg.Path); err != nil {
			return err
		}
		t, version, err := j.readTerm(ctx, s)
		if err != nil {
			return err
		}
		ours := t.token == b.mine.token // written before the connection was lost
		switch {
		case !ours && t.term >= b.mine.term, b.known && !ours && (t.term != b.before.term || t.token != b.before.token):
			return fenced(t, b.mine.term)
		case !ours: // the one before, which may have released meanwhile
			b.before, b.known = t, true
			b.mine.lease = uint64(j.cfg.Lease.Milliseconds()) //nolint:gosec // not negative
			if !t.released {                                  // a successor waits for all that may still answer
				b.mine.lease = max(b.mine.lease, t.lease)
			}
		}
		confirm := j.writes()
		res, err := s.Multi(ctx,
			&zookeeper.SetDataRequest{Path: j.path(termNode), Data: b.mine.encode(), Version: version},
			&zookeeper.SetDataRequest{Path: j.path(beatNode), Data: encodeBeat(b.mine.term, 0), Version: -1})
		if errors.Is(err, zookeeper.ErrBadVersion) {
			continue // somebody was faster: look who
		}
		if err != nil {
			return err
		}
		confirm()
		if b.at == 0 {
			b.at = j.clock.Mono()
			b.beatBefore = res[1].Stat.Version - 1
			if ours {
				b.beatBefore-- // the lost one wrote it too
			}
		}
		b.version, b.made = res[0].Stat.Version, res[0].Stat.Mtime
		return nil
	}
}

func (j *Journal) readTerm(ctx context.Context, s *zkconn.Session) (termInfo, int32, error) {
	data, stat, err := s.Get(ctx, j.path(termNode))
	if err != nil {
		return termInfo{}, 0, err
	}
	t, err := decodeTerm(j.path(termNode), data)
	return t, stat.Version, err
}

// Reign is the last one that has begun.
type Reign struct {
	Term     uint64 // 0: none has begun
	Holder   string // Config.Holder of who began it
	Released bool   // it has ended in order
}

// Term reads which reign has begun last. A new one takes a higher number.
func (j *Journal) Term(ctx context.Context) (last Reign, err error) {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	err = j.retry(ctx, func(s *zkconn.Session) error {
		if err := s.Sync(ctx, j.cfg.Path); err != nil {
			return err
		}
		t, _, err := j.readTerm(ctx, s)
		last = Reign{t.term, t.holder, t.released}
		return err
	})
	return last, err
}

// Beat is one write that checks the term and changes nothing but the beat node:
// it succeeds if no other term has begun, and then confirms Config.Written. It
// fails with journal.ErrFenced, which also ends the journal. To be called every
// third of the lease while there is nothing to write; election.Window.Keep does.
func (j *Journal) Beat(ctx context.Context) error {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	if err := j.group.MayWrite("Beat"); err != nil {
		return err
	}
	j.mu.Lock()
	epoch, term := j.epoch, j.term
	j.mu.Unlock()
	unlock, err := j.beating.Lock(ctx)
	if err != nil {
		return err
	}
	s, err := j.link.session(ctx)
	if err != nil {
		unlock()
		return err
	}
	txid := j.Durable()
	if j.Backlog() > 0 { // a batch may come before this beat, and standbys would not look for it
		txid = 0
	}
	confirm := j.writes()
	call := s.Start(
		&zookeeper.CheckVersionRequest{Path: j.path(termNode), Version: int32(epoch)}, //nolint:gosec // it was one
		&zookeeper.SetDataRequest{Path: j.path(beatNode), Data: encodeBeat(term, txid), Version: -1})
	select {
	case <-call.Done():
		unlock()
	case <-ctx.Done():
		go func() { // until then another beat would only queue behind it
			<-call.Done()
			unlock()
		}()
		return context.Cause(ctx)
	}
	res, err := call.Result()
	if err == nil {
		confirm()
		return nil
	}
	if zkconn.FailedOp(res) == opCheckTerm {
		err = j.deposed()
		j.group.Fail(err)
	}
	return err
}

// Release ends the reign so that a successor need not wait for its lease: it
// waits until all that was appended is durable, takes no more, and writes so to
// the term node, which also fences this process. The caller must have stopped
// answering before (election.Window.End). A reign that has not awaited its own
// predecessor (Awaited) leaves its successor to wait. ErrFenced if another reign
// has begun.
func (j *Journal) Release(ctx context.Context) error {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	last, err := j.group.Release()
	if err != nil {
		return err
	}
	j.mu.Lock()
	epoch := j.epoch
	mine := termInfo{term: j.term, lease: j.lease, token: j.token, holder: j.cfg.Holder, released: j.awaited}
	j.mu.Unlock()
	if err := j.WaitDurable(ctx, last); err != nil {
		return err
	}
	return j.retry(ctx, func(s *zkconn.Session) error {
		_, err := s.Set(ctx, j.path(termNode), mine.encode(), int32(epoch)) //nolint:gosec // it was one
		if !errors.Is(err, zookeeper.ErrBadVersion) {
			return err
		}
		if t, _, err := j.readTerm(ctx, s); err != nil || t == mine {
			return err // ours, whose answer was lost
		}
		return j.deposed()
	})
}

// watchProgress ends the journal when something waits and nothing becomes
// durable for StallAfter.
func (j *Journal) watchProgress() {
	t := time.NewTicker(j.cfg.StallAfter / 4)
	defer t.Stop()
	for {
		select {
		case <-j.life.Done():
			return
		case <-t.C:
		}
		if stalled := j.group.Stalled(); stalled > j.cfg.StallAfter {
			j.endLife(fmt.Errorf("%d bytes wait, and ZooKeeper has taken none for %s (is it up, has it a quorum, is its jute.maxbuffer above MaxNode?)", j.Backlog(), stalled.Round(time.Millisecond)))
			return
		}
	}
}
