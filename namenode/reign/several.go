package reign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// several is the role of one of several namenodes.
type several struct {
	*Role
	shared    *zk.Journal
	window    *election.Window
	candidacy *election.Candidacy
	joined    atomic.Bool            // it is in the election
	away      atomic.Bool            // ZooKeeper did not answer a standby
	active    atomic.Pointer[string] // address of the active namenode, as far as a standby knows
	marked    atomic.Uint64          // the level that the node format has, as far as it is known
	restored  uint64                 // the last record of the image that a restore has brought back; 0: none, or it is not known
	token     string                 // of this incarnation of the namespace, as ZooKeeper had it at the start

	joinedAs  election.Report
	known     atomic.Uint64          // the last change that any of them has reported
	short     atomic.Pointer[string] // why growth would be refused here; empty: it would not
	diskError atomic.Pointer[string] // why that is not known; empty: it is
}

// begin enters the election, and follows the active namenode until it is this one's
// turn.
func (s *several) begin(ctx context.Context) error {
	if err := s.finishFolder(); err != nil {
		return err
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	s.log.Info("standing by", "txid", s.journal.Durable())
	s.cfg.Loops.Run("election", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-s.candidacy.Lost():
			if s.rooms.Engine.Over() {
				return nil // who handed the reign over says why
			}
			return errDeposed
		}
	})
	s.cfg.Loops.Run("who is active", s.learnActive)
	s.cfg.Loops.Run("standing", s.tellStanding)
	s.cfg.Loops.Run("reign", s.succeed)
	return nil
}

// confirmed refuses answers while this namenode cannot be sure that it is still the active
// one.
func (s *several) confirmed() error {
	if w := s.window; w != nil && !w.Confirmed() {
		return &fserror.Error{Kind: fserror.NotActive, Message: "this namenode does not know whether it is still active: ZooKeeper is out of reach or slow", RetryAfter: 50 * time.Millisecond}
	}
	return nil
}

func (s *several) waits() (role, why, active string) {
	active = said(&s.active)
	switch {
	case !s.joined.Load():
		return starting, "the namenode is starting", active
	case s.away.Load():
		return "standby", "this namenode is a standby, and ZooKeeper is out of reach or slow", active
	}
	return "standby", "this namenode is a standby", active
}

func (s *several) follows() bool {
	return s.joined.Load() && s.cfg.Loops.Err() == nil && !s.away.Load()
}

func (s *several) tell(to *Status) {
	to.Active, to.Short, to.DiskError = said(&s.active), said(&s.short), said(&s.diskError)
	if s.joined.Load() {
		to.Several, to.Kept, to.KeptNodes, to.Newest = true, s.shared.Kept(), s.shared.KeptNodes(), s.newest()
	}
}

func said(p *atomic.Pointer[string]) string {
	if text := p.Load(); text != nil {
		return *text
	}
	return ""
}

func (s *several) compareClock(ctx context.Context) (clock.Skew, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	return s.candidacy.CompareClock(ctx, s.cfg.Clock)
}

// failover hands over to a standby that has all that was durable before.
func (s *several) failover(ctx context.Context, term uint64) (next string, err error) {
	switch now := s.Term(); {
	case term == 0:
		return "", fserror.New(fserror.InvalidArgument, "failover", "", "the request does not name the term that is to end; this is term %d", now)
	case term < now:
		return s.cfg.Address, nil
	case term > now:
		return "", fserror.New(fserror.InvalidArgument, "failover", "", "term %d has not begun; this is term %d", term, now)
	}
	if next, err = s.successor(ctx); err == nil {
		err = s.Active() // another call may have handed over meanwhile
	}
	if err != nil {
		return "", err
	}
	told := next
	s.active.Store(&told) // clients go there at once
	err = s.HandOver(ctx)
	s.Fail(errHandedOver) // also half way: there is no going back
	if err != nil {
		return "", fserror.Wrap(fserror.Unavailable, "failover", "", err)
	}
	return next, nil
}

// errDeposed: this namenode is not active any more, or could not become so. It
// has to discard what it has in memory and restart.
var errDeposed = errors.New("out of the election: the ZooKeeper session is over")

const (
	// lookEvery is between two looks of a standby at the others while none joins or
	// leaves: what they report is not watched, and a server that is cut off from the
	// ensemble tells of no change.
	lookEvery = 5 * time.Second
	// lineEvery is between two looks at whether ZooKeeper is out of reach, which ask
	// it nothing while it is not.
	lineEvery = time.Second
)

// learnActive keeps the address that clients are sent to.
func (s *several) learnActive(ctx context.Context) error {
	look, line := time.NewTicker(lookEvery), time.NewTicker(lineEvery)
	defer look.Stop()
	defer line.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.candidacy.Changes():
		case <-look.C:
		case <-line.C:
			if s.candidacy.Connected() && !s.away.Load() {
				continue
			}
		}
		if !s.ready.Load() {
			s.lookAtOthers(ctx)
		}
	}
}

// lookAtOthers asks ZooKeeper who is active, and how far the others are.
func (s *several) lookAtOthers(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	members, err := s.candidacy.Members(short)
	active := ""
	if away := err != nil; ctx.Err() == nil && s.away.Swap(away) != away {
		if away {
			s.log.Warn("ZooKeeper does not answer: this standby does not follow, and cannot take over, until it does", "cause", err)
		} else {
			s.log.Info("ZooKeeper answers again")
		}
	}
	if err == nil && len(members) > 0 && members[0].Address != s.cfg.Address {
		active = members[0].Address
	}
	s.active.Store(&active)
	for _, m := range members {
		if m.Report != nil {
			s.known.Store(max(s.known.Load(), m.Report.TxID)) // nobody else stores
		}
	}
}

// succeed follows the journal until this namenode is elected, and takes over.
func (s *several) succeed(ctx context.Context) error {
	if err := s.takeOver(ctx); !s.rooms.Engine.Over() { // who handed the reign over says why it ended
		return ended(ctx, err)
	}
	return nil
}

func (s *several) takeOver(ctx context.Context) error {
	last, err := s.beElected(ctx)
	if err != nil {
		return err
	}
	began := s.cfg.Clock.Mono()
	term, err := s.electedTerm(ctx, last.Term)
	if err != nil {
		return err
	}
	// Who was held up since he was elected may have a successor by now, whose reign
	// is not to be ended: a term was read that may be above it.
	if err := s.candidacy.Wait(ctx); err != nil {
		return err
	}
	read := s.cfg.Clock.Mono()
	soon, progress := impatient(ctx, s.cfg.HA.StallAfter())
	hand, err := s.shared.TakeOver(soon, term, func(r journal.Record) error {
		progress(true)
		return s.applyTailed(r)
	})
	progress(false)
	if err != nil {
		return stalled(soon, err)
	}
	if hand.Idle >= 0 {
		s.rooms.Engine.Idle(hand.Idle)
	}
	if !hand.Released && hand.PrevTerm != 0 {
		_, margin := s.cfg.HA.Lease()
		s.log.Info("waiting until the predecessor answers nothing any more", "term", hand.PrevTerm, "lease", hand.Lease)
		if err := election.AwaitEnd(ctx, s.cfg.Clock, hand.Seen, hand.Lease, margin); err != nil {
			return err
		}
		s.shared.Awaited()
	}
	if err := s.openWindow(ctx); err != nil { // it may have closed meanwhile
		return err
	}
	s.cfg.Loops.Run("reign's window", s.keepWindow)
	s.cfg.Loops.Run("isolation", s.tellIsolation)
	s.rooms.Images.TakeOver()
	if err := s.activate(ctx, term, hand.Token, read); err != nil {
		return err
	}
	s.answer()
	s.log.Info("took over", "term", term, "from", hand.PrevTerm, "released", hand.Released, "took", s.cfg.Clock.Mono()-began)
	return nil
}

// electedTerm is the term of a reign that is about to begin, last being the one
// that began last. The block store is asked whether it has blocks, or was told, of
// later ones. If it does not answer, the reign begins all the same: changes, small
// writes and reads of what is in tails need no store, and every reign before was
// above all its blocks. Only if ZooKeeper was put back from a backup since is that
// not so; that is found when the store is told of the reign, and ends it.
func (s *several) electedTerm(ctx context.Context, last uint64) (uint64, error) {
	last = max(last, s.rooms.Engine.Facts().Term)
	short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout/4)
	defer cancel()
	term, err := loops.Within(short, func(ctx context.Context) (uint64, error) {
		if err := s.rooms.Owner.StillOurs(ctx); err != nil {
			return 0, err
		}
		return s.rooms.Owner.NextTerm(ctx, last)
	})
	if err == nil || ctx.Err() != nil || s.cfg.Loops.Err() != nil {
		return term, err
	}
	s.log.Warn("the block store does not answer; taking over without it: blocks cannot be read or written, all else can", "store", s.cfg.Blocks, "cause", err)
	return max(last, s.rooms.Owner.Floor()) + 1, nil
}

// errStalled: the journal could not be written for so long that another
// namenode, on another machine, may fare better.
var errStalled = fmt.Errorf("%w: ZooKeeper has taken, or given, nothing for too long", journal.ErrFailed)

// impatient returns a context that ends when a namenode that was elected does not come
// further within the limit: ZooKeeper takes it for alive, so no other one is elected until it
// resigns. It is told of each progress, and of the end of what is watched.
func impatient(ctx context.Context, limit time.Duration) (soon context.Context, progress func(further bool)) {
	soon, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(limit, func() { cancel(errStalled) })
	return soon, func(further bool) {
		if further {
			late.Reset(limit)
			return
		}
		late.Stop()
		cancel(nil)
	}
}

// stalled is the error of what was done with the context of impatient.
func stalled(soon context.Context, err error) error {
	if errors.Is(context.Cause(soon), errStalled) {
		return fmt.Errorf("%w since this namenode was elected (%w)", errStalled, err)
	}
	return err
}

// unwritable reports whether the journal takes nothing more from this reign.
func unwritable(err error) bool {
	return errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrClosed)
}

// openWindow beats until the window is open, which the write that began the
// term did, unless that was long ago. A lost connection is no end.
func (s *several) openWindow(ctx context.Context) error {
	if s.window.Confirmed() {
		return nil
	}
	beat := s.stalling(s.shared.Beat)
	for {
		short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
		err := beat(short)
		cancel()
		if err == nil || unwritable(err) || ctx.Err() != nil {
			return err
		}
		_ = clock.Pause(ctx, 20*time.Millisecond) // the next beat says so
	}
}

// keepWindow writes often enough that the window stays open.
func (s *several) keepWindow(ctx context.Context) error {
	err := s.window.Keep(ctx, s.stalling(s.shared.Beat), unwritable)
	if s.rooms.Engine.Over() {
		return nil // a beat that came too late; who handed the reign over says why it ended
	}
	return ended(ctx, err)
}

// tellIsolation logs when this namenode, active, stops answering because it cannot
// tell whether it still is, and when it answers again.
func (s *several) tellIsolation(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for isolated := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := s.String() == "isolated" && !s.rooms.Engine.Over()
		switch since, _ := s.window.SinceWrite(); {
		case now && !isolated:
			s.log.Warn("isolated: answering nothing, since ZooKeeper has confirmed no write for too long, and another namenode may be active; waiting for ZooKeeper",
				"address", s.cfg.Address, "zookeeper", strings.Join(s.cfg.HA.ZooKeeper, ","), "since", since, "reign ends after", s.cfg.HA.StallAfter())
		case !now && isolated && s.String() == "active":
			s.log.Info("ZooKeeper answers: still active, and answering again", "address", s.cfg.Address)
		}
		isolated = now
	}
}

// stalling makes a beat fail for good when nothing was written for long, beats
// or other records, and the window was closed: whoever cannot write must not keep
// others from it. (While there is other work there are no beats.)
func (s *several) stalling(beat func(context.Context) error) func(context.Context) error {
	began := s.cfg.Clock.Mono()
	return func(ctx context.Context) error {
		err := beat(ctx)
		if err == nil || unwritable(err) || s.window.Confirmed() {
			return err
		}
		idle := s.cfg.Clock.Mono() - began
		if since, wrote := s.window.SinceWrite(); wrote {
			idle = min(idle, since)
		}
		if idle > s.cfg.HA.StallAfter() {
			err = fmt.Errorf("%w (%w)", errStalled, err)
		}
		return err
	}
}

// ended is an error as the reason of the end of a reign; nil if the namenode
// itself is ending.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// followUntilElected applies what the active namenode writes.
func (s *several) followUntilElected(ctx context.Context) error {
	tail, stop := context.WithCancel(ctx)
	defer stop()
	tailed := make(chan error, 1)
	go func() { tailed <- s.shared.Tail(tail, s.applyTailed) }()
	elected := make(chan error, 1)
	go func() { elected <- s.candidacy.Wait(tail) }()
	select {
	case err := <-tailed:
		stop()
		s.log.Debug("left the queue", "cause", <-elected)
		return err
	case err := <-elected:
		stop()
		s.log.Debug("ended following", "cause", <-tailed)
		return err
	}
}

// applyTailed applies a record that another namenode wrote.
func (s *several) applyTailed(r journal.Record) error {
	return s.rooms.Engine.Follow(r.Time, func(t *namespace.Tree) error { return s.rooms.Images.Apply(t, r) })
}

// release says in the journal that the reign has ended.
func (s *several) release(ctx context.Context, reigned bool) error {
	if !s.joined.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	s.window.End()
	err := s.shared.Release(ctx)
	if !reigned { // it only just began to, or somebody else does this
		err = nil
	}
	return errors.Join(err, s.candidacy.Resign())
}
