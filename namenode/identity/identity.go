// Package identity says who callers are, by what they prove: the certificate of their
// connection, or a bearer token or a Kerberos ticket that comes with a call. Who proves two things must be the
// same by both.
//
// A stream proves once, when it begins, and each of its messages must come from the user
// who was proven; a unary call outside of a stream proves for itself. Every two seconds
// the files that proofs rest on are read again, if they have changed, and streams end
// whose proof is not good any more: their clients have to prove again who they are. So do
// streams whose users the namenode's machine has no longer in groups of when they began.
package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/kerberos"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode/identity/issuer"
)

// Config says what is taken for a proof. The zero value takes everybody's word who
// reaches a loopback address.
type Config struct {
	// Certificates takes a certificate that TLS has verified for a proof: its user is its
	// SPIFFE ID, else its common name.
	Certificates bool
	// Authorities, with Certificates, are held against certificates again when they change.
	Authorities *proof.File[*proof.Authorities]
	// Tokens are bearer tokens; nil: none.
	Tokens *proof.File[*proof.Tokens]
	// Proxies says who may act for whom; nil: nobody but superusers may act for others.
	Proxies *proof.File[*proof.Proxies]
	// Issuers are those whose tokens are taken, too; nil: none. Somebody has to Run them.
	Issuers *issuer.Issuers
	// Kerberos takes tickets; nil: none are.
	Kerberos *kerberos.Acceptor
	// Delegates says that delegation tokens are given to who has another proof, and taken
	// for a proof of who got them.
	Delegates bool
	// Delegation knows them, with Delegates. The namenode sets it.
	Delegation Delegation
	// Pair is the namenode's own certificate, which is read again with the others; nil: it
	// stays as it is.
	Pair Checker
	// TrustClients takes everybody's word, whoever reaches the namenode from wherever.
	TrustClients bool
}

// Delegation knows the delegation tokens of a namespace.
type Delegation interface {
	// Find returns whom the token of a hash names. An error is of kind Permission if there
	// is no such token, and of another if that is not known now.
	Find(sum [32]byte) (proof.Bearer, error)
}

// Checker is a proof.File of any kind.
type Checker interface {
	Check() (changed bool, err error)
}

// Proves reports whether callers have to prove who they are.
func (c *Config) Proves() bool { return c.Certificates || c.takesTokens() || c.Kerberos != nil }

func (c *Config) takesTokens() bool { return c.Tokens != nil || c.Issuers != nil }

// Every is how often files are read again, and streams looked at.
const Every = 2 * time.Second

// Guard knows the callers of one namenode. It is safe for concurrent use.
type Guard struct {
	cfg    Config
	clock  clock.Clock
	log    *slog.Logger
	ground atomic.Uint64 // how often that which proofs rest on has changed
	people People

	mu      sync.Mutex
	streams map[*stream]struct{}
	overdue bool // it was told that the list of revoked certificates is; of Check alone
}

// New returns a guard.
func New(cfg Config, c clock.Clock, log *slog.Logger) *Guard {
	return &Guard{cfg: cfg, clock: c, log: log, streams: map[*stream]struct{}{}}
}

// Caller is somebody who has proven who he is.
type Caller struct {
	User   string
	Groups []string // nil: those that this machine knows
	// Delegated: a delegation token was the proof. It is looked up each time: it can be
	// cancelled, and expires by the time of records.
	Delegated bool

	shown       []*x509.Certificate // nil: none
	sum         *[32]byte           // of a token; nil: none
	jwt         *issuer.Bearer      // whom it names, if it is an issuer's; nil: it is none
	ticket      *kerberos.Principal // whose ticket was shown; nil: none was
	ticketUntil time.Time           // when that expires
	until       time.Time           // when the proof expires; zero: never
	// ground is the guard's from before the proof was held against the files.
	ground uint64

	guard *Guard
	from  netip.Addr
	acted *acted // of a stream or call; nil: nobody keeps account
}

// Foreign reports whether it is an issuer that says who it is: whoever administers that
// does not decide who is the superuser here.
func (c *Caller) Foreign() bool { return c != nil && c.jwt != nil }

// Until is when the proof expires; zero: never.
func (c *Caller) Until() time.Time { return c.until }

// expired reports whether the proof was good for a time that is over.
func (c *Caller) expired(now time.Time) bool { return !c.until.IsZero() && now.After(c.until) }

// Creds returns inner such that what a connection has proven is remembered with it.
func (g *Guard) Creds(inner credentials.TransportCredentials) credentials.TransportCredentials {
	if !g.cfg.Proves() {
		return inner
	}
	return remembering{inner}
}

type remembering struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (r remembering) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	m := &memory{AuthInfo: info}
	if t, ok := info.(credentials.TLSInfo); ok {
		m.shown = t.State.PeerCertificates
	}
	return conn, m, nil
}

// Clone implements credentials.TransportCredentials.
func (r remembering) Clone() credentials.TransportCredentials {
	return remembering{r.TransportCredentials.Clone()}
}

// memory is what a connection has proven.
type memory struct {
	credentials.AuthInfo
	shown []*x509.Certificate
	last  atomic.Pointer[Caller] // who was proven last
}

// Connection is what a connection has proven that is not one of gRPC, for the peer of its
// calls; tls is nil if it has none.
func (g *Guard) Connection(tls *tls.ConnectionState) credentials.AuthInfo {
	m := &memory{AuthInfo: credentials.TLSInfo{}}
	if tls != nil {
		m.shown = tls.PeerCertificates
	}
	return m
}

// Proves tells whether callers have to prove who they are.
func (g *Guard) Proves() bool { return g.cfg.Proves() }

// authorization is the header that has a token.
const authorization = "authorization"

// Prove returns who makes the call of ctx; nil if it need not be proven. An error says what is wrong
// with the proof, and is of kind Permission.
func (g *Guard) Prove(ctx context.Context) (*Caller, error) {
	if !g.cfg.Proves() {
		return nil, nil
	}
	p, _ := peer.FromContext(ctx)
	var m *memory
	if p != nil {
		m, _ = p.AuthInfo.(*memory)
	}
	if m == nil {
		return nil, refuse("the connection has no proof of identity")
	}
	c := &Caller{ground: g.ground.Load(), guard: g, from: addressOf(p.Addr)}
	scheme, shown, err := authorizationOf(ctx)
	switch {
	case err != nil:
		return nil, err
	case scheme == "bearer":
		sum := proof.Hash(shown)
		c.sum = &sum
	case scheme == "negotiate":
		if err := g.accept(c, shown); err != nil {
			return nil, err
		}
	}
	if last := m.last.Load(); last != nil && last.ground == c.ground && c.ticket == nil && last.ticket == nil && sameToken(last.sum, c.sum) && !last.Delegated && !last.expired(g.clock.Wall()) {
		return last, nil
	}
	if g.cfg.Certificates {
		c.shown = m.shown
	}
	// A delegation token has no dots in it, as those of issuers have.
	if g.cfg.Issuers != nil && c.sum != nil && !g.knows(*c.sum) && (g.cfg.Delegation == nil || strings.Contains(shown, ".")) {
		if c.jwt, err = g.cfg.Issuers.Verify(ctx, *c.sum, shown); err != nil {
			return nil, err
		}
	}
	if err := g.identify(c); err != nil {
		return nil, err
	}
	m.last.Store(c)
	return c, nil
}

func sameToken(a, b *[32]byte) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// knows reports whether a token with that hash is in the file of tokens.
func (g *Guard) knows(sum [32]byte) bool {
	if g.cfg.Tokens == nil {
		return false
	}
	_, ok := g.cfg.Tokens.Get().Find(sum)
	return ok
}

// authorizationOf is what came with a call in the header: its scheme in small letters, empty
// if nothing did, and what was shown.
func authorizationOf(ctx context.Context) (scheme, shown string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	switch values := md.Get(authorization); len(values) {
	case 0:
		return "", "", nil
	case 1:
		scheme, shown, _ := strings.Cut(values[0], " ")
		if scheme = strings.ToLower(scheme); shown == "" || scheme != "bearer" && scheme != "negotiate" {
			return "", "", refuse("what came in the header %q is neither a bearer token nor a Kerberos ticket", authorization)
		}
		return scheme, shown, nil
	default:
		return "", "", refuse("there are %d headers %q, and one token is enough", len(values), authorization)
	}
}

// accept takes a Kerberos ticket, which is good once.
func (g *Guard) accept(c *Caller, shown string) error {
	if g.cfg.Kerberos == nil {
		return refuse("Kerberos tickets prove nothing to this namenode")
	}
	raw, err := base64.StdEncoding.DecodeString(shown)
	if err != nil {
		return refuse("the Kerberos ticket in the header %q is not in base64", authorization)
	}
	p, until, err := g.cfg.Kerberos.Accept(raw)
	c.ticket, c.ticketUntil = &p, until
	return err
}

// identify fills in whom the certificate and the token of c name, which must be one user.
func (g *Guard) identify(c *Caller) error {
	c.User, c.Groups, c.until, c.Delegated = "", nil, time.Time{}, false
	if len(c.shown) > 0 {
		until, err := g.verify(c.shown)
		if err != nil {
			return err
		}
		user, err := proof.UserOf(c.shown[0])
		if err != nil {
			return fserror.Wrap(fserror.Permission, "", "", err).Because(fserror.ReasonProof)
		}
		c.User, c.until = user, until
	}
	if c.sum != nil {
		user, groups, until, err := g.bearer(c)
		if err != nil {
			return err
		}
		if c.User != "" && c.User != user {
			return refuse("the certificate is user %q's, and the token user %q's: show one of them", c.User, user)
		}
		if c.User, c.Groups = user, groups; c.until.IsZero() || !until.IsZero() && until.Before(c.until) {
			c.until = until
		}
	}
	if c.ticket != nil {
		user, err := g.cfg.Kerberos.User(*c.ticket)
		if err != nil {
			return err
		}
		if c.User != "" && c.User != user {
			return refuse("the certificate is user %q's, and the Kerberos ticket user %q's: show one of them", c.User, user)
		}
		if c.User = user; c.until.IsZero() || c.ticketUntil.Before(c.until) {
			c.until = c.ticketUntil
		}
	}
	if c.User != "" {
		return nil
	}
	return refuse("%s is needed", g.wanted())
}

// wanted names what is taken for a proof.
func (g *Guard) wanted() string {
	var kinds []string
	for _, k := range []struct {
		taken bool
		name  string
	}{{g.cfg.Certificates, "a client certificate"}, {g.cfg.takesTokens() || g.cfg.Delegation != nil, "a token"}, {g.cfg.Kerberos != nil, "a Kerberos ticket"}} {
		if k.taken {
			kinds = append(kinds, k.name)
		}
	}
	if last := len(kinds) - 1; last > 0 {
		return strings.Join(kinds[:last], ", ") + " or " + kinds[last]
	}
	return kinds[0]
}

// bearer is whom the token of c names, and when it expires.
func (g *Guard) bearer(c *Caller) (user string, groups []string, until time.Time, err error) {
	if g.cfg.Tokens != nil {
		if b, ok := g.cfg.Tokens.Get().Find(*c.sum); ok {
			return b.User, b.Groups, until, nil
		}
	}
	switch {
	case c.jwt != nil:
		if !g.cfg.Issuers.Still(c.jwt) {
			return "", nil, until, refuse("the token has expired, or its issuer has withdrawn the key that signed it; get a new one")
		}
		return c.jwt.User, c.jwt.Groups, c.jwt.Until, nil
	case g.cfg.Delegation != nil:
		c.Delegated = true
		b, err := g.cfg.Delegation.Find(*c.sum)
		return b.User, b.Groups, until, err
	case !g.cfg.takesTokens():
		return "", nil, until, refuse("tokens prove nothing to this namenode")
	}
	return "", nil, until, refuse("the token is not known, or was revoked")
}

// Certificate refuses a certificate that is not good any more; none is no certificate that is bad.
func (g *Guard) Certificate(shown []*x509.Certificate) error {
	if !g.cfg.Certificates || len(shown) == 0 {
		return nil
	}
	_, err := g.verify(shown)
	return err
}

// verify returns until when a certificate is good.
func (g *Guard) verify(shown []*x509.Certificate) (time.Time, error) {
	now := g.clock.Wall()
	if g.cfg.Authorities == nil { // the handshake has verified all but what changes
		if now.After(shown[0].NotAfter) {
			return time.Time{}, refuse("the client's certificate has expired")
		}
		return shown[0].NotAfter, nil
	}
	until, err := g.cfg.Authorities.Get().Verify(shown, now)
	var e *fserror.Error
	if errors.As(err, &e) {
		return until, e.Because(fserror.ReasonProof)
	}
	return until, nil
}

func refuse(format string, args ...any) *fserror.Error {
	return fserror.New(fserror.Permission, "", "", format, args...).Because(fserror.ReasonProof)
}

// callerKey is the key of the caller in the context of what he does.
type callerKey struct{}

// With returns a context of what a caller does.
func With(ctx context.Context, c *Caller) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// Of returns who does what ctx belongs to; nil if it was not proven.
func Of(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// stream is one that lasts.
type stream struct {
	caller *Caller // nil: it need not be proven
	conn   *memory // its connection's; nil, too
	acted  *acted
	ground uint64 // when the proof was good; of Check alone
	end    context.CancelCauseFunc
}

// ended is why a stream ended whose proof is not good any more. Its client may have a
// better one by now.
func ended() error {
	return &fserror.Error{Kind: fserror.Retry, Reason: fserror.ReasonProof, RetryAfter: 100 * time.Millisecond,
		Message: "the proof of identity that this connection began with has expired or was revoked; it has to be proven again"}
}

// Ended returns why a context of Hold has ended, if it is that the proof is not good any
// more; else nil.
func Ended(ctx context.Context) error {
	var e *fserror.Error
	if ctx.Err() == nil || !errors.As(context.Cause(ctx), &e) || e.Reason != fserror.ReasonProof {
		return nil
	}
	return e
}

// Hold returns a context for a stream of c. It ends, with the cause Ended, when the
// proof is not good any more, or the groups that its users are in are others. done has to be
// called when the stream has ended; c may be nil.
func (g *Guard) Hold(ctx context.Context, c *Caller) (held context.Context, done func()) {
	s := &stream{caller: c, acted: &acted{groups: g.people.Groups}}
	if c == nil {
		ctx = context.WithValue(ctx, actedKey{}, s.acted)
	} else {
		own := *c
		own.acted, s.ground = s.acted, c.ground
		if p, ok := peer.FromContext(ctx); ok {
			s.conn, _ = p.AuthInfo.(*memory)
		}
		if c.Groups == nil {
			s.acted.is(c.User)
		}
		ctx = With(ctx, &own)
	}
	ctx, end := context.WithCancelCause(ctx)
	s.end = end
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams[s] = struct{}{}
	return ctx, func() {
		g.mu.Lock()
		delete(g.streams, s)
		g.mu.Unlock()
		end(nil)
	}
}

// Check reads the files again that have changed, and ends the streams whose proof is not
// good any more. What is wrong with a file is logged, and what it said before counts.
func (g *Guard) Check(context.Context) error {
	files := map[string]Checker{"certificate": g.cfg.Pair, "authorities": orNil(g.cfg.Authorities), "tokens": orNil(g.cfg.Tokens), "proxies": orNil(g.cfg.Proxies)}
	if g.cfg.Kerberos != nil {
		for what, f := range g.cfg.Kerberos.Files() {
			files[what] = f
		}
	}
	for what, f := range files {
		if f == nil {
			continue
		}
		switch changed, err := f.Check(); {
		case err != nil:
			g.log.Error("a file was changed and cannot be used as it is; what it said before counts", "of", what, "cause", err)
		case changed:
			g.ground.Add(1)
			g.log.Info("a file was changed and read again", "of", what)
		}
	}
	if g.cfg.Issuers != nil && g.cfg.Issuers.Check() {
		g.ground.Add(1)
	}
	if g.cfg.Authorities != nil {
		overdue := g.cfg.Authorities.Get().Overdue(g.clock.Wall())
		if overdue && !g.overdue {
			g.log.Error("the list of revoked certificates is out of date: newer revocations are not known; replace it")
		}
		g.overdue = overdue
	}
	g.endStale()
	return nil
}

// endStale ends the streams whose proof is not good any more.
func (g *Guard) endStale() {
	ground, now := g.ground.Load(), g.clock.Wall()
	var look []*stream
	g.mu.Lock()
	for s := range g.streams {
		if s.caller != nil && (s.ground != ground || s.caller.Delegated || s.caller.expired(now)) {
			look = append(look, s)
		}
	}
	g.mu.Unlock()
	good := map[*Caller]bool{} // the streams of a connection have one
	for _, s := range look {
		ok, known := good[s.caller]
		if !known {
			again := &Caller{shown: s.caller.shown, sum: s.caller.sum, jwt: s.caller.jwt, ticket: s.caller.ticket, ticketUntil: s.caller.ticketUntil}
			err := g.identify(again)
			ok = err == nil && !again.expired(now) && again.User == s.caller.User && slices.Equal(again.Groups, s.caller.Groups)
			good[s.caller] = ok
		}
		if s.ground = ground; !ok || !s.caller.mayStill(s.acted) {
			s.end(ended())
		}
	}
}

func orNil[T any](f *proof.File[T]) Checker {
	if f == nil {
		return nil
	}
	return f
}
