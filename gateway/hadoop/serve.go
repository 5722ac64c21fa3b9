package hadoop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
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

// MayActFor refuses a user who is none of the proxies and would act for another.
func MayActFor(proxies []string, name, other string) error {
	if name == other || slices.Contains(proxies, name) {
		return nil
	}
	return Refuse(Authorization, "User: %s is not allowed to impersonate %.255s", name, other)
}
