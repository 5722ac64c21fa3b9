package namenode

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/drafts"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// queuing is a call that waits for a file.
type queuing struct {
	at    namespace.Target
	by    namespace.Holder
	wait  time.Duration
	again bool  // it asks again when the wait is over
	held  error // why it has to wait; nil: it did not try yet
	try   func() (engine.Outcome, error)
}

// mustQueue reports whether others wait for the file already, so that whoever is
// willing to wait has to go behind them, also if it is free just now. A call that
// has been answered before is not held up.
func (s *Server) mustQueue(ctx context.Context, c *namespace.Call, id namespace.CallID, at namespace.Target, by namespace.Holder) bool {
	if !s.waits.any() {
		return false
	}
	queued := false
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if _, known, err := tx.Tree.CallResult(id); known || err != nil {
			return err
		}
		a, err := tx.Tree.PlanOpen(c, at) // who may not write it is told so at once, and holds nobody up
		queued = err == nil && s.waits.waiting(a.ID, s.cfg.Clock.Mono()) > 0 &&
			(a.Open == nil || !sameName(a.Open.Holder, by)) // who may come back to his own tries
		return err
	})
	return err == nil && queued // else the call itself says what is wrong
}

// comesBack reports whether the file is one that an earlier process of the same
// client left open, and has not lost yet: the new one has it at once, whoever
// waits. The namespace is locked.
func (s *Server) comesBack(a namespace.Attr, by namespace.Holder) bool {
	if a.Open == nil || !sameName(a.Open.Holder, by) {
		return false
	}
	v, st := s.leases.Take(*a.Open, by)
	return v == leasemanager.Takeable && !st.SoftExpired && !st.Ending
}

func sameName(a, b namespace.Holder) bool {
	return a.Client != "" && a.Client == b.Client && a.User == b.User
}

// statOf is the attributes of what a request is about.
func statOf(tx *engine.Tx, c *namespace.Call, at namespace.Target) (namespace.Attr, error) {
	if at.Inode != 0 {
		return tx.Tree.StatInode(c, at.Inode)
	}
	return tx.Tree.Stat(c, at.Path, true)
}

// waitFor tries in the file's queue until the wait is over: at each freeing of
// the file, and when its holder can be dispossessed.
func (s *Server) waitFor(ctx context.Context, c *namespace.Call, q queuing) (engine.Outcome, error) {
	back, err := s.park(ctx, c)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer back()
	over := time.NewTimer(q.wait)
	defer over.Stop()
	for drafts.Refused(q.held) {
		if err := s.waitDraft(ctx, over.C); err != nil {
			if errors.Is(err, errWaitOver) {
				err = q.held
			}
			return engine.Outcome{}, err
		}
		out, err := q.try()
		if !errors.Is(err, fserror.Held) {
			return out, err
		}
		q.held = err
	}
	inode, err := s.inodeOf(ctx, c, q.at)
	if q.held == nil && errors.Is(err, fserror.NotFound) {
		return q.try() // it may create the file
	}
	if err != nil {
		return engine.Outcome{}, err
	}
	w := s.waits.join(place{inode, q.by.Session}, s.cfg.Clock.Mono())
	keep := false
	defer func() {
		if keep {
			s.waits.keep(w, s.cfg.Clock.Mono())
		} else {
			s.waits.leave(w)
		}
	}()
	for {
		mine, in := s.waits.look(w, s.cfg.Clock.Mono())
		if mine && !w.tried {
			// The file may have been freed before we joined the queue, so the first
			// in it tries at once.
			w.tried = true
		} else {
			// Who waits for an earlier process of its own goes by the clock, too.
			if err := s.waitTurn(ctx, w, mine || heldBy(q.held, q.by), in, q.held, over.C); err != nil {
				keep = q.again && errors.Is(err, errWaitOver)
				if errors.Is(err, errWaitOver) {
					err = s.stillHeld(ctx, c, q)
				}
				return engine.Outcome{}, err
			}
			if mine, _ = s.waits.look(w, s.cfg.Clock.Mono()); !mine && !s.cameBack(ctx, c, q) {
				continue // somebody came back to an earlier place
			}
		}
		out, err := q.try()
		if !errors.Is(err, fserror.Held) {
			return out, err
		}
		q.held = err
	}
}

// draftLook is how often one looks again who waits for a draft, which is a file
// within a fraction of a second.
const draftLook = 50 * time.Millisecond

// waitDraft waits until one should look again whether a draft is made.
func (s *Server) waitDraft(ctx context.Context, over <-chan time.Time) error {
	look := time.NewTimer(draftLook)
	defer look.Stop()
	select {
	case <-look.C:
		return nil
	case <-over:
		return errWaitOver
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping.Done():
		return s.checkActive()
	}
}

// heldBy reports whether a refusal names a process of that client as the holder.
func heldBy(held error, by namespace.Holder) bool {
	var fe *fserror.Error
	return errors.As(held, &fe) && fe.Holder != nil && sameName(namespace.Holder{User: fe.Holder.User, Client: fe.Holder.Client}, by)
}

// cameBack is comesBack for one who waits.
func (s *Server) cameBack(ctx context.Context, c *namespace.Call, q queuing) (is bool) {
	if !heldBy(q.held, q.by) {
		return false
	}
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		a, err := statOf(tx, c, q.at)
		is = err == nil && s.comesBack(a, q.by)
		return err
	})
	return err == nil && is
}

var errWaitOver = errors.New("the wait is over")

// stillHeld is the answer to one who has waited in vain.
func (s *Server) stillHeld(ctx context.Context, c *namespace.Call, q queuing) error {
	if q.held != nil {
		return q.held
	}
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		a, err := statOf(tx, c, q.at)
		if err != nil || a.Open == nil {
			return err
		}
		_, st := s.leases.Take(*a.Open, q.by)
		return s.held(q.at.Path, *a.Open, st)
	})
	if err == nil {
		err = fserror.New(fserror.Held, "", q.at.Path, "others have waited for it for longer; wait longer, or try again")
	}
	return err
}

// waitTurn waits until the waiter should look again. Only the first in the queue
// goes by the clock, and looks at least once a second: an older session of its
// own client name may have gone. So does one before whom a place is kept.
func (s *Server) waitTurn(ctx context.Context, w *waiter, first bool, in time.Duration, held error, over <-chan time.Time) error {
	var fe *fserror.Error
	if first && errors.As(held, &fe) {
		in = time.Second
		if fe.Holder != nil {
			in = max(fe.TakeableIn, 10*time.Millisecond)
		}
	}
	var look <-chan time.Time
	if in > 0 {
		t := time.NewTimer(min(in, time.Second))
		defer t.Stop()
		look = t.C
	}
	select {
	case <-w.turn:
		return nil
	case <-look:
		return nil
	case <-over:
		return errWaitOver
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping.Done():
		return s.checkActive()
	}
}
