package reign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/namenode/datadir"
)

const (
	// reportEvery is between two reports of a namenode to the others, at least: each is
	// a write of ZooKeeper's, and an operator's hand-over waits for the next one.
	reportEvery = 250 * time.Millisecond
	// handOverWait is how long a hand-over waits for a standby.
	handOverWait = 2 * time.Second
	// leastReign is how long a namenode reigns before it hands over for want of
	// room: so those whose disks are about to be full hand over once a minute at most.
	leastReign = time.Minute
)

// standing is how well this namenode could serve now. An error of a disk that is asked how
// much room it has says nothing against it; that it does not answer does.
func (s *several) standing() election.Report {
	why, err := s.dir.Shortage(s.cfg.Reserve)
	switch {
	case errors.Is(err, datadir.ErrSilent):
		why, err = err.Error(), nil
	case err != nil:
		why = ""
	}
	if why == "" && err == nil {
		why, err = s.rooms.Images.Shortage()
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if old := s.diskError.Swap(&said); said != "" && (old == nil || *old != said) {
		s.log.Warn("this namenode does not know whether it has room; the others take it for fit", "cause", err)
	}
	s.short.Store(&why)
	return election.Report{TxID: s.journal.Durable(), Unfit: why}
}

// tellStanding reports to the others when its standing has changed, and gives up a
// reign that another should have.
func (s *several) tellStanding(ctx context.Context) error {
	told := s.joinedAs
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := s.standing()
		short, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
		if now != told && s.candidacy.Report(short, now) == nil { // else again
			told = now
		}
		cancel()
		if now.Unfit != "" {
			s.giveUp(ctx, now.Unfit)
		}
	}
}

// newest is the last change that a standby knows of: by the journal, as far as it reads
// that, and by what the others have reported.
func (s *several) newest() uint64 {
	seen, _ := s.shared.Observed()
	return max(seen, s.known.Load())
}

// GiveUp gives the reign up for want of room, as one of several does by itself. For tests.
func (r *Role) GiveUp(ctx context.Context, why string) {
	if s, ok := r.form.(*several); ok {
		s.giveUp(ctx, why)
	}
}

// Unready says of each standby why it could not take over at once; nil if one could, or
// if that is not known. For tests.
func (r *Role) Unready(ctx context.Context) (why []string) {
	if s, ok := r.form.(*several); ok {
		if next, all, err := s.nextInLine(ctx, s.journal.Durable()); err == nil && next == "" {
			why = all
		}
	}
	return why
}

// giveUp hands the reign over to a standby that has room, if there is one. Without
// one this namenode keeps serving: reading and deleting need none.
func (s *several) giveUp(ctx context.Context, why string) {
	if !s.ready.Load() || s.cfg.Clock.Mono()-s.reign.Load().since < leastReign || s.rooms.Images.Writing() && why != datadir.ErrSilent.Error() { // an image takes room only until it is stored
		return
	}
	if next, _, err := s.nextInLine(ctx, 0); err != nil || next == "" {
		return // nobody has room
	}
	next, err := s.successor(ctx)
	if err != nil {
		return
	}
	s.log.Warn("handing over to a namenode that has room, and a disk that answers", "next", next, "cause", why)
	s.active.Store(&next)
	if err := s.HandOver(ctx); err != nil {
		s.log.Warn("the reign could not be handed over in order; a successor waits until it has surely ended", "cause", err)
	}
	s.Fail(errHandedOver)
}

// unready says why a standby could not take over at once what was durable at txid;
// empty if it could. Of a release that reports nothing that is not known.
func unready(m election.Member, txid uint64) string {
	switch {
	case m.Report == nil:
		return ""
	case m.Report.Unfit != "":
		return m.Address + ": " + m.Report.Unfit
	case m.Report.TxID < txid:
		return fmt.Sprintf("%s is %s behind", m.Address, changes(txid-m.Report.TxID))
	}
	return ""
}

// changes counts changes, for people.
func changes(n uint64) string {
	if n == 1 {
		return "1 change"
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s + " changes"
}

// others lists the other namenodes of the election, in the order in which they
// would be elected.
func (s *several) others(ctx context.Context) (all []election.Member, err error) {
	members, err := s.candidacy.Members(ctx)
	for _, m := range members {
		if m.Session != s.candidacy.SessionID() {
			all = append(all, m)
		}
	}
	return all, err
}

// nextInLine is the address of the first standby that could take over at once what
// was durable at txid; if none could, it is empty, and why says so of each.
func (s *several) nextInLine(ctx context.Context, txid uint64) (next string, why []string, err error) {
	standbys, err := s.others(ctx)
	for _, m := range standbys {
		reason := unready(m, txid)
		if reason == "" {
			return m.Address, nil, nil
		}
		why = append(why, reason)
	}
	return "", why, err
}

// successor waits a moment for a standby that has all that was durable when it was
// called. While changes come in, what one that follows has reported is old.
func (s *several) successor(ctx context.Context) (next string, err error) {
	txid := s.journal.Durable()
	ctx, cancel := context.WithTimeout(ctx, handOverWait)
	defer cancel()
	var last []string
	for {
		next, why, err := s.nextInLine(ctx, txid)
		switch {
		case err == nil && next != "":
			return next, nil
		case err == nil && len(why) == 0:
			return "", &fserror.Error{Kind: fserror.Retry, Op: "failover", RetryAfter: time.Second, Message: "there is no standby to hand over to; start another namenode"}
		case err == nil:
			last = why
		}
		if clock.Pause(ctx, 20*time.Millisecond) == nil {
			continue
		}
		if last == nil {
			return "", fserror.Wrap(fserror.Unavailable, "failover", "", err)
		}
		return "", &fserror.Error{Kind: fserror.Retry, Op: "failover", RetryAfter: time.Second, Message: "no standby can take over at once: " + strings.Join(last, "; ") +
			"; it was not handed over (a stop of the namenode, by SIGTERM, hands over all the same)"}
	}
}

// beElected follows the active namenode until this one is to be active. One that is
// elected, and lacks room or changes that another one has, makes way for that one. It
// returns the reign before.
func (s *several) beElected(ctx context.Context) (last zk.Reign, err error) {
	var w way
	for {
		if err := s.followUntilElected(ctx); err != nil {
			return last, err
		}
		s.log.Info("elected")
		own := s.standing()
		soon, progress := impatient(ctx, s.cfg.HA.StallAfter())
		others, err := s.others(soon)
		if err == nil {
			last, err = s.shared.Term(soon)
		}
		progress(false)
		if err != nil {
			return last, stalled(soon, err)
		}
		next := w.makeFor(s.cfg.Clock.Mono(), last.Released, own, others)
		if next == "" {
			if own.Unfit != "" {
				s.log.Warn("taking over without room, since no other namenode has any, or has just failed: what needs room is refused", "short", own.Unfit)
			}
			return last, nil
		}
		s.log.Info("making way for a namenode that is fitter", "next", next, "short", own.Unfit, "txid", own.TxID)
		if err := s.candidacy.MoveBack(ctx, own); err != nil {
			return last, err
		}
	}
}

// way is what a candidate remembers of making way for others.
type way struct {
	made  bool
	at    time.Duration // by the monotonic clock
	known uint64        // the last change that any other one had reported then
}

// makeFor returns the address of the namenode for which this one, just elected, makes
// way: one that is fit when this one is not, or is fit and has changes that this one
// lacks. It is empty if there is none. A way is made again only when the others have
// reported changes that they had not: between two reigns nobody makes any, so those who
// find each other fitter do not make way for ever, and one of them serves as it is. And
// if the last reign was not released, not sooner than leastReign after the last one: who
// is fit may fail again and again. One that handed over in order has not.
func (w *way) makeFor(now time.Duration, released bool, own election.Report, others []election.Member) (next string) {
	known := uint64(0)
	for _, m := range others {
		if m.Report != nil {
			known = max(known, m.Report.TxID)
		}
		fitter := own.Unfit != "" || m.Report != nil && m.Report.TxID > own.TxID
		if next == "" && fitter && unready(m, 0) == "" {
			next = m.Address
		}
	}
	if next == "" || w.made && (known <= w.known || !released && now-w.at < leastReign) {
		return ""
	}
	w.made, w.at, w.known = true, now, known
	return next
}
