package webhdfs

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/test/env/kdc"
)

// TestSentOnForOneRequest: the URL to which a client is sent proves who asks for that operation on that
// inode or opening, at any place in the file, and for nothing else that its owner may.
func TestSentOnForOneRequest(t *testing.T) {
	const principal = "HTTP/127.0.0.1@SENT.TEST"
	g, err := auth.New(clock.System{}, auth.Config{Keytab: kdc.Start(t, "SENT.TEST").Keytab(principal, filepath.Join(t.TempDir(), "keytab")), Principal: principal, Web: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", Guard: g, Client: client.Config{Namenodes: []string{"127.0.0.1:1"}, User: "gw"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	for _, c := range []struct {
		method, op string
		more       url.Values
		is, others []string // what the second request may say, and may not
	}{
		{
			"GET", "OPEN", url.Values{"inode": {"7"}, "offset": {"5"}},
			[]string{"", "offset=9&length=1"},
			[]string{"inode=8", "inode=07", "inode=", "inode=null", "opening=a", "op=GETFILESTATUS", "op=GETDELEGATIONTOKEN", "op=GETLEASE", "/g", "/"},
		},
		{"PUT", "CREATE", url.Values{"opening": {"a"}}, []string{""}, []string{"opening=b", "opening=", "inode=7", "op=RENAME&destination=/x", "op=SETOWNER", "op=RECOVERLEASE", "op=RENEWLEASE&clientname=c", "/g"}},
		{"POST", "APPEND", url.Values{"opening": {"a"}}, []string{""}, []string{"opening=", "op=TRUNCATE&newlength=0", "op=CONCAT&sources=/g", "op=RECOVERLEASE"}},
	} {
		q := &request{Server: s, r: httptest.NewRequest(c.method, "/", nil), op: c.op, path: "/f", who: asker{user: "ann", by: "ann"}, params: params{}}
		to, err := url.Parse(q.location(c.more))
		if err != nil {
			t.Fatal(err)
		}
		asks := func(with string) (asker, error) {
			t.Helper()
			path, words := "/f", to.Query()
			if strings.HasPrefix(with, "/") {
				path = with
			} else if values, err := url.ParseQuery(with); err != nil {
				t.Fatal(err)
			} else {
				for name := range values {
					words.Set(name, values.Get(name))
				}
			}
			p, err := parseParams(words.Encode())
			if err != nil {
				t.Fatal(err)
			}
			_, op, err := find(c.method, p)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(c.method, prefix+path, http.NoBody)
			return s.who(httptest.NewRecorder(), r, sent(op, path, p), p)
		}
		for _, with := range c.is {
			if a, err := asks(with); err != nil || a.user != "ann" {
				t.Errorf("%s with %q: %+v, %v", c.op, with, a, err)
			}
		}
		for _, with := range c.others {
			if _, err := asks(with); err == nil || hadoop.ClassOf(err) != hadoop.InvalidToken {
				t.Errorf("%s with %q: %v", c.op, with, err)
			}
		}
	}
}
