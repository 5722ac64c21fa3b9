package namenode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/kerberos"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/kdc"
)

const (
	realm, otherRealm = "LEASEFS.TEST", "OTHER.TEST"
	nnPrincipal       = "leasefs/nn.example@" + realm
)

// castle is a KDC with users, and what a namenode needs of it.
type castle struct {
	*kdc.KDC
	t             testing.TB
	keytab, rules string
}

func newCastle(t testing.TB) *castle {
	t.Helper()
	c := &castle{KDC: kdc.Start(t, realm, otherRealm), t: t, rules: filepath.Join(t.TempDir(), "rules")}
	c.keytab = c.Keytab(nnPrincipal, filepath.Join(t.TempDir(), "keytab"))
	for _, user := range []string{"root@" + realm, "bob@" + realm, "root/host@" + realm, "root@" + otherRealm} {
		c.User(user, "secret")
	}
	c.Trust(otherRealm, realm)
	c.rule("# none")
	return c
}

func (c *castle) rule(line string) {
	c.t.Helper()
	err := os.WriteFile(c.rules+".new", []byte(line+"\n"), 0o600)
	if err == nil {
		err = os.Rename(c.rules+".new", c.rules)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// takes has a namenode take tickets.
func (c *castle) takes(cfg *namenode.Config) {
	var err error
	if cfg.Identity.Kerberos, err = kerberos.OpenAcceptor(clock.System{}, c.keytab, nnPrincipal, c.rules); err != nil {
		c.t.Fatal(err)
	}
}

// ticket shows one.
type ticket struct {
	show func(context.Context) (string, error)
}

func (k ticket) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	header, err := k.show(ctx)
	return map[string]string{"authorization": header}, wire.ToStatus(err)
}

func (ticket) RequireTransportSecurity() bool { return false }

func (c *castle) shows(principal string) credentials.PerRPCCredentials {
	c.t.Helper()
	c.Use(c.t, c.Kinit(principal, "secret", time.Hour))
	s, err := kerberos.Open(clock.System{}, kerberos.Config{Server: nnPrincipal})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return &ticket{func(ctx context.Context) (string, error) { return s.Header(ctx, "nn.example") }}
}

// replays shows the same each time.
func (c *castle) replays() credentials.PerRPCCredentials {
	c.t.Helper()
	md, err := c.shows("root@" + realm).GetRequestMetadata(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return &ticket{func(context.Context) (string, error) { return md["authorization"], nil }}
}

// knight is a client that proves by the tickets of a principal.
func (f *fort) knight(c *castle, principal string, life time.Duration) (*client.FS, error) {
	f.t.Helper()
	c.Use(f.t, c.Kinit(principal, "secret", life))
	fsys, err := client.New(f.t.Context(), client.Config{Namenodes: []string{f.Addr()}, TLS: f.clientTLS(nil), Proof: client.Proof{Kerberos: &client.Kerberos{Server: nnPrincipal}}, HTTPClient: f.HTTP, Timeout: 30 * time.Second})
	if err == nil {
		f.t.Cleanup(func() { _ = fsys.Close() })
	}
	return fsys, err
}

// TestKerberos: who has a ticket is its user, may get a delegation token for a job, and is
// sent away while connected when a rule says that he is no user any more, and when the
// ticket has expired; with a new one he is let in again.
func TestKerberos(t *testing.T) {
	c := newCastle(t)
	f := newFort(t, c.takes)
	bob, err := f.knight(c, "bob@"+realm, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if u := bob.Info().User; u != "bob" {
		t.Errorf("he is %q", u)
	}
	if _, err := bob.Stat(t.Context(), "/"); err != nil {
		t.Error(err)
	}
	secret, _, err := client.NewDelegationTokens(bob).Get(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.as("bob", token(secret)).Stat(t.Context(), "/"); err != nil {
		t.Errorf("a job with his token: %v", err)
	}
	watch := func(shown credentials.PerRPCCredentials) func() error {
		t.Helper()
		w, err := linkOf(f.connect(f.shows(nil, shown))).nn.Watch(t.Context(), &pb.WatchRequest{Caller: &pb.Caller{User: "bob", Client: "c", Session: pb.NewSession("bob")}, Path: "/", Recursive: true})
		if err == nil {
			_, err = w.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return wire.FromStatus(all(w, nil)) }
	}
	ended := watch(c.shows("bob@" + realm))
	c.rule("bob@" + realm + " -")
	if err := ended(); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
		t.Errorf("his stream ended with %v", err)
	}
	env.Eventually(t, "he is refused", func() bool {
		_, err := bob.Stat(t.Context(), "/")
		return errors.Is(err, fserror.Permission) && strings.Contains(err.Error(), "by a rule")
	})
	c.rule("# nobody is refused")
	env.Eventually(t, "he is let in", func() bool { _, err := bob.Stat(t.Context(), "/"); return err == nil })

	// A ticket that expires. It has to last until the stream has begun, on a slow machine too.
	c.Use(t, c.Kinit("bob@"+realm, "secret", 20*time.Second))
	s, err := kerberos.Open(clock.System{}, kerberos.Config{Server: nnPrincipal})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ended = watch(&ticket{func(ctx context.Context) (string, error) { return s.Header(ctx, "nn.example") }})
	if _, err := f.knight(c, "root@"+otherRealm, time.Hour); !errors.Is(err, fserror.Permission) || !strings.Contains(err.Error(), "others need a rule") {
		t.Errorf("root of another realm: %v", err)
	}
	c.Use(t, "")
	if _, err := client.New(t.Context(), client.Config{Namenodes: []string{"nn.example:8020"}, Proof: client.Proof{Kerberos: &client.Kerberos{Keytab: c.Keytab("robot@"+realm, filepath.Join(t.TempDir(), "robot")), Principal: "robot@" + realm}}}); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("over the network without TLS: %v", err)
	}
	if err := ended(); fserror.KindOf(err) != fserror.Retry || fserror.ReasonOf(err) != fserror.ReasonProof {
		t.Errorf("a stream of an expired ticket ended with %v", err)
	}
	c.Stop()
	if _, err := bob.Stat(t.Context(), "/"); err != nil {
		t.Errorf("who is connected, without a KDC: %v", err)
	}
}
