package e2e_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// oidcIssuer starts the issuer of tokens that scripts/setup has built. Its ID tokens live for so long.
func oidcIssuer(ctx context.Context, t *testing.T, port, life string) *process {
	t.Helper()
	program, err := filepath.Abs("../../.cache/bin/oidc-issuer")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("%v: run make setup, which installs what the tests need", err)
	}
	p := start(ctx, t, spec{argv: []string{program}, env: []string{"PORT=" + port, "LIFE=" + life}})
	p.prints(ctx, p.err, "that it is ready", func(s string) bool { return strings.Contains(s, "ready ") })
	return p
}

// person is one who logs in, with commands and a browser.
type person struct {
	t       *testing.T
	n       *namenode
	folder  string // of configuration
	browser *http.Client
}

func (p *person) begin(ctx context.Context, args ...string) *process {
	p.t.Helper()
	return start(ctx, p.t, spec{argv: append([]string{leasefs, "--namenode", p.n.listen}, args...), env: []string{"XDG_CONFIG_HOME=" + p.folder}})
}

func (p *person) run(ctx context.Context, code int, args ...string) (stdout, stderr string) {
	p.t.Helper()
	c := p.begin(ctx, args...)
	c.eof()
	c.ends(ctx, code)
	return c.out.String(), c.err.String()
}

// post sends a form, and follows where that leads.
func (p *person) post(ctx context.Context, at string, form url.Values) string {
	p.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.browser.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s", at, resp.Status)
	}
	return resp.Request.URL.String()
}

// find waits until a process has printed what matches, and returns the groups.
func find(ctx context.Context, p *process, pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	p.prints(ctx, p.err, pattern, re.MatchString)
	return re.FindStringSubmatch(p.err.String())[1:]
}

// byBrowser logs in, and returns what the command prints.
func (p *person) byBrowser(ctx context.Context, args ...string) string {
	p.t.Helper()
	c := p.begin(ctx, append([]string{"login", "--browser"}, args...)...)
	at, err := url.Parse(p.post(ctx, find(ctx, c, `log in at (\S+)`)[0], nil))
	if err != nil {
		p.t.Fatal(err)
	}
	if q := at.Query(); q.Get("authRequestID") == "" {
		p.t.Fatalf("the issuer leads to %s", at)
	}
	end := p.post(ctx, at.Scheme+"://"+at.Host+"/login/username", url.Values{"id": {at.Query().Get("authRequestID")}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"}})
	if !strings.Contains(end, "/callback?") {
		p.t.Fatalf("the issuer leads to %s", end)
	}
	c.ends(ctx, 0)
	return c.out.String()
}

// secrets are those of the person's login, and the file that has them.
func (p *person) secrets() (token, refresh, file string) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.folder, "leasefs", "logins", "*.json"))
	if err != nil || len(files) != 1 {
		p.t.Fatalf("logins: %v, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		p.t.Fatal(err)
	}
	var l struct{ Token, Refresh string }
	if err := json.Unmarshal(raw, &l); err != nil || l.Token == "" || l.Refresh == "" {
		p.t.Fatalf("a login without secrets: %v", err)
	}
	return l.Token, l.Refresh, files[0]
}

// TestLogin logs in at a real issuer in both ways: commands show the token and renew it, many
// at once lose none, and a login that is over proves nothing.
func TestLogin(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 2*time.Minute)
	dir := t.TempDir()
	token := filepath.Join(dir, "root.token")
	made := start(ctx, t, spec{argv: []string{leasefs, "admin", "token", token, "root", "supergroup"}})
	made.ends(ctx, 0)
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(made.out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	at := freePort(t)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	issuer := "http://127.0.0.1:" + port + "/"
	n := newNamenode(t, filepath.Join(dir, "data"), "--tokens", tokens, "--oidc-issuer", issuer, "--oidc-audience", "leasefs")
	n.start(ctx) // while the issuer is down
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t, n, filepath.Join(dir, "config"), &http.Client{Jar: jar}}
	p.run(ctx, 0, "--token-file", token, "chmod", "777", "/")
	_, text := p.run(ctx, 8, "whoami")
	names(t, text, "a token is needed", "leasefs login")
	_, text = p.run(ctx, 2, "login")
	names(t, text, "--issuer", "--client-id")
	at2 := []string{"--issuer", issuer, "--client-id", "leasefs"}
	_, text = p.run(ctx, 9, append([]string{"login", "--device"}, at2...)...)
	names(t, text, issuer, "cannot be asked")

	is := oidcIssuer(ctx, t, port, "20s")
	c := p.begin(ctx, append([]string{"login"}, at2...)...) // by a code: there is no display
	code := find(ctx, c, `open (\S+) in .* the code (\S+)`)
	p.post(ctx, issuer+"device/login", url.Values{"user_code": {code[1]}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"}})
	p.post(ctx, issuer+"device/confirm?action=allowed", nil)
	c.ends(ctx, 0)
	names(t, c.out.String(), "you are oidc/id1")

	if out := p.byBrowser(ctx); out != "you are oidc/id1\n" {
		t.Fatalf("it prints %q", out)
	}
	first, refresh, file := p.secrets()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	out, _ := p.run(ctx, 0, "whoami")
	names(t, out, "oidc/id1", "proven until")

	// A writer that outlives many tokens, beside commands that renew them, too.
	w := p.begin(ctx, "append", "--create", "--ack", "/f")
	for round, want := 1, first; round <= 2; round++ {
		w.feed("x")
		w.acksUpTo(ctx, int64(round))
		before := want
		eventually(ctx, t, "the token is renewed", func() bool {
			want, _, _ = p.secrets()
			return want != before
		})
		var many []*process
		for range 4 {
			many = append(many, p.begin(ctx, "stat", "/f"))
		}
		for _, m := range many {
			m.ends(ctx, 0)
		}
	}
	w.feed("x")
	w.acksUpTo(ctx, 3)
	w.eof()
	w.ends(ctx, 0)
	if _, now, _ := p.secrets(); now == refresh {
		t.Error("the issuer gave no other token for renewals: nothing was tried here")
	}
	out, _ = p.run(ctx, 0, "stat", "/f")
	names(t, out, "oidc/id1")

	// The issuer ends, and its key with it.
	is.kill()
	eventually(ctx, t, "the token has ended", func() bool {
		c := p.begin(ctx, "--timeout", "2s", "stat", "/f")
		return c.wait(ctx) != 0
	})
	_, text = p.run(ctx, 9, "--timeout", "2s", "stat", "/f")
	names(t, text, issuer)
	oidcIssuer(ctx, t, port, "1h")
	_, text = p.run(ctx, 8, "stat", "/f")
	names(t, text, "is over", "leasefs login")
	if out := p.byBrowser(ctx); out != "you are oidc/id1\n" {
		t.Fatalf("it prints %q", out)
	}
	last, _, _ := p.secrets()
	out, text = p.run(ctx, 0, "logout")
	if _, err := os.Stat(file); !os.IsNotExist(err) || out+text != "" {
		t.Errorf("%v; it prints %q %q", err, out, text)
	}
	_, text = p.run(ctx, 8, "whoami")
	names(t, text, "leasefs login")
	p.run(ctx, 3, "logout")
	for _, secret := range []string{first, refresh, last} {
		if log := n.err.String(); strings.Contains(log, secret) {
			t.Errorf("the namenode's log has a secret: %s", log)
		}
	}
}
