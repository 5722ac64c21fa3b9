package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	// DefaultKeep is how far back moments are kept.
	DefaultKeep = 7 * 24 * time.Hour
	// LeastKeep is the least that can be asked for.
	LeastKeep = time.Minute

	every      = 2 * time.Second // between two looks at the journal, unless there is more
	pause      = 5 * time.Second // after the store did not take something
	basePause  = time.Minute     // after a base could not be made
	pruneFirst = 5 * time.Minute // after a reign began: one that ends within the hour prunes, too
	pruneEvery = time.Hour       // if a quarter of Keep is not shorter
	basesKept  = 8               // within Keep, at least
	longest    = 24 * time.Hour  // between two bases
	baseBytes  = 1 << 30         // of records cause a base, if they are more than
	baseShare  = 4               // such images
	removable  = 1000            // objects removed at a time
)

// Config is what an Archive works with. All is required.
type Config struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Objects blockstore.Objects
	Beside  bool     // Objects are on the disk of the journal
	ID      [16]byte // of the namespace
	// Keep is how far back moments are kept, 0: nothing is archived. It is certain, and does not
	// change within a reign, once Check has succeeded.
	Keep func() time.Duration
	// Local is where bases are written before they are put.
	Local images.Folder
	// Snapshot returns the tree as it is now, and Now the journal's time, Unix
	// milliseconds.
	Snapshot func(context.Context) (*namespace.Tree, error)
	Now      func() int64
	// Check makes sure that the store knows of this reign, so that nobody else archives in
	// its term; and Term is the term to archive in, or why nothing may be archived. It
	// changes when an operator gives the store to this copy of the namespace.
	Check func(context.Context) error
	Term  func() (uint64, error)
	// Remove does what removes objects, or returns an error while that must not be.
	Remove func(ctx context.Context, remove func(context.Context) error) error
}

// Stats is how far the archive is.
type Stats struct {
	On      bool
	TxID    uint64        // all records up to this one are archived; 0: not known yet
	Records uint64        // that are durable, and not archived
	Known   bool          // what is archived; the Lag counts from the beginning of the reign, else
	Lag     time.Duration // age of the oldest change that is not archived
	Bytes   int64         // put since the namenode was started
	Holes   int           // since then
	Problem string        // why nothing is archived now
}

// Archive is that of one namenode while it is active. Its methods are safe for concurrent
// use; a nil one archives nothing.
type Archive struct {
	cfg  Config
	base *images.Objects

	// Of Run alone:

	journal journal.Journal
	term    uint64        // 0: where to continue is not known
	newest  uint64        // the record up to which the newest base goes; 0: there is none
	based   int64         // about when that was, in the journal's time
	size    int64         // of that base
	since   int64         // bytes of records since then
	pruneAt time.Duration // when that is due
	baseAt  time.Duration // when the next base is tried, after one that failed
	baseErr error         // why it failed
	holed   uint64        // the first record that the last hole lacks
	told    bool          // that Objects are Beside
	keep    time.Duration // in this reign

	mu      sync.Mutex
	durable func() uint64 // of the journal; nil: it does not run
	covered time.Duration // what was durable then is archived
	known   bool          // that, and what is archived, in this reign
	stats   Stats
}

// New returns an Archive that has yet to be Run.
func New(cfg Config) *Archive {
	return &Archive{cfg: cfg, base: &images.Objects{Objects: cfg.Objects, Local: cfg.Local, Prefix: BasePrefix}}
}

// Stats returns how far it is.
func (a *Archive) Stats() Stats {
	if a == nil {
		return Stats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.stats
	if a.durable == nil {
		return st
	}
	if durable := a.durable(); durable > st.TxID {
		st.Records, st.Lag = durable-st.TxID, a.cfg.Clock.Mono()-a.covered
	}
	if st.Known = a.known; !a.known {
		st.Problem = cmp.Or(st.Problem, "it is not known yet where the archive ends")
	}
	return st
}

// Measure sets what metrics tell of it, if it archives.
func (a *Archive) Measure(set func(name string, value float64, help string)) {
	st := a.Stats()
	if !st.On {
		return
	}
	lag := st.Lag.Seconds()
	if !st.Known { // an alarm must not begin to wait with each reign
		lag = math.Inf(1)
	}
	set("archive_lag_seconds", lag, "Age of the oldest change that the archive of the journal does not have; +Inf: not known yet.")
	set("archive_lag_records", float64(st.Records), "Changes that the archive of the journal does not have.")
	set("archive_bytes_total", float64(st.Bytes), "Bytes put into the archive of the journal.")
	set("archive_holes_total", float64(st.Holes), "Times that changes were purged from the journal before they were archived.")
}

// Needs is the first record that the journal must still have; 0: none.
func (a *Archive) Needs() uint64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.durable == nil {
		return 0
	}
	return max(1, a.stats.TxID) // the last one that is archived is compared after a restart
}

// Run archives the journal of a reign until ctx ends, or until it finds that this reign
// archives nothing, and returns nil.
func (a *Archive) Run(ctx context.Context, j journal.Journal) error {
	if a == nil {
		return nil
	}
	a.begin(j)
	for ctx.Err() == nil {
		more, err := a.turn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errOff) {
			a.off()
			return nil
		}
		a.tell(err)
		wait := every
		switch {
		case err != nil:
			wait = pause
		case more:
			continue
		}
		_ = clock.Pause(ctx, wait) // Run ends next, if that ended
	}
	return nil
}

// begin is told of the reign.
func (a *Archive) begin(j journal.Journal) {
	a.journal, a.term, a.pruneAt = j, 0, a.cfg.Clock.Mono()+pruneFirst
	a.mu.Lock()
	defer a.mu.Unlock()
	a.durable, a.covered, a.known, a.stats.TxID, a.stats.On = j.Durable, a.cfg.Clock.Mono(), false, 0, a.cfg.Keep() > 0
}

// errOff says that this reign archives nothing.
var errOff = errors.New("nothing is archived")

// off notes it.
func (a *Archive) off() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.durable, a.stats = nil, Stats{Bytes: a.stats.Bytes, Holes: a.stats.Holes}
}

// turn is a step, in the term to archive in; if that is a new one, it looks first for where
// to continue.
func (a *Archive) turn(ctx context.Context) (more bool, err error) {
	if a.term == 0 {
		if err := a.cfg.Check(ctx); err != nil {
			return false, err
		}
		if a.cfg.Keep() <= 0 {
			return false, errOff
		}
		a.mu.Lock()
		a.stats.On = true
		a.mu.Unlock()
		if a.cfg.Beside && !a.told {
			a.told = true
			a.cfg.Log.Warn("the archive is on the same disk as the journal: whoever loses that disk loses the journal, the blocks and the archive together", "reason", fserror.ReasonArchive)
		}
	}
	term, err := a.cfg.Term()
	if err != nil {
		return false, err
	}
	if term != a.term {
		if err := a.find(ctx, term); err != nil {
			a.term = 0
			return false, errors.Join(err, a.prune(ctx)) // which may make the room that it wants
		}
	}
	pruned := a.prune(ctx)
	more, err = a.step(ctx)
	return more, errors.Join(pruned, err)
}

// tell notes, and logs once, why nothing is archived.
func (a *Archive) tell(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.stats.Problem
	a.stats.Problem = ""
	switch {
	case err != nil:
		a.stats.Problem = err.Error()
		if was == "" {
			a.cfg.Log.Warn("the journal cannot be archived now; it is tried again", "reason", fserror.ReasonArchive, "cause", err)
		}
	case was != "":
		a.cfg.Log.Info("the journal is archived again", "txid", a.stats.TxID)
	}
}

// find looks for the last object that agrees with the journal: what follows it is archived
// next, in that term.
func (a *Archive) find(ctx context.Context, term uint64) error {
	a.term, a.base.Term, a.keep = term, term, a.cfg.Keep()
	c, err := Open(ctx, a.cfg.Objects, a.cfg.ID, a.cfg.Log)
	if err != nil {
		return err
	}
	txid := uint64(0)
	var others []span // of another history, the newest first
	for _, s := range slices.Backward(c.spans) {
		agrees, err := a.agrees(ctx, s)
		if errors.Is(err, journal.ErrPurged) {
			break
		}
		if err != nil {
			return err
		}
		if agrees {
			txid = s.to
			break
		}
		others = append(others, s)
	}
	before := uint64(0) // the record before the first one that the journal has
	if txid == 0 {
		if before, err = a.oldest(ctx); err != nil {
			return err
		}
	}
	n := len(others)
	if n > 0 { // once: after a way back these can be those of a whole day
		a.cfg.Log.Warn("the archive has records of another history, or that are damaged; what they are is told by the terms that put them", "reason", fserror.ReasonArchive,
			"objects", n, "oldest", others[n-1].Name(), "newest", others[0].Name())
	}
	switch {
	case txid > 0 || len(c.spans) == 0:
	case n > 0 && before > 0 && c.spans[0].from <= before+1:
		// What the journal still has may begin within the other history: it must not continue that.
		a.hole(others[n-1].from)
		return a.makeBase(ctx, true)
	case n == 0 && c.spans[len(c.spans)-1].to < before: // what a restore brought back begins right behind
		a.hole(c.spans[len(c.spans)-1].to + 1)
	}
	a.newest, a.based, a.since = 0, 0, 0
	for _, b := range c.bases {
		if b.in.Prefix == BasePrefix && txid > 0 && b.TxID <= txid {
			a.newest, a.based = b.TxID, cmp.Or(c.timeOf(b.TxID), c.spans[0].time)
			break
		}
	}
	covered := a.cfg.Clock.Mono() // in the base, if that is what begins the archive
	if txid > 0 {
		// At the beginning of a reign the journal's time can be behind: it does not count what the last
		// record before took to be written.
		now := max(a.cfg.Now(), a.cfg.Clock.Wall().UnixMilli())
		covered -= time.Duration(max(0, now-c.timeOf(txid))) * time.Millisecond
	}
	if txid == 0 || a.newest == 0 { // also to close the hole, if there is one
		if err := a.makeBase(ctx, false); err != nil {
			return err
		}
	}
	if txid == 0 {
		txid = before
	}
	a.reached(txid, covered, 0)
	return nil
}

// oldest is the record before the first one that the journal has: what follows it takes the
// place of what another history has archived.
func (a *Archive) oldest(ctx context.Context) (txid uint64, err error) {
	_, err = a.record(ctx, 1)
	var purged *journal.PurgedError
	if errors.As(err, &purged) {
		return purged.Oldest - 1, nil
	}
	return 0, err
}

// agrees reports whether the journal has the last record of a span as it was archived.
func (a *Archive) agrees(ctx context.Context, s span) (bool, error) {
	if s.to > a.journal.Durable() {
		return false, nil
	}
	object, err := get(ctx, a.cfg.Objects, s.Segment)
	if images.Unknown(err) || ctx.Err() != nil {
		return false, err
	}
	var archived, mine *journal.Record
	if err == nil {
		err = decode(a.cfg.ID, s.Segment, object, s.to, func(r journal.Record) error {
			if r.TxID == s.to {
				archived = &r
			}
			return nil
		})
	}
	if err != nil {
		a.cfg.Log.Error("an object of the archive cannot be used", "reason", fserror.ReasonArchive, "cause", err)
		return false, nil //nolint:nilerr // one before it may agree
	}
	if mine, err = a.record(ctx, s.to); err != nil {
		return false, err
	}
	return archived != nil && mine != nil && archived.TxID == mine.TxID && archived.Time == mine.Time && archived.Type == mine.Type && bytes.Equal(archived.Body, mine.Body), nil
}

// record reads the first record of the journal from txid on; nil: there is none.
func (a *Archive) record(ctx context.Context, txid uint64) (first *journal.Record, err error) {
	_, err = a.journal.Replay(ctx, txid, func(r journal.Record) error {
		first = &r
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return first, err
}

// errEnough ends a replay.
var errEnough = errors.New("enough")

// hole tells that records are missing, once: it is tried again until a base closes it.
func (a *Archive) hole(first uint64) {
	if a.holed == first {
		return
	}
	a.holed = first
	a.mu.Lock()
	a.stats.Holes++
	a.mu.Unlock()
	a.cfg.Log.Error("the journal was purged before it was archived: the archive has a hole; no moment from there to the next base can be had", "reason", fserror.ReasonArchive, "from record", first)
}

// reached notes that all up to a record is archived, and what was durable at a time.
func (a *Archive) reached(txid uint64, covered time.Duration, put int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.TxID, a.covered, a.known = txid, covered, true
	a.stats.Bytes += int64(put)
}

// step archives what is durable, one object at most, and makes a base if one is due. more: it
// has to be called again at once.
func (a *Archive) step(ctx context.Context) (more bool, err error) {
	began, durable := a.cfg.Clock.Mono(), a.journal.Durable()
	txid := a.Stats().TxID
	if durable <= txid {
		a.reached(txid, began, 0)
		return false, a.upkeep(ctx)
	}
	b := newBatch()
	_, err = a.journal.Replay(ctx, txid+1, func(r journal.Record) error {
		if len(b.buf) >= headerSize+target {
			return errEnough
		}
		b.add(&r)
		return nil
	})
	if errors.Is(err, journal.ErrPurged) {
		a.hole(txid + 1)
		return true, a.makeBase(ctx, true)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return false, err
	}
	if b.count == 0 {
		return false, nil
	}
	s, object := b.seal(a.cfg.ID, a.term)
	if err := a.put(ctx, s, object); err != nil {
		return false, err
	}
	a.since += int64(len(object))
	covered := began
	if more = s.Last < durable; more {
		a.mu.Lock()
		covered = a.covered // not all that was durable then
		a.mu.Unlock()
	}
	a.reached(s.Last, covered, len(object))
	if more {
		return true, nil
	}
	return false, a.upkeep(ctx)
}

// put stores an object. One that is there already was put by a try of which the answer was
// lost.
func (a *Archive) put(ctx context.Context, s Segment, object []byte) error {
	err := blockstore.PutBytes(ctx, a.cfg.Objects, s.Name(), object)
	if !errors.Is(err, fserror.Exists) {
		return err
	}
	there, err := get(ctx, a.cfg.Objects, s)
	if err == nil && !bytes.Equal(there, object) {
		err = fserror.New(fserror.Exists, "", "", "the block store has another object %s: two copies of the namespace archive in one reign; end one of them", s.Name()).Because(fserror.ReasonArchive)
	}
	return err
}

// upkeep makes a base if one is due.
func (a *Archive) upkeep(ctx context.Context) error {
	if txid := a.Stats().TxID; txid > a.newest+2 && (a.cfg.Now()-a.based >= min(longest, a.keep/basesKept).Milliseconds() ||
		a.since >= max(baseBytes, baseShare*a.size)) {
		return a.makeBase(ctx, false)
	}
	return nil
}

// makeBase puts an image of this moment. begins: the archive continues behind it. After
// one that failed it tries none for a while: an image can take long.
func (a *Archive) makeBase(ctx context.Context, begins bool) error {
	began := a.cfg.Clock.Mono()
	if a.baseErr != nil && began < a.baseAt {
		return a.baseErr
	}
	t, err := a.cfg.Snapshot(ctx)
	if err != nil {
		return err
	}
	img, size, err := a.base.Write(ctx, t)
	if a.baseErr = err; err != nil {
		a.baseAt = a.cfg.Clock.Mono() + basePause
		return err
	}
	_, a.based = t.Last()
	a.newest, a.size, a.since = img.TxID, size, 0
	if begins {
		a.reached(img.TxID, began, int(size))
	}
	a.cfg.Log.Info("base written to the archive", "txid", img.TxID, "bytes", size, "took", a.cfg.Clock.Mono()-began)
	return nil
}

// prune removes, if that is due, what no moment needs that is kept. One base more stays, since one
// can be damaged.
func (a *Archive) prune(ctx context.Context) error {
	now := a.cfg.Clock.Mono()
	if now < a.pruneAt {
		return nil
	}
	a.pruneAt = now + min(pruneEvery, a.keep/4)
	c, err := Open(ctx, a.cfg.Objects, a.cfg.ID, a.cfg.Log)
	if err != nil {
		return err
	}
	oldest := c.before(a.keep)  // the last record before the moments that are kept
	from, older := uint64(0), 0 // all from there on is needed
	for _, b := range c.bases {
		if b.in.Prefix == BasePrefix && b.TxID <= oldest && older < 2 {
			from = b.TxID
			older++
		}
	}
	if older < 2 {
		return nil
	}
	var gone []string
	for _, b := range c.stored {
		if b.TxID < from {
			gone = append(gone, b.Name)
		}
	}
	for _, s := range c.all {
		if s.Last <= from {
			gone = append(gone, s.Name())
		}
	}
	for page := range slices.Chunk(gone, removable) {
		if err := a.cfg.Remove(ctx, func(ctx context.Context) error { return a.cfg.Objects.DeleteNamed(ctx, page...) }); err != nil {
			return err
		}
	}
	return nil
}
