package proof

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(contents [][]byte) (string, error) {
	if strings.HasPrefix(string(contents[0]), "bad") {
		return "", fserror.New(fserror.InvalidArgument, "read", "", "%s", contents[0])
	}
	return string(contents[0]), nil
}

// TestFile: a change is noticed also where size and time stay the same just after it was
// read, a problem is told once, and what the file said before counts until it is mended.
func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if _, err := Open(clock.System{}, text, name); !errors.Is(err, fserror.NotFound) || !strings.Contains(err.Error(), name) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, name, "one")
	f, err := Open(clock.System{}, text, name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	want := func(step, value string, changed bool, problem string) {
		t.Helper()
		got, err := f.Check()
		if got != changed || f.Get() != value || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %q, changed %t, %v; want %q, %t, %q", step, f.Get(), got, err, value, changed, problem)
		}
	}
	want("unchanged", "one", false, "")
	write(t, name, "two")
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	want("as large and as old", "two", true, "")
	write(t, name, "bad 1")
	want("broken", "two", false, "bad 1")
	want("still", "two", false, "")
	write(t, name, "bad 2")
	want("otherwise broken", "two", false, "bad 2")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	want("gone", "two", false, "no such file")
	write(t, name, "two")
	want("back", "two", false, "")
	write(t, name, "three")
	want("new", "three", true, "")
	write(t, name, strings.Repeat("x", maxFile+1))
	want("far too large", "three", false, "larger than")
	if err := errors.Join(os.Remove(name), unix.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	want("a pipe in its place", "three", false, "no regular file")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	write(t, name, "four")
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	want("old", "four", true, "")
	if f.stamps == nil {
		t.Error("an old file is read again each time")
	}
}

// TestPipe: what gives its content once is not asked again.
func TestPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		if w, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil {
			_, _ = w.WriteString("once")
			_ = w.Close()
		}
	}()
	f, err := Open(clock.System{}, text, name)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := f.Check(); changed || err != nil || f.Get() != "once" {
		t.Errorf("%q, %t, %v", f.Get(), changed, err)
	}
}

func TestTokens(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tokens")
	a, b := NewToken(), NewToken()
	line := func(token, user string, groups ...string) string {
		l, err := Line(token, user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(l, token) {
			t.Error("the line has the token")
		}
		return l + "\n"
	}
	write(t, name, "# who may\n\n"+line(a, "ann", "ops", "staff")+line(b, "bob"))
	f, err := OpenTokens(clock.System{}, name)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{a: "{ann [ops staff]} true", b: "{bob []} true", NewToken(): "{ []} false", "": "{ []} false"} {
		who, ok := f.Get().Find(Hash(token))
		if got := fmt.Sprint(who, ok); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	hash := strings.Fields(line(a, "ann"))[0]
	for content, says := range map[string]string{
		a + " ann\n": "line 1 does not begin", hash + "\n": "names no user", hash[:63] + " ann": "does not begin", "\n" + hash + " x\n" + hash + " y": "line 3 has the hash",
		strings.Repeat("a", 1<<17): "too long",
	} {
		write(t, name, content)
		if _, err := OpenTokens(clock.System{}, name); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), a) {
			t.Errorf("%.80q: %v", content, err)
		}
	}
	for _, bad := range []string{"", "two words", "a\nb", "\x1b[2J"} {
		if _, err := Line(a, bad); err == nil {
			t.Errorf("a line for the user %q", bad)
		}
		if _, err := Line(a, "ann", bad); err == nil {
			t.Errorf("a line for the group %q", bad)
		}
	}
}

func TestOwn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]Own{"ann secret\n": {"ann", "secret"}, " secret ": {"", "secret"}} {
		write(t, name, content)
		f, err := OpenOwn(clock.System{}, name)
		if err != nil || f.Get() != want {
			t.Errorf("%q: %v", content, err)
			continue
		}
		if s := fmt.Sprint(f.Get()); strings.Contains(s, "secret") {
			t.Errorf("it prints as %s", s)
		}
	}
	for _, content := range []string{"", "a b secret", "ann secr\x00et", "ann " + strings.Repeat("s", MaxToken+1)} {
		write(t, name, content)
		if _, err := OpenOwn(clock.System{}, name); !errors.Is(err, fserror.InvalidArgument) || strings.Contains(err.Error(), "secr") {
			t.Errorf("%.20q: %.200v", content, err)
		}
	}
	write(t, name, "ann secret")
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOwn(clock.System{}, name); !errors.Is(err, fserror.Permission) {
		t.Errorf("others may read it: %v", err)
	}
}

func TestUserOf(t *testing.T) {
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, c := range []struct {
		cn   string
		uris []*url.URL
		want string // empty: an error
	}{
		{"ann", nil, "ann"},
		{"ann", []*url.URL{uri("https://example.org/ann")}, "ann"},
		{"ann", []*url.URL{uri("spiffe://example.org/bob")}, "spiffe://example.org/bob"},
		{"ann", []*url.URL{uri("spiffe://a/x"), uri("spiffe://a/y")}, ""},
		{"", nil, ""},
	} {
		got, err := UserOf(&x509.Certificate{Subject: pkix.Name{CommonName: c.cn}, URIs: c.uris})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: %q, %v", c, got, err)
		}
	}
}

// TestChainEnds: a certificate is good for as long as all that lead to its authority are.
func TestChainEnds(t *testing.T) {
	now := time.Now()
	issue := func(name string, ca bool, life time.Duration, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: ca, BasicConstraintsValid: ca,
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if by == nil {
			by, byKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, byKey)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	root, rootKey := issue("root", true, 3*time.Hour, nil, nil)
	short, shortKey := issue("between", true, time.Hour, root, rootKey)
	leaf, _ := issue("ann", false, 2*time.Hour, short, shortKey)
	a := &Authorities{Pool: x509.NewCertPool()}
	a.Pool.AddCert(root)
	until, err := a.Verify([]*x509.Certificate{leaf, short}, now)
	if err != nil || !until.Equal(short.NotAfter) {
		t.Errorf("good until %v, %v; want %v", until, err, short.NotAfter)
	}
	if _, err := a.Verify([]*x509.Certificate{leaf, short}, short.NotAfter.Add(time.Second)); !errors.Is(err, fserror.Permission) {
		t.Errorf("after the one between: %v", err)
	}
}
