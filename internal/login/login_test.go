package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issuer renews: each refresh token once, for another.
type issuer struct {
	*httptest.Server
	mu      sync.Mutex
	good    string // the refresh token that is taken
	renewed int
	answer  http.HandlerFunc // of /token, instead of a new token; nil: a new one
	life    time.Duration
}

func newIssuer(t *testing.T) *issuer {
	is := &issuer{good: "refresh-0", life: time.Hour}
	is.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/token" {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"token_endpoint":%q,"revocation_endpoint":%q}`, is.URL, is.URL+"/token", is.URL+"/revoke")
			return
		}
		is.mu.Lock()
		defer is.mu.Unlock()
		if is.answer != nil {
			is.answer(w, r)
			return
		}
		if r.PostFormValue("refresh_token") != is.good { //nolint:gosec // of a test
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"used before"}`)
			return
		}
		is.renewed++
		is.good = fmt.Sprint("refresh-", is.renewed)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "bearer", "expires_in": 3600, "refresh_token": is.good, "id_token": fmt.Sprint("token-", is.renewed)})
	}))
	t.Cleanup(is.Close)
	return is
}

// put writes a login whose token has ended for that long.
func (is *issuer) put(t *testing.T, name string, over time.Duration) {
	t.Helper()
	d, err := NewDraft(name)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := d.Keep(&Login{Issuer: is.URL, ClientID: "c", Token: "token-old", Refresh: is.good, Received: now.Add(-time.Hour), Ends: now.Add(-over), Namenodes: []string{"a:1", "b:2"}}); err != nil {
		t.Fatal(err)
	}
}

func source(t *testing.T, name string) *Source {
	t.Helper()
	s, err := Open(clock.System{}, name, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestManyRenew: of many processes that find the token ended, one renews it, and all show
// what it got.
func TestManyRenew(t *testing.T) {
	is, name := newIssuer(t), filepath.Join(t.TempDir(), "l", "login")
	is.put(t, name, time.Minute)
	var all sync.WaitGroup
	for range 20 {
		s := source(t, name) // each as a process of its own
		for range 3 {
			all.Go(func() {
				if token, err := s.Token(t.Context()); err != nil || token != "token-1" {
					t.Errorf("%q, %v", token, err)
				}
			})
		}
	}
	all.Wait()
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.renewed != 1 {
		t.Errorf("it was renewed %d times", is.renewed)
	}
	if l, err := Read(name); err != nil || l.Refresh != is.good {
		t.Errorf("the file has not the last: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestGoodWhileRenewed: a token that is still good is shown while it is renewed, and Close
// waits for what the issuer answers: a command that ends soon loses no login.
func TestGoodWhileRenewed(t *testing.T) {
	is, name := newIssuer(t), filepath.Join(t.TempDir(), "login")
	is.put(t, name, -10*time.Minute) // of an hour and ten minutes: it is due
	asked, answers := make(chan struct{}), make(chan struct{})
	is.answer = func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answers
		_, _ = io.WriteString(w, `{"access_token":"a","token_type":"bearer","refresh_token":"refresh-x","id_token":"token-x"}`)
	}
	s := source(t, name)
	if token, err := s.Token(t.Context()); err != nil || token != "token-old" {
		t.Fatalf("%q, %v", token, err)
	}
	<-asked
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("it did not wait")
	default:
	}
	close(answers)
	<-closed
	if l, err := Read(name); err != nil || l.Refresh != "refresh-x" || l.Token != "token-x" {
		t.Errorf("the answer is lost: %+v, %v", l, err)
	}
}

// TestFailures: what the issuer says is told, whether trying again may help, and no secret is.
func TestFailures(t *testing.T) {
	secret := "refresh-0"
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		kind   fserror.Kind
		says   string
	}{
		"over": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		}, fserror.Permission, "is over"},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
		}, fserror.Permission, "invalid_client"},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"temporarily_unavailable"}`)
		}, fserror.Unavailable, "temporarily"},
		"down": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.PostFormValue("refresh_token"), http.StatusBadGateway)
		}, fserror.Unavailable, "502"},
		"no JSON":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, fserror.Unavailable, "cannot be asked"},
		"no ID token": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"access_token":"a"}`) }, fserror.Permission, "no ID token"},
		"a large token": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"access_token":"a","id_token":%q}`, strings.Repeat("x", 9000))
		}, fserror.TooLarge, "9000 bytes"},
		"a large answer": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"access_token":"`+strings.Repeat("x", 2<<20))
		}, fserror.Unavailable, ""},
	} {
		is, name := newIssuer(t), filepath.Join(t.TempDir(), "login")
		is.put(t, name, time.Minute)
		is.answer = c.answer
		s := source(t, name)
		_, err := s.Token(t.Context())
		if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.says) || strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("%s: %v, want %v with %q", what, err, c.kind, c.says)
		}
		if l, err := Read(name); err != nil || l.Refresh != secret {
			t.Errorf("%s: the login is lost: %v", what, err)
		}
		// Somebody logs in again: that counts at once.
		is.mu.Lock()
		is.answer, is.good = nil, "refresh-new"
		is.mu.Unlock()
		is.put(t, name, -time.Hour)
		if token, err := s.Token(t.Context()); err != nil || token != "token-old" {
			t.Errorf("%s: after another login: %q, %v", what, token, err)
		}
	}
}

// TestRenewedInTime: a source that nobody asks renews the token in time.
func TestRenewedInTime(t *testing.T) {
	is, name := newIssuer(t), filepath.Join(t.TempDir(), "login")
	is.put(t, name, -10*time.Minute)
	s := source(t, name)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ended atomic.Bool
	go func() {
		defer cancel()
		for !ended.Load() {
			if l, err := Read(name); err == nil && l.Token == "token-1" {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	s.Keep(ctx)
	ended.Store(true)
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("it was not renewed")
	}
}

// TestFiles: which file is for whom, and what is wrong with one.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	is := newIssuer(t)
	ab := FileFor(dir, []string{"b:2", "a:1"})
	is.put(t, ab, time.Minute)
	for _, c := range []struct {
		namenodes []string
		want      string
	}{{[]string{"a:1", "b:2"}, ab}, {[]string{"b:2"}, ab}, {[]string{"a:1", "c:3"}, ""}, {[]string{"c:3"}, ""}} {
		if got := Find(dir, c.namenodes); got != c.want {
			t.Errorf("%v: %q, want %q", c.namenodes, got, c.want)
		}
	}
	if got := Find(filepath.Join(dir, "none"), []string{"a:1"}); got != "" {
		t.Errorf("no folder: %q", got)
	}
	bad := filepath.Join(dir, "bad")
	for says, text := range map[string]string{"no login": "{secret", "no issuer": `{"token":"secret"}`, "no valid token": `{"issuer":"i","client_id":"c","token":"sec ret"}`} {
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(bad); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", says, err)
		}
	}
	if err := os.Chmod(ab, 0o640); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	if _, err := Read(ab); !errors.Is(err, fserror.Permission) {
		t.Errorf("others may read it: %v", err)
	}
	unlock, err := Lock(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, bad); !errors.Is(err, fserror.Unavailable) {
		t.Errorf("it is locked: %v", err)
	}
	unlock()
}

func FuzzLogin(f *testing.F) {
	f.Add([]byte(`{"issuer":"i","client_id":"c","token":"t.e.s","received":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parse(raw, func(k fserror.Kind, why string) error { return fserror.New(k, "", "", "%s", why) })
		if err == nil && !proof.IsToken(l.Token) {
			t.Errorf("%q is no token", l.Token)
		}
	})
}

func FuzzTimes(f *testing.F) {
	f.Add("e30.eyJpYXQiOjEsImV4cCI6OX0.x")
	f.Fuzz(func(t *testing.T, token string) {
		if life, end := timesOf(token); life < 0 || (life > 0) == end.IsZero() {
			t.Errorf("%q: %v, %v", token, life, end)
		}
	})
}
