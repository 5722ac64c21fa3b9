package waiting

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

// ErrOver is the answer to one who has waited in vain.
var ErrOver = errors.New("the wait is over")

// Call is a call that waits for a file.
type Call struct {
	// Inode is what the name leads to now. It may be another file's later, as when a new one
	// is renamed to it.
	Inode func() (namespace.InodeID, error)
	By    namespace.Holder
	Who   share.Taker      // whose place it is, by user and address
	Over  <-chan time.Time // ends the wait
	Again bool             // it asks again when the wait is over
	Held  error            // why it has to wait, as it was told last; nil: it did not try yet
	// Try asks for the file.
	Try func() error
	// ComesBack reports whether it may have the file before those who wait: it is
	// an earlier process's of the same client. It is asked if Held says so.
	ComesBack func() bool
}

// Wait tries in the file's queue until the wait is over: at each freeing of the
// file, and when its holder can be dispossessed. If the name leads to another file then, it
// continues in the queue of that one, before those who began to wait later.
func (t *Table) Wait(ctx context.Context, c *Call) (err error) {
	inode, err := c.Inode()
	switch {
	case c.Held == nil && errors.Is(err, fserror.NotFound):
		return c.Try() // it may create the file
	case err != nil:
		return err
	}
	w := t.join(inode, c.By, t.cfg.Clock.Mono())
	w.who = c.Who
	defer func() {
		if c.Again && errors.Is(err, ErrOver) {
			if inode, err := c.Inode(); err == nil && inode != w.inode { // where it comes back
				t.move(w, inode)
			}
			t.keep(w, t.cfg.Clock.Mono())
		} else {
			t.leave(w)
		}
	}()
	for tried := false; ; {
		mine, in := t.look(w, t.cfg.Clock.Mono())
		if mine && !tried {
			// The file may have been freed before we joined the queue, so the first
			// in it tries at once.
			tried = true
		} else {
			if err := t.Pause(ctx, w.turn, c.lookIn(mine, in), c.Over); err != nil {
				return err
			}
			if mine, _ = t.look(w, t.cfg.Clock.Mono()); !mine && !(c.heldByOwn() && c.ComesBack()) {
				continue // somebody came back to an earlier place
			}
		}
		if c.Held = c.Try(); !errors.Is(c.Held, fserror.Held) {
			return c.Held
		}
		if inode, err := c.Inode(); err == nil && inode != w.inode { // else the next try says what is wrong
			t.move(w, inode)
			tried = false
		}
	}
}

// lookIn is after what time a waiter looks again unasked; 0: never. Only the first
// in the queue, and who waits for an earlier process of its own, goes by the clock,
// and looks at least once a second: an older session of its own client name may
// have gone. So does one before whom a place is kept, for as long as in.
func (c *Call) lookIn(first bool, in time.Duration) time.Duration {
	var fe *fserror.Error
	if (first || c.heldByOwn()) && errors.As(c.Held, &fe) {
		in = time.Second
		if fe.Holder != nil {
			in = max(fe.TakeableIn, 10*time.Millisecond)
		}
	}
	return min(in, time.Second)
}

// heldByOwn reports whether the refusal names a process of the same client as the
// holder.
func (c *Call) heldByOwn() bool {
	var fe *fserror.Error
	return errors.As(c.Held, &fe) && fe.Holder != nil && SameClient(namespace.Holder{User: fe.Holder.User, Client: fe.Holder.Client}, c.By)
}

// SameClient reports whether two processes are of one client.
func SameClient(a, b namespace.Holder) bool {
	return a.Client != "" && a.Client == b.Client && a.User == b.User
}

// Pause waits until there is something on turn, or a while is over; 0: until there is
// something.
func (t *Table) Pause(ctx context.Context, turn <-chan struct{}, d time.Duration, over <-chan time.Time) error {
	var look <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-turn:
		return nil
	case <-look:
		return nil
	case <-over:
		return ErrOver
	case <-ctx.Done():
		return ctx.Err()
	case <-t.cfg.Stopping:
		return t.cfg.Active()
	}
}
