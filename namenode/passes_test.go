package namenode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// as is a client that proves by a token, and has what the file of the token says.
func (f *fort) as(user string, tok token) *client.FS {
	f.t.Helper()
	name := filepath.Join(f.t.TempDir(), "token")
	if err := os.WriteFile(name, []byte(user+" "+string(tok)), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return f.Client(f.t, func(c *client.Config) { c.User, c.TLS, c.TokenFile = "", f.clientTLS(nil), name })
}

// delegation gets delegation tokens by another token.
func (f *fort) delegation(user string, by token) func(ttl time.Duration) token {
	f.t.Helper()
	fsys := f.as(user, by)
	return func(ttl time.Duration) token {
		f.t.Helper()
		secret, _, err := client.NewDelegationTokens(fsys).Get(f.t.Context(), "", ttl)
		if err != nil {
			f.t.Fatal(err)
		}
		return token(secret)
	}
}

func (f *fort) cancel(by, what token) error {
	return client.NewDelegationTokens(f.as("root", by)).Cancel(f.t.Context(), client.TokenRef{Token: string(what)})
}

// TestDelegationTokens: who may get, renew, cancel and see which.
func TestDelegationTokens(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	ctx := t.Context()
	root, bob := client.NewDelegationTokens(f.as("root", f.root)), client.NewDelegationTokens(f.as("bob", f.bob))
	secret, got, err := bob.Get(ctx, "root", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Expires.Sub(got.Issued); d != time.Hour || got.Ends.Sub(got.Issued) != 7*24*time.Hour || got.ID == 0 {
		t.Errorf("it is good for %s: %+v", d, got)
	}
	job := f.as("bob", token(secret))
	if _, err := job.Stat(ctx, "/"); err != nil {
		t.Error(err)
	}
	ref := client.TokenRef{Token: secret}
	for name, c := range map[string]struct {
		do   func() error
		want fserror.Kind
		says string
	}{
		"one, by a token of an issuer": {func() error {
			_, _, err := client.NewDelegationTokens(f.as("eve", token(f.issuer.Token("eve", nil)))).Get(ctx, "", 0)
			return err
		}, fserror.Permission, "a token of an issuer"},
		"one, by who acts for its user": {func() error {
			cfg := client.Config{Namenodes: []string{f.Addr()}, TLS: f.clientTLS(nil), User: "ann", RealUser: "gateway", Proof: client.Proof{Token: func(context.Context) (string, error) { return string(f.gateway), nil }}, HTTPClient: f.HTTP}
			proxy, err := client.New(ctx, cfg)
			if err != nil {
				return err
			}
			defer proxy.Close()
			_, _, err = client.NewDelegationTokens(proxy).Get(ctx, "", 0)
			return err
		}, fserror.Permission, "himself"},
		"another, by itself":          {func() error { _, _, err := client.NewDelegationTokens(job).Get(ctx, "", 0); return err }, fserror.Permission, "authenticate the way you did"},
		"renewed, by itself":          {func() error { _, err := client.NewDelegationTokens(job).Renew(ctx, ref); return err }, fserror.Permission, "authenticate the way you did"},
		"renewed, not by its renewer": {func() error { _, err := bob.Renew(ctx, ref); return err }, fserror.Permission, "only user root"},
		"one that is not there":       {func() error { _, err := root.Renew(ctx, client.TokenRef{ID: 1 << 40}); return err }, fserror.NotFound, "no such delegation token"},
		"cancelled by who may not": {func() error {
			return client.NewDelegationTokens(f.as("bob", f.bob)).Cancel(ctx, client.TokenRef{Token: string(f.delegation("root", f.root)(0))})
		}, fserror.NotFound, "user bob"},
		"good for too long":            {func() error { _, _, err := bob.Get(ctx, "", 25*time.Hour); return err }, fserror.InvalidArgument, "24 hours"},
		"all users', by no superuser":  {func() error { return firstOf(bob.List(ctx, true)) }, fserror.Permission, "superuser"},
		"a renewer that is not a name": {func() error { _, _, err := bob.Get(ctx, "a\x1bb", 0); return err }, fserror.InvalidArgument, "printed"},
	} {
		if err := c.do(); fserror.KindOf(err) != c.want || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.says)
		}
	}
	if again, err := root.Renew(ctx, ref); err != nil || again.ID != got.ID || again.Expires.Before(got.Expires) {
		t.Errorf("renewed: %+v, %v", again, err)
	}
	list := func(d *client.DelegationTokens, all bool) (users []string) {
		for one, err := range d.List(ctx, all) {
			if err != nil {
				t.Error(err)
			}
			users = append(users, one.User+"/"+one.Renewer)
		}
		return users
	}
	if mine, everybodys := strings.Join(list(bob, false), " "), strings.Join(list(root, true), " "); mine != "bob/root" || everybodys != "bob/root root/root" {
		t.Errorf("bob's: %s; everybody's: %s", mine, everybodys)
	}
	if err := client.NewDelegationTokens(job).Cancel(ctx, ref); err != nil {
		t.Errorf("its bearer cancels it: %v", err)
	}
	env.Eventually(t, "the job is refused", func() bool {
		_, err := job.Stat(ctx, "/")
		return errors.Is(err, fserror.Permission) && fserror.ReasonOf(err) == fserror.ReasonProof
	})
	if open := env.Start(t); true {
		fs := open.Client(t)
		_, _, err := client.NewDelegationTokens(fs).Get(ctx, "", 0)
		if !errors.Is(err, fserror.Unsupported) || fserror.ReasonOf(err) != fserror.ReasonDelegation {
			t.Errorf("where nobody proves anything: %v", err)
		}
	}
}

func firstOf(seq func(func(client.DelegationToken, error) bool)) (err error) {
	for _, err = range seq {
		break
	}
	return err
}

// TestDelegationTokensKeepGroups: who is a superuser by the groups of his token is one by a
// delegation token, too, and who is none by them does not become one by those of the machine.
func TestDelegationTokensKeepGroups(t *testing.T) {
	t.Parallel()
	f := newFort(t, func(c *namenode.Config) {
		c.Groups = func(string) []string { return []string{"supergroup"} }
	})
	few, many := token(proof.NewToken()), token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(few, "eve", "staff"), f.line(many, "ann", "supergroup"))...)
	for user, by := range map[string]token{"eve": few, "ann": many} {
		cc := f.connect(f.shows(nil, by))
		env.Eventually(t, "the token is taken", func() bool { return f.statAs(user, cc) == nil })
		cc = f.connect(f.shows(nil, f.delegation(user, by)(0)))
		_, err := linkOf(cc).admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: &pb.Caller{User: user, Client: "c", Session: pb.NewSession(user)}})
		if super := wire.FromStatus(err) == nil; super != (user == "ann") {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// TestACancelIsAnswered: who cancels a delegation token by that token is told so, though the proof of
// his call is not good any more before the journal is synced and the answer may be given.
func TestACancelIsAnswered(t *testing.T) {
	t.Parallel()
	var gate sync.RWMutex
	f := newFort(t, func(c *namenode.Config) { c.FS = heldFS{vfs.OS(), &gate} })
	get := f.delegation("bob", f.bob)
	for name, carried := range map[string]bool{"by itself": false, "over the stream of calls": true} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			tok := get(0)
			l := linkOf(f.connect(f.shows(nil, tok)))
			who := &pb.Caller{User: "bob", Client: "c", Session: pb.NewSession("bob")}
			watch, err := l.nn.Watch(ctx, &pb.WatchRequest{Caller: who, Path: "/"})
			if err == nil {
				_, err = watch.Header()
			}
			if err != nil {
				t.Fatal(err)
			}
			sum := proof.Hash(string(tok))
			req := &pb.ChangeDelegationTokenRequest{Call: &pb.CallId{Session: who.GetSession(), Seq: 1}, Caller: who, Hash: sum[:], Cancel: true}
			cancel := func() error {
				_, err := l.nn.ChangeDelegationToken(ctx, req)
				return err
			}
			if carried {
				stream, err := l.calls.Carry(ctx)
				if err != nil {
					t.Fatal(err)
				}
				cancel = func() error { return overStream(stream, "Namenode/ChangeDelegationToken", req) }
			}
			answered := make(chan error, 1)
			gate.Lock()
			go func() { answered <- wire.FromStatus(cancel()) }()
			err = wire.FromStatus(all(watch, nil))
			gate.Unlock()
			if fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
				t.Errorf("what he watches: %v", err)
			}
			if err := <-answered; err != nil {
				t.Errorf("his call: %v", err)
			}
			if err := f.statAs("bob", f.connect(f.shows(nil, tok))); fserror.KindOf(err) != fserror.Permission {
				t.Errorf("the token that was cancelled: %v", err)
			}
		})
	}
}

// overStream makes a call over a stream of calls.
func overStream(s pb.Calls_CarryClient, method string, req proto.Message) error {
	body, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	_ = s.Send(&pb.CarryRequest{Calls: []*pb.CarriedCall{{Id: 1, Method: method, Request: body}}}) // Recv knows why not
	m, err := s.Recv()
	if err != nil {
		return err
	}
	a := m.GetAnswers()[0]
	switch {
	case a.GetDetail() != nil:
		return wire.FromDetail(a.GetDetail())
	case a.GetCode() != 0:
		return status.Error(codes.Code(a.GetCode()), a.GetMessage())
	}
	return nil
}

// TestDelegationTokensEndStreams: a stream ends when the token that it was begun with is
// cancelled or expires, by the time of records; that time goes by also if the machine's
// time of day jumps back, and a restart changes nothing.
func TestDelegationTokensEndStreams(t *testing.T) {
	t.Parallel()
	begin := func(f *fort, tok token) (ended func() error) {
		watch, err := linkOf(f.connect(f.shows(nil, tok))).nn.Watch(t.Context(), &pb.WatchRequest{Caller: &pb.Caller{User: "root", Client: "c", Session: pb.NewSession("root")}, Path: "/", Recursive: true})
		if err == nil {
			_, err = watch.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return wire.FromStatus(all(watch, nil)) }
	}
	t.Run("cancelled", func(t *testing.T) {
		f := newFort(t)
		tok := f.delegation("root", f.root)(0)
		ended := begin(f, tok)
		if err := f.cancel(f.root, tok); err != nil {
			t.Fatal(err)
		}
		if err := ended(); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
			t.Error(err)
		}
	})
	t.Run("expired", func(t *testing.T) {
		f := newFort(t)
		ended := begin(f, f.delegation("root", f.root)(20*time.Second)) // it lasts until the stream has begun, on a slow machine too
		if err := ended(); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
			t.Error(err)
		}
	})
	t.Run("restarted", func(t *testing.T) {
		f := newFort(t)
		d := f.delegation("root", f.root)
		lasting, short := d(0), d(10*time.Millisecond)
		f.awaitRefusal(short, nil)
		f.Restart(t)
		if err := f.stat(f.connect(f.shows(nil, lasting))); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		if err := f.stat(f.connect(f.shows(nil, short))); fserror.KindOf(err) != fserror.Permission {
			t.Errorf("one that has expired, after a restart: %v", err)
		}
	})
}

// TestDelegationTokensOutliveFailovers: the next namenode takes a token that was got just
// before, and refuses one that was cancelled; while it is a standby it may not know one, and
// says so in a way that lets the client go on to the active one.
func TestDelegationTokensOutliveFailovers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	root := proof.NewToken()
	line, err := proof.Line(root, "root")
	if err != nil {
		t.Fatal(err)
	}
	tokens := file("tokens", line)
	proves := func(c *namenode.Config) {
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, tokens); err != nil {
			t.Fatal(err)
		}
		c.Identity.Delegates = true
	}
	acfg, _ := p.config(proves)
	bcfg, _ := p.config(proves)
	a := p.active(acfg)
	b := p.start(bcfg)
	defer func() { _ = b.Close() }()
	as := func(name, token string) *client.FS {
		t.Helper()
		// The standby is asked first.
		fsys, err := client.New(t.Context(), client.Config{Namenodes: []string{bcfg.Listen, acfg.Listen}, User: "root", Proof: client.Proof{TokenFile: file(name, token)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fsys.Close() })
		return fsys
	}
	user := client.NewDelegationTokens(as("root.token", root))
	gone, _, err := user.Get(t.Context(), "", 0)
	if err == nil {
		err = user.Cancel(t.Context(), client.TokenRef{Token: gone})
	}
	kept, _, kerr := user.Get(t.Context(), "", 0)
	if err != nil || kerr != nil {
		t.Fatal(err, kerr)
	}
	job := as("job.token", kept)
	if err := job.WriteFile(t.Context(), "/before", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := job.WriteFile(t.Context(), "/after", []byte("x")); err != nil {
		t.Errorf("after the failover: %v", err)
	}
	if _, err := client.New(t.Context(), client.Config{Namenodes: []string{bcfg.Listen}, User: "root", Proof: client.Proof{TokenFile: file("gone.token", gone)}}); !errors.Is(err, fserror.Permission) {
		t.Errorf("a cancelled one, after the failover: %v", err)
	}
	if err := user.Cancel(t.Context(), client.TokenRef{Token: kept}); err != nil {
		t.Error(err)
	}
	p.eventually("the job is refused", func() bool {
		_, err := job.Stat(t.Context(), "/")
		return errors.Is(err, fserror.Permission)
	})
}
