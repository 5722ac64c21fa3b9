package login

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// maxLogin is how long a person may take to log in.
const maxLogin = 10 * time.Minute

// maxExchange is how long an issuer may take to renew a token.
const maxExchange = 15 * time.Second

// Options say where somebody logs in.
type Options struct {
	Login             // Issuer, ClientID, Secret, CA, Access and Namenodes
	Scopes   []string // beside those that are asked for anyway, if the issuer has them
	Redirect string   // of Browser: HOST:PORT of this machine to which the issuer sends the browser back; empty: a free port at 127.0.0.1
	Now      func() time.Time
}

// wanted are the scopes that are asked for if the issuer has them: the claims by which
// namenodes know users and groups, and a login that can be renewed.
var wanted = []string{oidc.ScopeOfflineAccess, "profile", "email", "groups"}

// dial asks the issuer where to log in. The context that it returns is for the calls that follow.
func (o *Options) dial(ctx context.Context) (context.Context, *oidc.Provider, *oauth2.Config, error) {
	ctx, p, c, err := o.Login.dial(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var has struct {
		Scopes []string `json:"scopes_supported"`
	}
	_ = p.Claims(&has) // it need not say
	c.Scopes = []string{oidc.ScopeOpenID}
	for _, s := range wanted {
		if slices.Contains(has.Scopes, s) {
			c.Scopes = append(c.Scopes, s)
		}
	}
	c.Scopes = append(c.Scopes, o.Scopes...)
	return ctx, p, c, nil
}

func (l *Login) dial(ctx context.Context) (context.Context, *oidc.Provider, *oauth2.Config, error) {
	u, err := url.Parse(l.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !proof.Loopback(u.Hostname())) {
		return nil, nil, nil, fserror.New(fserror.InvalidArgument, "login", "", "%q is no URL of an issuer of tokens: it is https://HOST or https://HOST/PATH", l.Issuer)
	}
	var roots *x509.CertPool
	if l.CA != "" {
		f, err := proof.OpenAuthorities(clock.System{}, l.CA, "")
		if err != nil {
			return nil, nil, nil, err
		}
		roots = f.Get().Pool
	}
	ctx = oidc.ClientContext(ctx, proof.IssuerClient(roots))
	p, err := oidc.NewProvider(ctx, l.Issuer)
	if err != nil {
		return nil, nil, nil, said(l.Issuer, err)
	}
	return ctx, p, &oauth2.Config{ClientID: l.ClientID, ClientSecret: l.Secret, Endpoint: p.Endpoint()}, nil
}

// Device logs in by a code that a person types in a browser on any machine (RFC 8628).
// show is told where to go, and with what.
func Device(ctx context.Context, o Options, show func(address, code string)) (*Login, error) {
	ctx, cancel := context.WithTimeout(ctx, maxLogin)
	defer cancel()
	ctx, p, c, err := o.dial(ctx)
	if err != nil {
		return nil, err
	}
	if c.Endpoint.DeviceAuthURL == "" {
		return nil, fserror.New(fserror.Unsupported, "login", "", "the issuer %s has no logins by a code; use a browser on this machine", o.Issuer)
	}
	d, err := c.DeviceAuth(ctx)
	if err != nil {
		return nil, said(o.Issuer, err)
	}
	show(d.VerificationURI, d.UserCode)
	t, err := c.DeviceAccessToken(ctx, d)
	if err != nil {
		return nil, said(o.Issuer, err)
	}
	return o.begin(ctx, p, t, "")
}

// HasDevice reports whether the issuer has logins by a code.
func (o *Options) HasDevice(ctx context.Context) (bool, error) {
	_, _, c, err := o.dial(ctx)
	return err == nil && c.Endpoint.DeviceAuthURL != "", err
}

// Browser logs in by a browser on this machine, which the issuer sends back here with a code
// (with PKCE, RFC 7636). show is told the address that the browser has to open.
func Browser(ctx context.Context, o Options, show func(address string)) (*Login, error) {
	ctx, cancel := context.WithTimeout(ctx, maxLogin)
	defer cancel()
	ctx, p, c, err := o.dial(ctx)
	if err != nil {
		return nil, err
	}
	at := "127.0.0.1:0"
	if o.Redirect != "" {
		at = o.Redirect
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil || !proof.Loopback(host) {
		return nil, fserror.New(fserror.InvalidArgument, "login", "", "%q is not HOST:PORT of this machine; give localhost:PORT or 127.0.0.1:PORT, as the issuer knows it", at)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fserror.New(fserror.InvalidArgument, "login", "", "cannot wait for the browser at %s: %v; choose another port", at, err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	c.RedirectURL = "http://" + net.JoinHostPort(host, port) + "/callback"
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	codes := make(chan url.Values, 1)
	s := &http.Server{ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10, Handler: back(state, codes)}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = s.Shutdown(end), s.Close() // the browser has its page
		<-served
	}()
	show(c.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	var q url.Values
	select {
	case q = <-codes:
	case <-ctx.Done():
		return nil, fserror.New(fserror.Deadline, "login", "", "nobody has logged in; run it again")
	}
	if q.Get("error") != "" {
		return nil, fserror.New(fserror.Permission, "login", "", "the issuer %s refuses: %q %q; ask who runs it", o.Issuer, clip(q.Get("error")), clip(q.Get("error_description")))
	}
	t, err := c.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, said(o.Issuer, err)
	}
	return o.begin(ctx, p, t, nonce)
}

// back takes the browser that comes back with the state, once.
func back(state string, codes chan<- url.Values) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		q := r.URL.Query()
		if r.URL.Path != "/callback" || r.Method != http.MethodGet || q.Get("state") != state {
			http.Error(w, "this is for the browser that logs in", http.StatusNotFound)
			return
		}
		select {
		case codes <- q:
			fmt.Fprintln(w, "That is all. You can close this window.")
		default:
			http.Error(w, "it was here already", http.StatusGone)
		}
	})
}

// begin makes a login of the tokens that an issuer has given.
func (o *Options) begin(ctx context.Context, p *oidc.Provider, t *oauth2.Token, nonce string) (*Login, error) {
	l := o.Login
	next, err := l.with(t, o.Now())
	if err != nil {
		return nil, err
	}
	raw, _ := t.Extra("id_token").(string)
	if raw == "" && l.Access {
		return next, nil
	}
	id, err := p.VerifierContext(ctx, &oidc.Config{ClientID: l.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fserror.New(fserror.Permission, "login", "", "the ID token of the issuer %s is not good: %s", l.Issuer, clip(err.Error()))
	}
	if nonce != "" && id.Nonce != nonce {
		return nil, fserror.New(fserror.Permission, "login", "", "the ID token of the issuer %s is not for this login; run it again", l.Issuer)
	}
	return next, nil
}

// with is the login with new tokens, received at that time.
func (l *Login) with(t *oauth2.Token, at time.Time) (*Login, error) {
	next := *l
	next.Received = at
	if t.RefreshToken != "" {
		next.Refresh = t.RefreshToken
	}
	next.Token = t.AccessToken
	life := time.Duration(t.ExpiresIn) * time.Second
	if !l.Access {
		next.Token, _ = t.Extra("id_token").(string)
		if next.Token == "" {
			return nil, fserror.New(fserror.Permission, "login", "", "the issuer %s has given no ID token; log in with the access token, if it is one that namenodes take", l.Issuer)
		}
	}
	if !proof.IsToken(next.Token) {
		return nil, fserror.New(fserror.TooLarge, "login", "", "the token of the issuer %s has %d bytes, or characters that none has, and namenodes take %d; have it get fewer claims", l.Issuer, len(next.Token), proof.MaxToken)
	}
	said, end := timesOf(next.Token)
	if said > 0 {
		life = said
	}
	if life <= 0 {
		life = time.Hour
	}
	next.Ends = at.Add(life)
	if end.After(at) && end.Before(next.Ends) { // it took a while until it was here
		next.Ends = end
	}
	return &next, nil
}

// timesOf is for how long a token was good when it was made, and until when; zero: it does
// not say. Nothing of it is verified: that is for the namenode.
func timesOf(token string) (life time.Duration, end time.Time) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0, end
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0, end
	}
	var c struct {
		Made float64 `json:"iat"`
		Ends float64 `json:"exp"`
	}
	const most = 1 << 40 // no time of day has more seconds
	if json.Unmarshal(raw, &c) != nil || c.Made <= 0 || c.Ends <= c.Made || c.Ends > most {
		return 0, end
	}
	return time.Duration(min(c.Ends-c.Made, (365*24*time.Hour).Seconds()) * float64(time.Second)), time.Unix(int64(c.Ends), 0)
}

// Renew asks the issuer for new tokens. An error of kind Permission: only another login helps.
func (l *Login) Renew(ctx context.Context, now func() time.Time) (*Login, error) {
	if l.Refresh == "" {
		return nil, again(l.Issuer, "it has ended, and the issuer has given none that can be renewed")
	}
	ctx, _, c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	// From here on the context does not end it: an issuer that has given a new token takes
	// the old one no more, so that what it answers must not be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxExchange)
	defer cancel()
	t, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: l.Refresh}).Token()
	if err != nil {
		return nil, said(l.Issuer, err)
	}
	return l.with(t, now())
}

// Revoke tells the issuer that the login is over (RFC 7009). told: it can be told that.
func (l *Login) Revoke(ctx context.Context) (told bool, err error) {
	if l.Refresh == "" {
		return false, nil
	}
	ctx, p, _, err := l.dial(ctx)
	if err != nil {
		return false, err
	}
	var has struct {
		At string `json:"revocation_endpoint"`
	}
	if p.Claims(&has) != nil || has.At == "" {
		return false, nil
	}
	form := url.Values{"token": {l.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {l.ClientID}}
	if l.Secret != "" {
		form.Set("client_secret", l.Secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, has.At, strings.NewReader(form.Encode()))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client, _ := ctx.Value(oauth2.HTTPClient).(*http.Client)
	resp, err := client.Do(req)
	if err != nil {
		return false, said(l.Issuer, err)
	}
	_ = resp.Body.Close() // nothing was written
	if resp.StatusCode != http.StatusOK {
		return false, fserror.New(fserror.Unavailable, "logout", "", "the issuer %s answers %s", l.Issuer, resp.Status)
	}
	return true, nil
}

func again(issuer, format string, args ...any) error {
	return fserror.New(fserror.Permission, "login", "", "the login at %s is over: "+format, append([]any{issuer}, args...)...).Because(fserror.ReasonLogin)
}

// said is an error that an issuer was the cause of, without what may be a secret in it.
func said(issuer string, err error) error {
	var r *oauth2.RetrieveError
	switch {
	case errors.As(err, &r) && (r.ErrorCode == "invalid_grant" || r.ErrorCode == "invalid_token"):
		return again(issuer, "the issuer says %q %q", r.ErrorCode, clip(r.ErrorDescription))
	case errors.As(err, &r) && slices.Contains([]string{"server_error", "temporarily_unavailable", "slow_down"}, r.ErrorCode):
		return fserror.New(fserror.Unavailable, "login", "", "the issuer %s says %q %q; try again later", issuer, r.ErrorCode, clip(r.ErrorDescription))
	case errors.As(err, &r) && r.ErrorCode != "":
		return fserror.New(fserror.Permission, "login", "", "the issuer %s refuses: %q %q", issuer, clip(r.ErrorCode), clip(r.ErrorDescription)).Because(fserror.ReasonLogin)
	case errors.As(err, &r) && r.Response != nil:
		return fserror.New(fserror.Unavailable, "login", "", "the issuer %s answers %s; try again later", issuer, r.Response.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return fserror.New(fserror.Unavailable, "login", "", "the issuer %s does not answer in time, or nobody has logged in; try again", issuer)
	}
	return fserror.New(fserror.Unavailable, "login", "", "the issuer %s cannot be asked: %s; try again later", issuer, clip(err.Error()))
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}
