// Package issuerenv is an issuer of tokens for tests (OpenID Connect): it signs whatever a
// test wants, and can change its keys, be out of order, slow or wrong.
package issuerenv

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is whom tokens are for unless a test says otherwise.
const Audience = "leasefs"

// Issuer is one at a loopback address. It is safe for concurrent use.
type Issuer struct {
	URL   string
	Asked atomic.Int64 // how often it was asked for its keys

	t   testing.TB
	mu  sync.Mutex
	own []Key
	// answer, if not nil, takes the place of all answers.
	answer http.HandlerFunc
}

// Key signs tokens.
type Key struct {
	Name    string
	Private crypto.Signer
}

// keys are made once: it takes long.
var keys [3]Key

var made sync.Once

// NewKey is one of a few keys of RSA; each n has its own.
func NewKey(t testing.TB, n int) Key {
	t.Helper()
	made.Do(func() {
		for i := range keys {
			k, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = Key{string(rune('a' + i)), k}
		}
	})
	return keys[n]
}

// Alone returns one that has the key 0, and listens nowhere.
func Alone(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, URL: "http://127.0.0.1:1"}
	i.Rotate(NewKey(t, 0))
	return i
}

// New starts one that has the key 0.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := Alone(t)
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	return i
}

// Rotate has the issuer tell these keys from now on, and no others.
func (i *Issuer) Rotate(keys ...Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.own = keys
}

// Answer has the issuer answer otherwise from now on; nil: as it should.
func (i *Issuer) Answer(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = h
}

// Down answers that the issuer is out of order.
func Down(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "out of order", http.StatusServiceUnavailable)
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	own, answer := i.own, i.answer
	i.mu.Unlock()
	if r.URL.Path != "/keys" {
		i.Asked.Add(1)
	}
	if answer != nil {
		answer(w, r)
		return
	}
	var out any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		out = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token"}
	case "/keys":
		var set jose.JSONWebKeySet
		for _, k := range own {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.Name, Use: "sig", Algorithm: string(jose.RS256)})
		}
		out = set
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client may be gone
}

// Claims are those of a good token of a user, with some more that take the place of these; a
// nil takes one away.
func (i *Issuer) Claims(user string, more map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{"iss": i.URL, "aud": Audience, "sub": user, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(c, more)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token is a good token of a user, with more claims, signed by the issuer's first key.
func (i *Issuer) Token(user string, more map[string]any) string {
	i.mu.Lock()
	k := i.own[0]
	i.mu.Unlock()
	return Sign(i.t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: k.Private, KeyID: k.Name}}, i.Claims(user, more))
}

// Sign makes a token.
func Sign(t testing.TB, key jose.SigningKey, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
