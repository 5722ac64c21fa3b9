package issuer

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/test/env/issuerenv"
	"github.com/leasefs/leasefs/test/env/textlog"
)

// hand is the time that the package time tells, which stands still in a bubble of synctest
// until all wait.
type hand struct{ start time.Time }

func (hand) Wall() time.Time       { return time.Now() }
func (h hand) Mono() time.Duration { return time.Since(h.start) }
func (h hand) Boot() time.Duration { return h.Mono() }

// within has an issuer answer without a network.
type within struct{ is *issuerenv.Issuer }

func (w within) RoundTrip(q *http.Request) (*http.Response, error) {
	rec, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		w.is.ServeHTTP(rec, q)
	}()
	select {
	case <-done:
		return rec.Result(), nil
	case <-q.Context().Done():
		<-done
		return nil, q.Context().Err()
	}
}

// rig is a verifier of one issuer's tokens that runs.
type rig struct {
	*Issuers
	t   testing.TB
	is  *issuerenv.Issuer
	log *textlog.Log
}

func newRig(t testing.TB, mods ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, is: issuerenv.Alone(t), log: new(textlog.Log)}
	cfg := Config{URL: r.is.URL, Audiences: []string{"other", issuerenv.Audience}, UserPrefix: "oidc/", GroupsPrefix: "oidc/"}
	for _, mod := range mods {
		mod(&cfg)
	}
	var err error
	if r.Issuers, err = New(hand{time.Now()}, cfg); err != nil {
		t.Fatal(err)
	}
	r.byURL[cfg.URL].keys.client.Transport = proof.Limited(within{r.is})
	r.run()
	return r
}

// run has the issuer asked until the test ends.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx, slog.New(slog.NewTextHandler(r.log, nil))) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

// show verifies a token.
func (r *rig) show(token string) (*Bearer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return r.Verify(ctx, sha256.Sum256([]byte(token)), token)
}

// want verifies a token that is to fail.
func (r *rig) want(what, token string, kind fserror.Kind, says string) {
	r.t.Helper()
	b, err := r.show(token)
	if !errors.Is(err, kind) || !strings.Contains(fmt.Sprint(err), says) || fserror.ReasonOf(err) != fserror.ReasonProof {
		r.t.Errorf("%s: %+v, %v; want %v with %q", what, b, err, kind, says)
	}
	if last := token[strings.LastIndex(token, ".")+1:]; err != nil && len(last) > 8 && strings.Contains(err.Error(), last) {
		r.t.Errorf("%s: the error has a secret: %v", what, err)
	}
}

func (r *rig) good(what, token, user string, groups ...string) {
	r.t.Helper()
	b, err := r.show(token)
	if err != nil {
		r.t.Errorf("%s: %v", what, err)
		return
	}
	if b.User != user || !slices.Equal(b.Groups, groups) || b.Issuer != r.is.URL || !r.Still(b) {
		r.t.Errorf("%s: %+v, want %q %q", what, b, user, groups)
	}
}

// b64 is a part of a token.
func b64(v any) string {
	raw, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// TestTokens shows each kind of wrong token, and some right ones.
func TestTokens(t *testing.T) { synctest.Test(t, tokens) }

func tokens(t *testing.T) {
	r := newRig(t, func(c *Config) { c.GroupsClaim = "groups" })
	now := time.Now()
	key := issuerenv.NewKey(t, 0)
	named := func(private any, name string, alg jose.SignatureAlgorithm) jose.SigningKey {
		return jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: private, KeyID: name}}
	}
	r.good("a right one", r.is.Token("ann", nil), "oidc/ann")
	r.good("with groups", r.is.Token("ann", map[string]any{"groups": []string{"a", "b c"}}), "oidc/ann", "oidc/a", "oidc/b c")
	r.good("with a group", r.is.Token("ann", map[string]any{"groups": "a"}), "oidc/ann", "oidc/a")
	r.good("of several audiences", r.is.Token("ann", map[string]any{"aud": []string{"x", "other"}}), "oidc/ann")
	r.good("of a service account", r.is.Token("system:serviceaccount:web:front", nil), "oidc/system:serviceaccount:web:front")
	r.good("no name of a key", issuerenv.Sign(t, named(key.Private, "", jose.RS256), r.is.Claims("ann", nil)), "oidc/ann")
	if b, _ := r.show(r.is.Token("ann", nil)); b == nil || b.Groups == nil {
		t.Error("without groups he has those of the machine")
	}

	other := issuerenv.NewKey(t, 1)
	r.want("signed by another key", issuerenv.Sign(t, named(other.Private, key.Name, jose.RS256), r.is.Claims("ann", nil)), fserror.Permission, "signed by no key")
	r.want("another algorithm than the key's", issuerenv.Sign(t, named(key.Private, key.Name, jose.PS256), r.is.Claims("ann", nil)), fserror.Retry, "not among them")
	right := strings.Split(r.is.Token("ann", nil), ".")
	r.want("other claims", right[0]+"."+b64(r.is.Claims("bob", nil))+"."+right[2], fserror.Permission, "signed by no key")
	for _, alg := range []string{"none", "None", "nOnE", ""} {
		r.want("alg "+alg, b64(map[string]any{"alg": alg, "kid": key.Name})+"."+b64(r.is.Claims("ann", nil))+".", fserror.Permission, "signed by an algorithm")
	}
	der, err := x509.MarshalPKIXPublicKey(key.Private.Public())
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string][]byte{"as PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "as DER": der} {
		confused := issuerenv.Sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: key.Name}}, r.is.Claims("ann", nil))
		r.want("HS256 by the public key "+what, confused, fserror.Permission, "signed by an algorithm")
	}
	for what, c := range map[string]struct {
		more map[string]any
		says string
	}{
		"another audience":     {map[string]any{"aud": "web"}, `for "web"`},
		"no audience":          {map[string]any{"aud": nil}, "audience"},
		"expired":              {map[string]any{"exp": now.Add(-time.Minute).Unix()}, "expired at"},
		"without an end":       {map[string]any{"exp": nil}, "expired at"},
		"not yet valid":        {map[string]any{"nbf": now.Add(10 * time.Minute).Unix()}, "not before"},
		"a foreign issuer":     {map[string]any{"iss": "https://evil.example"}, "none whose tokens"},
		"no issuer":            {map[string]any{"iss": nil}, "none whose tokens"},
		"no user":              {map[string]any{"sub": nil}, "names no user"},
		"an empty user":        {map[string]any{"sub": ""}, "names no user"},
		"a number as user":     {map[string]any{"sub": 7}, ""},
		"a user with a line":   {map[string]any{"sub": "ann\nbob"}, "cannot be printed"},
		"a long user":          {map[string]any{"sub": strings.Repeat("u", 255)}, "too long"},
		"an object of groups":  {map[string]any{"groups": map[string]any{"a": 1}}, "no names of groups"},
		"a group of nothing":   {map[string]any{"groups": []any{"a", nil}}, "without a name"},
		"a group with a line":  {map[string]any{"groups": []string{"a\x1b[31m"}}, "cannot be printed"},
		"very many groups":     {map[string]any{"groups": strings.Split(strings.Repeat("g,", 1001), ",")}, "groups"},
		"more than fits":       {map[string]any{"fill": strings.Repeat("f", 9000)}, "over the limit"},
		"times without a form": {map[string]any{"exp": "tomorrow"}, ""},
	} {
		r.want(what, r.is.Token("ann", c.more), fserror.Permission, c.says)
	}
	for _, junk := range []string{"", ".", "..", "a.b.c", "....", right[0], right[0] + "." + right[1], right[0] + "." + right[1] + ".", "." + right[1] + "." + right[2], right[0] + ".e30." + right[2]} {
		r.want(fmt.Sprintf("%.20q", junk), junk, fserror.Permission, "")
	}
	r.good("a right one still", r.is.Token("ann", nil), "oidc/ann")
	if n := r.is.Asked.Load(); n > 2 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// TestClaims: where users and groups come from is for the configuration to say.
func TestClaims(t *testing.T) { synctest.Test(t, claims) }

func claims(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.UserClaim, c.UserPrefix, c.GroupsClaim, c.GroupsPrefix = "email", "", "realm/roles", "r-"
	})
	mail := map[string]any{"email": "ann@example.org", "realm": map[string]any{"roles": []string{"x"}}}
	r.good("nested", r.is.Token("1", mail), "ann@example.org", "r-x")
	mail["realm/roles"] = "y"
	r.good("by its whole name", r.is.Token("1", mail), "ann@example.org", "r-y")
	mail["email_verified"] = true
	r.good("verified", r.is.Token("1", mail), "ann@example.org", "r-y")
	for _, no := range []any{false, "true", "false", 1} {
		mail["email_verified"] = no
		r.want("not verified", r.is.Token("1", mail), fserror.Permission, "not verified")
	}
	r.good("nothing there", r.is.Token("1", map[string]any{"email": "b", "realm": "x"}), "b")

	r = newRig(t, func(c *Config) { c.MachineGroups = true })
	if b, err := r.show(r.is.Token("ann", map[string]any{"groups": "a"})); err != nil || b.Groups != nil {
		t.Errorf("%+v, %v", b, err)
	}
	r = newRig(t)
	r.good("no claim of groups", r.is.Token("ann", map[string]any{"groups": "a"}), "oidc/ann")
}

// TestKeysChange: a new key is found when a token shows its name, tokens of an old one are
// no good from then on, and whoever looks is told of it.
func TestKeysChange(t *testing.T) { synctest.Test(t, keysChange) }

func keysChange(t *testing.T) {
	r := newRig(t)
	before := r.is.Token("ann", nil)
	r.good("before", before, "oidc/ann")
	b, err := r.show(before)
	if err != nil || !r.Check() || r.Check() {
		t.Fatalf("%v, or it was not told of the first keys", err)
	}
	r.is.Rotate(issuerenv.NewKey(t, 1))
	after := r.is.Token("ann", nil)
	r.want("too soon", after, fserror.Retry, "just now")
	r.good("the old one, as long as nothing is known", before, "oidc/ann")
	<-time.After(pause)
	r.good("after", after, "oidc/ann")
	if !r.Check() || r.Still(b) {
		t.Error("the old key counts still")
	}
	r.want("the old one", before, fserror.Retry, "just now") // it may be back
	<-time.After(pause)
	r.want("the old one again", before, fserror.Permission, "signed by no key")
	<-time.After(time.Hour)
	if a, err := r.show(after); err == nil {
		t.Errorf("it outlives its end: %+v", a)
	}
}

// TestIssuerDown: while the issuer does not answer, tokens of known keys are good, others are
// to be shown later, and it is not asked more often for that.
func TestIssuerDown(t *testing.T) { synctest.Test(t, issuerDown) }

func issuerDown(t *testing.T) {
	r := newRig(t)
	r.is.Answer(issuerenv.Down)
	r.want("down from the start", r.is.Token("ann", nil), fserror.Retry, "503")
	r.want("still", r.is.Token("bob", nil), fserror.Retry, "503")
	for what, answer := range map[string]http.HandlerFunc{
		"not its own name": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"issuer":"https://other.example"}`)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a long answer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 2<<20))
		},
		"ever other addresses": func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, q.URL.Path+"x", http.StatusFound) },
		"no keys": func(w http.ResponseWriter, q *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"keys":[]}`, r.is.URL, r.is.URL+"/keys")
		},
	} {
		r.is.Answer(answer)
		<-time.After(pause)
		r.want(what, r.is.Token("ann", nil), fserror.Retry, "cannot be asked")
	}
	r.is.Answer(nil)
	<-time.After(pause)
	r.good("up", r.is.Token("ann", nil), "oidc/ann")
	r.is.Answer(issuerenv.Down)
	<-time.After(pause)
	unknown := issuerenv.Sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: issuerenv.NewKey(t, 1).Private, KeyID: "new"}}, r.is.Claims("ann", nil))
	r.want("a new key while it is down", unknown, fserror.Retry, "503")
	r.good("a known key while it is down", r.is.Token("bob", nil), "oidc/bob")
	if !strings.Contains(r.log.String(), "503") || !strings.Contains(r.log.String(), r.is.URL) {
		t.Errorf("the log says %s", r.log)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestFlood: whatever names of keys tokens have, the issuer is asked no more often, others
// are served meanwhile, and no more than a few wait.
func TestFlood(t *testing.T) { synctest.Test(t, flood) }

func flood(t *testing.T) {
	r := newRig(t)
	r.good("first", r.is.Token("ann", nil), "oidc/ann")
	asked, hang := make(chan struct{}, 100), make(chan struct{})
	r.is.Answer(func(w http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		select {
		case <-hang:
		case <-q.Context().Done():
		}
		issuerenv.Down(w, q)
	})
	<-time.After(pause)
	var all sync.WaitGroup
	kinds := make(chan error, 1000)
	for i := range 1000 {
		token := b64(map[string]any{"alg": "RS256", "kid": fmt.Sprint(i)}) + "." + b64(r.is.Claims("ann", nil)) + ".c2ln"
		all.Go(func() {
			_, err := r.show(token)
			kinds <- err
		})
	}
	synctest.Wait()
	if n, m := len(asked), len(kinds); n != 1 || m != 1000-maxWaiting {
		t.Errorf("the issuer was asked %d times, and %d of 1000 were refused", n, m)
	}
	for range len(kinds) { // these do not wait
		if err := <-kinds; !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "too many wait") {
			t.Fatal(err)
		}
	}
	r.good("another while they wait", r.is.Token("bob", nil), "oidc/bob")
	close(hang)
	all.Wait()
	if n := len(asked); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
	for range maxWaiting {
		if err := <-kinds; !errors.Is(err, fserror.Retry) {
			t.Error(err)
		}
	}
	if n := len(r.new) + len(r.prev); n != 2 {
		t.Errorf("%d tokens are remembered", n)
	}
}

// TestMemoryIsBounded: of very many good tokens only the last are remembered.
func TestMemoryIsBounded(t *testing.T) {
	r := newRig(t)
	for i := range 3 * remembered {
		r.remember(sha256.Sum256(fmt.Append(nil, i)), &Bearer{})
	}
	if n := len(r.new) + len(r.prev); n > 2*remembered {
		t.Errorf("%d tokens are remembered", n)
	}
	if r.recall(sha256.Sum256(fmt.Append(nil, 3*remembered-1))) == nil || r.recall(sha256.Sum256(fmt.Append(nil, 0))) != nil {
		t.Error("it is not the last that are remembered")
	}
}

// TestKeysOfIssuers: private, shared, weak and other keys are left out.
func TestKeysOfIssuers(t *testing.T) {
	n := new(big.Int).Lsh(big.NewInt(1), 1023) // of 1,024 bits
	weak := &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}
	good := jose.JSONWebKey{Key: issuerenv.NewKey(t, 0).Private.Public(), KeyID: "good"}
	encrypts := good
	encrypts.Use = "enc"
	var raw []json.RawMessage
	for _, k := range []jose.JSONWebKey{
		{Key: weak, KeyID: "weak"}, {Key: issuerenv.NewKey(t, 0).Private, KeyID: "private"}, {Key: []byte("shared"), KeyID: "shared"}, encrypts, good,
	} {
		b, err := k.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b)
	}
	raw = append(raw, json.RawMessage(`{"kty":"future"}`), json.RawMessage(`7`))
	body, _ := json.Marshal(map[string]any{"keys": raw})
	s, err := parseSet(body)
	if err != nil || len(s.keys) != 1 || s.keys[0].KeyID != "good" {
		t.Errorf("%+v, %v", s, err)
	}
	many, _ := json.Marshal(map[string]any{"keys": slices.Repeat([]json.RawMessage{raw[4]}, maxKeys+1)})
	if _, err := parseSet(many); err == nil || !strings.Contains(err.Error(), "over") {
		t.Errorf("very many keys: %v", err)
	}
}

// TestWrongConfigurations says what is wrong with each.
func TestWrongConfigurations(t *testing.T) {
	good := Config{URL: "https://issuer.example", Audiences: []string{"leasefs"}}
	if _, err := New(clock.System{}, good, Config{URL: "http://[::1]:99/x", Audiences: []string{"a"}, UserPrefix: "k8s/"}); err != nil {
		t.Error(err)
	}
	for says, mod := range map[string]func(*Config){
		"no URL":                   func(c *Config) { c.URL = "issuer.example" },
		`no URL of`:                func(c *Config) { c.URL = "https://user:secret@issuer.example?q" },
		"without TLS":              func(c *Config) { c.URL = "http://issuer.example" },
		"no audience":              func(c *Config) { c.Audiences = nil },
		"has no audience":          func(c *Config) { c.Audiences = []string{""} },
		"choose one":               func(c *Config) { c.MachineGroups, c.GroupsClaim = true, "groups" },
		"cannot be printed; choos": func(c *Config) { c.UserPrefix = "a\n" },
		"is too long":              func(c *Config) { c.GroupsPrefix = strings.Repeat("x", 256) },
	} {
		c := good
		mod(&c)
		if _, err := New(clock.System{}, c); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	two := good
	two.URL += "/2"
	issuer := func(url, users, groups string) Config {
		return Config{URL: "https://" + url, Audiences: []string{"a"}, UserPrefix: users, GroupsClaim: "groups", GroupsPrefix: groups}
	}
	if _, err := New(clock.System{}, issuer("1", "a/", "a/"), issuer("2", "b/", "b/"), issuer("3", "", ""), issuer("4", "c/", "")); err != nil {
		t.Error(err)
	}
	for says, list := range map[string][]Config{
		"there twice": {good, good}, `of users "" and ""`: {good, two},
		`of users "a/" and "a/b/"`:  {issuer("1", "a/", "x/"), issuer("2", "a/b/", "y/")},
		`of users "a/b/" and "a/"`:  {issuer("1", "a/b/", "x/"), issuer("2", "a/", "y/")},
		`of groups "a/" and "a/"`:   {issuer("1", "a/", "a/"), issuer("2", "b/", "a/")},
		`of groups "a/" and "a/b/"`: {issuer("1", "a/", "a/"), issuer("2", "b/", "a/b/")},
	} {
		if _, err := New(clock.System{}, list...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// FuzzToken: whatever a token is, it proves nothing unless the issuer signed it.
func FuzzToken(f *testing.F) {
	r := newRig(f)
	right := r.is.Token("ann", nil)
	r.good("right", right, "oidc/ann")
	f.Add(right)
	f.Add("a.b.c")
	f.Add(b64(map[string]any{"alg": "none"}) + "." + b64(r.is.Claims("ann", nil)) + ".")
	f.Add(`{"payload":"","signatures":[]}..`)
	f.Fuzz(func(t *testing.T, token string) {
		b, err := r.verify(t.Context(), token)
		if err == nil && b.User != "oidc/ann" {
			t.Errorf("%q proves %+v", token, b)
		}
		if kind := fserror.KindOf(err); err != nil && kind != fserror.Permission && kind != fserror.Retry {
			t.Errorf("%q: %v", token, err)
		}
	})
}

// FuzzKeys: whatever an issuer says its keys are, only public ones of good length are taken.
func FuzzKeys(f *testing.F) {
	k := jose.JSONWebKey{Key: issuerenv.NewKey(f, 0).Private.Public(), KeyID: "a"}
	b, _ := k.MarshalJSON()
	f.Add(fmt.Appendf(nil, `{"keys":[%s]}`, b))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := parseSet(body)
		if err != nil {
			return
		}
		for i := range s.keys {
			if !s.keys[i].IsPublic() || !s.keys[i].Valid() {
				t.Errorf("%s was taken", body)
			}
		}
	})
}

// FuzzClaims: users and groups are names that can be shown, whatever a token claims.
func FuzzClaims(f *testing.F) {
	f.Add("groups", `{"sub":"ann","groups":["a"]}`)
	f.Add("a/b/c", `{"sub":"ann","a":{"b":{"c":"d"}}}`)
	f.Fuzz(func(t *testing.T, claim, body string) {
		var claims map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &claims) != nil {
			return
		}
		o := &one{Config: Config{UserClaim: "sub", GroupsClaim: claim}}
		user, err := o.user(claims)
		if err == nil && (user == "" || wrongName(user) != "") {
			t.Errorf("the user %q", user)
		}
		groups, err := o.groups(claims)
		if err == nil && groups == nil {
			t.Error("the machine's groups")
		}
		for _, g := range groups {
			if err == nil && (g == "" || wrongName(g) != "") {
				t.Errorf("the group %q", g)
			}
		}
	})
}

// BenchmarkVerify is what a token costs that was not seen before.
func BenchmarkVerify(b *testing.B) {
	r := newRig(b)
	token := r.is.Token("ann", nil)
	r.good("first", token, "oidc/ann")
	for b.Loop() {
		if _, err := r.verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerified is what one costs that was.
func BenchmarkVerified(b *testing.B) {
	r := newRig(b)
	token := r.is.Token("ann", nil)
	for b.Loop() {
		if _, err := r.show(token); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnknownKey is what a token costs whose key is not known, as of a flood of them.
func BenchmarkUnknownKey(b *testing.B) {
	r := newRig(b)
	r.good("first", r.is.Token("ann", nil), "oidc/ann")
	token := b64(map[string]any{"alg": "RS256", "kid": "x"}) + "." + b64(r.is.Claims("ann", nil)) + ".c2ln"
	for b.Loop() {
		if _, err := r.show(token); err == nil {
			b.Fatal("it was taken")
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
