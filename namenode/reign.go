package namenode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
)

// standBy follows the active namenode until it is this one's turn.
func (s *Server) standBy() {
	s.log.Info("standing by", "txid", s.journal.Durable())
	s.run("election", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-s.shared.candidacy.Lost():
			if s.engine.Over() {
				return nil // who handed the reign over says why
			}
			return errDeposed
		}
	})
	s.run("who is active", s.learnActive)
	s.run("standing", s.tellStanding)
	s.run("reign", s.reign)
}

// errDeposed: this namenode is not active any more, or could not become so. It
// has to discard what it has in memory and restart.
var errDeposed = errors.New("out of the election: the ZooKeeper session is over")

// errHandedOver: an operator, or SIGTERM, ended the reign.
var errHandedOver = errors.New("the reign was handed over")

// Restartable reports whether a namenode that ended with this error, of Err,
// should be restarted by its process: it was deposed, handed over, or fell
// behind.
func Restartable(err error) bool {
	return errors.Is(err, errDeposed) || errors.Is(err, errHandedOver) || errors.Is(err, owner.ErrTermTaken) || errors.Is(err, journal.ErrFenced) ||
		errors.Is(err, journal.ErrFailed) || errors.Is(err, election.ErrLost) ||
		errors.Is(err, journal.ErrPurged) || // too far behind: it starts from an image
		errors.Is(err, fserror.NotActive) || // its window closed while it took over
		errors.Is(err, fserror.Unavailable) // the block store was out of reach
}

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
func (s *Server) learnActive(ctx context.Context) error {
	look, line := time.NewTicker(lookEvery), time.NewTicker(lineEvery)
	defer look.Stop()
	defer line.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.shared.candidacy.Changes():
		case <-look.C:
		case <-line.C:
			if s.shared.candidacy.Connected() && !s.shared.away.Load() {
				continue
			}
		}
		if !s.ready.Load() {
			s.lookAtOthers(ctx)
		}
	}
}

// lookAtOthers asks ZooKeeper who is active, and how far the others are.
func (s *Server) lookAtOthers(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	members, err := s.shared.candidacy.Members(short)
	active := ""
	if away := err != nil; ctx.Err() == nil && s.shared.away.Swap(away) != away {
		if away {
			s.log.Warn("ZooKeeper does not answer: this standby does not follow, and cannot take over, until it does", "cause", err)
		} else {
			s.log.Info("ZooKeeper answers again")
		}
	}
	if err == nil && len(members) > 0 && members[0].Address != s.advertised() {
		active = members[0].Address
	}
	s.active.Store(&active)
	for _, m := range members {
		if m.Report != nil {
			s.shared.known.Store(max(s.shared.known.Load(), m.Report.TxID)) // nobody else stores
		}
	}
}

// reign follows the journal until this namenode is elected, and takes over.
func (s *Server) reign(ctx context.Context) error {
	last, err := s.beElected(ctx)
	if err != nil {
		if s.engine.Over() {
			return nil
		}
		return ended(ctx, err)
	}
	began := s.cfg.Clock.Mono()
	term, err := s.electedTerm(ctx, last.Term)
	if err != nil {
		return ended(ctx, err)
	}
	// Who was held up since he was elected may have a successor by now, whose reign
	// is not to be ended: a term was read that may be above it.
	if err := s.shared.candidacy.Wait(ctx); err != nil {
		if s.engine.Over() {
			return nil
		}
		return ended(ctx, err)
	}
	var hand zk.Handover
	takeOver := func(ctx context.Context, term uint64) (err error) {
		hand, err = s.shared.journal.TakeOver(ctx, term, s.applyTailed)
		s.nonce = hand.Token
		if err == nil && hand.Idle >= 0 {
			s.engine.Idle(hand.Idle)
		}
		if err == nil && !hand.Released && hand.PrevTerm != 0 {
			_, margin := s.cfg.HA.Lease()
			s.log.Info("waiting until the predecessor answers nothing any more", "term", hand.PrevTerm, "lease", hand.Lease)
			if err = election.AwaitEnd(ctx, s.cfg.Clock, hand.Seen, hand.Lease, margin); err == nil {
				s.shared.journal.Awaited()
			}
		}
		if err == nil {
			err = s.openWindow(ctx) // it may have closed meanwhile
		}
		if err == nil {
			s.run("reign's window", s.keepWindow)
			s.run("isolation", s.tellIsolation)
		}
		return err
	}
	if err := s.beginReign(ctx, term, takeOver); err != nil {
		if s.engine.Over() {
			return nil
		}
		return ended(ctx, err)
	}
	s.startBackground()
	s.setReady()
	s.log.Info("took over", "term", term, "from", hand.PrevTerm, "released", hand.Released, "took", s.cfg.Clock.Mono()-began)
	return nil
}

// electedTerm is the term of a reign that is about to begin, last being the one
// that began last. The block store is asked whether it has blocks, or was told, of
// later ones. If it does not answer, the reign begins all the same: changes, small
// writes and reads of what is in tails need no store, and every reign before was
// above all its blocks. Only if ZooKeeper was put back from a backup since is that
// not so; that is found when the store is told of the reign, and ends it.
func (s *Server) electedTerm(ctx context.Context, last uint64) (uint64, error) {
	last = max(last, s.engine.Facts().Term)
	short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout/4)
	defer cancel()
	err := s.owner.StillOurs(short)
	term := uint64(0)
	if err == nil {
		term, err = s.owner.NextTerm(short, last)
	}
	if err == nil || ctx.Err() != nil || s.stopping.Err() != nil {
		return term, err
	}
	s.log.Warn("the block store does not answer; taking over without it: blocks cannot be read or written, all else can", "store", s.cfg.Blocks, "cause", err)
	return max(last, s.owner.Floor()) + 1, nil
}

// storePause is between two questions to a block store that does not answer.
const storePause = time.Second

// errStalled: the journal could not be written for so long that another
// namenode, on another machine, may fare better.
var errStalled = fmt.Errorf("%w: ZooKeeper has taken nothing for too long", journal.ErrFailed)

// unwritable reports whether the journal takes nothing more from this reign.
func unwritable(err error) bool {
	return errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrClosed)
}

// openWindow beats until the window is open, which the write that began the
// term did, unless that was long ago. A lost connection is no end.
func (s *Server) openWindow(ctx context.Context) error {
	if s.shared.window.Confirmed() {
		return nil
	}
	beat := s.stalling(s.shared.journal.Beat)
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
func (s *Server) keepWindow(ctx context.Context) error {
	err := s.shared.window.Keep(ctx, s.stalling(s.shared.journal.Beat), unwritable)
	if s.engine.Over() {
		return nil // a beat that came too late; who handed the reign over says why it ended
	}
	return ended(ctx, err)
}

// tellIsolation logs when this namenode, active, stops answering because it cannot
// tell whether it still is, and when it answers again.
func (s *Server) tellIsolation(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for isolated := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := s.Role() == "isolated" && !s.engine.Over()
		switch since, _ := s.shared.window.SinceWrite(); {
		case now && !isolated:
			s.log.Warn("isolated: answering nothing, since ZooKeeper has confirmed no write for too long, and another namenode may be active; waiting for ZooKeeper",
				"address", s.advertised(), "zookeeper", strings.Join(s.cfg.HA.ZooKeeper, ","), "since", since, "reign ends after", s.cfg.HA.StallAfter())
		case !now && isolated && s.Role() == "active":
			s.log.Info("ZooKeeper answers: still active, and answering again", "address", s.advertised())
		}
		isolated = now
	}
}

// stalling makes a beat fail for good when nothing was written for long, beats
// or other records, and the window was closed: whoever cannot write must not keep
// others from it. (While there is other work there are no beats.)
func (s *Server) stalling(beat func(context.Context) error) func(context.Context) error {
	began := s.cfg.Clock.Mono()
	return func(ctx context.Context) error {
		err := beat(ctx)
		if err == nil || unwritable(err) || s.shared.window.Confirmed() {
			return err
		}
		idle := s.cfg.Clock.Mono() - began
		if since, wrote := s.shared.window.SinceWrite(); wrote {
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
func (s *Server) followUntilElected(ctx context.Context) error {
	tail, stop := context.WithCancel(ctx)
	defer stop()
	tailed := make(chan error, 1)
	go func() { tailed <- s.shared.journal.Tail(tail, s.applyTailed) }()
	elected := make(chan error, 1)
	go func() { elected <- s.shared.candidacy.Wait(tail) }()
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
func (s *Server) applyTailed(r journal.Record) error {
	return s.engine.Follow(r.Time, func(t *namespace.Tree) error { return s.images.Apply(t, r) })
}

// handOver ends the reign so that a successor need not wait: nothing is answered
// any more, all that was acknowledged is in the journal, which says so.
func (s *Server) handOver(ctx context.Context) error {
	unlock, err := s.shared.handing.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.ready.Load() {
		if err := s.leases.JournalLastAges(ctx); err != nil {
			s.log.Warn("the ages of silent leases could not be journalled; they count from the last checkpoint", "cause", err)
		}
	}
	var was bool
	s.engine.End(func() { was = s.ready.Swap(false) })
	if !s.joined.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	s.shared.window.End()
	err = s.shared.journal.Release(ctx)
	if !was { // it did not reign, or only just began to, or somebody else does this
		err = nil
	}
	return errors.Join(err, s.shared.candidacy.Resign())
}

// activation is the activation of a reign.
func (s *Server) activation(term uint64) *namespace.OpActivate {
	op := &namespace.OpActivate{Term: term, NamespaceID: s.dir.ID, User: s.cfg.Superuser, Group: s.cfg.Supergroup}
	op.Nonce, _ = marker.ParseID(s.nonce)
	if s.engine.Facts().Last > 0 {
		op.User, op.Group = s.engine.Superuser()
	}
	return op
}
