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
	"github.com/leasefs/leasefs/namenode/waiting"
)

// mustQueue reports whether others wait for the file already, so that whoever is
// willing to wait has to go behind them, also if it is free just now. A call that
// has been answered before is not held up.
func (s *writers) mustQueue(ctx context.Context, c *namespace.Call, id namespace.CallID, at namespace.Ref, by namespace.Holder) bool {
	if !s.waits.Any() {
		return false
	}
	queued := false
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if _, known, err := tx.Tree.CallResult(id); known || err != nil {
			return err
		}
		a, err := namespace.PlanOpen(tx.Tree, c, at, false) // who may not write it is told so at once, and holds nobody up
		queued = err == nil && s.waits.Waiting(a.ID, s.cfg.Clock.Mono()) > 0 &&
			(a.Open == nil || !waiting.SameClient(a.Open.Holder, by)) // who may come back to his own tries
		return err
	})
	return err == nil && queued // else the call itself says what is wrong
}

// comesBack reports whether the file is one that an earlier process of the same
// client left open, and has not lost yet: the new one has it at once, whoever
// waits.
func (s *writers) comesBack(ctx context.Context, c *namespace.Call, at namespace.Ref, by namespace.Holder) (is bool) {
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		a, err := tx.Tree.Stat(c, at)
		if err != nil || a.Open == nil || !waiting.SameClient(a.Open.Holder, by) {
			return err
		}
		v, st := s.leases.Take(*a.Open, by)
		is = v == leasemanager.Takeable && !st.SoftExpired && !st.Ending
		return nil
	})
	return err == nil && is
}

// waitFor tries in the file's queue until the wait is over, see waiting.Table.Wait.
func (s *writers) waitFor(ctx context.Context, c *namespace.Call, at namespace.Ref, wait time.Duration, q waiting.Call) error {
	back, err := s.front.Park(ctx, taker(ctx, c))
	if err != nil {
		return err
	}
	defer back()
	over := time.NewTimer(wait)
	defer over.Stop()
	for drafts.Refused(q.Held) {
		switch err := s.waits.Pause(ctx, nil, draftLook, over.C); {
		case errors.Is(err, waiting.ErrOver):
			return q.Held
		case err != nil:
			return err
		}
		if q.Held = q.Try(); !errors.Is(q.Held, fserror.Held) {
			return q.Held
		}
	}
	q.Inode = func() (namespace.InodeID, error) { return s.inodeOf(ctx, c, at) }
	q.Over = over.C
	q.ComesBack = func() bool { return s.comesBack(ctx, c, at, q.By) }
	err = s.waits.Wait(ctx, &q)
	switch {
	case !errors.Is(err, waiting.ErrOver):
		return err
	case q.Held != nil:
		return q.Held
	}
	return s.stillHeld(ctx, c, at, q.By)
}

// draftLook is how often one looks again who waits for a draft, which is a file
// within a fraction of a second.
const draftLook = 50 * time.Millisecond

// stillHeld is the answer to one who has waited in vain and never tried.
func (s *writers) stillHeld(ctx context.Context, c *namespace.Call, at namespace.Ref, by namespace.Holder) error {
	err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		a, err := tx.Tree.Stat(c, at)
		if err != nil || a.Open == nil {
			return err
		}
		_, st := s.leases.Take(*a.Open, by)
		return s.held(*a.Open, st)
	})
	if err == nil {
		err = fserror.New(fserror.Held, "", "", "others have waited for it for longer; wait longer, or try again")
	}
	return err
}
