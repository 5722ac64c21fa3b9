package namenode_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// BenchmarkProofs tells what each kind of proof costs a user: of an empty file, made on the stream
// of a session that has proven who it is, and of a session from its first call to its end. Both
// are the processor time of both sides. The namenode believes users of "none" over TCP, those of
// "TLS" over TLS. Each case removes its files: all begin with the same namespace.
func BenchmarkProofs(b *testing.B) {
	castle := newCastle(b)
	var withTLS *tls.Config
	f := newFort(b, castle.takes, func(c *namenode.Config) {
		withTLS = proof.ServerTLS(c.Identity.Pair.(*proof.File[*tls.Certificate]), nil, false)
	})
	shows := func(tok func() token) client.Proof {
		return client.Proof{Token: func(context.Context) (string, error) { return string(tok()), nil }}
	}
	same := func(tok token) client.Proof { return shows(func() token { return tok }) }
	plain := env.Start(b)
	overTLS := env.Start(b, func(c *namenode.Config) { c.TLS = withTLS })
	bob := f.ca.Pair("bob", time.Now().Add(day))
	castle.Use(b, castle.Kinit("bob@"+realm, "secret", time.Hour))
	for _, c := range []struct {
		name     string
		namenode *env.Namenode
		user     string
		cert     *tls.Certificate
		by       client.Proof
	}{
		{"none", plain, "bob", nil, client.Proof{}},
		{"TLS", overTLS, "bob", nil, client.Proof{}},
		{"certificate", f.Namenode, "bob", &bob, client.Proof{}},
		{"token", f.Namenode, "bob", nil, same(f.bob)},
		{"JWT known", f.Namenode, "eve", nil, same(token(f.issuer.Token("eve", nil)))},
		{"JWT new", f.Namenode, "eve", nil, shows(func() token { return token(f.issuer.Token("eve", map[string]any{"jti": time.Now().String()})) })},
		{"delegation token", f.Namenode, "bob", nil, same(f.delegation("bob", f.bob)(time.Hour))},
		{"Kerberos", f.Namenode, "bob", nil, client.Proof{Kerberos: &client.Kerberos{Server: nnPrincipal}}},
	} {
		enter := func(b *testing.B, user string, cert *tls.Certificate, by client.Proof) *client.FS {
			b.Helper()
			cfg := client.Config{Namenodes: []string{c.namenode.Addr()}, User: user, Proof: by}
			if c.namenode != plain {
				cfg.TLS, cfg.HTTPClient = f.clientTLS(cert), f.HTTP
			}
			fsys, err := client.New(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			return fsys
		}
		measure := func(b *testing.B, run func()) {
			b.Helper()
			runtime.GC()
			before := processorTime(b)
			b.ResetTimer()
			run()
			b.StopTimer()
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		}
		b.Run(c.name+"/create", func(b *testing.B) {
			root := enter(b, "root", &f.rootTLS, client.Proof{})
			defer func() { _ = root.Close() }()
			if err := root.Mkdir(b.Context(), "/all", 0o777); err != nil {
				b.Fatal(err)
			}
			if err := root.Chmod(b.Context(), "/all", 0o777); err != nil {
				b.Fatal(err)
			}
			fsys := enter(b, c.user, c.cert, c.by)
			defer func() { _ = fsys.Close() }()
			files := make([]client.FileData, 1000)
			measure(b, func() {
				for i := 0; i < b.N; i += len(files) {
					for j := range files {
						files[j] = client.FileData{Path: fmt.Sprintf("/all/%d", i+j)}
					}
					if _, err := fsys.WriteFiles(b.Context(), files[:min(len(files), b.N-i)]); err != nil {
						b.Fatal(err)
					}
				}
			})
			if err := root.RemoveAll(b.Context(), "/all"); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(c.name+"/session", func(b *testing.B) {
			measure(b, func() {
				for range b.N {
					fsys := enter(b, c.user, c.cert, c.by)
					if _, err := fsys.Stat(b.Context(), "/"); err != nil {
						b.Fatal(err)
					}
					if err := fsys.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
