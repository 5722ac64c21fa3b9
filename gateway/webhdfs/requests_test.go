package webhdfs_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a namenode and a gateway to it.
func start(t *testing.T, mods ...func(*webhdfs.Config)) (*env.Namenode, *webhdfs.Server) {
	t.Helper()
	n := env.Start(t)
	return n, gateway(t, n, mods...)
}

// gateway starts a gateway, which ends with the test.
func gateway(t *testing.T, n *env.Namenode, mods ...func(*webhdfs.Config)) *webhdfs.Server {
	t.Helper()
	cfg := webhdfs.Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0"}
	for _, mod := range mods {
		mod(&cfg)
	}
	s, err := webhdfs.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(closing(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is what came back.
type reply struct {
	status   int
	body     string
	location string
}

// once makes one request, of user root if its query names none.
func once(t *testing.T, s *webhdfs.Server, method, url, body string) reply {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = "http://" + s.Addr() + "/webhdfs/v1" + url
	}
	if !strings.Contains(url, "user.name=") {
		url += "&user.name=root"
	}
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, in)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return reply{resp.StatusCode, strings.TrimSuffix(string(b), "\n"), resp.Header.Get("Location")}
}

// both makes a request, and the second one to which the first leads.
func both(t *testing.T, s *webhdfs.Server, method, url, body string) reply {
	t.Helper()
	r := once(t, s, method, url, "")
	if r.status != http.StatusTemporaryRedirect {
		return r
	}
	return once(t, s, method, r.location, body)
}

// vary is what is another in each run.
var vary = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`"(fileId|blockId|infoPort|ipcPort|xferPort|capacity|remaining|used)":\d+`), `"$1":N`},
	{regexp.MustCompile(`"(accessTime|modificationTime)":[1-9]\d{11,}`), `"$1":T`},
	{regexp.MustCompile(`inode=\d+`), `inode=N`},
	{regexp.MustCompile(`opening=[0-9a-f]{32}`), `opening=ID`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), `HOST`},
	{regexp.MustCompile(`"host":"[^"]*"`), `"host":"…"`},
	{regexp.MustCompile(`"takeableIn":[1-9]\d*`), `"takeableIn":N`},
	{regexp.MustCompile(`held by [^"]*`), `held by …`},
	{regexp.MustCompile(`\(client [^)]*\)`), `(client …)`},
	{regexp.MustCompile(`"(hosts|names|topologyPaths)":\["[^"]*"\]`), `"$1":[…]`},
	{regexp.MustCompile(`"(hostName|ipAddr|name)":"[^"]*"(,"(infoPort|ipcPort|networkLocation)")`), `"$1":…$2`},
}

// TestRequests makes the requests of testdata/requests, one a line: METHOD PATH?QUERY,
// and after " < " a body. What comes back has to be exactly what stands there. It was
// held against the answers of HDFS 3.4.1, which differs as docs/HADOOP.md says.
func TestRequests(t *testing.T) {
	_, s := start(t, func(c *webhdfs.Config) { c.Proxies = []string{"knox"} })
	datadriven.RunTest(t, "testdata/requests", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSuffix(line, "\n")
			request, body, _ := strings.Cut(line, " < ")
			method, url, ok := strings.Cut(request, " ")
			if !ok {
				d.Fatalf(t, "%q is no request", line)
			}
			do := both
			if d.Cmd == "once" {
				do = once
			}
			r := do(t, s, method, url, body)
			text := fmt.Sprintf("%d %s", r.status, r.body)
			if r.location != "" {
				text += " → " + r.location
			}
			for _, v := range vary {
				text = v.what.ReplaceAllString(text, v.with)
			}
			fmt.Fprintln(&out, strings.TrimSpace(text))
		}
		return out.String()
	})
}
