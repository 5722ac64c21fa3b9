package namenode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxCallerName bounds user, client and host names, which are kept on inodes.
const maxCallerName = 255

// minSessionTTL is the shortest soft limit that a session can have of its own.
const minSessionTTL = 100 * time.Millisecond

// caller checks who asks and returns what the tree needs to know of them.
func (s *desk) caller(ctx context.Context, c *pb.Caller) (*namespace.Call, error) {
	user := c.GetUser()
	if user == "" {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request names no user")
	}
	if err := checkNames(user, c.GetClient(), c.GetHost()); err != nil {
		return nil, err
	}
	if err := s.checkTTL(c); err != nil {
		return nil, err
	}
	if err := s.checkCertificate(ctx, user); err != nil {
		return nil, err
	}
	call := &namespace.Call{User: user, Groups: s.cfg.Groups(user)}
	su, sg := s.engine.Superuser()
	call.Super = user == su || slices.Contains(call.Groups, sg)
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
			return fserror.New(fserror.InvalidArgument, "", "", "the name of a user, group, client or host has %d bytes, %d over the limit; choose a shorter one", len(name), len(name)-maxCallerName)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fserror.New(fserror.InvalidArgument, "", "", "the name %q of a user, group, client or host has characters that cannot be printed; choose one without them", name)
		}
	}
	return nil
}

// checkCertificate holds the claimed user against the client's certificate.
func (s *desk) checkCertificate(ctx context.Context, user string) error {
	if !s.cfg.RequireCert {
		return nil
	}
	p, ok := peer.FromContext(ctx)
	if ok {
		if ti, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(ti.State.VerifiedChains) > 0 {
			if cn := ti.State.VerifiedChains[0][0].Subject.CommonName; cn != user {
				return fserror.New(fserror.Permission, "", "", "the certificate is %q's, the request says user %q", cn, user)
			}
			return nil
		}
	}
	return fserror.New(fserror.Permission, "", "", "a client certificate is needed")
}

// holder is the caller as one who may hold files. A soft limit of its own is raised to
// what outlives a failover.
func (s *desk) holder(c *pb.Caller) (namespace.Holder, error) {
	h := namespace.Holder{User: c.GetUser(), Client: c.GetClient(), Host: c.GetHost(), PID: c.GetPid(), TTL: c.GetTtlMs()}
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
		return fserror.New(fserror.Permission, "", "", "user %s is no superuser; only user %s and members of group %s may do this", call.User, su, sg).Because(fserror.ReasonNotSuperuser)
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
