package hadoop

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// Listen listens at an address. InvalidArgument: other machines reach it, although the
// clients are not trusted.
func Listen(ctx context.Context, op, address string, trust bool) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, "", fmt.Errorf("cannot listen on %s: %w; choose another address", address, err))
	}
	addr, _ := netip.ParseAddrPort(l.Addr().String())
	if !addr.Addr().IsLoopback() && !trust {
		_ = l.Close()
		return nil, fserror.New(fserror.InvalidArgument, op, address, "other machines reach this address, and a client of Hadoop can say that it is anybody; listen on 127.0.0.1, or trust the clients").Because(fserror.ReasonTrust)
	}
	return l, nil
}

// WarnOfTrust is what the log says of a gateway that trusts its clients.
const WarnOfTrust = "clients are trusted: whoever reaches the address can act as any user, superusers included, and read and delete everything"

// Proxies are who may act for others, for whom and from where; in the lines of a configuration
// NAME [users=NAME,...] [from=ADDRESS,...]. InvalidArgument: what a line says makes no sense.
func Proxies(op string, lines []string) (*proof.Proxies, error) {
	p, err := proof.ParseProxies(lines)
	if err != nil {
		return nil, fserror.New(fserror.InvalidArgument, op, "", "who may act for others: %s", Message(err))
	}
	return p, nil
}

// Acting is somebody who would act for another.
type Acting struct {
	By, For string
	From    string // HOST:PORT that he asks from
	// Token tells that a delegation token says so, which was given to one who may. It is good
	// from everywhere, as in HDFS: it is made to be handed on.
	Token bool
}

// MayActFor refuses a user whom the proxies do not allow to act for another.
func MayActFor(proxies *proof.Proxies, a Acting) error {
	if a.By == a.For {
		return nil
	}
	s := proof.Standing{Proxy: a.By, User: a.For, Anywhere: true}
	if _, err := proxies.May(&s); err != nil {
		return Refuse(Authorization, "User: %s is not allowed to impersonate %.255s", a.By, a.For)
	}
	if at, err := netip.ParseAddrPort(a.From); err == nil {
		s.From = at.Addr()
	}
	s.Anywhere = a.Token
	if _, err := proxies.May(&s); err != nil {
		host, _, _ := net.SplitHostPort(a.From)
		return Refuse(Authorization, "Unauthorized connection for super-user: %s from IP %s", a.By, host)
	}
	return nil
}
