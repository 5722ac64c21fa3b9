package namenode_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// skewed is a clock that can be set ahead.
type skewed struct {
	clock.System
	by atomic.Int64
}

func (s *skewed) Wall() time.Time     { return s.System.Wall().Add(time.Duration(s.by.Load())) }
func (s *skewed) Boot() time.Duration { return s.System.Boot() + time.Duration(s.by.Load()) }

// TestProofOfEachPath asks for each path of the HTTP port with each proof there can be, where
// certificates are one way to prove and where they are the only one. Pages are for everybody who
// can connect with what he shows; blocks are for who has a URL that was signed for just that.
func TestProofOfEachPath(t *testing.T) {
	t.Parallel()
	queries := map[string]string{ // of each path that is served
		"/metrics": "", "/healthz": "", "/readyz": "", "/activez": "", "/{$}": "", "/page/": "",
		"/debug/pprof/": "", "/debug/pprof/symbol": "", "/debug/pprof/cmdline": "", "/debug/pprof/profile": "?seconds=1", "/debug/pprof/trace": "?seconds=1",
	}
	source, err := os.ReadFile("serve/pages.go")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:page|Handle|HandleFunc)\("(?:[A-Z]+ )?(/[^"]*)"`).FindAllStringSubmatch(string(source), -1) {
		served[m[1]] = true
	}
	if !served["/v1/"] || len(served) != len(queries)+1 {
		t.Errorf("there are rows for %v and /v1/, and served are %v", slices.Sorted(maps.Keys(queries)), slices.Sorted(maps.Keys(served)))
	}
	const cannot = 0 // connect
	for _, only := range []bool{false, true} {
		now := new(skewed)
		f := newFort(t, func(c *namenode.Config) {
			c.Clock, c.Pprof = now, true
			if only {
				c.Identity.Tokens, c.Identity.Issuers, c.Identity.Delegates = nil, nil, false
				c.TLS = proof.ServerTLS(c.Identity.Pair.(*proof.File[*tls.Certificate]), c.Identity.Authorities, true) //nolint:errcheck // it is one
			}
		})
		f.Dial = f.shows(&f.rootTLS, nil)
		web := func(cert *tls.Certificate) *http.Client {
			transport := &http.Transport{TLSClientConfig: f.clientTLS(cert)}
			t.Cleanup(transport.CloseIdleConnections)
			return &http.Client{Transport: transport}
		}
		f.HTTP = web(&f.rootTLS)
		ends := time.Now().Add(day)
		right, bob, revoked := f.rootTLS, f.ca.Pair("bob", ends), f.ca.Pair("root", ends)
		expired, foreign := f.ca.Pair("root", time.Now().Add(-time.Minute)), env.NewAuthority(t, t.TempDir(), "other").Pair("root", ends)
		f.ca.Revoke(f.crl, revoked.Leaf)
		f.awaitRefusal("", &revoked)

		root := f.Raw(t, "root")
		w := root.Create("/f")
		content := bytes.Repeat([]byte("x"), 100_000)
		b, err := root.PutBlock(w, content)
		if err == nil {
			err = root.Commit(w, 0, b, "")
		}
		if err == nil {
			err = root.Close(w, int64(len(content)))
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := root.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: root.Who, At: pb.Follow("/f")})
		if err != nil {
			t.Fatal(err)
		}
		signed := file.GetBlocks()[0].GetUrl()
		path, query, _ := strings.Cut(signed, "?")
		other := func(text string) string { // another last digit
			if last := len(text) - 1; text[last] != '1' {
				return text[:last] + "1"
			}
			return text[:len(text)-1] + "2"
		}

		without := http.StatusOK // a certificate
		if only {
			without = cannot
		}
		var later []func()
		for _, c := range []struct {
			name   string
			client *http.Client
			token  string
			page   int // what a page answers
		}{
			{"no proof", web(nil), "", without},
			{"a wrong token", web(nil), proof.NewToken(), without},
			{"a right token", web(nil), string(f.root), without},
			{"an expired certificate", web(&expired), "", cannot},
			{"a foreign certificate", web(&foreign), "", cannot},
			{"a revoked certificate", web(&revoked), "", http.StatusForbidden},
			{"a user's certificate", web(&bob), "", http.StatusOK},
			{"the superuser's certificate", web(&right), "", http.StatusOK},
		} {
			ask := func(method, url string, want int) {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.token != "" {
					r.Header.Set("Authorization", "Bearer "+c.token)
				}
				resp, err := c.client.Do(r)
				got := cannot
				if err == nil {
					got = resp.StatusCode
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if got != want {
					t.Errorf("only certificates %t, %s, %s %s: %d, want %d (%v)", only, c.name, method, strings.TrimPrefix(url, "https://"+f.HTTPAddr()), got, want, err)
				}
			}
			for page, query := range queries {
				ask(http.MethodGet, "https://"+f.HTTPAddr()+strings.TrimSuffix(page, "{$}")+query, c.page)
			}
			good, bad := http.StatusOK, http.StatusForbidden
			if c.page == cannot {
				good, bad = cannot, cannot
			}
			ask(http.MethodGet, signed, good)
			ask(http.MethodHead, signed, good)
			ask(http.MethodGet, path, bad)
			ask(http.MethodGet, other(signed), bad)
			ask(http.MethodGet, other(path)+"?"+query, bad)
			ask(http.MethodPut, signed, bad)
			later = append(later, func() { ask(http.MethodGet, signed, bad) })
		}
		now.by.Store(int64(20 * time.Minute))
		for _, ask := range later {
			ask()
		}
	}
}
