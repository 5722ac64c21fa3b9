package namenode

import (
	"context"

	"google.golang.org/grpc/peer"

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
		who.Names = append(who.Names, share.User(c.User).Names...)
	}
	return who
}
