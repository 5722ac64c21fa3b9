package reign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/owner"
)

// Config says which namenode it is whose role this is.
type Config struct {
	HA    *ensemble.HA // nil: it serves alone
	Clock clock.Clock
	Log   *slog.Logger
	FS    vfs.FS
	Loops *loops.Group

	Address               string // by which clients reach it
	Page                  string // the URL by which people do
	Version               string
	Superuser, Supergroup string // of a new namespace
	Data                  string // the data folder
	Blocks                string // the block store, for people
	Reserve               int64  // bytes of disk kept free for deleting
	JournalAhead          int64  // see internal/journal/local.Config.Ahead

	// Wrote is told of each batch of the journal; see internal/journal/group.Config.
	Wrote func(took time.Duration, bytes int)

	// MinLeaseTTL is what an operator has set; 0: what outlives a failover.
	MinLeaseTTL, SoftLimit, HardLimit time.Duration

	// Begun is called when a reign has begun, before anything is answered.
	Begun func()
}

// Rooms are the parts of the namenode in which a reign begins.
type Rooms struct {
	Engine *engine.Engine
	Owner  *owner.Owner
	Blocks *blocks.Blocks
	Images *images.Keeper
	Leases *leases.Table
}

// reign is the time in which a namenode is the active one.
type reign struct {
	term  uint64
	since time.Duration // by the clock's Mono
}

// Role is what a namenode is to its namespace. Open, OpenJournal and Begin are called
// in this order; all other methods are safe for concurrent use.
type Role struct {
	cfg     Config
	log     *slog.Logger
	form    form
	format  format
	rooms   Rooms
	dir     *datadir.Dir
	journal journal.Journal
	handing turn.Turn // one hand-over at a time
	raising turn.Turn // and one raise of the level

	ready   atomic.Bool // it is active, and answers while its window is open
	reigned atomic.Bool // it was ready once
	reign   atomic.Pointer[reign]
}

// form is what differs between a namenode alone and one of several.
type form interface {
	// namespace finds out of which namespace the data folder has to be; nil: of any.
	namespace(ctx context.Context) (id *[16]byte, err error)
	openJournal(ctx context.Context, image uint64) (journal.Journal, error)
	// own says what the owner of the block store asks of the form.
	own(cfg *owner.Config)
	// images is what is to be known of images in a store that others share; nil: none.
	images(o *owner.Owner) *images.Shared
	// begin begins the reign, or waits for it in loops.
	begin(ctx context.Context) error
	// confirmed returns why an answer may not be given though nobody has ended the reign.
	confirmed() error
	// stuck returns why no change becomes durable though answers are given.
	stuck() error
	// waits says what a namenode is that is not active, why, and who is as far as it
	// knows; follows reports whether it does what is asked of it then.
	waits() (role, why, active string)
	follows() bool
	// tell adds what the form knows.
	tell(*Status)
	compareClock(ctx context.Context) (skew clock.Skew, err error)
	failover(ctx context.Context, term uint64) (next string, err error)
	// release tells the others that the reign, if it was one, has ended.
	release(ctx context.Context, reigned bool) error
	close() error
	// leastTTL, renewWithin and sessionTTL: see Role's.
	leastTTL() time.Duration
	renewWithin(soft time.Duration) time.Duration
	sessionTTL(ttl time.Duration) time.Duration
}

// New returns the role of a namenode that starts.
func New(cfg Config) *Role {
	r := &Role{cfg: cfg, log: cfg.Log, handing: turn.New(), raising: turn.New()}
	if r.form, r.format = (&alone{Role: r}), (inFolder{r}); cfg.HA != nil {
		s := &several{Role: r}
		r.form, r.format = s, inZooKeeper{s}
	}
	return r
}

// Open opens the data folder, for the namespace that ZooKeeper has if this is one of
// several namenodes.
func (r *Role) Open(ctx context.Context) (*datadir.Dir, error) {
	id, err := r.form.namespace(ctx)
	if err != nil {
		return nil, err
	}
	r.dir, err = datadir.Open(r.cfg.FS, r.cfg.Data, id)
	return r.dir, err
}

// OpenJournal opens the journal behind the image that was loaded.
func (r *Role) OpenJournal(ctx context.Context, image uint64) (j journal.Journal, err error) {
	if j, err = r.form.openJournal(ctx, image); err == nil {
		r.journal = j
	}
	return j, err
}

// Own adds to the configuration of the block store's owner what goes by the kind of
// namenode: where the token of the incarnation is, and whether the reign has ended.
func (r *Role) Own(cfg *owner.Config) { r.form.own(cfg) }

// Images is what there is to know of images in a store that others share; nil if they
// are this namenode's alone.
func (r *Role) Images(o *owner.Owner) *images.Shared { return r.form.images(o) }

// Begin begins to reign on what was loaded: alone at once, else after an election.
func (r *Role) Begin(ctx context.Context, rooms Rooms) error {
	r.rooms = rooms
	return r.form.begin(ctx)
}

// Journal is what OpenJournal has opened.
func (r *Role) Journal() journal.Journal { return r.journal }

// Term is the number of the reign; 0 if none has begun.
func (r *Role) Term() uint64 {
	if now := r.reign.Load(); now != nil {
		return now.term
	}
	return 0
}

// activate begins the reign of a term that the journal has taken: the rooms are told,
// and the lease table is rebuilt from the tree, since the truth about who holds a file
// is on its inode.
func (r *Role) activate(ctx context.Context, term uint64, token string, began time.Duration) error {
	since := r.cfg.Clock.Mono()
	nonce, _ := marker.ParseID(token)
	r.reign.Store(&reign{term, since})
	r.rooms.Owner.Begin(term, token)
	r.rooms.Blocks.Begin(tables.Reign{Term: term, Nonce: nonce}, since)
	r.rooms.Engine.BeginReign(term)
	op := &namespace.OpActivate{Term: term, NamespaceID: r.dir.ID, User: r.cfg.Superuser, Group: r.cfg.Supergroup, Nonce: nonce}
	known := r.rooms.Engine.Facts().Last > 0
	if known {
		op.User, op.Group = r.rooms.Engine.Superuser()
	}
	if _, err := r.rooms.Engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) {
		at := levels.State{Level: r.format.level(), Release: r.cfg.Version}
		if known || at.Level == levels.First {
			return op, nil
		}
		return &namespace.OpLevel{State: at, First: op}, nil
	}}); err != nil {
		return err
	}
	if err := r.rooms.Leases.RebuildFromTree(ctx); err != nil {
		return err
	}
	now := r.rooms.Engine.Facts()
	r.log.Info("active", "term", term, "txid", now.Last, "inodes", now.Inodes, "took", r.cfg.Clock.Mono()-began)
	return nil
}

// answer has everything of the namenode begin, and answers, unless the reign has ended
// already.
func (r *Role) answer() {
	r.cfg.Loops.Run("journal", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-r.journal.Failed():
			return fmt.Errorf("the journal cannot be written: %w", r.journal.Err())
		}
	})
	r.cfg.Loops.Run("feature level", func(ctx context.Context) error { // somebody may have died between the record and its mark
		if err := r.markInTurn(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("the format of the namespace does not say its feature level yet; the next reign tries again", "cause", err)
		}
		return nil
	})
	r.cfg.Begun()
	r.rooms.Engine.WhileItLasts(func() {
		r.ready.Store(true)
		r.reigned.Store(true)
		if r.cfg.Loops.Err() != nil {
			r.ready.Store(false)
		}
	})
}

// finishFolder makes a new data folder valid.
func (r *Role) finishFolder() error {
	if !r.dir.Fresh {
		return nil
	}
	at := levels.State{Level: levels.First} // of one of several, whose folder has nothing of the namespace
	if r.cfg.HA == nil {
		at = levels.State{Level: r.format.level(), Release: r.cfg.Version}
	}
	return r.dir.Finish(at, "leasefs "+r.cfg.Version, r.cfg.Clock.Wall().UTC().Format(time.RFC3339))
}

// Reigned reports whether the namenode is active, or was.
func (r *Role) Reigned() bool { return r.reigned.Load() }

// Ready reports whether the reign has begun and nobody has ended it.
func (r *Role) Ready() bool { return r.ready.Load() }

// Active implements engine.Reign.
func (r *Role) Active() error {
	if r.ready.Load() {
		return r.form.confirmed()
	}
	_, why, active := r.form.waits()
	if err := r.cfg.Loops.Err(); err != nil {
		why = err.Error()
	}
	return &fserror.Error{Kind: fserror.NotActive, Message: why, Active: active, RetryAfter: 100 * time.Millisecond}
}

// Window implements engine.Reign. It is asked when an answer is begun, and again when
// it is given.
func (r *Role) Window() error { return r.form.confirmed() }

// Fail implements engine.Reign: nothing is answered any more.
func (r *Role) Fail(why error) {
	r.cfg.Loops.Stop(why) // before the next line: see answer
	if r.ready.CompareAndSwap(true, false) {
		r.log.Error("stepping down", "cause", why)
	}
}

// String is "active", "standby" or "starting"; "isolated" is one that was active and
// does not know whether it still is.
func (r *Role) String() string {
	switch role, _, _ := r.form.waits(); {
	case !r.ready.Load():
		return role
	case r.form.confirmed() != nil:
		return "isolated"
	}
	return "active"
}

// stuck is for one of several: a journal that nothing leaves ends by itself there, and with it the reign.
func (*Role) stuck() error { return nil }

// Serves is nil if the namenode does what its role asks of it: it answers, also to changes, or
// it follows the one that does. Else it says why not.
func (r *Role) Serves() error {
	switch {
	case r.ready.Load():
		return cmp.Or(r.form.confirmed(), r.form.stuck())
	case r.form.follows():
		return nil
	}
	return r.Active()
}

// Status is what a namenode knows of itself among several.
type Status struct {
	Role   string // see String
	Active string // address of the active one, as far as a standby knows
	Newest uint64 // the last change that a standby knows of
	// Several says that it is one of several: Kept and KeptNodes are what the journal
	// takes of ZooKeeper.
	Several         bool
	Kept, KeptNodes int64
	// Short is why growth would be refused here, DiskError why that is not known, or what is
	// wrong with the disk of a namenode alone.
	Short, DiskError string
}

// Status tells how the namenode is.
func (r *Role) Status() Status {
	var s Status
	r.form.tell(&s)
	s.Role = r.String()
	return s
}

// LeastTTL is the shortest time to live of a lease.
func (r *Role) LeastTTL() time.Duration {
	if r.cfg.MinLeaseTTL != 0 {
		return r.cfg.MinLeaseTTL
	}
	return r.form.leastTTL()
}

// OutlivesFailover is the shortest time to live of what outlives a failover; 0 of a
// namenode alone, which has none.
func (r *Role) OutlivesFailover() time.Duration {
	if r.cfg.HA == nil {
		return 0
	}
	return r.form.leastTTL()
}

// RenewWithin is after how long at most a session with that soft limit renews.
func (r *Role) RenewWithin(soft time.Duration) time.Duration { return r.form.renewWithin(soft) }

// SessionTTL is the soft limit of a session that asks for one of its own.
func (r *Role) SessionTTL(asked time.Duration) time.Duration { return r.form.sessionTTL(asked) }

// CompareClock holds the clock against that of ZooKeeper's leader, if there is one.
func (r *Role) CompareClock(ctx context.Context) (clock.Skew, error) {
	return r.form.compareClock(ctx)
}

// errHandedOver: an operator, or SIGTERM, ended the reign.
var errHandedOver = errors.New("the reign was handed over")

// HandOver ends the reign so that a successor need not wait: nothing is answered any
// more, all that was acknowledged is in the journal, which says so.
func (r *Role) HandOver(ctx context.Context) error {
	unlock, err := r.handing.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if r.ready.Load() {
		if err := r.rooms.Leases.JournalLastAges(ctx); err != nil {
			r.log.Warn("the ages of silent leases could not be journalled; they count from the last checkpoint", "cause", err)
		}
	}
	var was bool
	r.rooms.Engine.End(func() { was = r.ready.Swap(false) })
	return r.form.release(ctx, was)
}

// Failover hands the reign of that term over to the next namenode that is fit, and
// returns its address. Of a term that is over already, it does nothing.
func (r *Role) Failover(ctx context.Context, term uint64) (next string, err error) {
	if err := r.Active(); err != nil {
		return "", err
	}
	return r.form.failover(ctx, term)
}

// Members are the namenodes of the election, the active one first; none of a namenode alone.
func (r *Role) Members(ctx context.Context) ([]election.Member, error) {
	if s, ok := r.form.(*several); ok && s.joined.Load() {
		return s.candidacy.Members(ctx)
	}
	return nil, nil
}

// Close ends the journal and the election.
func (r *Role) Close() error { return r.form.close() }

// Restartable reports whether a namenode that ended with this error should be restarted
// by its process: it was deposed, handed over, or fell behind.
func Restartable(err error) bool {
	return errors.Is(err, errDeposed) || errors.Is(err, errHandedOver) || errors.Is(err, owner.ErrTermTaken) || errors.Is(err, journal.ErrFenced) ||
		errors.Is(err, journal.ErrFailed) || errors.Is(err, election.ErrLost) ||
		errors.Is(err, journal.ErrPurged) || // too far behind: it starts from an image
		errors.Is(err, fserror.NotActive) || // its window closed while it took over
		errors.Is(err, fserror.Unavailable) // the block store was out of reach
}
