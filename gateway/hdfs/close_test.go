package hdfs_test

import (
	"context"
	"path"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/test/env"
)

// TestCloseWithASlowCall: at its end, a gateway makes durable what writers have sent, also if a call
// of somebody else takes all the time that there is.
func TestCloseWithASlowCall(t *testing.T) {
	n := env.Start(t)
	slow, once := make(chan struct{}), sync.Once{}
	s, err := hdfs.Start(t.Context(), hdfs.Config{
		Listen: "127.0.0.1:0", Data: "127.0.0.1:0",
		Client: client.Config{Namenodes: []string{n.Addr()}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if path.Base(method) == "Mkdir" {
					once.Do(func() { close(slow) })
					<-ctx.Done() // its answer never comes
				}
				return next(ctx, method, req, reply, cc, opts...)
			})}},
	})
	check(t, err)
	open, all := s.Tables()
	u, err := all.Get(t.Context(), users.Key{User: "root"})
	check(t, err)
	o, err := open.Create(t.Context(), u, "c", "/f", files.Create{Mode: 0o644, Create: true})
	check(t, err)
	b, err := open.AddBlock(t.Context(), u, "c", "/f", o.Info.Inode, nil)
	check(t, err)
	id, password := open.Token(u, b, true)
	g, err := open.Check(id, password, b.ID, true)
	check(t, err)
	p, err := open.Pipe(t.Context(), g, files.Setup{Block: b, Empty: true})
	check(t, err)
	_, err = p.Write(0, []byte("acknowledged"))
	check(t, err)
	all.Release(u)

	r := dial(t, s, "root", "")
	method, protocol, dir, perm, parents := "mkdirs", clientProtocol, "/d", uint32(0o755), false
	r.send(1, &pb.RequestHeaderProto{MethodName: &method, DeclaringClassProtocolName: &protocol, ClientProtocolVersion: proto.Uint64(1)},
		&pb.MkdirsRequestProto{Src: &dir, Masked: &pb.FsPermissionProto{Perm: &perm}, CreateParent: &parents})
	<-slow
	fsys := n.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	env.Eventually(t, "what was acknowledged is durable while the call is under way", func() bool {
		i, err := fsys.Stat(t.Context(), "/f")
		return err == nil && i.Length == int64(len("acknowledged"))
	})
	cancel()
	check(t, <-closed)
}
