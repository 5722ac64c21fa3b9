package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/share"
)

// limits is who has how much of what the namespace keeps for users. It is of one
// reign, and guarded by Engine.mu.
type limits struct {
	granted   *share.Limit                        // leases
	owners    *share.Limit                        // users who own something, by the address that brought them
	groups    *share.Limit                        // groups that own something
	results   *share.Limit                        // sessions of which results are kept
	resultsOf map[namespace.SessionID]share.Taker // those that began in this reign
}

// Limits is how much there is of what callers share.
type Limits struct {
	Granted int64 // leases
	Results int64 // sessions of which results are kept
	Caching int   // sessions that cache; 0: readlease.DefaultMaxSessions
}

// Share begins to count who has what, in the reign of a term. Whose the sessions are
// that have results, and what address brought the users, is not known any more; no
// session may answer from what it has read before.
func (e *Engine) Share(term uint64, of Limits) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tree := e.tx.Tree
	e.caches.Store(readlease.New(readlease.Config{
		Clock: e.cfg.Clock, Term: max(e.cfg.CacheTerm, 0), FirstSeq: term << 32, MaxSessions: of.Caching, ObserveWait: e.cfg.ObserveWait,
	}))
	e.limits = limits{
		granted: share.Of(of.Granted, share.Leases, e.cfg.Quota), owners: share.Of(tables.MaxOwners, "owners", nil), groups: share.Of(tables.MaxOwners, "groups", nil), results: share.Of(of.Results, "results", nil),
		resultsOf: make(map[namespace.SessionID]share.Taker),
	}
	e.limits.results.Hold(int64(tree.Counts().Sessions), share.Taker{})
	e.limits.owners.Hold(int64(tree.Users()), share.Taker{})
	e.limits.groups.Hold(int64(tree.Groups()), share.Taker{})
	tree.Leases(func(l namespace.Lease) bool {
		e.limits.granted.Hold(1, share.User(l.Owner.User))
		return true
	})
}

// applied brings the counts up to a record.
func (l *limits) applied(r namespace.Result) {
	if r.Granted != nil {
		l.granted.Hold(1, share.User(r.Granted.Owner.User))
	}
	if r.LeaseEnded {
		l.granted.Give(1, share.User(r.LeaseOwner))
	}
	for _, id := range r.Forgotten {
		l.results.Give(1, l.resultsOf[id])
		delete(l.resultsOf, id)
	}
}

// Granted is how many granted leases count.
func (e *Engine) Granted() int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.limits.granted.Used()
}

// Limits are those of granted leases, of sessions whose results are kept, and of owners and groups,
// in this reign.
func (e *Engine) Limits() []*share.Limit {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return []*share.Limit{e.limits.granted, e.limits.results, e.limits.owners, e.limits.groups}
}

// CheckGranted refuses one more lease to a user who has many, while few are left for
// the others.
func (tx *Tx) CheckGranted(ctx context.Context, c *namespace.Call) error {
	who, granted := share.User(c.User), tx.e.limits.granted
	who.Reserve = tx.e.cfg.Rooms.Taker(ctx, c).Reserve
	if granted.Fits(1, who) {
		return nil
	}
	if granted.Over(1, who) {
		return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonShares, Message: granted.Why(1, who), RetryAfter: time.Second}
	}
	return &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("there are %d granted leases, and the room that is left is for users who have few; revoke some", granted.Used()), RetryAfter: time.Second}
}

// countOwners counts who becomes an owner until counted is called. Any name of a user, and of
// a group, may be claimed where no certificates are needed, and each is kept for good: an address that
// has brought many leaves the rest to others.
func (tx *Tx) countOwners(ctx context.Context, c *namespace.Call) (counted func()) {
	e, users, groups := tx.e, tx.Tree.Users(), tx.Tree.Groups()
	if c != nil && !tx.Tree.KnowsUser(c.User) {
		c.NoNewUser = !e.limits.owners.Fits(1, e.cfg.Rooms.Taker(ctx, c))
	}
	if g := e.limits.groups; c != nil && g.Used() > g.Room()/2 { // which group it will be only the plan knows
		c.NoNewGroup = !g.Fits(1, e.cfg.Rooms.Taker(ctx, c))
	}
	return func() {
		if n := tx.Tree.Users() - users; n > 0 {
			e.limits.owners.Hold(int64(n), e.cfg.Rooms.Taker(ctx, c))
		}
		if n := tx.Tree.Groups() - groups; n > 0 {
			e.limits.groups.Hold(int64(n), e.cfg.Rooms.Taker(ctx, c))
		}
	}
}

// remembering refuses a call of a session of which no result is kept yet to a user or
// address that has many such sessions, while few are left for the others. What it
// returns is to be called when the call is carried out.
func (tx *Tx) remembering(ctx context.Context, c *namespace.Call, id namespace.CallID) (remembered func(), err error) {
	if id.Seq == 0 || tx.Tree.Remembers(id.Session) {
		return func() {}, nil
	}
	l, who := &tx.e.limits, tx.e.cfg.Rooms.Taker(ctx, c)
	if !l.results.Fits(1, who) {
		return nil, &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("the results of %d sessions are kept, so that none of their calls happens twice, and the room that is left is for users and machines that begin few; use sessions for longer", l.results.Used()), RetryAfter: time.Second}
	}
	return func() {
		l.results.Hold(1, who)
		l.resultsOf[id.Session] = who
	}, nil
}
