package engine

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// KeyDelegation is the kind of cache key that is a directory's delegation: the right to
// make files in it without asking, see docs/adr/0013-directory-delegations.md.
const KeyDelegation = 3

// ErrCached refuses a change that has to wait for sessions to give up what they keep
// of it. They have been asked.
var ErrCached = errors.New("cached elsewhere")

// Recall takes back, for one change, what sessions keep of what it changes. Until
// Done, no session can keep it again. The zero value is ready.
type Recall struct {
	change *readlease.Change
	given  *readlease.GivenUp
}

// Pending reports whether the change still has to wait.
func (r *Recall) Pending() bool { return r.change.Pending() }

// Done is called when the record is applied, or will not be. Until the record is
// durable, reads see that it is not, and what they see is not kept either.
func (r *Recall) Done() { r.change.Done() }

// recall returns ErrCached if sessions have to give something up before the record
// may be applied. What they have is marked, so that nobody can keep it again.
func (tx *Tx) recall(op namespace.Op, r *Recall) error {
	caches := tx.e.Caches()
	if r.change == nil && caches.Idle() {
		return nil
	}
	keys := tx.revokedBy(op)
	if len(keys) == 0 {
		return nil
	}
	if r.change == nil {
		if r.change = caches.RevokeGiven(keys, r.given); r.change == nil || !r.change.Pending() {
			return nil
		}
		return ErrCached
	}
	if r.change.More(keys) {
		return ErrCached
	}
	return nil
}

// revokedBy is what must not be kept over a change: what it changes, and the right
// to make files in the directories that it changes, or limits.
func (tx *Tx) revokedBy(op namespace.Op) []readlease.Key {
	changes := tx.Tree.Affects(op)
	keys := cacheKeys(changes)
	for _, c := range changes {
		if c.Kind == namespace.ChangeEntries || c.Kind == namespace.ChangeAttr && tx.Tree.IsDir(c.Inode) {
			keys = append(keys, delegation(c.Inode))
		}
	}
	if q, is := op.(*namespace.OpQuota); is {
		for _, dir := range tx.e.Caches().Inodes(KeyDelegation) {
			if dir := namespace.InodeID(dir); tx.Tree.IsBelow(dir, q.Inode) {
				keys = append(keys, delegation(dir))
			}
		}
	}
	return keys
}

// await waits until the sessions have given up what is marked, or their terms are
// over.
func (e *Engine) await(ctx context.Context, r *Recall) error {
	back, err := e.cfg.Rooms.Park(ctx)
	if err != nil {
		return err
	}
	defer back()
	// Who waits with a deadline is told in time what for, and asks again: no answer
	// would look like no namenode.
	patient, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		patient, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
	}
	defer cancel()
	switch err := r.change.Wait(patient); {
	case err == nil:
		return e.cfg.Reign.Active()
	case ctx.Err() != nil:
		return err
	}
	return fserror.New(fserror.Retry, "", "", "waiting for clients to drop cached copies of what this changes; silent ones are waited for up to %s", e.cfg.CacheTerm)
}

func cacheKeys(changes []namespace.Change) []readlease.Key {
	keys := make([]readlease.Key, len(changes))
	for i, c := range changes {
		keys[i] = readlease.Key{Kind: uint8(c.Kind), Inode: uint64(c.Inode), Name: c.Name}
	}
	return keys
}
