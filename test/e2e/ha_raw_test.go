package e2e_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// raw is a session that speaks the wire contract to whichever member is active: a
// busy machine may have the active one succeeded at any time, though no test asked
// for it. A call is sent again, as it was, until an active one has answered.
func (e *fleet) raw(t testing.TB, name string) *env.Raw {
	t.Helper()
	r := env.RawAt(t, e.members[0].direct, name)
	all := new(allMembers)
	for _, m := range e.members {
		cc, err := grpc.NewClient("passthrough:///"+m.direct, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		all.list = append(all.list, cc)
	}
	r.NN, r.Admin = pb.NewNamenodeClient(all), pb.NewAdminClient(all)
	return r
}

// allMembers is a connection to each of them.
type allMembers struct {
	list []*grpc.ClientConn
	at   atomic.Int32 // who was active
}

// Invoke implements grpc.ClientConnInterface. Its errors are of package fserror.
func (a *allMembers) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	for i := a.at.Load(); ; i++ {
		one := a.list[int(i)%len(a.list)]
		short, cancel := context.WithTimeout(ctx, 5*time.Second) // it may be stopped
		err := wire.FromStatus(one.Invoke(short, method, req, reply, opts...))
		over := short.Err() != nil
		cancel()
		switch {
		case err == nil:
			a.at.Store(i)
			return nil
		case ctx.Err() != nil, !over && !errors.Is(err, fserror.NotActive) && !errors.Is(err, fserror.Unknown) && !errors.Is(err, fserror.Unavailable):
			return err
		}
		rest(ctx, 5*time.Millisecond)
	}
}

// NewStream implements grpc.ClientConnInterface; a stream does not move.
func (a *allMembers) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return a.list[int(a.at.Load())%len(a.list)].NewStream(ctx, desc, method, opts...)
}

// atWork waits until the test's own work at a member, who is active, has begun: or
// until it is so no more, when it would wait in vain.
func (m *member) atWork(ctx context.Context, what string, ok func() bool) {
	m.t.Helper()
	eventually(ctx, m.t, what, func() bool { return ok() || m.role(ctx) != "active" })
}
