// Package issuer takes the tokens of OpenID Connect issuers (JWT bearer tokens) for a proof
// of who somebody is: their signature, issuer, audience and times have to be right, and
// their claims name a user and his groups.
//
// An issuer is asked for its keys in the background only, when a token needs one that is
// not known and from time to time, never more often than every few seconds whatever
// clients send. While it does not answer, the keys that are known count.
package issuer

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// Limits of what a token may say.
const (
	maxName   = 255  // bytes of the name of a user or group, with its prefix
	maxGroups = 1000 // of one user
)

// DefaultUserClaim is never given to another person by its issuer; others may be.
const DefaultUserClaim = "sub"

// algorithms are those by which tokens may be signed: with a private key that the issuer
// alone has. "none" and those with a shared secret are not among them.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512, jose.EdDSA,
}

// Config is one issuer, and what its tokens say. URL and Audiences are needed.
type Config struct {
	// URL is the issuer exactly as its tokens name it ("iss"): https, or http at a loopback
	// address.
	URL string
	// Audiences are for whom a token may be: one of them must be in its "aud".
	Audiences []string
	// UserClaim names the claim that has the user; empty: DefaultUserClaim. UserPrefix is
	// put before each user. Without one the issuer can name every user but the superuser.
	UserClaim, UserPrefix string
	// GroupsClaim names the claim that has the groups, a string or several; a/b is b in the
	// object a, if no claim has the whole name. Empty: users have no groups. GroupsPrefix is put before each group; without
	// one the issuer can name the supergroup.
	GroupsClaim, GroupsPrefix string
	// MachineGroups, without a GroupsClaim, gives users the groups that the namenode's
	// machine knows of a user of that name.
	MachineGroups bool
	// Roots sign the issuer's certificate; nil: the system's.
	Roots *x509.CertPool
}

// check returns the configuration with its defaults, or what is wrong with it.
func (c Config) check() (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return c, fserror.New(fserror.InvalidArgument, "", "", format, args...).Because(fserror.ReasonIdentity)
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return bad("%q is no URL of an issuer of tokens; it is https://HOST or https://HOST/PATH, as its tokens have it under \"iss\"", c.URL)
	case u.Scheme != "https" && (u.Scheme != "http" || !proof.Loopback(u.Hostname())):
		return bad("the issuer %s can be reached without TLS, so that the network could give it other keys; use https", c.URL)
	case len(c.Audiences) == 0 || slices.Contains(c.Audiences, ""):
		return bad("the issuer %s has no audience: name for whom its tokens must be, or those for other services would be taken, too", c.URL)
	case c.MachineGroups && c.GroupsClaim != "":
		return bad("the groups of the issuer %s are to come from a claim, and from the machine; choose one", c.URL)
	}
	for _, name := range []string{c.UserPrefix, c.GroupsPrefix} {
		if name != "" && wrongName(name) != "" {
			return bad("the prefix %q %s; choose another one", name, wrongName(name))
		}
	}
	if c.UserClaim == "" {
		c.UserClaim = DefaultUserClaim
	}
	return c, nil
}

// Bearer is whom a token names.
type Bearer struct {
	Issuer string
	User   string
	Groups []string  // nil: those that the machine knows
	Until  time.Time // when the token expires

	from *keys
	key  thumbprint // that signed it
}

// Issuers are those whose tokens are believed. It is safe for concurrent use.
type Issuers struct {
	clock   clock.Clock
	byURL   map[string]*one
	changes atomic.Uint64 // of keys
	seen    uint64        // of these, by Check alone

	mu        sync.Mutex
	new, prev map[[32]byte]*Bearer // tokens that were verified, by their hashes
}

// remembered is how many verified tokens a generation of them has; there are two.
const remembered = 4096

// one is an issuer.
type one struct {
	Config
	keys *keys
}

// New checks the configurations. It asks nobody: that is for Run.
func New(c clock.Clock, configs ...Config) (*Issuers, error) {
	s := &Issuers{clock: c, byURL: map[string]*one{}, new: map[[32]byte]*Bearer{}}
	var before []Config
	for _, cfg := range configs {
		cfg, err := cfg.check()
		if err != nil {
			return nil, err
		}
		if s.byURL[cfg.URL] != nil {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "the issuer %s is there twice; give it once", cfg.URL).Because(fserror.ReasonIdentity)
		}
		for _, o := range before {
			if err := o.apart(&cfg); err != nil {
				return nil, err
			}
		}
		before = append(before, cfg)
		k := &keys{url: cfg.URL, client: proof.IssuerClient(cfg.Roots), clock: c, changes: &s.changes, wake: make(chan struct{}, 1), next: make(chan struct{})}
		s.byURL[cfg.URL] = &one{cfg, k}
	}
	return s, nil
}

// apart refuses two issuers of which one can name users or groups of the other by chance.
func (c *Config) apart(o *Config) error {
	mix := func(what, a, b string) error {
		return fserror.New(fserror.InvalidArgument, "", "", "the issuers %s and %s have the prefixes of %s %q and %q, which overlap, so issuers could name each other's %[3]s: choose another for one",
			c.URL, o.URL, what, a, b).Because(fserror.ReasonIdentity)
	}
	switch {
	case c.UserPrefix == o.UserPrefix || overlap(c.UserPrefix, o.UserPrefix):
		return mix("users", c.UserPrefix, o.UserPrefix)
	case c.GroupsClaim != "" && o.GroupsClaim != "" && overlap(c.GroupsPrefix, o.GroupsPrefix):
		return mix("groups", c.GroupsPrefix, o.GroupsPrefix)
	}
	return nil
}

// overlap reports whether one of two prefixes begins with the other. Who has none can name
// everybody, and is meant to.
func overlap(a, b string) bool {
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// Run asks the issuers for their keys when that is needed, until the context ends. Without
// it Verify knows no keys. What goes wrong is logged, once until it changes.
func (s *Issuers) Run(ctx context.Context, log *slog.Logger) error {
	var all sync.WaitGroup
	for _, o := range s.byURL {
		all.Go(func() { o.keys.run(ctx, log.With("issuer", o.URL)) })
	}
	all.Wait()
	return nil
}

// Check reports whether the keys of an issuer have changed since the last Check: tokens
// that were good may be so no more. It is called by one goroutine.
func (s *Issuers) Check() (changed bool) {
	now := s.changes.Load()
	changed, s.seen = now != s.seen, now
	return changed
}

// Still reports whether the token of b is as good as when it was verified: it has not
// expired, and its issuer still has the key that signed it.
func (s *Issuers) Still(b *Bearer) bool {
	return !s.clock.Wall().After(b.Until) && b.from.has(b.key)
}

// Verify returns whom a token with that hash names. It may wait for the issuer, for some
// seconds. An error of kind Retry: the issuer cannot be asked now; Permission: the token is
// no good. No error has the token in it.
func (s *Issuers) Verify(ctx context.Context, sum [32]byte, token string) (*Bearer, error) {
	if b := s.recall(sum); b != nil && s.Still(b) {
		return b, nil
	}
	b, err := s.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	s.remember(sum, b)
	return b, nil
}

func (s *Issuers) recall(sum [32]byte) *Bearer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.new[sum]; b != nil {
		return b
	}
	return s.prev[sum]
}

// remember forgets those that were not verified lately, once there are many.
func (s *Issuers) remember(sum [32]byte, b *Bearer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.new) >= remembered {
		s.prev, s.new = s.new, map[[32]byte]*Bearer{}
	}
	s.new[sum] = b
}

func refuse(format string, args ...any) *fserror.Error {
	return fserror.New(fserror.Permission, "", "", format, args...).Because(fserror.ReasonProof)
}

func (s *Issuers) verify(ctx context.Context, token string) (*Bearer, error) {
	if strings.Count(token, ".") != 2 {
		return nil, refuse("the token is not known, or was revoked")
	}
	if len(token) > proof.MaxToken {
		return nil, refuse("the token has %d bytes, over the limit of %d; get one with fewer claims", len(token), proof.MaxToken)
	}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, refuse("the token is no JWT that is signed by an algorithm with a public key")
	}
	var says struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &says); err != nil {
		return nil, refuse("the token's claims cannot be read")
	}
	o := s.byURL[says.Issuer]
	if o == nil {
		return nil, refuse("the token is of the issuer %q, which is none whose tokens this namenode takes", clip(says.Issuer))
	}
	payload, key, err := o.keys.verify(ctx, jws)
	if err != nil {
		return nil, err
	}
	b, err := o.read(ctx, s.clock.Wall, token, payload)
	if err != nil {
		return nil, err
	}
	b.from, b.key = o.keys, key
	return b, nil
}

// signed is the payload of a token whose signature is right.
type signed []byte

// VerifySignature implements oidc.KeySet.
func (p signed) VerifySignature(context.Context, string) ([]byte, error) { return p, nil }

// read holds the claims of a token with a good signature against the configuration.
func (o *one) read(ctx context.Context, now func() time.Time, token string, payload []byte) (*Bearer, error) {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = string(a)
	}
	cfg := &oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: names, Now: now}
	id, err := oidc.NewVerifier(o.URL, signed(payload), cfg).Verify(ctx, token)
	var old *oidc.TokenExpiredError
	switch {
	case errors.As(err, &old):
		return nil, refuse("the token expired at %s; get a new one", old.Expiry.UTC().Format(time.RFC3339))
	case err != nil:
		return nil, refuse("the token is not good: %s", clip(strings.TrimPrefix(err.Error(), "oidc: ")))
	case !slices.ContainsFunc(id.Audience, func(a string) bool { return slices.Contains(o.Audiences, a) }):
		return nil, refuse("the token is for %q, and none of them is this namenode's audience; get one for it", clip(strings.Join(id.Audience, " ")))
	}
	var claims map[string]json.RawMessage
	if err := id.Claims(&claims); err != nil {
		return nil, refuse("the token's claims cannot be read")
	}
	b := &Bearer{Issuer: o.URL, Until: id.Expiry}
	if b.User, err = o.user(claims); err != nil {
		return nil, err
	}
	if !o.MachineGroups {
		b.Groups, err = o.groups(claims)
	}
	return b, err
}

func (o *one) user(claims map[string]json.RawMessage) (string, error) {
	var name string
	if err := json.Unmarshal(claims[o.UserClaim], &name); err != nil || name == "" {
		return "", refuse("the token names no user: its claim %q is missing, or no text", o.UserClaim)
	}
	if o.UserClaim == "email" {
		if raw, says := claims["email_verified"]; says && string(raw) != "true" {
			return "", refuse("the issuer has not verified that the address in the token is its bearer's")
		}
	}
	name = o.UserPrefix + name
	if why := wrongName(name); why != "" {
		return "", refuse("the token names the user %q, which %s", clip(name), why)
	}
	return name, nil
}

// groups is not nil unless there is an error.
func (o *one) groups(claims map[string]json.RawMessage) ([]string, error) {
	groups := []string{}
	raw, ok := claims[o.GroupsClaim]
	for path := strings.Split(o.GroupsClaim, "/"); !ok && len(path) > 0; path = path[1:] {
		if raw = claims[path[0]]; len(path) == 1 {
			break
		}
		claims = nil
		if json.Unmarshal(raw, &claims) != nil {
			return groups, nil // there is no such claim
		}
	}
	if o.GroupsClaim == "" || raw == nil || string(raw) == "null" {
		return groups, nil
	}
	if json.Unmarshal(raw, &groups) != nil {
		groups = make([]string, 1)
		if json.Unmarshal(raw, &groups[0]) != nil {
			return nil, refuse("the token's claim %q has no names of groups", o.GroupsClaim)
		}
	}
	if len(groups) > maxGroups {
		return nil, refuse("the token names %d groups, over the limit of %d", len(groups), maxGroups)
	}
	for i, g := range groups {
		if g == "" {
			return nil, refuse("the token names a group without a name")
		}
		groups[i] = o.GroupsPrefix + g
		if why := wrongName(groups[i]); why != "" {
			return nil, refuse("the token names the group %q, which %s", clip(groups[i]), why)
		}
	}
	return groups, nil
}

// wrongName says why a name cannot be that of a user or group; empty: it can.
func wrongName(name string) string {
	switch {
	case len(name) > maxName:
		return "is too long"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has characters that cannot be printed"
	}
	return ""
}

// clip shortens what somebody else wrote.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// thumbprint is of a key, whatever its name.
type thumbprint [sha256.Size]byte
