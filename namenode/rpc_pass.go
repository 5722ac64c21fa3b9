package namenode

import (
	"context"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// passes are the delegation tokens of the namespace, for those who find out who asks.
type passes struct{ s *Server }

// Find implements identity.Delegation. A standby may not have heard of a token yet, and a
// namenode that has just begun knows none.
func (p passes) Find(sum [32]byte) (b proof.Bearer, err error) {
	e := p.s.engine
	if e == nil || !e.Opened() {
		return b, &fserror.Error{Kind: fserror.NotActive, Message: "the namenode is starting, and knows no delegation token yet", RetryAfter: tables.RetryMS * 1e6}
	}
	now := e.Now()
	e.Look(func(t *namespace.Tree) {
		switch pass := t.Passes(nil).Find(sum); {
		case pass != nil && pass.Until > now:
			b.User, b.Groups = pass.User, pass.Groups
			if !pass.Known {
				b.Groups = nil
			}
		case pass != nil:
			err = fserror.New(fserror.Permission, "", "", "delegation token %d has expired: get another one", pass.ID).Because(fserror.ReasonProof)
		default:
			err = fserror.New(fserror.Permission, "", "", "the token is not known, or was revoked; or it is a delegation token that was cancelled, has expired, or is of another namespace").Because(fserror.ReasonProof)
		}
	})
	if err != nil {
		if inactive := e.Active(); inactive != nil {
			err = inactive
		}
	}
	return b, err
}

// delegator refuses who may not get or renew delegation tokens.
func (s *granted) delegator(ctx context.Context) (*identity.Caller, error) {
	who := identity.Of(ctx)
	switch {
	case s.cfg.Identity.Delegation == nil:
		return nil, fserror.New(fserror.Unsupported, "", "", "this namenode gives no delegation tokens").Because(fserror.ReasonDelegation)
	case who == nil:
		return nil, fserror.New(fserror.Unsupported, "", "", "this namenode asks for no proof of identity, so a token would prove nothing").Because(fserror.ReasonIdentity)
	case who.Foreign(): // it would outlive that its issuer lets him in no more
		return nil, fserror.New(fserror.Permission, "", "", "a token of an issuer gets and renews no delegation token, which could be good for longer: give the job a login, or a token of the issuer").Because(fserror.ReasonDelegation)
	case who.Delegated:
		return nil, fserror.New(fserror.Permission, "", "", "a delegation token cannot obtain or renew one: authenticate the way you did to get it").Because(fserror.ReasonProof)
	}
	return who, nil
}

// GetDelegationToken keeps the hash of a token that the client has made.
func (s *granted) GetDelegationToken(ctx context.Context, r *pb.GetDelegationTokenRequest) (*pb.DelegationTokenResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	who, err := s.delegator(ctx)
	if err != nil {
		return nil, err
	}
	if who.User != c.User { // its groups are not those, and its rules may go
		return nil, fserror.New(fserror.Permission, "", "", "user %s acts for user %s here, who has to get a delegation token himself", who.User, c.User).Because(fserror.ReasonDelegation)
	}
	p := tables.Pass{User: c.User, Renewer: r.GetRenewer(), Groups: who.Groups, Known: who.Groups != nil, TTL: r.GetTtlMs()}
	setDefault(&p.Renewer, c.User)
	setDefault(&p.TTL, tables.MaxPassTTL)
	if err := checkNames(p.Renewer); err != nil {
		return nil, err
	}
	if p.Sum, err = passSum(r.GetHash()); err != nil {
		return nil, err
	}
	return s.changePass(ctx, engine.Request{Call: c, ID: id, Grows: true, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return &namespace.OpPass{Pass: p}, tx.Tree.Passes(c).MayIssue(&p, s.engine.Now())
	}})
}

// ChangeDelegationToken renews a token, or cancels it; its bearer may cancel it, too.
func (s *granted) ChangeDelegationToken(ctx context.Context, r *pb.ChangeDelegationTokenRequest) (*pb.DelegationTokenResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	if !r.GetCancel() {
		if _, err := s.delegator(ctx); err != nil {
			return nil, err
		}
	}
	var sum [32]byte
	if r.GetId() == 0 {
		if sum, err = passSum(r.GetHash()); err != nil {
			return nil, err
		}
	}
	return s.changePass(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		p, err := tx.Tree.Passes(c).MayChange(r.GetId(), sum, c.User, c.Super, r.GetCancel(), s.engine.Now())
		if err != nil {
			return nil, err
		}
		return &namespace.OpPassChange{ID: p.ID, Cancel: r.GetCancel()}, nil
	}})
}

func (s *granted) changePass(ctx context.Context, r engine.Request) (*pb.DelegationTokenResponse, error) {
	out, err := s.engine.DoAnswer(ctx, r)
	if err != nil {
		return nil, err
	}
	p := tables.Pass{Issued: out.BlocksLength}
	return &pb.DelegationTokenResponse{Id: uint64(out.Inode), IssuedUnixMs: p.Issued, ExpiresUnixMs: out.Length, EndsUnixMs: p.Ends(), Txid: out.TxID}, nil
}

func passSum(hash []byte) (sum [32]byte, err error) {
	if len(hash) != len(sum) {
		return sum, fserror.New(fserror.InvalidArgument, "", "", "the hash of the delegation token has %d bytes, not %d; or name the token by its id", len(hash), len(sum))
	}
	return [32]byte(hash), nil
}

// maxPasses is how many delegation tokens one answer lists.
const maxPasses = 1000

// ListDelegationTokens lists those that have not expired.
func (s *granted) ListDelegationTokens(ctx context.Context, r *pb.ListDelegationTokensRequest) (*pb.ListDelegationTokensResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	user := c.User
	if r.GetAll() {
		user = ""
		if err := s.admin(ctx, r.GetCaller()); err != nil {
			return nil, err
		}
	}
	limit, now := clampLimit(r.GetLimit(), maxPasses, maxPasses), s.engine.Now()
	resp := new(pb.ListDelegationTokensResponse)
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		tx.Tree.Passes(c).List(user, r.GetAfter(), func(p *tables.Pass) bool {
			if p.Until <= now {
				return true
			}
			if resp.More = len(resp.Tokens) == limit; resp.More {
				return false
			}
			resp.Tokens = append(resp.Tokens, &pb.DelegationToken{
				Id: p.ID, User: p.User, Renewer: p.Renewer, IssuedUnixMs: p.Issued, ExpiresUnixMs: p.Until, EndsUnixMs: p.Ends(),
			})
			return true
		})
		return nil
	})
	return resp, err
}
