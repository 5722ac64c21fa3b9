package serve

import (
	"context"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/conns"
)

// Call makes a call of this program's services on behalf of who asks over HTTP; ctx is that
// of his request, to a handler that Config.Page has made. The call is proven, bounded, counted
// and audited as one that comes by gRPC. take gets the answer, or each message of a stream;
// an error of take ends that. Errors are the status errors that gRPC would have sent.
type Call func(ctx context.Context, method string, req proto.Message, take func(proto.Message) error) error

// inside is what Call calls: the services, by the full names of their methods.
type inside struct {
	r       grpc.ServiceRegistrar
	unary   map[string]insideMethod
	streams map[string]insideStream
}

type insideMethod struct {
	impl    any
	handler grpc.MethodHandler
}

type insideStream struct {
	impl    any
	handler grpc.StreamHandler
}

// RegisterService implements grpc.ServiceRegistrar.
func (i *inside) RegisterService(desc *grpc.ServiceDesc, impl any) {
	i.r.RegisterService(desc, impl)
	for _, m := range desc.Methods {
		i.unary["/"+desc.ServiceName+"/"+m.MethodName] = insideMethod{impl, m.Handler}
	}
	for _, s := range desc.Streams {
		if !s.ClientStreams {
			i.streams["/"+desc.ServiceName+"/"+s.StreamName] = insideStream{impl, s.Handler}
		}
	}
}

// call is a Call.
func (f *Front) call(ctx context.Context, method string, req proto.Message, take func(proto.Message) error) error {
	if s, ok := f.inside.streams[method]; ok {
		return f.stream(s.impl, &oneRequest{ctx: ctx, req: req, take: take}, &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}, s.handler)
	}
	m, ok := f.inside.unary[method]
	if !ok {
		return fserror.New(fserror.Unsupported, "", "", "there is no call %s", strings.TrimPrefix(method, ours))
	}
	resp, err := m.handler(m.impl, ctx, func(to any) error { return fill(to, req) }, f.unary)
	if err != nil {
		return err
	}
	return take(resp.(proto.Message)) //nolint:errcheck,forcetypeassert // all are
}

// fill copies a request to where a handler wants it.
func fill(to any, req proto.Message) error {
	proto.Merge(to.(proto.Message), req) //nolint:errcheck,forcetypeassert // all are
	return nil
}

// oneRequest is the server's side of a stream of answers to one request.
type oneRequest struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // a stream has one
	req  proto.Message   // nil: it was taken
	take func(proto.Message) error
}

// Context implements grpc.ServerStream.
func (o *oneRequest) Context() context.Context { return o.ctx }

// RecvMsg implements grpc.ServerStream.
func (o *oneRequest) RecvMsg(to any) error {
	if o.req == nil {
		return io.EOF
	}
	req := o.req
	o.req = nil
	return fill(to, req)
}

// SendMsg implements grpc.ServerStream. Messages that were encoded in part, as those of
// watches, are made whole.
func (o *oneRequest) SendMsg(m any) error {
	msg := m.(proto.Message) //nolint:errcheck,forcetypeassert // all are
	b, err := proto.Marshal(msg)
	if err != nil {
		return err
	}
	whole := msg.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, whole); err != nil {
		return err
	}
	return o.take(whole)
}

// asPeer gives the context of each request what that of a call has: the connection, what it
// has proven by TLS, and what came with the request to prove it.
func (f *Front) asPeer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if c, ok := ctx.Value(connKey{}).(*conns.Conn); ok {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), LocalAddr: c.LocalAddr(), AuthInfo: f.cfg.Guard.Connection(r.TLS)})
		}
		if shown := r.Header.Values("Authorization"); len(shown) > 0 {
			ctx = metadata.NewIncomingContext(ctx, metadata.MD{"authorization": shown})
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}
