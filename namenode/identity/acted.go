package identity

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// maxActed is how many users a stream is known to act for, one by one.
const maxActed = 1000

// acted is in whose names a stream acts, and in which groups the namenode's machine has had these
// users since it began to.
type acted struct {
	groups func(user string) []string // nil: the namenode has not said; then nobody acts for others

	mu    sync.Mutex
	own   string // whose stream it is, if that one's groups are the machine's
	in    []string
	users map[string][]string // others
	more  bool                // than maxActed
}

// actedKey is the key of it in the context of a stream of which nothing is proven.
type actedKey struct{}

// maxName is for how long names groups are looked up; namenode refuses longer ones.
const maxName = 255

// is notes whose stream it is.
func (a *acted) is(user string) {
	if a.groups == nil || user == "" || len(user) > maxName {
		return
	}
	in := a.groups(user)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own, a.in = user, in
}

// add notes another user for whom the stream acts, and reports whether he is new.
func (a *acted) add(user string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	_, known := a.users[user]
	a.more = a.more || !known && len(a.users) >= maxActed
	full := a.more
	a.mu.Unlock()
	if known || full {
		return false
	}
	in := a.groups(user)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == nil {
		a.users = map[string][]string{}
	}
	a.users[user] = in
	return true
}

// left reports whether one of these users has left a group by now. It notes those that others have come
// into, which may be left next. Those beyond maxActed are not known.
func (a *acted) left(now func(user string) []string) bool {
	a.mu.Lock()
	all := map[string][]string{}
	maps.Copy(all, a.users)
	if a.own != "" {
		all[a.own] = a.in
	}
	a.mu.Unlock()
	for user, in := range all {
		is := now(user)
		if isLess(is, in) {
			return true
		}
		a.mu.Lock()
		if a.own == user {
			a.in = is
		}
		if _, ok := a.users[user]; ok {
			a.users[user] = is
		}
		a.mu.Unlock()
	}
	return false
}

// isLess reports whether one of these groups is missing by now.
func isLess(now, groups []string) bool {
	return slices.ContainsFunc(groups, func(group string) bool { return !slices.Contains(now, group) })
}

// Says is Caller.Says of a message on a stream that Hold has begun. Of one that need not be
// proven it notes whose it is.
func Says(ctx context.Context, message any) error {
	c := Of(ctx)
	if a, _ := ctx.Value(actedKey{}).(*acted); c == nil && a != nil {
		if who := callerOf(message); who != nil {
			a.is(who.GetUser())
		}
	}
	return c.Says(message)
}

// CheckGroups ends the streams of which a user has left a group by now, as the namenode's machine
// has them: what a watch tells, and what a session may answer from, rests on the groups of when it
// began. With one all streams of its connection end: what a client was told on one it keeps for as
// long as its session's lasts. A group that a user has come into takes nothing away. It may take as long
// as it takes to look up groups.
func (g *Guard) CheckGroups(ctx context.Context) error {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.streams))
	g.mu.Unlock()
	known := map[string][]string{} // each is asked for once
	now := func(user string) []string {
		is, ok := known[user]
		if !ok {
			is = g.people.Groups(user)
			known[user] = is
		}
		return is
	}
	stale := map[*memory]bool{}
	for _, s := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.acted.left(now) {
			s.end(regrouped())
			stale[s.conn] = s.conn != nil
		}
	}
	for _, s := range all {
		if stale[s.conn] {
			s.end(regrouped())
		}
	}
	return nil
}

// regrouped is why a stream ended of which a user has left a group.
func regrouped() error {
	return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonProof, RetryAfter: 100 * time.Millisecond,
		Message: "a user of this connection has left a group since it began; it has to begin again"}
}

// mayStill reports whether a stream of c may still act for those for whom it has acted. Of too
// many it is not known: its client begins another one.
func (c *Caller) mayStill(a *acted) bool {
	a.mu.Lock()
	users, more := slices.Collect(maps.Keys(a.users)), a.more
	a.mu.Unlock()
	return !more && !slices.ContainsFunc(users, func(user string) bool {
		_, err := c.may(user)
		return err != nil
	})
}
