// Package scrub reads what is stored and seldom read: every block of every file, and the
// published images, each once in a period, at a bounded rate, and tells what is damaged or gone
// while a copy of it may still be somewhere.
//
// # Order
//
// A pass takes files by the numbers of their inodes, from a snapshot of the tree that it holds
// for one batch only. What is written behind it meanwhile was verified when it was put, and
// is read by the next pass. A pass whose blocks take less than the period rests until the
// period is over; one that takes more is told of as late, and reads at the highest rate. What
// a listing of the store lacks (Suspect) and what was found before is read first.
//
// # Where it is
//
// How far it is and what it has found are in a file of the data folder, so a restart resumes
// the pass. Of several namenodes the active one scrubs, and puts the same into the store for
// the one that is active next. It is no state of the namespace: where it is damaged or missing
// a pass begins.
//
// # Time
//
// The rate follows the monotonic clock. The time of day, which may be wrong, decides only when a
// pass that rests ends its rest over a restart: at the latest after one period.
package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// Defaults and limits of a Config.
const (
	// DefaultEvery is the period of HDFS's block scanner, three weeks.
	DefaultEvery = 21 * 24 * time.Hour
	// DefaultRate is how many bytes a second are read at most.
	DefaultRate = 32 << 20
	// LeastEvery is the shortest period, LeastRate the lowest rate.
	LeastEvery = time.Minute
	LeastRate  = 64 << 10

	// MostFound is how many findings are kept; more are counted.
	MostFound = 1000

	batch        = 64               // blocks of a snapshot
	shareEvery   = 10 * time.Minute // how much of the work a failover may take back
	imagesEvery  = 24 * time.Hour   // how often images are read, if the period is not shorter
	recheckEvery = time.Hour        // how often what was found is read again
	saveEvery    = time.Minute      // how much of the work a crash may take back
	pause        = time.Minute      // after the store did not answer
	patience     = 3                // how often that, or an error of the block, may be, before that is a finding
	afterStart   = time.Minute      // clients that come back have the store to themselves
	longestWait  = 10 * time.Minute // between two looks at whether there is anything to do
)

// Config is what a Scrub works with. All but Every and Rate is required; Objects, Term and
// Remove only of Several.
type Config struct {
	FS    vfs.FS
	File  string // where it is kept how far it is
	Clock clock.Clock
	Log   *slog.Logger
	// Snapshot returns the tree as it is now.
	Snapshot func(context.Context) (*namespace.Tree, error)
	// Of Several namenodes the next active one looks into Objects for what this one has found.
	// Term is that of this reign, and Remove does what removes objects, or nothing now.
	Several bool
	Objects blockstore.Objects
	Term    func() uint64
	Remove  func(ctx context.Context, remove func(context.Context) error) error
	// Has reports whether a file has the block now.
	Has func(blockstore.Key) bool
	// Fetch reads and verifies a block: Damaged, NotFound, or what else the store said.
	Fetch func(context.Context, namespace.Block) ([]byte, error)
	// Images reads and verifies the published images, tells what it finds, and
	// returns an error only if it could not do that.
	Images func(context.Context) error

	Every time.Duration // 0: DefaultEvery; below 0: nothing is scrubbed
	Rate  int64         // bytes a second at most; 0: DefaultRate
}

// Finding is a block that is damaged or gone.
type Finding struct {
	Inode   namespace.InodeID `json:"inode"`
	Block   namespace.Block   `json:"block"`
	Problem string            `json:"problem"`
	UnixMS  int64             `json:"unix_ms"` // when it was found, by this machine's time of day
}

// Stats is how far scrubbing is. Times are by this machine's time of day, in Unix
// milliseconds; 0: never.
type Stats struct {
	On    bool
	Began int64 // of the present pass; 0: it rests
	Read  int64 // bytes of the present pass
	Whole int64 // end of the last whole pass
	Bytes int64 // read since the namenode was started
	Found int   // blocks that are damaged or gone, those included that MostFound leaves out
	// Late is how much longer than its period the present pass takes so far, or how much longer
	// a pass takes at the highest rate, if that is more.
	Late time.Duration
}

// state is what is kept.
type state struct {
	Term  uint64            `json:"term"` // of the reign that was last; 0: of one namenode alone
	Began int64             `json:"pass_began_unix_ms"`
	Read  int64             `json:"pass_bytes"`
	Next  namespace.InodeID `json:"next_inode"`
	Block int               `json:"next_block"` // index in that file
	Last  int64             `json:"last_whole_pass_began_unix_ms"`
	Whole int64             `json:"last_whole_pass_unix_ms"`
	Found []Finding         `json:"found"`
	More  int               `json:"found_more"`      // in the present pass, over MostFound
	Most  int               `json:"found_more_last"` // in the last one
}

// more is how many blocks are known to be damaged or gone besides Found. It does not fall when a
// pass begins, which has yet to find them.
func (s *state) more() int { return max(s.More, s.Most) }

// Scrub is that of one namenode. Its methods are safe for concurrent use; a nil one
// scrubs nothing.
type Scrub struct {
	cfg Config

	// Of Run alone:

	saved, shared           time.Duration  // when that was last done
	images, recheckAt, next time.Duration  // when images, what was found, and the next block are due
	queue                   []item         // the blocks to be read next
	begun                   bool           // in this reign
	told                    bool           // that it is late, in this reign
	refused                 blockstore.Key // what the store did not answer for the last time
	since                   time.Duration  // when it first did not
	witness, asked          item           // the last blocks that the store answered for, and that answers chose
	names                   []string       // of objects that the next one takes the place of

	suspected chan struct{} // has an element when there may be suspects

	mu       sync.Mutex
	state    state
	bytes    int64
	stored   int64  // bytes of all blocks
	changed  bool   // what the next active one must know, since it was put into the store
	suspects []item // read before others
}

// New returns a Scrub that has yet to be Run; nil if nothing is to be scrubbed.
func New(cfg Config) *Scrub {
	if cfg.Every < 0 {
		return nil
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	s := &Scrub{cfg: cfg, suspected: make(chan struct{}, 1)}
	_ = cfg.FS.Remove(cfg.File + vfs.TempSuffix) // a crash may have left it
	b, err := vfs.ReadFile(cfg.FS, cfg.File)
	if err == nil {
		err = json.Unmarshal(b, &s.state)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			cfg.Log.Warn("how far the scrub was cannot be read; it begins a pass", "file", cfg.File, "cause", err)
		}
		s.state = state{}
	}
	return s
}

// Stats returns how far it is.
func (s *Scrub) Stats() Stats {
	if s == nil {
		return Stats{}
	}
	found := len(s.Findings())
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{On: true, Began: s.state.Began, Read: s.state.Read, Whole: s.state.Whole, Bytes: s.bytes, Found: found + s.state.more(), Late: s.late()}
}

// late is Stats.Late. The lock is held.
func (s *Scrub) late() time.Duration {
	late := max(0, s.least(s.stored)-s.cfg.Every)
	if s.state.Began != 0 {
		late = max(late, time.Duration(s.cfg.Clock.Wall().UnixMilli()-s.state.Began)*time.Millisecond-s.cfg.Every)
	}
	return late
}

// Measure sets what metrics tell of it, if it scrubs.
func (s *Scrub) Measure(set func(name string, value float64, help string)) {
	st := s.Stats()
	if !st.On {
		return
	}
	set("scrub_bytes_total", float64(st.Bytes), "Bytes of blocks that the scrub has read.")
	set("scrub_damaged_blocks", float64(st.Found), "Blocks of files that the scrub has found damaged or gone.")
	set("scrub_late_seconds", st.Late.Seconds(), "By how much the scrub takes longer than its period: for the present pass so far, or for any at its highest rate.")
	set("scrub_last_pass_timestamp_seconds", float64(st.Whole)/1000, "When the scrub last ended a pass over all blocks, Unix time; 0: never.")
}

// Findings are the blocks known to be damaged or gone that files still have.
func (s *Scrub) Findings() []Finding {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	found := slices.Clone(s.state.Found)
	s.mu.Unlock()
	return slices.DeleteFunc(found, func(f Finding) bool { return !s.cfg.Has(f.Block.Key) })
}

// Run scrubs until ctx ends. It is called while the namenode is active, and returns nil.
func (s *Scrub) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	now := s.cfg.Clock.Mono()
	// Images and what was found are read soon, or a namenode that is often restarted never reads them.
	soon := now + min(afterStart, s.cfg.Every)
	s.saved, s.shared, s.images, s.recheckAt, s.next = now, now, soon, soon, soon
	s.begun, s.told = false, false
	for {
		wait, err := s.step(ctx)
		if ctx.Err() != nil {
			s.save()
			return nil
		}
		if err != nil {
			s.cfg.Log.Warn("the scrub waits: what it has to read cannot be had", "cause", err)
			wait = pause
		}
		s.pause(ctx, min(wait, longestWait))
	}
}

// pause waits, or until there are suspects.
func (s *Scrub) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.suspected:
	case <-ctx.Done():
	}
}

// begin learns how much there is, and what others have found.
func (s *Scrub) begin(ctx context.Context) error {
	t, err := s.cfg.Snapshot(ctx)
	if err != nil {
		return err
	}
	if s.cfg.Several {
		err = s.inherit(ctx)
	}
	s.measure(t)
	return err
}

// step does what is due, and returns how long nothing is.
func (s *Scrub) step(ctx context.Context) (wait time.Duration, err error) {
	if !s.begun {
		if err := s.begin(ctx); err != nil {
			return 0, err
		}
		s.begun = true
	}
	s.share(ctx)
	now := s.cfg.Clock.Mono()
	var held error // by a suspect, which what is due below does not wait for
	if it, some := s.suspect(); some {
		if held = s.block(ctx, it); held == nil {
			s.cleared()
			return s.least(int64(it.block.Stored)), nil
		}
	}
	if now >= s.images {
		s.images = now + min(imagesEvery, s.cfg.Every)
		if err := s.cfg.Images(ctx); err != nil {
			return 0, err
		}
	}
	if now >= s.recheckAt {
		err := s.recheck(ctx)
		s.recheckAt = s.cfg.Clock.Mono() + min(recheckEvery, s.cfg.Every) // it may take long, and must leave time for the pass
		if err != nil {
			return 0, err
		}
		s.share(ctx)
		s.save()
	}
	if held != nil {
		return 0, held
	}
	if wait := max(s.next-now, s.rest()); wait > 0 {
		return min(wait, s.recheckAt-now), nil
	}
	if len(s.queue) == 0 {
		if err := s.fill(ctx); err != nil || len(s.queue) == 0 {
			return 0, err
		}
	}
	it := s.queue[0]
	if err := s.block(ctx, it); err != nil {
		return 0, err
	}
	s.queue = s.queue[1:]
	s.next = now + s.pace(int64(it.block.Stored))
	s.mu.Lock()
	s.state.Next, s.state.Block = it.id, it.index+1
	s.state.Read += int64(it.block.Stored)
	s.mu.Unlock()
	if len(s.queue) == 0 {
		return 0, s.fill(ctx)
	}
	if now-s.saved >= saveEvery {
		s.save()
	}
	return 0, nil
}

// rest is how long no pass is due. It begins one that is.
func (s *Scrub) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Began != 0 {
		return 0
	}
	now := s.cfg.Clock.Wall().UnixMilli()
	over := s.state.Last + s.cfg.Every.Milliseconds()
	if s.state.Last <= now && now < over { // a pass that began later than now began by a wrong clock
		return time.Duration(over-now) * time.Millisecond
	}
	s.state.Began, s.state.Read, s.state.Next, s.state.Block, s.state.More = now, 0, 0, 0, 0
	return 0
}

// item is a block of a pass: the one at that index of the file.
type item struct {
	id    namespace.InodeID
	index int
	block namespace.Block
}

// fill takes the next blocks of the pass, or ends it.
func (s *Scrub) fill(ctx context.Context) error {
	t, err := s.cfg.Snapshot(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	next, from := s.state.Next, s.state.Block
	s.mu.Unlock()
	s.queue = follow(t, s.queue[:0], next, from, batch)
	s.measure(t)
	if len(s.queue) == 0 {
		s.end()
	}
	return nil
}

// follow appends up to so many blocks of the tree, from that one of a file on.
func follow(t *namespace.Tree, items []item, next namespace.InodeID, from, most int) []item {
	id, index := snapshots.FileOf(next), 0
	t.Referenced(next, func(of namespace.InodeID, b namespace.Block) bool {
		if file := snapshots.FileOf(of); file != id {
			id, index = file, 0
		}
		if id != snapshots.FileOf(next) || index >= from {
			items = append(items, item{of, index, b})
		}
		index++
		return len(items) < most
	})
	return items
}

// measure notes how much there is, and tells once in a reign that this is too much.
func (s *Scrub) measure(t *namespace.Tree) {
	c := t.Counts()
	s.mu.Lock()
	s.stored = c.StoredBytes + c.HeldBytes
	late, stored := s.late(), s.stored
	s.mu.Unlock()
	if late > 0 && !s.told {
		s.told = true
		s.cfg.Log.Warn("the scrub takes longer than its period: it needs a higher rate or a longer period", "late", late, "bytes", stored, "rate", s.cfg.Rate, "period", s.cfg.Every)
	}
}

// pace is how long a block of so many bytes takes: its share of nine tenths of the period,
// and no less than at the highest rate, which it is when the pass is late.
func (s *Scrub) pace(bytes int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late() > 0 {
		return s.least(bytes)
	}
	share := 0.9 * float64(s.cfg.Every) * float64(bytes) / float64(max(s.stored, bytes, 1))
	return max(time.Duration(share), s.least(bytes))
}

// least is how long so many bytes take at the highest rate.
func (s *Scrub) least(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(s.cfg.Rate) * float64(time.Second))
}

// end ends a pass.
func (s *Scrub) end() {
	s.mu.Lock()
	began, read := s.state.Began, s.state.Read
	s.state.Began, s.state.Last, s.state.Whole, s.state.More, s.state.Most = 0, began, s.cfg.Clock.Wall().UnixMilli(), 0, s.state.More
	s.state.Found = slices.DeleteFunc(s.state.Found, func(f Finding) bool { return !s.cfg.Has(f.Block.Key) })
	s.changed = true
	found := len(s.state.Found) + s.state.more()
	s.mu.Unlock()
	s.cfg.Log.Info("scrubbed: all blocks were read", "bytes", read, "damaged or gone", found, "began", time.UnixMilli(began).UTC())
	s.save()
}

// block reads one, and notes what is wrong with it. An error says that the store did not
// answer; a block for which it has not for a while, though it does for another, is found.
func (s *Scrub) block(ctx context.Context, it item) (err error) {
	for range patience {
		if !s.cfg.Has(it.block.Key) { // deleted meanwhile
			s.good(it.block.Key)
			return nil
		}
		err = s.fetch(ctx, it)
		switch kind := fserror.KindOf(err); {
		case err == nil:
			s.good(it.block.Key)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !answered(err):
			if !s.waited(it.block.Key) || !s.answers(ctx, it.block.Key) {
				return err // of the store, not of the block
			}
			s.found(it, fmt.Errorf("cannot be read: %w", err))
			return nil
		case kind == fserror.NotFound || kind == fserror.Damaged:
			s.found(it, err)
			return nil
		}
	}
	s.found(it, fmt.Errorf("cannot be read: %w", err))
	return nil
}

// fetch reads a block.
func (s *Scrub) fetch(ctx context.Context, it item) error {
	object, err := s.cfg.Fetch(ctx, it.block)
	s.mu.Lock()
	s.bytes += int64(len(object))
	s.mu.Unlock()
	if answered(err) {
		if s.witness = it; s.refused == it.block.Key {
			s.refused = blockstore.Key{}
		}
	}
	return err
}

// answered reports whether the store has said something of the block. Credentials that are over
// are refused every block.
func answered(err error) bool {
	kind := fserror.KindOf(err)
	return err == nil || kind != fserror.Unavailable && kind != fserror.Retry && kind != fserror.Permission && kind != fserror.Canceled
}

// waited reports whether the store has not answered for a block, and for none after it, for a while.
func (s *Scrub) waited(k blockstore.Key) bool {
	now := s.cfg.Clock.Mono()
	if s.refused != k {
		s.refused, s.since = k, now
	}
	return now-s.since >= patience*pause
}

// answers reports whether the store answers for another block: for the last one that it answered
// for, else for the next one each time, since many may be on a bad disk.
func (s *Scrub) answers(ctx context.Context, not blockstore.Key) bool {
	if k := s.witness.block.Key; k == (blockstore.Key{}) || k == not || !s.cfg.Has(k) {
		t, err := s.cfg.Snapshot(ctx)
		if err != nil {
			return false
		}
		isNot := func(it item) bool { return it.block.Key == not }
		some := slices.DeleteFunc(follow(t, nil, s.asked.id, s.asked.index+1, 2), isNot)
		if len(some) == 0 {
			some = slices.DeleteFunc(follow(t, nil, 0, 0, 2), isNot)
		}
		if len(some) == 0 {
			return false
		}
		s.asked, s.witness = some[0], some[0]
	}
	if answered(s.fetch(ctx, s.witness)) {
		return true
	}
	s.witness, s.since = item{}, s.cfg.Clock.Mono() // the next one is asked for later
	return false
}

// found notes a block that is damaged or gone, if a file still has it.
func (s *Scrub) found(it item, err error) {
	if !s.cfg.Has(it.block.Key) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(f Finding) bool { return f.Block.Key == it.block.Key }
	switch {
	case slices.ContainsFunc(s.state.Found, is):
		return
	case len(s.state.Found) >= MostFound:
		s.state.More++
	default:
		s.state.Found = append(s.state.Found, Finding{it.id, it.block, err.Error(), s.cfg.Clock.Wall().UnixMilli()})
		s.changed = true
	}
	s.cfg.Log.Error("a block of a file is damaged or gone; a backup may have it", "reason", fserror.ReasonDamagedBlock,
		"inode", uint64(it.id), "block", it.block.Key.String(), "cause", err)
}

// good takes back what was found of a block.
func (s *Scrub) good(k blockstore.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.state.Found)
	s.state.Found = slices.DeleteFunc(s.state.Found, func(f Finding) bool { return f.Block.Key == k })
	s.changed = s.changed || len(s.state.Found) < n
}

// recheck reads what was found again: an operator may have put it back, and files may be gone.
func (s *Scrub) recheck(ctx context.Context) error {
	s.mu.Lock()
	found := slices.Clone(s.state.Found)
	s.mu.Unlock()
	for _, f := range found {
		if err := s.block(ctx, item{id: f.Inode, block: f.Block}); err != nil && (ctx.Err() != nil || !s.answers(ctx, f.Block.Key)) {
			return err // else only this one, which is found already
		}
		if err := clock.Pause(ctx, s.least(int64(f.Block.Stored))); err != nil {
			return err
		}
	}
	return nil
}

// save writes the file. What cannot be written is worked again after a restart.
func (s *Scrub) save() {
	s.saved = s.cfg.Clock.Mono()
	s.mu.Lock()
	b, err := json.MarshalIndent(&s.state, "", " ")
	s.mu.Unlock()
	if err == nil {
		err = vfs.WriteFile(s.cfg.FS, s.cfg.File, append(b, '\n'))
	}
	if err != nil {
		s.cfg.Log.Warn("how far the scrub is cannot be written; after a restart it repeats some of its work", "file", s.cfg.File, "cause", err)
	}
}
