package namenode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxCallerName bounds user, client and host names, which are kept on inodes.
const maxCallerName = 255

// maxGroups bounds the groups that a request says its user is in; it is the kernel's limit
// for a process.
const maxGroups = 65536

// minSessionTTL is the shortest soft limit that a session can have of its own.
const minSessionTTL = 100 * time.Millisecond

// caller checks who asks and returns what the tree needs to know of them.
func (s *desk) caller(ctx context.Context, c *pb.Caller) (*namespace.Call, error) {
	user := c.GetUser()
	if user == "" {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request names no user")
	}
	if err := cmp.Or(checkNames(c.GetGroups()...), checkNames(user, c.GetClient(), c.GetHost(), c.GetRealUser(), c.GetSessionUser(), c.GetXattr())); err != nil {
		return nil, err
	}
	if len(c.GetGroups()) > maxGroups {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request names %d groups, over the limit of %d", len(c.GetGroups()), maxGroups)
	}
	if err := s.checkTTL(c); err != nil {
		return nil, err
	}
	who := identity.Of(ctx)
	if err := cmp.Or(s.proves(who, user), s.ownSession(who, c.GetSession(), pb.SessionUser(c))); err != nil {
		return nil, err
	}
	call := &namespace.Call{User: user, Xattr: c.GetXattr(), Client: c.GetClient(), Host: c.GetHost(), Groups: who.GroupsOf(c, s.cfg.Groups), Nobody: c.GetNobody()}
	if owner := c.GetSessionUser(); owner != user {
		call.SessionUser = owner
	}
	su, sg := s.engine.Superuser()
	call.Super = !call.Nobody && (user == su || slices.Contains(call.Groups, sg))
	return call, nil
}

// notSuper is the Reason of an error that says that the caller cannot give away
// what it makes.
const notSuper = "no superuser"

// callerFor is caller for a call whose request says whose is what it makes.
func (s *desk) callerFor(ctx context.Context, who *pb.Caller, o *pb.Owner) (*namespace.Call, error) {
	c, err := s.caller(ctx, who)
	if err != nil || o.GetUser() == "" && o.GetGroup() == "" {
		return c, err
	}
	if o.GetUser() == "" && who.GetRealUser() != "" && !c.Super {
		// As on a disk: the group of the process that asks, if its user is in it.
		if slices.Contains(c.Groups, o.GetGroup()) {
			c.ForGroup = o.GetGroup()
		}
		return c, nil
	}
	if !c.Super {
		return nil, &fserror.Error{Kind: fserror.Permission, Reason: notSuper, Message: fmt.Sprintf("only a superuser can make something for another, and user %s is none", c.User)}
	}
	c.ForUser, c.ForGroup = o.GetUser(), o.GetGroup()
	return c, checkNames(c.ForUser, c.ForGroup)
}

// checkNames refuses names of users, groups, clients and hosts that are too long to
// be kept, and those that drive the terminal of who looks at them.
func checkNames(names ...string) error {
	for _, name := range names {
		if len(name) > maxCallerName {
			return fserror.New(fserror.InvalidArgument, "", "", "the name of a user, group, client, host or extended attribute has %d bytes, %d over the limit; choose a shorter one", len(name), len(name)-maxCallerName)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fserror.New(fserror.InvalidArgument, "", "", "the name %q of a user, group, client, host or extended attribute has characters that cannot be printed; choose one without them", name)
		}
	}
	return nil
}

// ownSession refuses the session of a user for whom who, who may be nil, may not act. Whose it is the
// table of leases knows; if that knows nothing of it, as after a restart, its id shows whether it
// is of the user whom the request says. One that says none does nothing for an unknown session.
func (s *desk) ownSession(who *identity.Caller, session []byte, says string) error {
	var id leasemanager.SessionID
	if who == nil || len(session) != len(id) {
		return nil
	}
	copy(id[:], session)
	user, known := s.leases.UserOf(id)
	switch {
	case known:
	case says == "":
		return nil
	case !pb.SessionIsOf(session, says):
		return fserror.New(fserror.Permission, "", "", "the session does not belong to user %q: its id was made for another user, or by a client that does not put its user into it", says).Because(fserror.ReasonProof)
	}
	return s.proves(who, cmp.Or(user, says))
}

// proves refuses another user than who has proven to be, who may be nil, and the superuser
// if it is an issuer of tokens that says so.
func (s *desk) proves(who *identity.Caller, user string) error {
	if err := who.Is(user); err != nil || !who.Foreign() {
		return err
	}
	if su, _ := s.engine.Superuser(); user == su {
		return fserror.New(fserror.Permission, "", "", "the token names user %s, who is the superuser here, and that is for no issuer to say: "+
			"use a certificate or a token of the namenode's file for that user, or be a superuser by a group", user).Because(fserror.ReasonProof)
	}
	return nil
}

// holder is the caller as one who may hold files. A soft limit of its own is raised to
// what outlives a failover.
func (s *desk) holder(c *pb.Caller) (namespace.Holder, error) {
	h := namespace.Holder{User: pb.SessionUser(c), Client: c.GetClient(), Host: c.GetHost(), PID: c.GetPid(), TTL: c.GetTtlMs()}
	if h.TTL != 0 {
		h.TTL = s.role.SessionTTL(time.Duration(h.TTL) * time.Millisecond).Milliseconds()
	}
	if len(c.GetSession()) != len(h.Session) {
		return h, fserror.New(fserror.InvalidArgument, "", "", "the request's session id has %d bytes, not %d", len(c.GetSession()), len(h.Session))
	}
	if h.Client == "" {
		return h, fserror.New(fserror.InvalidArgument, "", "", "the request names no client")
	}
	copy(h.Session[:], c.GetSession())
	return h, nil
}

// admin refuses all but the superuser.
func (s *desk) admin(ctx context.Context, c *pb.Caller) error {
	call, err := s.caller(ctx, c)
	if err != nil {
		return err
	}
	if !call.Super {
		su, sg := s.engine.Superuser()
		return fserror.New(fserror.Permission, "", "", "user %s is not a superuser; only user %s and members of group %s may do this", call.User, su, sg).Because(fserror.ReasonNotSuperuser)
	}
	return nil
}

// checkTTL refuses a soft limit of its own that a session cannot have.
func (s *desk) checkTTL(c *pb.Caller) error {
	if ttl := c.GetTtlMs(); ttl != 0 && (ttl < minSessionTTL.Milliseconds() || ttl > s.cfg.HardLimit.Milliseconds()) {
		return fserror.New(fserror.InvalidArgument, "", "", "a session's lease can have a time to live from %s to the hard limit, %s; not %d ms", minSessionTTL, s.cfg.HardLimit, ttl)
	}
	return nil
}

// taker is who takes something of what all callers share: the caller's user, if
// it is known, and address. The reserve is for superusers on this machine and for
// the namenode's own work.
func taker(ctx context.Context, c *namespace.Call) share.Taker {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return share.Taker{Reserve: true}
	}
	who := conns.Taker(p.Addr)
	who.Reserve = who.Reserve && c != nil && c.Super
	if c != nil {
		who.Names = append(who.Names, share.User(c.User).Names...)
	}
	return who
}
