package namenode

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/share"
)

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
		who.Names = append(who.Names, owns(c.User).Names...)
	}
	return who
}

// owns is who has what is kept under a user's name and outlasts a connection.
func owns(user string) share.Taker { return share.Taker{Names: []string{"user " + user}} }

// countHeld counts the granted leases of each user, and the sessions of which results
// are kept, at the beginning of a reign; there may be so many. Whose these sessions
// are is not known any more.
func (s *Server) countHeld(leases, sessions int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results, s.resultsOf = share.New(sessions), make(map[namespace.SessionID]share.Taker)
	s.results.Hold(int64(s.tree.Counts().Sessions), share.Taker{})
	s.granted = share.New(leases)
	s.tree.Leases(func(l namespace.Lease) bool {
		s.granted.Hold(1, owns(l.Owner.User))
		return true
	})
}

// countOwners counts the users who own something, at the beginning of a reign.
func (s *Server) countOwners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners = share.New(namespace.MaxOwners)
	s.owners.Hold(int64(s.tree.Users()), share.Taker{})
}

// withOwner carries out a change, and counts who becomes an owner by it. Any name
// may be claimed where no certificates are needed, and each is kept for good: an
// address that has brought many leaves the rest to others. The caller holds mu.
func (s *Server) withOwner(ctx context.Context, c *namespace.Call, change func() error) error {
	before := s.tree.Users()
	if c != nil && !s.tree.KnowsUser(c.User) {
		c.NoNewUser = !s.owners.Fits(1, taker(ctx, c))
	}
	err := change()
	if n := s.tree.Users() - before; n > 0 {
		s.owners.Hold(int64(n), taker(ctx, c))
	}
	return err
}

// checkGranted refuses one more lease to a user who has many, while few are left
// for the others. The caller holds mu.
func (s *Server) checkGranted(ctx context.Context, c *namespace.Call) error {
	who := owns(c.User)
	who.Reserve = taker(ctx, c).Reserve
	if s.granted.Fits(1, who) {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("there are %d granted leases, and the room that is left is for users who have few; revoke some", s.granted.Used()), RetryAfter: time.Second}
}

// remembering refuses a call of a session of which no result is kept yet to a user or
// address that has many such sessions, while few are left for the others. What it
// returns is to be called when the call is carried out. The caller holds mu.
func (s *Server) remembering(ctx context.Context, c *namespace.Call, id namespace.CallID) (remembered func(), err error) {
	if id.Seq == 0 || s.tree.Remembers(id.Session) {
		return func() {}, nil
	}
	who := taker(ctx, c)
	if !s.results.Fits(1, who) {
		return nil, &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("the results of %d sessions are kept, so that none of their calls happens twice, and the room that is left is for users and machines that begin few; use sessions for longer", s.results.Used()), RetryAfter: time.Second}
	}
	return func() {
		s.results.Hold(1, who)
		s.resultsOf[id.Session] = who
	}, nil
}
