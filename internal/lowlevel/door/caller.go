package door

import (
	"context"
	"strings"
)

// Caller is for whom an FS makes a call, if that is another than its own user. It is made
// by NewCaller, and never changed.
type Caller struct {
	User   string
	Groups []string // that he has where he calls; nil: those that the namenode knows
	// Nobody tells that nothing is known of him: he has the rights of others only. User is
	// whose is what he makes.
	Nobody bool

	key string
	own bool // the FS's own user, see Own
}

// NewCaller returns a Caller.
func NewCaller(user string, groups []string, nobody bool) *Caller {
	return &Caller{user, groups, nobody, Key(user, groups, nobody), false}
}

// Own returns a Caller that is the FS's own user, as without a Caller. But its permissions are
// checked where an answer comes from the cache, which others may have filled: without a Caller
// somebody, such as the kernel, has checked them before.
func Own(user string) *Caller { return &Caller{User: user, own: true} }

// callerKey is the key of a Caller in the context of what it asks for.
type callerKey struct{}

// As returns a context of calls for another; nil: for the FS's own user, whatever ctx says.
func As(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Key tells callers apart.
func Key(user string, groups []string, nobody bool) string {
	key := user + "\x00" + strings.Join(groups, "\x00")
	if nobody {
		key = "\x00" + key
	}
	return key
}

// CallerOf is for whom calls under a context are, and a key that tells callers apart; nil
// and "" are the FS's own user.
func CallerOf(ctx context.Context) (c *Caller, key string) {
	if c := AskerOf(ctx); c != nil && !c.own {
		return c, c.key
	}
	return nil, ""
}

// AskerOf is whose rights count under a context: CallerOf, or Own; nil if they were checked.
func AskerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Permission bits, as in a mode, and to be the owner.
const (
	MayOwn     = 8
	MayRead    = 4
	MayWrite   = 2
	MayExecute = 1
)

// Surely reports whether a caller certainly has the permission bits want on what is a
// user's and has a mode. Of his groups nothing is known here: by both of the classes in
// which he may be, if he is not the owner. A nil Caller is not asked.
func (c *Caller) Surely(mode uint32, user string, want uint32) bool {
	switch {
	case c == nil:
		return true
	case c.Nobody:
		mode &= 7
	case c.User == user:
		mode = mode>>6&7 | MayOwn
	default:
		mode &= mode >> 3 & 7
	}
	return mode&want == want
}
