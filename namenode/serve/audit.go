package serve

import (
	"context"
	"errors"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/identity"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// about fills in who asks for what, and from where. req may be nil.
func (f *Front) about(l *audit.Line, ctx context.Context, method string, req any) { //nolint:revive // what is filled in comes first
	l.Time, l.Op = f.cfg.Clock.Wall(), opName(method)
	if p, ok := peer.FromContext(ctx); ok {
		l.Address = p.Addr.String()
	}
	l.Asked(path.Base(method), req)
	if l.User == "" && len(l.Session) > 0 && f.cfg.UserOf != nil {
		l.User = f.cfg.UserOf(l.Session) // a call of a writer names its session only
	}
	// The one place that tells apart who has proven himself and for whom he acts.
	who := identity.Of(ctx)
	if _, asks := req.(*pb.WhoAmIRequest); asks && who != nil { // whatever it says
		l.User = who.User
	}
	if who != nil && who.User != l.User {
		if l.RealUser = who.User; l.User == "" {
			l.User, l.RealUser = who.User, ""
		}
	} else if who == nil {
		l.RealUser = identity.RealUser(ctx)
	}
}

// audit tells of a call that is over. wrote is the txid of its record.
func (f *Front) audit(ctx context.Context, method string, req, resp any, err error, wrote uint64, took time.Duration) {
	if !f.cfg.Audit.On() || !strings.HasPrefix(method, ours) {
		return
	}
	var l audit.Line
	f.about(&l, ctx, method, req)
	l.TxID, l.Err, l.Took = wrote, err, took
	if err == nil {
		l.Answered(resp)
	}
	f.cfg.Audit.Tell(&l)
}

// auditUnproven tells of a call whose caller has not proven who he is.
func (f *Front) auditUnproven(ctx context.Context, method string, req any, err error) {
	if !f.cfg.Audit.On() {
		return
	}
	var l audit.Line
	f.about(&l, ctx, method, req)
	l.Err, l.Unproven = err, true
	f.cfg.Audit.Tell(&l)
}

// auditStream is what is kept of a stream: the audit log is told when its first message has
// come, and when it is over, and in between it has its place among those of its kind. A
// message may come to a goroutine of a handler that has returned.
type auditStream struct {
	f      *Front
	method string
	began  time.Duration
	silent bool // it was told of otherwise

	mu   sync.Mutex
	line *audit.Line // of the first message
	came bool        // the first message has
	over bool        // the handler has returned
	back func()      // gives its place back; nil: it has none
}

// give gives its place back. It takes none any more.
func (a *auditStream) give() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.back != nil {
		a.back()
	}
}

func (a *auditStream) on() bool {
	return a.f.cfg.Audit.On() && !a.silent && strings.HasPrefix(a.method, ours) && a.method != pb.Calls_Carry_FullMethodName
}

// begun tells of a stream with its first message, and takes a place for it.
func (a *auditStream) begun(ctx context.Context, first any) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return fserror.New(fserror.Canceled, "", "", "the stream is over")
	case a.came:
		return nil
	}
	a.came = true
	a.tellBegun(ctx, first)
	a.back, err = a.f.takeStream(ctx, a.method, first)
	return err
}

// refused tells of a stream whose message was refused.
func (a *auditStream) refused(ctx context.Context, m any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.tellBegun(ctx, m)
	}
}

// tellBegun is called with mu held.
func (a *auditStream) tellBegun(ctx context.Context, first any) {
	if a.line != nil || !a.on() {
		return
	}
	a.line = new(audit.Line)
	a.f.about(a.line, ctx, a.method, first)
	a.line.Began = true
	a.f.cfg.Audit.Tell(a.line)
}

// ended tells of a stream that is over. That its client ended it is no failure.
func (a *auditStream) ended(ctx context.Context, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if !a.on() {
		return
	}
	l := a.line
	if l == nil { // it was refused before its first message
		l = new(audit.Line)
		a.f.about(l, ctx, a.method, nil)
	}
	l.Time, l.Began, l.Took = a.f.cfg.Clock.Wall(), false, a.f.cfg.Clock.Mono()-a.began
	if !errors.Is(err, fserror.Canceled) {
		l.Err = err
	}
	a.f.cfg.Audit.Tell(l)
}

// auditedCreds tells the audit log of connections whose TLS was no good.
type auditedCreds struct {
	credentials.TransportCredentials
	f *Front
}

// ServerHandshake implements credentials.TransportCredentials.
func (a auditedCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := a.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		a.f.auditConnection(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (a auditedCreds) Clone() credentials.TransportCredentials {
	return auditedCreds{a.TransportCredentials.Clone(), a.f}
}

// auditConnection tells of a connection on which nothing could be asked.
func (f *Front) auditConnection(from net.Addr, err error) {
	if f.cfg.Audit.On() {
		f.cfg.Audit.Tell(&audit.Line{
			Time: f.cfg.Clock.Wall(), Op: "connect", Address: from.String(), Unproven: true, Reads: true,
			Err: fserror.Wrap(fserror.Permission, "", "", err).Because(fserror.ReasonTLS),
		})
	}
}
