package namenode_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env"
)

// BenchmarkProofs tells what each kind of proof costs: of an empty file, made on the stream of a
// session that has proven who it is, and of a session from its first call to its end. Both are
// the processor time of both sides. Without a proof there is no TLS either.
func BenchmarkProofs(b *testing.B) {
	castle := newCastle(b)
	f := newFort(b, castle.takes)
	shows := func(tok func() token) client.Proof {
		return client.Proof{Token: func(context.Context) (string, error) { return string(tok()), nil }}
	}
	same := func(tok token) client.Proof { return shows(func() token { return tok }) }
	if err := f.as("root", f.root).Mkdir(b.Context(), "/all", 0o777); err != nil {
		b.Fatal(err)
	}
	open := env.Start(b)
	if err := open.Client(b).Mkdir(b.Context(), "/all", 0o777); err != nil {
		b.Fatal(err)
	}
	castle.Use(b, castle.Kinit("bob@"+realm, "secret", time.Hour))
	for _, c := range []struct {
		name string
		user string
		cert *tls.Certificate
		by   client.Proof
	}{
		{"none", "root", nil, client.Proof{}},
		{"certificate", "root", &f.rootTLS, client.Proof{}},
		{"token", "bob", nil, same(f.bob)},
		{"JWT known", "eve", nil, same(token(f.issuer.Token("eve", nil)))},
		{"JWT new", "eve", nil, shows(func() token { return token(f.issuer.Token("eve", map[string]any{"jti": time.Now().String()})) })},
		{"delegation token", "bob", nil, same(f.delegation("bob", f.bob)(time.Hour))},
		{"Kerberos", "bob", nil, client.Proof{Kerberos: &client.Kerberos{Server: nnPrincipal}}},
	} {
		enter := func(b *testing.B) *client.FS {
			cfg := client.Config{Namenodes: []string{f.Addr()}, User: c.user, Proof: c.by, TLS: f.clientTLS(c.cert), HTTPClient: f.HTTP}
			if c.name == "none" {
				cfg.Namenodes, cfg.TLS, cfg.HTTPClient = []string{open.Addr()}, nil, nil
			}
			fsys, err := client.New(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			return fsys
		}
		measure := func(b *testing.B, run func()) {
			before := processorTime(b)
			b.ResetTimer()
			run()
			b.StopTimer()
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		}
		b.Run(c.name+"/create", func(b *testing.B) {
			fsys := enter(b)
			defer func() { _ = fsys.Close() }()
			dir := fmt.Sprintf("/all/%s %d", c.name, b.N)
			if err := fsys.MkdirAll(b.Context(), dir, 0o755); err != nil {
				b.Fatal(err)
			}
			files := make([]client.FileData, 1000)
			measure(b, func() {
				for i := 0; i < b.N; i += len(files) {
					for j := range files {
						files[j] = client.FileData{Path: fmt.Sprintf("%s/%d", dir, i+j)}
					}
					if _, err := fsys.WriteFiles(b.Context(), files[:min(len(files), b.N-i)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
		b.Run(c.name+"/session", func(b *testing.B) {
			measure(b, func() {
				for range b.N {
					fsys := enter(b)
					if _, err := fsys.Stat(b.Context(), "/all"); err != nil {
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
