package client

import (
	"context"
	"iter"
	"time"

	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/proof"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// DelegationTokens are tokens that prove for a limited time that their bearer is the user
// who got them: for a job that runs without that user's other proofs. They have nothing to
// do with a client's delegations of directories. It is safe for concurrent use.
type DelegationTokens struct{ fs *FS }

// NewDelegationTokens returns the calls about delegation tokens.
func NewDelegationTokens(f *FS) *DelegationTokens { return &DelegationTokens{fs: f} }

// DelegationToken is how one stands. Its times are by the namenodes' clocks.
type DelegationToken struct {
	ID      uint64    // may be shown
	User    string    // who its bearer is; empty in answers of Get, Renew and Cancel
	Renewer string    // who may renew it
	Issued  time.Time //
	Expires time.Time // if it is not renewed; zero: it was cancelled
	Ends    time.Time // it cannot be renewed for longer: seven days after Issued
}

// TokenRef names a delegation token by its ID or, if that is 0, by itself.
type TokenRef struct {
	ID    uint64
	Token string
}

// Get makes a delegation token of this client's user, which the user renewer (empty: the
// same) may renew. It is good for ttl, at most 24 hours (0: as long), and each renewal
// makes it good for as long again. The token is a secret: it is for Config.TokenFile, in a
// file of mode 600. Permission if this client has proven by a delegation token itself,
// Unsupported if the namenode gives none, Retry if there are too many.
func (d *DelegationTokens) Get(ctx context.Context, renewer string, ttl time.Duration) (token string, t DelegationToken, err error) {
	token = proof.NewToken()
	hash := proof.Hash(token)
	req := &pb.GetDelegationTokenRequest{Call: d.fs.ids.Next(), Caller: d.fs.caller, Hash: hash[:], Renewer: renewer, TtlMs: ceilMS(ttl)}
	defer d.fs.ids.Retire(req.Call)
	r := new(pb.DelegationTokenResponse)
	if err := d.fs.nn.Do(ctx, &namecall.Call{Op: "token get", Mutates: true}, pb.Namenode_GetDelegationToken_FullMethodName, req, r); err != nil {
		return "", t, err
	}
	return token, delegationToken(r), nil
}

// Renew makes a token good for its time again, until it Ends. Only its renewer may, with
// another proof than a delegation token. NotFound if there is none such, InvalidArgument
// if it has expired.
func (d *DelegationTokens) Renew(ctx context.Context, ref TokenRef) (DelegationToken, error) {
	return d.change(ctx, "token renew", ref, false)
}

// Cancel ends a token at once; connections that have proven by it end within seconds. Its
// user, its renewer and superusers may. NotFound if there is none such.
func (d *DelegationTokens) Cancel(ctx context.Context, ref TokenRef) error {
	_, err := d.change(ctx, "token cancel", ref, true)
	return err
}

func (d *DelegationTokens) change(ctx context.Context, op string, ref TokenRef, cancel bool) (DelegationToken, error) {
	req := &pb.ChangeDelegationTokenRequest{Call: d.fs.ids.Next(), Caller: d.fs.caller, Id: ref.ID, Cancel: cancel}
	defer d.fs.ids.Retire(req.Call)
	if ref.ID == 0 {
		hash := proof.Hash(ref.Token)
		req.Hash = hash[:]
	}
	r := new(pb.DelegationTokenResponse)
	if err := d.fs.nn.Do(ctx, &namecall.Call{Op: op, Mutates: true}, pb.Namenode_ChangeDelegationToken_FullMethodName, req, r); err != nil {
		return DelegationToken{}, err
	}
	return delegationToken(r), nil
}

// List lists the user's tokens that have not expired in the order of their IDs, or all
// users', which only superusers may see. It ends with the first error.
func (d *DelegationTokens) List(ctx context.Context, all bool) iter.Seq2[DelegationToken, error] {
	return func(yield func(DelegationToken, error) bool) {
		req := &pb.ListDelegationTokensRequest{Caller: d.fs.caller, All: all}
		for more := true; more; {
			r := new(pb.ListDelegationTokensResponse)
			if err := d.fs.nn.Do(ctx, &namecall.Call{Op: "token ls"}, pb.Namenode_ListDelegationTokens_FullMethodName, req, r); err != nil {
				yield(DelegationToken{}, err)
				return
			}
			for _, t := range r.GetTokens() {
				req.After = t.GetId()
				one := delegationToken(t)
				one.User, one.Renewer = t.GetUser(), t.GetRenewer()
				if !yield(one, nil) {
					return
				}
			}
			more = r.GetMore()
		}
	}
}

func delegationToken(r interface {
	GetId() uint64
	GetIssuedUnixMs() int64
	GetExpiresUnixMs() int64
	GetEndsUnixMs() int64
},
) DelegationToken {
	t := DelegationToken{ID: r.GetId(), Issued: time.UnixMilli(r.GetIssuedUnixMs()), Ends: time.UnixMilli(r.GetEndsUnixMs())}
	if ms := r.GetExpiresUnixMs(); ms != 0 {
		t.Expires = time.UnixMilli(ms)
	}
	return t
}
