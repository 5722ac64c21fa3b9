package client

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/report"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Identity is who a client is to the namenode.
type Identity struct {
	User      string
	Groups    []string
	Superuser bool
	Proven    bool      // by a certificate or a token; if not, the namenode takes the client's word
	Until     time.Time // when the proof expires; zero: never, or not until it is revoked
	// Held is what User holds of what all callers of the namenode share, open files among it, as far
	// as that is something, or has a limit of his own. An older namenode does not tell.
	Held []Holding
}

// WhoAmI asks the namenode whom it takes a client of this configuration for, and by which
// groups; with RealUser, about User, for whom that one may act. It opens no session. It takes cfg.Timeout at most, then its error is of kind
// Unavailable; Permission: the proof is not good. InvalidArgument: the configuration makes
// no sense.
func WhoAmI(ctx context.Context, cfg Config) (Identity, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Identity{}, err
	}
	defer cfg.prover.Close()
	nn, err := namecall.New(ctx, cfg.namenodes(&pb.Caller{User: cfg.User, Client: cfg.Client, Host: cfg.Host, Pid: cfg.PID}))
	if err != nil {
		return Identity{}, err
	}
	defer nn.Close()
	id, err := whoAmI(ctx, nn, &pb.Caller{User: cfg.User, RealUser: cfg.RealUser})
	if err == nil && !id.Proven {
		err = cfg.loginName()
		id.User = cfg.User
	}
	return id, err
}

func whoAmI(ctx context.Context, nn *namecall.Namenodes, caller *pb.Caller) (id Identity, err error) {
	req, resp := &pb.WhoAmIRequest{Caller: caller}, new(pb.WhoAmIResponse)
	if err := nn.Do(ctx, &namecall.Call{Op: "whoami"}, pb.Namenode_WhoAmI_FullMethodName, req, resp); err != nil {
		return id, err
	}
	id = Identity{User: resp.GetUser(), Groups: resp.GetGroups(), Superuser: resp.GetSuperuser(), Proven: resp.GetUser() != "", Held: report.Holdings(resp.GetHeld())}
	if until := resp.GetUntilUnix(); until != 0 {
		id.Until = time.Unix(until, 0)
	}
	return id, nil
}

// learnUser finds out who the bearer of the token is, if nobody has said.
func (c *Config) learnUser(ctx context.Context) error {
	if c.User != "" {
		return nil
	}
	nn, err := namecall.New(ctx, c.namenodes(&pb.Caller{Client: c.Client, Host: c.Host, Pid: c.PID}))
	if err != nil {
		return err
	}
	defer nn.Close()
	id, err := whoAmI(ctx, nn, new(pb.Caller))
	if err != nil && !errors.Is(err, fserror.Unsupported) { // by an older namenode
		return fserror.With(err, "connect", "")
	}
	c.User = id.User
	return c.loginName()
}
