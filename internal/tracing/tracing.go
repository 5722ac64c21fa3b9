// Package tracing begins the spans of OpenTelemetry traces. It knows the API alone: who
// exports spans is decided in the program (cmd/leasefs/traces), or by the user of the
// library, whose span is in the context of his call. See docs/adr/0040-traces.md.
//
// Without a span in the context nothing is recorded, sent or allocated. A span has no
// path, no content and nothing that proves who somebody is: an error is its kind and reason.
package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Scope is the name under which leasefs begins spans.
const Scope = "github.com/leasefs/leasefs"

// Header is the name under which a span's context travels in metadata of gRPC and in
// headers of HTTP, as W3C's Trace Context has it.
const Header = "traceparent"

// maxParent is how many bytes such a context may have; version 00 has 55.
const maxParent = 64

// Span is a part of a trace, or none (the zero value). It is for one goroutine at a time.
type Span struct{ span trace.Span }

// Begin begins a span below that of the context, if that is recorded.
func Begin(ctx context.Context, name string) (context.Context, Span) {
	return begin(ctx, name, trace.SpanKindInternal)
}

// Call begins the span of a call to another process, as Begin does: of gRPC by the full
// name of its method, such as /leasefs.v1.Namenode/Create.
func Call(ctx context.Context, method string) (context.Context, Span) {
	ctx, s := begin(ctx, method, trace.SpanKindClient)
	s.method(method)
	return ctx, s
}

// Request begins the span of a request to a block store.
func Request(ctx context.Context, method string) (context.Context, Span) {
	return begin(ctx, method, trace.SpanKindClient)
}

func begin(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	return start(ctx, parent.TracerProvider().Tracer(Scope), name, kind)
}

func start(ctx context.Context, t trace.Tracer, name string, kind trace.SpanKind) (context.Context, Span) {
	ctx, s := t.Start(ctx, strings.TrimPrefix(name, "/"), trace.WithSpanKind(kind))
	if !s.IsRecording() {
		s = nil
	}
	return ctx, Span{s}
}

// Root begins a span of a tracer: below that of the context, of this process or another
// one, or a trace of its own. A nil tracer begins none.
func Root(ctx context.Context, t trace.Tracer, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return start(ctx, t, name, trace.SpanKindInternal)
}

// Serve is Root for a call that has come in from another process.
func Serve(ctx context.Context, t trace.Tracer, method string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := start(ctx, t, method, trace.SpanKindServer)
	s.method(method)
	return ctx, s
}

// method tells which call of gRPC it is.
func (s Span) method(full string) {
	service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if s.span == nil || !ok {
		return
	}
	s.span.SetAttributes(attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method))
}

// TxID tells which record of the journal it is about; 0: none.
func (s Span) TxID(id uint64) {
	if s.span != nil && id != 0 {
		s.span.SetAttributes(attribute.Int64("leasefs.txid", int64(id))) //nolint:gosec // they begin at 1
	}
}

// Bytes tells how many bytes it moves.
func (s Span) Bytes(n int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64("leasefs.bytes", n))
	}
}

// End ends the span, with an error if there is one.
func (s Span) End(err error) {
	if s.span != nil && err != nil {
		s.fail(fserror.KindOf(err).String(), fserror.ReasonOf(err))
	}
	s.end()
}

// EndCall ends the span of a call of gRPC, whose error is a status.
func (s Span) EndCall(err error) {
	if s.span != nil && err != nil {
		s.fail(status.Code(err).String(), "")
	}
	s.end()
}

// fail marks the span as failed, by a kind of error and, unless it is empty, a reason.
func (s Span) fail(kind, reason string) {
	s.span.SetAttributes(attribute.String("error.type", kind))
	s.span.SetStatus(otelcodes.Error, strings.TrimSpace(kind+" "+reason))
}

func (s Span) end() {
	if s.span != nil {
		s.span.End()
	}
}

// ID is the trace's id in hexadecimal, as exemplars have it; empty without a span.
func (s Span) ID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Parent is the span's context for a process that is called, empty without a span.
func (s Span) Parent() string {
	if s.span == nil {
		return ""
	}
	c := carrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.span), &c)
	return c.parent
}

// Remote returns a context below the span of another process that Parent tells of. What is
// empty, or no such context, changes nothing.
func Remote(ctx context.Context, parent string) context.Context {
	if parent == "" || len(parent) > maxParent {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, &carrier{parent})
}

// carrier holds a traceparent, and no state of others.
type carrier struct{ parent string }

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	if key == Header {
		return c.parent
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	if key == Header {
		c.parent = value
	}
}

// Keys implements propagation.TextMapCarrier.
func (*carrier) Keys() []string { return []string{Header} }

// Under returns base with the span of ctx, if ctx has one, recorded or not. It is for work
// in the background that somebody has asked for and does not end with him.
func Under(base, ctx context.Context) context.Context { //nolint:revive // base is what is changed
	s := trace.SpanFromContext(ctx)
	if !s.SpanContext().IsValid() {
		return base
	}
	return trace.ContextWithSpan(base, s)
}

// Without returns a context that is below no span: what lasts belongs to nobody's trace.
func Without(ctx context.Context) context.Context {
	if !trace.SpanFromContext(ctx).SpanContext().IsValid() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, nil)
}
