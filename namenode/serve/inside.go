package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
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

// Local returns an interceptor for clients in this process, which are believed about who they
// are. It carries out their unary calls to this namenode, whose addresses are at, without a
// connection: bounded, counted and audited as one that comes from a loopback address. Calls to
// others go on to them, and so do all if callers have to prove who they are. Both sides keep
// parts of requests and answers, so they are copied.
func (f *Front) Local(at ...string) grpc.UnaryClientInterceptor {
	from := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, address, _ := strings.Cut(cc.Target(), ":///")
		m, ok := f.inside.unary[method]
		if !ok || !slices.Contains(at, address) || f.cfg.Guard.Proves() {
			return next(ctx, method, req, reply, cc, opts...)
		}
		for _, o := range opts {
			if p, ok := o.(grpc.PeerCallOption); ok {
				*p.PeerAddr = *from
			}
		}
		resp, err := m.handler(m.impl, peer.NewContext(ctx, from), func(to any) error { return fill(to, req.(proto.Message)) }, f.unary) //nolint:errcheck,forcetypeassert // all are
		if ctx.Err() != nil {                                                                                                            // the answer is what a client gets from its connection then
			return status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			return err
		}
		return fill(reply, resp.(proto.Message)) //nolint:errcheck,forcetypeassert // as above
	}
}

// fill copies a message to where it is wanted.
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
