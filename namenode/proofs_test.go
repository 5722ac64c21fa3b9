package namenode_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/identity/issuer"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/issuerenv"
)

// token is a bearer token as a client shows it.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return false }

// fort is a namenode to which clients prove who they are, by certificates or tokens.
type fort struct {
	*env.Namenode
	t             testing.TB
	dir           string
	ca            *env.Authority
	tokens, crl   string // files
	proxies       string // likewise
	gateway       token  // a proxy's
	root, bob     token
	rootTLS       tls.Certificate
	lines         []string // of tokens
	authorityFile string
	issuer        *issuerenv.Issuer // users are taken as it names them, groups as "groups" does
}

const day = 24 * time.Hour

func newFort(t testing.TB, mods ...func(*namenode.Config)) *fort {
	t.Helper()
	dir := t.TempDir()
	f := &fort{proxies: filepath.Join(dir, "proxies"), gateway: token(proof.NewToken()), t: t, dir: dir, ca: env.NewAuthority(t, dir, "ca"), tokens: filepath.Join(dir, "tokens"), crl: filepath.Join(dir, "crl.pem"), root: token(proof.NewToken()), bob: token(proof.NewToken()), issuer: issuerenv.New(t)}
	f.lines = []string{"# of a test", f.line(f.root, "root"), f.line(f.bob, "bob"), f.line(f.gateway, "gateway")}
	f.writeProxies("gateway users=root,ann from=127.0.0.1,::1")
	f.writeTokens(f.lines...)
	f.ca.Revoke(f.crl, nil)
	f.authorityFile = f.ca.File
	cert, key := f.ca.Issue("namenode", time.Now().Add(day))
	f.rootTLS = f.ca.Pair("root", time.Now().Add(day))
	f.Namenode = env.Start(t, func(c *namenode.Config) {
		pair, err := proof.OpenPair(clock.System{}, cert, key)
		if err == nil {
			c.Identity.Authorities, err = proof.OpenAuthorities(clock.System{}, f.authorityFile, f.crl)
		}
		if err == nil {
			c.Identity.Proxies, err = proof.OpenProxies(clock.System{}, f.proxies)
		}
		if err == nil {
			c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, f.tokens)
		}
		if err == nil {
			c.Identity.Issuers, err = issuer.New(clock.System{}, issuer.Config{URL: f.issuer.URL, Audiences: []string{issuerenv.Audience}, GroupsClaim: "groups"})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Identity.Certificates, c.Identity.Pair, c.Identity.Delegates = true, pair, true
		c.TLS = proof.ServerTLS(pair, c.Identity.Authorities, false)
		for _, mod := range mods {
			mod(c)
		}
	})
	f.Dial = f.shows(nil, f.root)
	transport := &http.Transport{TLSClientConfig: f.clientTLS(nil)}
	t.Cleanup(transport.CloseIdleConnections)
	f.HTTP = &http.Client{Transport: transport}
	return f
}

func (f *fort) line(of token, user string, groups ...string) string {
	f.t.Helper()
	line, err := proof.Line(string(of), user, groups...)
	if err != nil {
		f.t.Fatal(err)
	}
	return line
}

// writeTokens replaces the namenode's file of tokens.
func (f *fort) writeTokens(lines ...string) { f.replace(f.tokens, lines) }

// writeProxies replaces its file of who may act for others.
func (f *fort) writeProxies(lines ...string) { f.replace(f.proxies, lines) }

// replace writes a file in one step.
func (f *fort) replace(name string, lines []string) {
	f.t.Helper()
	next := name + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(next, name); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fort) clientTLS(shown *tls.Certificate) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: f.ca.Pool(), ServerName: "localhost"}
	if shown != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	}
	return cfg
}

// shows is how a client connects that shows a certificate, or a token, or both.
func (f *fort) shows(cert *tls.Certificate, tok credentials.PerRPCCredentials) []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(f.clientTLS(cert)))}
	if tok != nil && tok != token("") {
		opts = append(opts, grpc.WithPerRPCCredentials(tok))
	}
	return opts
}

func (f *fort) connect(opts []grpc.DialOption) *grpc.ClientConn {
	f.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+f.Addr(), opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// TestProofOfEachCall makes each call of the contract with each proof there can be.
func TestProofOfEachCall(t *testing.T) {
	castle := newCastle(t)
	f := newFort(t, castle.takes)
	now := time.Now()
	other := env.NewAuthority(t, t.TempDir(), "other")
	revoked, bob := f.ca.Pair("root", now.Add(day)), f.ca.Pair("bob", now.Add(day))
	expired, foreign := f.ca.Pair("root", now.Add(-time.Minute)), other.Pair("root", now.Add(day))
	f.ca.Revoke(f.crl, revoked.Leaf)
	gone := token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(gone, "root"))...)
	f.awaitUse(gone, nil)
	f.writeTokens(f.lines...)
	f.awaitRefusal(gone, nil)
	f.awaitRefusal("", &revoked)

	proxies := map[string]token{}
	for _, name := range []string{"no rule", "all", "far", "other"} {
		proxies[name] = token(proof.NewToken())
		f.lines = append(f.lines, f.line(proxies[name], strings.ReplaceAll(name, " ", "-")))
	}
	f.writeTokens(f.lines...)
	f.writeProxies("gateway users=root from=127.0.0.0/8,::1", "all users=* groups=* from=*", "far users=root from=10.1.2.0/24", "other users=ann,supergroup groups=staff from=*")
	stands := func(proxy string, tok token) *grpc.ClientConn {
		return f.connect(append(f.shows(nil, tok), standsFor(proxy)...))
	}
	all := stands("all", proxies["all"])
	env.Eventually(t, "the rules are read", func() bool { return f.statAs("ann", all) == nil })

	signed := func(alg jose.SignatureAlgorithm, key any, more map[string]any) token {
		return token(issuerenv.Sign(t, jose.SigningKey{Algorithm: alg, Key: key}, f.issuer.Claims("eve", more)))
	}
	eve := func(more map[string]any) token { return token(f.issuer.Token("eve", more)) }
	super := map[string]any{"groups": []string{"supergroup"}}
	unsigned := "eyJhbGciOiJub25lIn0." + strings.Split(string(eve(nil)), ".")[1] + "."
	d := f.delegation("root", f.root)
	expiring, cancelled := d(time.Millisecond), d(0)
	if err := f.cancel(f.root, cancelled); err != nil {
		t.Fatal(err)
	}
	bobs := f.delegation("bob", f.bob)(0)
	abroad := newFort(t)
	elsewhere := abroad.delegation("root", abroad.root)(0)
	f.awaitRefusal(expiring, nil)
	seen := castle.replays()
	if err := f.stat(f.connect(f.shows(nil, seen))); err != nil {
		t.Fatal(err)
	}

	columns := []struct {
		name string
		cc   *grpc.ClientConn
		want fserror.Kind
		says string
	}{
		{"no proof", f.connect(f.shows(nil, nil)), fserror.Permission, "a client certificate, a token or a Kerberos ticket is needed"},
		{"a wrong token", f.connect(f.shows(nil, token(proof.NewToken()))), fserror.Permission, "not known"},
		{"a token that was revoked", f.connect(f.shows(nil, gone)), fserror.Permission, "revoked"},
		{"a hash as a token", f.connect(f.shows(nil, token(f.lines[1][:64]))), fserror.Permission, "not known"},
		{"another user's token", f.connect(f.shows(nil, f.bob)), fserror.Permission, `"bob"`},
		{"an expired certificate", f.connect(f.shows(&expired, nil)), fserror.Unavailable, ""},
		{"a foreign certificate", f.connect(f.shows(&foreign, nil)), fserror.Unavailable, ""},
		{"a revoked certificate", f.connect(f.shows(&revoked, nil)), fserror.Permission, "revoked"},
		{"another user's certificate", f.connect(f.shows(&bob, nil)), fserror.Permission, `"bob"`},
		{"a token and another user's certificate", f.connect(f.shows(&bob, f.root)), fserror.Permission, "show one"},
		{"another user, proven by a proxy without a rule", stands("no-rule", proxies["no rule"]), fserror.Permission, `no rule lets user "no-rule" act for user "root"`},
		{"another user, proven by one whose rule is for all but superusers", all, fserror.Permission, "who is a superuser"},
		{"another user, proven by one from a wrong address", stands("far", proxies["far"]), fserror.Permission, "the rule would be: far users=root from=127.0.0.1"},
		{"another user, proven by one whose rule is for others", stands("other", proxies["other"]), fserror.Permission, "no rule"},
		{"another user, proven by one who says that it is another", stands("gateway", proxies["all"]), fserror.Permission, `user "all"`},
		{"a JWT of another user", f.connect(f.shows(nil, eve(nil))), fserror.Permission, `"eve"`},
		{"a JWT of the superuser", f.connect(f.shows(nil, token(f.issuer.Token("root", super)))), fserror.Permission, "no issuer to say"},
		{"a JWT with another signature", f.connect(f.shows(nil, signed(jose.RS256, issuerenv.NewKey(t, 1).Private, nil))), fserror.Permission, "signed by no key"},
		{"a JWT for another audience", f.connect(f.shows(nil, eve(map[string]any{"aud": "web"}))), fserror.Permission, "audience"},
		{"a JWT that has expired", f.connect(f.shows(nil, eve(map[string]any{"exp": now.Add(-time.Minute).Unix()}))), fserror.Permission, "expired"},
		{"a JWT that is not yet valid", f.connect(f.shows(nil, eve(map[string]any{"nbf": now.Add(day).Unix()}))), fserror.Permission, "not before"},
		{"a JWT without a signature", f.connect(f.shows(nil, token(unsigned))), fserror.Permission, "signed by an algorithm"},
		{"a JWT with a shared secret", f.connect(f.shows(nil, signed(jose.HS256, bytes.Repeat([]byte("k"), 32), nil))), fserror.Permission, "signed by an algorithm"},
		{"a JWT of a foreign issuer", f.connect(f.shows(nil, eve(map[string]any{"iss": "https://evil.example"}))), fserror.Permission, "none whose tokens"},
		{"a delegation token that has expired", f.connect(f.shows(nil, expiring)), fserror.Permission, "expired"},
		{"a delegation token that was cancelled", f.connect(f.shows(nil, cancelled)), fserror.Permission, "cancelled"},
		{"another user's delegation token", f.connect(f.shows(nil, bobs)), fserror.Permission, `"bob"`},
		{"a delegation token of another namespace", f.connect(f.shows(nil, elsewhere)), fserror.Permission, "another namespace"},
		{"a delegation token and another user's certificate", f.connect(f.shows(&bob, d(0))), fserror.Permission, "show one"},
		{"a Kerberos ticket of another user", f.connect(f.shows(nil, castle.shows("bob@"+realm))), fserror.Permission, `"bob"`},
		{"a Kerberos ticket of another realm's root", f.connect(f.shows(nil, castle.shows("root@"+otherRealm))), fserror.Permission, "others need a rule"},
		{"a Kerberos ticket of root at a host", f.connect(f.shows(nil, castle.shows("root/host@"+realm))), fserror.Permission, "is no user here"},
		{"a Kerberos ticket that was shown before", f.connect(f.shows(nil, seen)), fserror.Permission, "shown before"},
		{"a Kerberos ticket and another user's certificate", f.connect(f.shows(&bob, castle.shows("root@"+realm))), fserror.Permission, "show one"},
		{"a certificate and a wrong token", f.connect(f.shows(&f.rootTLS, token("wrong"))), fserror.Permission, "not known"},
	}
	right := []*grpc.ClientConn{f.connect(f.shows(nil, f.root)), f.connect(f.shows(&f.rootTLS, nil)), f.connect(f.shows(&f.rootTLS, f.root)), f.connect(f.shows(nil, d(0))), f.connect(f.shows(nil, castle.shows("root@"+realm))), stands("gateway", f.gateway)}

	r := f.Raw(t, "a")
	v := &vanisher{t: t, n: f.Namenode, r: r, w: r.Create("/w")}
	rows, waits := v.sendings()
	f.carries(rows, v)
	for _, service := range []string{"Namenode", "Admin", "Calls"} {
		d := pb.File_leasefs_v1_leasefs_proto.Services().ByName(protoreflect.Name(service))
		for i := range d.Methods().Len() {
			if name := string(d.Methods().Get(i).Name()); rows[name] == nil {
				t.Errorf("there is no row for %s", name)
			}
		}
	}
	if n := pb.File_leasefs_v1_leasefs_proto.Services().Len(); n != 3 {
		t.Errorf("there are %d services, and rows for those of 3", n)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			send := rows[name]()
			for _, c := range columns {
				if c.want == fserror.Permission && (name == "Status" || name == "WhoAmI") && (strings.HasPrefix(c.name, "another") || strings.HasPrefix(c.name, "a JWT of another") || c.name == "a Kerberos ticket of another user") || name == "Status" && strings.HasPrefix(c.name, "a JWT of the") {
					continue // it is in nobody's name
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := wire.FromStatus(send(ctx, linkOf(c.cc)))
				cancel()
				if fserror.KindOf(err) != c.want || err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.says)
				}
			}
			for i, cc := range right {
				if i == len(right)-1 {
					send = rows[name]() // the proxy's is another request
				}
				patience := time.Minute
				if waits[name] {
					patience = 100 * time.Millisecond // it was let in: it waits
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				err := wire.FromStatus(send(ctx, linkOf(cc)))
				cancel()
				if i == 3 && name == "GetDelegationToken" && fserror.KindOf(err) == fserror.Permission {
					continue // a delegation token gets no other
				}
				if i == len(right)-1 && name == "GetDelegationToken" && fserror.ReasonOf(err) == fserror.ReasonDelegation {
					continue // its user has to get one himself
				}
				if err != nil && !(waits[name] && fserror.KindOf(err) == fserror.Deadline) {
					t.Errorf("right proof %d: %v", i, err)
				}
			}
		})
	}
	fsckClean(t, r)
}

// standsFor has all requests of a connection say that who they are of is proven by another.
func standsFor(proxy string) []grpc.DialOption {
	return recasts(func(c *pb.Caller) { c.RealUser = proxy }, nil)
}

// recasts changes who makes the requests of a connection, and as which calls; nil: not these.
func recasts(who func(*pb.Caller), call func(*pb.CallId)) []grpc.DialOption {
	change := func(req any) any { return recast(req, who, call) }
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, method, change(req), reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			return &standing{s, change}, err
		}),
	}
}

type standing struct {
	grpc.ClientStream
	change func(any) any
}

func (s *standing) SendMsg(m any) error { return s.ClientStream.SendMsg(s.change(m)) }

// recast is a request with another caller and another call.
func recast(req any, who func(*pb.Caller), call func(*pb.CallId)) any {
	m := proto.Clone(req.(proto.Message)) //nolint:errcheck // all are
	var set func(m protoreflect.Message)
	set = func(m protoreflect.Message) {
		switch r := m.Interface().(type) {
		case *pb.Caller:
			who(r)
			return
		case *pb.CallId:
			if call != nil {
				call(r)
			}
			return
		case *pb.CarriedCall:
			inner := new(pb.MkdirRequest)
			if err := proto.Unmarshal(r.GetRequest(), inner); err == nil {
				r.Request, _ = proto.Marshal(recast(inner, who, call).(proto.Message)) //nolint:errcheck // it is one
			}
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.Kind() != protoreflect.MessageKind:
			case f.IsList():
				for i := range v.List().Len() {
					set(v.List().Get(i).Message())
				}
			default:
				set(v.Message())
			}
			return true
		})
	}
	set(m.ProtoReflect())
	return m
}

// carries adds the stream of calls to the rows, with a call in it. What is refused in it is
// an error of the stream or of the call.
func (f *fort) carries(rows map[string]func() sending, v *vanisher) {
	rows["Carry"] = func() sending {
		req := &pb.MkdirRequest{Call: v.r.Call(), Caller: v.r.Who, At: pb.At(v.path()), Parents: true}
		return func(ctx context.Context, l link) error {
			s, err := l.calls.Carry(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = s.CloseSend() }()
			return overStream(s, "Namenode/Mkdir", req)
		}
	}
}

// stat asks for the root directory in the name of root.
func (f *fort) stat(cc *grpc.ClientConn) error { return f.statAs("root", cc) }

func (f *fort) statAs(user string, cc *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	_, err := pb.NewNamenodeClient(cc).Stat(ctx, &pb.StatRequest{Caller: &pb.Caller{User: user, Client: "c", Session: pb.NewSession(user)}, At: pb.Follow("/")})
	return wire.FromStatus(err)
}

func (f *fort) awaitUse(tok token, cert *tls.Certificate) {
	f.t.Helper()
	cc := f.connect(f.shows(cert, tok))
	env.Eventually(f.t, "the proof is taken", func() bool { return f.stat(cc) == nil })
}

func (f *fort) awaitRefusal(tok token, cert *tls.Certificate) {
	f.t.Helper()
	cc := f.connect(f.shows(cert, tok))
	env.Eventually(f.t, "the proof is refused", func() bool { return fserror.KindOf(f.stat(cc)) == fserror.Permission })
}

// TestProofsAreTakenBack: what a session began with is taken from it while it lives, each
// kind of proof in its way, and a client that has a better one is let in again.
func TestProofsAreTakenBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name string
		take func(f *fort, gone token, cert *tls.Certificate)
		cert bool // it proves by a certificate
	}{
		{"a token", func(f *fort, _ token, _ *tls.Certificate) { f.writeTokens(f.lines...) }, false},
		{"a token that is another user's now", func(f *fort, gone token, _ *tls.Certificate) {
			f.writeTokens(append(f.lines, f.line(gone, "eve"))...)
		}, false},
		{"a token with other groups", func(f *fort, gone token, _ *tls.Certificate) {
			f.writeTokens(append(f.lines, f.line(gone, "root", "wheel"))...)
		}, false},
		{"a certificate", func(f *fort, _ token, cert *tls.Certificate) { f.ca.Revoke(f.crl, cert.Leaf) }, true},
		{"an authority", func(f *fort, _ token, _ *tls.Certificate) {
			other := env.NewAuthority(t, t.TempDir(), "other")
			raw, err := os.ReadFile(other.File)
			if err == nil {
				err = os.WriteFile(f.authorityFile, raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			other.Revoke(f.crl, nil)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFort(t)
			gone, cert, shown := token(proof.NewToken()), f.ca.Pair("root", now.Add(day)), token("")
			f.writeTokens(append(f.lines, f.line(gone, "root"))...)
			f.awaitUse(gone, nil)
			opts := f.shows(&cert, nil)
			if !c.cert {
				opts, shown = f.shows(nil, gone), gone
			}
			cc := f.connect(opts)
			l := linkOf(cc)
			session, err := l.nn.Session(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			who := &pb.Caller{User: "root", Client: "c", Session: pb.NewSession("root")}
			if err := session.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: who}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := session.Recv(); err != nil {
				t.Fatal(err)
			}
			keeper, err := l.nn.KeepAlive(t.Context())
			if err == nil {
				err = keeper.Send(&pb.KeepAliveRequest{Caller: who})
			}
			if err == nil {
				_, err = keeper.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			carry, err := l.calls.Carry(t.Context())
			if err == nil {
				_, err = carry.Header()
			}
			if err != nil {
				t.Fatal(err)
			}
			watch, err := l.nn.Watch(t.Context(), &pb.WatchRequest{Caller: who, Path: "/", Recursive: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.nn.Create(t.Context(), &pb.CreateRequest{Call: &pb.CallId{Session: who.GetSession(), Seq: 1}, Caller: who, At: pb.At("/open")}); err != nil {
				t.Fatal(err)
			}
			waited := make(chan error)
			go func() {
				_, err := l.nn.GetFile(t.Context(), &pb.GetFileRequest{Caller: who, At: pb.At("/open"), WaitMs: 300_000})
				waited <- err
			}()

			c.take(f, gone, &cert)
			if err := wire.FromStatus(<-waited); fserror.KindOf(err) != fserror.Permission && fserror.ReasonOf(err) != fserror.ReasonProof { // refused if it came late
				t.Errorf("a call that waits ended with %v", err)
			}
			for name, recv := range map[string]func() error{
				"Session":   func() error { _, err := session.Recv(); return err },
				"KeepAlive": func() error { _, err := keeper.Recv(); return err },
				"Watch":     func() error { return all(watch, nil) },
			} {
				if err := wire.FromStatus(recv()); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			if _, err := carry.Recv(); err == nil {
				t.Error("the stream of calls did not end")
			}
			if strings.Contains(c.name, "groups") {
				if err := f.stat(cc); err != nil {
					t.Errorf("with other groups: %v", err)
				}
				return
			}
			if err := f.stat(cc); fserror.KindOf(err) != fserror.Permission {
				t.Errorf("on the same connection: %v", err)
			}
			if c.name == "an authority" {
				again := f.connect(f.shows(&cert, shown))
				if err := f.stat(again); fserror.KindOf(err) != fserror.Unavailable {
					t.Errorf("on a new connection: %v", err)
				}
			}
			if err := f.stat(f.connect(f.shows(nil, f.root))); err != nil {
				t.Errorf("another proof: %v", err)
			}
		})
	}
}

// TestSessionsAreBoundToUsers: who has proven to be one user cannot use the session of
// another, whatever he knows of it, under his own name either.
func TestSessionsAreBoundToUsers(t *testing.T) {
	f := newFort(t)
	r := f.Raw(t, "a")
	defer r.Connect()()
	w := r.Create("/w")
	if err := r.Flush(w, 0, "x"); err != nil {
		t.Fatal(err)
	}
	bob := linkOf(f.connect(f.shows(nil, f.bob)))
	as := proto.CloneOf(r.Who)
	as.User = "bob"
	ctx := t.Context()
	own := proto.CloneOf(as)
	own.Session = pb.NewSession("bob")
	call := &pb.CallId{Session: r.Who.GetSession(), Seq: 1000, Acked: 999} // would have root's results forgotten
	if _, err := r.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
		t.Fatal(err)
	}
	opened, err := bob.nn.Create(ctx, &pb.CreateRequest{Call: &pb.CallId{Session: own.GetSession(), Seq: 5}, Caller: own, At: pb.At("/bobs")})
	if err != nil {
		t.Fatal(err)
	}
	bobs := opened.GetWriter()
	for name, send := range map[string]func() error{
		"a stream of it": func() error {
			s, err := bob.nn.Session(ctx)
			if err == nil {
				err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: as, Stream: 99}}})
			}
			return first(s.Recv, err)
		},
		"a renewal of it": func() error {
			_, err := bob.nn.RenewLease(ctx, &pb.RenewLeaseRequest{Caller: own, Session: r.Who.GetSession()})
			return err
		},
		"a call of it": func() error {
			_, err := bob.nn.Mkdir(ctx, &pb.MkdirRequest{Call: call, Caller: own, At: pb.At("/d")})
			return err
		},
		"a look of it": func() error { _, err := bob.nn.Stat(ctx, &pb.StatRequest{Caller: as, At: pb.Follow("/")}); return err },
		"its writer":   func() error { _, err := bob.nn.AppendTail(ctx, env.TailRequest(w, 1, "y")); return err },
		"its file's end": func() error {
			_, err := bob.nn.Close(ctx, &pb.CloseRequest{Call: &pb.CallId{Session: own.GetSession(), Seq: 1}, Writer: w, Length: 1})
			return err
		},
		"its results, by the end of bob's file": func() error {
			_, err := bob.nn.Close(ctx, &pb.CloseRequest{Call: call, Writer: bobs, Length: 0})
			return err
		},
		"what it keeps, by a flush": func() error {
			other := proto.CloneOf(bobs)
			other.Session = r.Who.GetSession()
			_, err := bob.nn.AppendTail(ctx, env.TailRequest(other, 0, "y"))
			return err
		},
	} {
		if err := wire.FromStatus(send()); fserror.KindOf(err) != fserror.Permission || !strings.Contains(err.Error(), `"root"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Flush(w, 1, "y"); err != nil {
		t.Errorf("root's own: %v", err)
	}
	if _, err := bob.nn.Stat(ctx, &pb.StatRequest{Caller: own, At: pb.Follow("/")}); err != nil {
		t.Errorf("bob's own: %v", err)
	}
}

// TestWhomProofsName: a SPIFFE ID is a user, whole; groups come from the token, if it has
// some, and from the machine if not.
func TestWhomProofsName(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	id, err := url.Parse("spiffe://example.org/ns/web/sa/front")
	if err != nil {
		t.Fatal(err)
	}
	admin := token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(admin, "ann", "supergroup", "staff"))...)
	ann := f.connect(f.shows(nil, admin))
	env.Eventually(t, "the token is taken", func() bool { return f.statAs("ann", ann) == nil })
	pair := f.ca.Pair("front", time.Now().Add(day), id)
	for _, c := range []struct {
		opts  []grpc.DialOption
		user  string
		want  error
		admin error
	}{
		{f.shows(&pair, nil), id.String(), nil, fserror.Permission},
		{f.shows(&pair, nil), "front", fserror.Permission, fserror.Permission},
		{f.shows(nil, f.bob), "bob", nil, fserror.Permission},
		{f.shows(nil, f.root), "root", nil, nil},
		{f.shows(nil, admin), "ann", nil, nil},
	} {
		l := linkOf(f.connect(c.opts))
		who := &pb.Caller{User: c.user, Client: "c", Session: pb.NewSession(c.user)}
		_, err := l.nn.Stat(t.Context(), &pb.StatRequest{Caller: who, At: pb.Follow("/")})
		if err := wire.FromStatus(err); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.user, err, c.want)
		}
		_, err = l.admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: who})
		if err := wire.FromStatus(err); !errors.Is(err, c.admin) {
			t.Errorf("%s as a superuser: %v, want %v", c.user, err, c.admin)
		}
	}
}

// TestBrokenFilesKeepWhatTheySaid: a file that is half written, gone or wrong takes nothing
// from those who are proven, the log says which it is and no secret, and a new certificate is shown
// without a restart.
func TestBrokenFilesKeepWhatTheySaid(t *testing.T) {
	t.Parallel()
	var log logText
	f := newFort(t, log.config)
	cc := f.connect(f.shows(nil, f.root))
	secret := string(f.bob)
	for _, broken := range []string{secret + " bob\n", "half of a li"} {
		if err := os.WriteFile(f.tokens, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "it is told of", func() bool { return log.has("cannot be used") })
		if err := f.stat(cc); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(f.tokens); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the loss of the file is told of", func() bool { return log.has("no such file") })
	if err := f.stat(cc); err != nil {
		t.Error(err)
	}
	if !log.has(f.tokens) || log.has(secret) {
		t.Errorf("the log: %s", log.String())
	}
	f.writeTokens(f.lines[:2]...)
	f.awaitRefusal(f.bob, nil)

	f.ca.Issue("namenode", time.Now().Add(3*day)) // to the same files
	env.Eventually(t, "the new certificate is shown", func() bool {
		var until time.Time
		cfg := f.clientTLS(nil)
		cfg.VerifyConnection = func(s tls.ConnectionState) error {
			until = s.PeerCertificates[0].NotAfter
			return nil
		}
		c, err := tls.Dial("tcp", f.HTTPAddr(), cfg)
		if err != nil {
			return false
		}
		_ = c.Close()
		return until.After(time.Now().Add(2 * day))
	})
}

// TestAClientWithATokenFile: the library is whom its token names, shows it to the
// namenode, shows the next one when its file is replaced, and is told when it is revoked.
func TestAClientWithATokenFile(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	name := filepath.Join(t.TempDir(), "token")
	give := func(tok token) {
		t.Helper()
		if err := os.WriteFile(name+".new", []byte("root "+string(tok)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	give(f.root)
	fsys := f.Client(t, func(c *client.Config) {
		c.User, c.TLS, c.TokenFile = "", f.clientTLS(nil), name
	})
	if u := fsys.Info().User; u != "root" {
		t.Errorf("it is %q", u)
	}
	w, err := fsys.Create(t.Context(), "/f")
	if err == nil {
		_, err = w.Write([]byte("before"))
	}
	if err == nil {
		err = w.Flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	next := token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(next, "root"))...)
	f.awaitUse(next, nil)
	give(next)
	f.writeTokens(f.lines[0], f.lines[2], f.line(next, "root")) // without the first
	f.awaitRefusal(f.root, nil)
	if _, err = w.Write([]byte(" and after")); err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Errorf("with a new token: %v", err)
	}
	if got, err := fsys.ReadFile(t.Context(), "/f"); err != nil || string(got) != "before and after" {
		t.Errorf("%q, %v", got, err)
	}
	f.writeTokens(f.lines[0], f.lines[2])
	f.awaitRefusal(next, nil)
	env.Eventually(t, "it is told", func() bool {
		_, err := fsys.Stat(t.Context(), "/f")
		return errors.Is(err, fserror.Permission) && fserror.ReasonOf(err) == fserror.ReasonProof
	})
	for _, c := range []struct {
		user, addr string
		says       string
	}{{"bob", f.Addr(), "the request says"}, {"", "namenode.example:8020", "without TLS"}} {
		give(f.bob)
		cfg := client.Config{Namenodes: []string{c.addr}, User: "eve", Proof: client.Proof{TokenFile: name}, Timeout: 5 * time.Second}
		if c.user != "" {
			cfg.TLS = f.clientTLS(nil)
		}
		fs, err := client.New(t.Context(), cfg)
		if err == nil {
			_, err = fs.Stat(t.Context(), "/")
			_ = fs.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// Who proves nothing can watch the namenode's health, but not so often that it costs others.
func TestWatchesOfHealthAreLimited(t *testing.T) {
	f := newFort(t)
	nobody := healthpb.NewHealthClient(f.connect(f.shows(nil, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	watch := func(ctx context.Context) error {
		s, err := nobody.Watch(ctx, &healthpb.HealthCheckRequest{})
		return first(s.Recv, err)
	}
	refused := 0
	for range 300 {
		if err := watch(ctx); err != nil {
			if refused++; fserror.KindOf(wire.FromStatus(err)) != fserror.Retry {
				t.Fatal(err)
			}
		}
	}
	if refused != 300-256 {
		t.Errorf("%d of 300 watches were refused", refused)
	}
	cancel()
	env.Eventually(t, "there is room again", func() bool { return watch(t.Context()) == nil })
	if _, err := nobody.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// TestActingForOthers: what a proxy does for a user is that user's and goes by his rights,
// its session is bound to whom it names, and what it says of groups counts if a rule says so.
func TestActingForOthers(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	mnt, trusted := token(proof.NewToken()), token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(mnt, "mnt"), f.line(trusted, "trusted"))...)
	f.writeProxies("mnt users=* from=127.0.0.1,::1", "trusted users=* from=* trust-groups", "gateway users=ann from=*")
	ctx := t.Context()
	root := f.Raw(t, "r")
	if _, err := root.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/"), SetMode: true, Mode: 0o1777}); err != nil {
		t.Fatal(err)
	}
	link := func(tok token) link { return linkOf(f.connect(f.shows(nil, tok))) }
	l, lt, lg := link(mnt), link(trusted), link(f.gateway)
	seq := uint64(0)
	session := func(user string) []byte { return pb.SessionFor(user, [10]byte{}) }
	as := func(proxy, user string, mods ...func(*pb.Caller)) *pb.Caller {
		c := &pb.Caller{User: user, RealUser: proxy, SessionUser: proxy, Client: "m", Session: session(cmp.Or(proxy, user))}
		for _, m := range mods {
			m(c)
		}
		return c
	}
	nobody := func(c *pb.Caller) { c.User, c.Nobody = "nobody", true }
	groups := func(g ...string) func(*pb.Caller) { return func(c *pb.Caller) { c.Groups = g } }
	call := func(c *pb.Caller) *pb.CallId { seq++; return &pb.CallId{Session: c.GetSession(), Seq: seq} }
	mkdir := func(l pb.NamenodeClient, c *pb.Caller, path string, mode uint32, o *pb.Owner) error {
		_, err := l.Mkdir(ctx, &pb.MkdirRequest{Call: call(c), Caller: c, At: pb.At(path), Mode: mode, HasMode: true, Owner: o})
		return wire.FromStatus(err)
	}
	access := func(l pb.NamenodeClient, c *pb.Caller, path string, want uint32) error {
		_, err := l.Stat(ctx, &pb.StatRequest{Caller: c, At: pb.At(path), Access: want})
		return wire.FromStatus(err)
	}
	env.Eventually(t, "the rules are read", func() bool { return access(lt.nn, as("trusted", "ann"), "/", 7) == nil })

	for _, dir := range []struct {
		who  *pb.Caller
		path string
		mode uint32
	}{
		{as("mnt", "ann"), "/ann", 0o750}, {as("mnt", "bob"), "/bob", 0o700}, {as("mnt", "", nobody), "/nobody", 0o755}, {as("mnt", "nobody"), "/nobodys", 0o755},
	} {
		if err := mkdir(l.nn, dir.who, dir.path, dir.mode, nil); err != nil {
			t.Fatal(err)
		}
		st, err := root.NN.Stat(ctx, &pb.StatRequest{Caller: root.Who, At: pb.At(dir.path)})
		if a := st.GetAttr(); err != nil || a.GetUser() != dir.who.GetUser() {
			t.Errorf("%s is of %s: %v", dir.path, a.GetUser(), err)
		}
	}
	if _, err := root.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/ann"), Group: "staff"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		nn   pb.NamenodeClient
		who  *pb.Caller
		path string
		want uint32
		err  fserror.Kind
		may  bool
	}{
		"the owner":                               {l.nn, as("mnt", "ann"), "/ann", 7, 0, true},
		"another":                                 {l.nn, as("mnt", "bob"), "/ann", 4, fserror.Permission, false},
		"the proxy itself":                        {l.nn, as("", "mnt"), "/ann", 4, fserror.Permission, false},
		"a claim of the group":                    {l.nn, as("mnt", "bob", groups("staff")), "/ann", 5, fserror.Permission, false},
		"a claim of the group, trusted":           {lt.nn, as("trusted", "bob", groups("staff")), "/ann", 5, 0, true},
		"a claim of the group, write":             {lt.nn, as("trusted", "bob", groups("staff")), "/ann", 2, fserror.Permission, false},
		"a claim of the supergroup, trusted":      {lt.nn, as("trusted", "bob", groups("supergroup")), "/ann", 4, fserror.Permission, false},
		"nobody, what others may":                 {l.nn, as("mnt", "", nobody), "/nobody", 5, 0, true},
		"nobody, what its owner may":              {l.nn, as("mnt", "", nobody), "/nobody", 2, fserror.Permission, false},
		"nobody, what the user of that name owns": {l.nn, as("mnt", "", nobody), "/nobodys", 2, fserror.Permission, false},
		"the user of that name":                   {l.nn, as("mnt", "nobody"), "/nobodys", 2, 0, true},
		"nobody, with a group":                    {lt.nn, as("trusted", "", nobody, groups("staff")), "/ann", 4, fserror.Permission, false},
		"a user without a name":                   {l.nn, as("mnt", ""), "/", 4, fserror.Permission, false},
		"another's session":                       {lg.nn, as("gateway", "ann", func(c *pb.Caller) { c.Session = session("mnt") }), "/", 4, fserror.Permission, false}, // though nobody has it now
		"a session in the name of another":        {lg.nn, as("gateway", "ann", func(c *pb.Caller) { c.SessionUser = "bob" }), "/", 4, fserror.Permission, false},
		"an impossible access":                    {l.nn, as("mnt", "ann"), "/ann", 16, fserror.InvalidArgument, false},
		"the owner, as such":                      {l.nn, as("mnt", "ann"), "/ann", 8, 0, true},
		"nobody, as the owner":                    {l.nn, as("mnt", "", nobody), "/nobody", 8, fserror.Permission, false},
	} {
		if err := access(c.nn, c.who, c.path, c.want); (err == nil) != c.may || err != nil && fserror.KindOf(err) != c.err {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The root directory's group is the superuser's; a user's own is asked for.
	if err := mkdir(lt.nn, as("trusted", "bob", groups("staff")), "/bob/staff", 0o750, &pb.Owner{Group: "staff"}); err != nil {
		t.Error(err)
	}
	if err := mkdir(lt.nn, as("trusted", "bob", groups("staff")), "/bob/wheel", 0o750, &pb.Owner{Group: "wheel"}); err != nil {
		t.Error(err)
	}
	if err := mkdir(lt.nn, as("trusted", "bob"), "/bob/anns", 0o750, &pb.Owner{User: "ann"}); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("a gift: %v", err)
	}
	for path, want := range map[string]bool{"/bob/staff": true, "/bob/wheel": false} {
		st, err := root.NN.Stat(ctx, &pb.StatRequest{Caller: root.Who, At: pb.At(path)})
		if g := st.GetAttr().GetGroup(); err != nil || (g == path[len("/bob/"):]) != want {
			t.Errorf("%s is of group %s: %v", path, g, err)
		}
	}
	// What a mount opens for a user is held by the mount, and no other proxy can use it.
	w, err := l.nn.Create(ctx, &pb.CreateRequest{Call: call(as("mnt", "ann")), Caller: as("mnt", "ann"), At: pb.At("/ann/f")})
	if err != nil {
		t.Fatal(err)
	}
	st, err := root.NN.Stat(ctx, &pb.StatRequest{Caller: root.Who, At: pb.At("/ann/f")})
	if a := st.GetAttr(); err != nil || a.GetUser() != "ann" || a.GetOpen().GetHolder().GetUser() != "mnt" {
		t.Errorf("%v, %v", a, err)
	}
	for name, c := range map[string]struct {
		nn  pb.NamenodeClient
		may bool
	}{"the mount": {l.nn, true}, "the user's gateway": {lg.nn, false}, "the user bob": {link(f.bob).nn, false}} {
		_, err := c.nn.AppendTail(ctx, env.TailRequest(w.GetWriter(), 0, "x"))
		if c.may != (err == nil) || err != nil && fserror.KindOf(wire.FromStatus(err)) != fserror.Permission {
			t.Errorf("a flush by %s: %v", name, err)
		}
		if !c.may {
			continue
		}
		if _, err := c.nn.Close(ctx, &pb.CloseRequest{Call: call(as("mnt", "ann")), Writer: w.GetWriter(), Length: 1}); err != nil {
			t.Fatal(err)
		}
		w, err = l.nn.Append(ctx, &pb.AppendRequest{Call: call(as("mnt", "ann")), Caller: as("mnt", "ann"), At: pb.At("/ann/f")})
		if err != nil {
			t.Fatal(err)
		}
	}
	fsckClean(t, root)
}

// TestRulesAreTakenBack: streams that act for others end when no rule lets them any more; a
// file of rules that is wrong changes nothing.
func TestRulesAreTakenBack(t *testing.T) {
	t.Parallel()
	var log logText
	f := newFort(t, log.config)
	f.writeProxies("gateway users=ann,bob from=*")
	l := linkOf(f.connect(f.shows(nil, f.gateway)))
	who := &pb.Caller{User: "ann", RealUser: "gateway", Client: "c", Session: pb.NewSession("ann")}
	stat := func(c *pb.Caller) error {
		_, err := l.nn.Stat(t.Context(), &pb.StatRequest{Caller: c, At: pb.Follow("/")})
		return wire.FromStatus(err)
	}
	bob := &pb.Caller{User: "bob", RealUser: "gateway", Client: "d", Session: pb.NewSession("bob")}
	env.Eventually(t, "the rules are read", func() bool { return stat(bob) == nil })
	begin := func(c *pb.Caller) pb.Namenode_SessionClient {
		s, err := l.nn.Session(t.Context())
		if err == nil {
			err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: c}}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	anns, bobs := begin(who), begin(bob)
	f.writeProxies("gateway users=ann from=gateway.example")
	env.Eventually(t, "it is told of", func() bool { return log.has("gateway.example") && log.has(f.proxies) })
	if err := stat(who); err != nil {
		t.Errorf("with a broken file: %v", err)
	}
	f.writeProxies("gateway users=bob from=*")
	_, err := anns.Recv()
	if err := wire.FromStatus(err); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
		t.Errorf("ann's session ended with %v", err)
	}
	if err := stat(who); fserror.KindOf(err) != fserror.Permission || fserror.ReasonOf(err) != fserror.ReasonProxy {
		t.Errorf("for ann: %v", err)
	}
	if err := bobs.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: &pb.RenewLeaseRequest{Session: bob.GetSession(), Version: 1, Seq: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := bobs.Recv(); err != nil {
		t.Errorf("bob's session ended: %v", err)
	}
}
