package identity

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"

	"github.com/leasefs/leasefs/internal/proof"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Here is who may act for whom: callers are compared with users by Caller.Is, and by
// nothing else.

// Nobody is whose is what somebody makes of whom nothing is known.
const Nobody = "nobody"

// People says what a namenode knows of users. Its functions must be safe for concurrent use.
type People struct {
	Groups    func(user string) []string
	Superuser func() (user, group string)
}

// Knows tells the guard what the namenode knows of users. It has to come before Prove.
func (g *Guard) Knows(p People) { g.people = p }

// addressOf is where a connection comes from; the zero Addr if that is no address.
func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	p, _ := netip.ParseAddrPort(a.String())
	return p.Addr()
}

// callerOf is in whose name a request comes; nil: it does not say.
func callerOf(request any) *pb.Caller {
	if r, ok := request.(interface{ GetHello() *pb.Hello }); ok && r.GetHello() != nil {
		request = r.GetHello()
	}
	if r, ok := request.(interface{ GetCaller() *pb.Caller }); ok {
		return r.GetCaller()
	}
	return nil
}

// Says refuses a request that comes in the name of another user than c, unless it says
// that c acts for that one, and c may; c may be nil.
func (c *Caller) Says(request any) error {
	who := callerOf(request)
	if _, asks := request.(*pb.WhoAmIRequest); asks || c == nil || who == nil { // who it is, it need not know
		return nil
	}
	if says := cmp.Or(who.GetRealUser(), who.GetUser()); says != c.User {
		return refuse("the proof of identity is of user %q, the request says user %q", c.User, says)
	}
	if session := who.GetSessionUser(); session != "" {
		if err := c.Is(session); err != nil {
			return err
		}
	}
	return c.Is(who.GetUser())
}

// Is refuses another user than c, unless c may act for that one; c may be nil.
func (c *Caller) Is(user string) error {
	if c == nil || c.User == user {
		return nil
	}
	if c.guard == nil || c.guard.people.Groups == nil {
		return refuse("the proof of identity is of user %q, the request says user %q", c.User, user)
	}
	if _, err := c.may(user); err != nil {
		return err
	}
	if !c.acted.add(user) {
		return nil
	}
	_, err := c.may(user) // the rule may have gone before it was known that this stream needs it
	return err
}

// may returns nil if c may act for another user, and whether its word is taken for that
// one's groups.
func (c *Caller) may(user string) (trustGroups bool, err error) {
	g := c.guard
	su, sg := g.people.Superuser()
	own := c.Groups
	if own == nil {
		own = g.people.Groups(c.User)
	}
	if user != "" && (c.User == su && !c.Foreign() || sg != "" && slices.Contains(own, sg)) {
		return true, nil // he may do all that the other may anyway
	}
	var rules *proof.Proxies
	if g.cfg.Proxies != nil {
		rules = g.cfg.Proxies.Get()
	}
	s := &proof.Standing{Proxy: c.User, From: c.from, User: user, Superuser: su, Supergroup: sg}
	if rules.Has(c.User) { // else anybody could have any names looked up
		s.Groups = g.people.Groups(user)
	}
	return rules.May(s)
}

// GroupsOf are the groups of the user of a request that c makes, by what known says of
// users: c may be nil. A claim to be in the supergroup counts for nothing.
func (c *Caller) GroupsOf(who *pb.Caller, known func(user string) []string) []string {
	switch user := who.GetUser(); {
	case who.GetNobody():
		return nil
	case c != nil && c.User == user && c.Groups != nil:
		return c.Groups
	case who.GetRealUser() == "" || len(who.GetGroups()) == 0:
		return known(user)
	case c == nil:
		return who.GetGroups() // as good as his word that he is that user
	case c.User == user:
		return known(user)
	default:
		if trust, err := c.may(user); err != nil || !trust {
			return known(user)
		}
		_, sg := c.guard.people.Superuser()
		is := known(user)
		return slices.DeleteFunc(slices.Clone(who.GetGroups()), func(group string) bool { return group == sg && !slices.Contains(is, sg) })
	}
}

// realKey is the key of the real user in the context of what he does.
type realKey struct{}

// WithReal returns a context that notes the real user if the request acts for another.
func WithReal(ctx context.Context, request any) context.Context {
	if user := callerOf(request).GetRealUser(); user != "" {
		return context.WithValue(ctx, realKey{}, user)
	}
	return ctx
}

// RealUser is who makes the request that ctx belongs to for another user: who was proven,
// or where clients are trusted, whom the request names. Empty: who asks makes it himself.
func RealUser(ctx context.Context) string {
	user, _ := ctx.Value(realKey{}).(string)
	return user
}
