package serve

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/namenode/conns"
)

// countedUnary is unary for calls that come by gRPC: their answers count until they are sent.
func countedUnary(unary grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		resp, err := unary(ctx, req, info, h)
		if p, ok := peer.FromContext(ctx); ok && err == nil {
			resp = conns.To(p.Addr, resp)
		}
		return resp, err
	}
}

// countedStream is stream for those that come by gRPC: so do their messages.
func countedStream(stream grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if p, ok := peer.FromContext(ss.Context()); ok {
			ss = countedMessages{ss, p.Addr}
		}
		return stream(srv, ss, info, h)
	}
}

// countedMessages is a stream whose messages count until they are sent.
type countedMessages struct {
	grpc.ServerStream
	to net.Addr
}

// SendMsg implements grpc.ServerStream.
func (c countedMessages) SendMsg(m any) error { return c.ServerStream.SendMsg(conns.To(c.to, m)) }
