package page

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// bearer shows a token.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// TestPageWithAToken: where callers have to prove who they are, whoever signs in with his token
// looks around and takes a file from its holder.
func TestPageWithAToken(t *testing.T) {
	signsInWithAToken(t, func(*namenode.Config) {}, nil)
}

// TestPageOverTLS: the same over TLS, to a namenode that also takes certificates of clients.
func TestPageOverTLS(t *testing.T) {
	ca := env.NewAuthority(t, t.TempDir(), "ca")
	cert, key := ca.Issue("namenode", time.Now().Add(time.Hour))
	pair, err := proof.OpenPair(clock.System{}, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	signsInWithAToken(t, func(c *namenode.Config) {
		var err error
		if c.Identity.Authorities, err = proof.OpenAuthorities(clock.System{}, ca.File, ""); err != nil {
			t.Fatal(err)
		}
		c.Identity.Certificates, c.Identity.Pair = true, pair
		c.TLS = proof.ServerTLS(pair, c.Identity.Authorities, false)
	}, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.Pool(), ServerName: "localhost"},
		chromedp.Flag("ignore-certificate-errors-spki-list", base64.StdEncoding.EncodeToString(sum[:]))) // it trusts this one key
}

func signsInWithAToken(t *testing.T, how func(*namenode.Config), secure *tls.Config, flags ...chromedp.ExecAllocatorOption) {
	t.Helper()
	file, secret := filepath.Join(t.TempDir(), "tokens"), proof.NewToken()
	line, err := proof.Line(secret, "root")
	if err == nil {
		err = os.WriteFile(file, []byte(line+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := env.Start(t, patient, how, func(c *namenode.Config) {
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, file); err != nil {
			t.Fatal(err)
		}
	})
	dial := []grpc.DialOption{grpc.WithPerRPCCredentials(bearer(secret))}
	if secure != nil {
		dial = append(dial, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	}
	holder := env.RawAt(t, n.Addr(), "ingest", dial...)
	holder.Create("/app.log")
	b := open(t, n, flags...)
	b.until("it asks who that is", "document.querySelector('dialog input[name=user]') !== null")
	b.do("say who", chromedp.SendKeys(chromedp.CSS("dialog input[name=user]"), "root"))
	b.do("prove it", chromedp.SendKeys(chromedp.CSS("dialog input[name=token]"), secret+"\r"))
	b.until("it knows", "document.getElementById('who').textContent.startsWith('root') && document.getElementById('view').dataset.ready === 'yes'")
	b.shows("/app.log")
	b.runs("ask to recover", "document.querySelector('tbody tr button').click()")
	b.until("it asks", "document.querySelector('dialog')?.innerText.includes('/app.log')")
	b.click("dialog input[name=force]")
	b.click("dialog button.danger")
	b.until("it says so", "document.getElementById('said').textContent.includes('/app.log is closed')")
	if f := holder.File("/app.log"); f.GetAttr().GetOpen() != nil {
		t.Errorf("%v", f.GetAttr())
	}
	b.end()
}
