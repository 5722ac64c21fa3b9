package page_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// browser asks a page as its scripts do.
type browser struct {
	t      *testing.T
	url    string
	http   *http.Client
	user   string
	header http.Header
	host   string
	tab    string
}

func browse(t *testing.T, n *env.Namenode, user string) *browser {
	t.Helper()
	return &browser{
		t: t, url: "http://" + n.HTTPAddr(), http: http.DefaultClient, user: user, tab: base64.StdEncoding.EncodeToString(make([]byte, pb.RandomSessionBytes)),
		header: http.Header{"Content-Type": {"application/json"}},
	}
}

// post returns the status and the answer.
func (b *browser) post(ctx context.Context, path, request string) *http.Response {
	b.t.Helper()
	body := fmt.Sprintf(`{"user":%q,"tab":%q,"request":%s}`, b.user, b.tab, request)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/page/api/"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header = b.header.Clone()
	if b.host != "" {
		r.Host = b.host
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// asks returns the answer, which has to be of that status.
func (b *browser) asks(path, request string, status int) map[string]any {
	b.t.Helper()
	resp := b.post(b.t.Context(), path, request)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != status {
		b.t.Fatalf("%s %s: status %d, want %d: %s", path, request, resp.StatusCode, status, text)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil && status != http.StatusMisdirectedRequest {
		b.t.Fatalf("%s %s: %v: %s", path, request, err, text)
	}
	return out
}

// refused is asks for what fails, and makes sure that the error says that.
func (b *browser) refused(path, request string, status int, says string) {
	b.t.Helper()
	e, _ := b.asks(path, request, status)["error"].(map[string]any)
	if text, _ := e["message"].(string); !strings.Contains(text, says) {
		b.t.Errorf("%s %s: %q, want %q", path, request, text, says)
	}
}

func array(v any) []any {
	a, _ := v.([]any)
	return a
}

// TestPageIsSealed: the page and its files come with a policy that lets it run nothing but its
// own scripts, and they ask no other host and have no script or style within.
func TestPageIsSealed(t *testing.T) {
	n := env.Start(t)
	for _, c := range []struct{ path, kind string }{
		{"/page/", "text/html"}, {"/page/app.js", "text/javascript"}, {"/page/page.css", "text/css"}, {"/page/icon.svg", "image/svg+xml"}, {"/", "text/html"},
	} {
		resp, err := http.Get("http://" + n.HTTPAddr() + c.path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), c.kind) || resp.Header.Get("Etag") == "" {
			t.Errorf("%s: %s %v", c.path, resp.Status, resp.Header)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", c.path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", c.path, resp.Header)
		}
		if c.kind == "text/html" && (bytes.Contains(text, []byte("<style")) || bytes.Contains(text, []byte("style=")) || bytes.Contains(text, []byte("onclick"))) {
			t.Errorf("%s has a script or style within", c.path)
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+"/page/app.js", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	r.Header.Set("If-None-Match", resp.Header.Get("Etag"))
	if resp, err = http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusNotModified {
		t.Errorf("again: %v, %v", resp.Status, err)
	}
	_ = resp.Body.Close()
	static, err := filepath.Glob("static/*")
	if err != nil || len(static) == 0 {
		t.Fatal(static, err)
	}
	for _, name := range static {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", "//cdn"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}

// TestHoldersByPage: leases come a page at a time, filtered and sorted by the namenode.
func TestHoldersByPage(t *testing.T) {
	n := env.Start(t)
	b := browse(t, n, "root")
	for i := range 7 {
		r := n.Raw(t, fmt.Sprintf("writer-%d", i))
		r.Create(fmt.Sprintf("/f%d", i))
	}
	g := n.Raw(t, "grantee")
	if _, err := g.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: g.Call(), Caller: g.Who, TtlMs: 60_000, Name: "job"}); err != nil {
		t.Fatal(err)
	}
	seen, cursor := map[string]bool{}, ""
	for pages := 0; ; pages++ {
		out := b.asks("call/ListLeases", fmt.Sprintf(`{"kind":"LEASE_KIND_SESSION","limit":3,"max_files":1,"order":"LEASE_ORDER_IDLE","cursor":%q}`, cursor), http.StatusOK)
		for _, l := range array(out["leases"]) {
			l, _ := l.(map[string]any)
			h, _ := l["holder"].(map[string]any)
			seen[fmt.Sprint(h["client"])] = true
			if len(array(l["files"])) != 1 || l["granted"] != nil {
				t.Errorf("%v", l)
			}
		}
		if cursor, _ = out["next_cursor"].(string); cursor == "" {
			if pages != 2 || len(seen) != 7 {
				t.Errorf("%d pages, %v", pages+1, seen)
			}
			break
		}
	}
	for _, c := range []struct {
		request string
		leases  int
	}{
		{`{"kind":"LEASE_KIND_GRANTED"}`, 1},
		{`{"text":"WRITER-3"}`, 1},
		{`{"text":"writer"}`, 7},
		{`{"text":"writer","kind":"LEASE_KIND_GRANTED"}`, 0},
		{`{"path":"/f4"}`, 1},
		{`{"expired":true}`, 0},
	} {
		if got := len(array(b.asks("call/ListLeases", c.request, http.StatusOK)["leases"])); got != c.leases {
			t.Errorf("%s: %d leases, want %d", c.request, got, c.leases)
		}
	}
	b.refused("call/ListLeases", `{"path":"/nowhere"}`, http.StatusNotFound, "/nowhere")
	b.refused("call/ListLeases", `{"kind":77}`, http.StatusBadRequest, "77")
	b.refused("call/ListLeases", `{"cursor":"?"}`, http.StatusBadRequest, "cursor")
}

// TestHistoryOnThePage: who held what comes a page at a time, with why it ended and by whom, to
// those who may know the path; a namenode that keeps no history says so.
func TestHistoryOnThePage(t *testing.T) {
	n := env.Start(t)
	b := browse(t, n, "root")
	fs := n.Client(t, env.Named("batch"))
	for range 7 {
		w, err := fs.Create(t.Context(), "/d/f", client.WithParents(), client.WithOverwrite())
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := n.Raw(t, "holder")
	w := now.Create("/d/g")
	whose := []string{}
	for cursor, pages := "", 0; ; pages++ {
		out := b.asks("call/LeaseHistory", fmt.Sprintf(`{"path":"/d/f","limit":3,"cursor":%q}`, cursor), http.StatusOK)
		for _, s := range array(out["spans"]) {
			s, _ := s.(map[string]any)
			h, _ := s["holder"].(map[string]any)
			whose = append(whose, fmt.Sprint(h["client"], " ", s["path"], " ", s["reason"]))
		}
		if from, _ := out["kept_from_unix_ms"].(string); from == "" || from == "0" {
			t.Errorf("it does not say from when on it is kept: %v", out)
		}
		if cursor, _ = out["next_cursor"].(string); cursor == "" {
			if pages != 2 || len(whose) != 7 || whose[6] != "batch /d/f closed" {
				t.Errorf("%d pages, %q", pages+1, whose)
			}
			break
		}
	}
	spans := func() (text string) {
		for _, s := range array(b.asks("call/LeaseHistory", `{"holder":"holder"}`, http.StatusOK)["spans"]) {
			s, _ := s.(map[string]any)
			by, _ := s["by"].(map[string]any)
			text += fmt.Sprintln(s["path"], s["txid"] == nil, s["reason"], by["client"], by["user"])
		}
		return text
	}
	if got := spans(); got != "/d/g true <nil> <nil> <nil>\n" {
		t.Errorf("while it is held: %s", got)
	}
	b.asks("call/Recover", fmt.Sprintf(`{"call":{"seq":1},"at":{"base":"%d"},"epoch":"%d","force":true}`, w.GetInode(), w.GetEpoch()), http.StatusOK)
	if got := spans(); got != "/d/g false forced page root\n" {
		t.Errorf("after that: %s", got)
	}
	b.refused("call/LeaseHistory", `{}`, http.StatusBadRequest, "name one of")
	b.refused("call/LeaseHistory", `{"path":"/d/f","cursor":"?"}`, http.StatusBadRequest, "cursor")
	if err := fs.Chmod(t.Context(), "/d", 0o700); err != nil {
		t.Fatal(err)
	}
	browse(t, n, "eve").refused("call/LeaseHistory", `{"path":"/d/f"}`, http.StatusForbidden, "eve")
	n.Restart(t, func(c *namenode.Config) { c.LeaseHistory = -1 })
	browse(t, n, "root").refused("call/LeaseHistory", `{"path":"/d/f"}`, http.StatusNotFound, "keeps no history")
}

// TestRecoverFromThePage: the page may recover what its user may, under the epoch that was
// shown, once.
func TestRecoverFromThePage(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "holder")
	w := r.Create("/f")
	if err := r.Flush(w, 0, "flushed"); err != nil {
		t.Fatal(err)
	}
	request := func(seq int, epoch uint64, force bool) string {
		return fmt.Sprintf(`{"call":{"seq":%d},"at":{"base":"%d"},"epoch":"%d","force":%t}`, seq, w.GetInode(), epoch, force)
	}
	browse(t, n, "eve").refused("call/Recover", request(1, w.GetEpoch(), true), http.StatusForbidden, "eve")
	b := browse(t, n, "root")
	b.refused("call/Recover", request(1, w.GetEpoch(), false), http.StatusConflict, "holder")
	if out := b.asks("call/Recover", request(2, w.GetEpoch()+1, true), http.StatusOK); out["was_open"] != nil {
		t.Errorf("of another epoch: %v", out)
	}
	if out := b.asks("call/Recover", request(3, w.GetEpoch(), true), http.StatusOK); out["was_open"] != true || out["length"] != "7" {
		t.Errorf("%v", out)
	}
	if again := b.asks("call/Recover", request(3, w.GetEpoch(), true), http.StatusOK); again["was_open"] != true {
		t.Errorf("sent again: %v", again)
	}
}

// TestOnlyThePageAsks: what other pages can have a browser send is refused, and so are names
// that may lead here though they are not this machine's.
func TestOnlyThePageAsks(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.Advertise = "NN1.Example:8020" })
	for _, c := range []struct {
		name   string
		change func(*browser)
		status int
	}{
		{"the page", func(*browser) {}, http.StatusOK},
		{"the page, in a browser", func(b *browser) { b.header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		{"another page", func(b *browser) { b.header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		{"another page on this machine", func(b *browser) { b.header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		{"another page, in an old browser", func(b *browser) { b.header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		{"a form", func(b *browser) { b.header.Set("Content-Type", "text/plain") }, http.StatusForbidden},
		{"no type", func(b *browser) { b.header.Del("Content-Type") }, http.StatusForbidden},
		{"a name of somebody else that leads here", func(b *browser) { b.host = "evil.example:8021" }, http.StatusMisdirectedRequest},
		{"localhost", func(b *browser) { b.host = "localhost:8021" }, http.StatusOK},
		{"a name of this machine, as browsers write it", func(b *browser) { b.host = "nn1.example:8021" }, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := browse(t, n, "root")
			c.change(b)
			b.asks("call/List", `{"at":{"path":"/"}}`, c.status)
		})
	}
	b := browse(t, n, "root")
	b.refused("call/Delete", `{}`, http.StatusNotFound, "Delete")
	b.refused("call/List", `{"nothing":1}`, http.StatusBadRequest, "nothing")
	b.refused("call/List", `{"at":{"path":"`+strings.Repeat("x", 70<<10)+`"}}`, http.StatusBadRequest, "65536")
	b.user = ""
	b.refused("call/List", `{"at":{"path":"/"}}`, http.StatusBadRequest, "names no user")
	resp, err := http.Get(b.url + "/page/api/call/List")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("a GET makes a call")
	}
}

// TestThePageProvesWhoAsks: where callers have to prove who they are, the page has no other
// rights than a caller, by a token or by a certificate, and says what is missing.
func TestThePageProvesWhoAsks(t *testing.T) {
	dir := t.TempDir()
	ca := env.NewAuthority(t, dir, "ca")
	secret := proof.NewToken()
	line, err := proof.Line(secret, "bob")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Issue("namenode", time.Now().Add(time.Hour))
	n := env.Start(t, func(c *namenode.Config) {
		pair, err := proof.OpenPair(clock.System{}, cert, key)
		if err == nil {
			c.Identity.Authorities, err = proof.OpenAuthorities(clock.System{}, ca.File, "")
		}
		if err == nil {
			c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, tokens)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Identity.Certificates, c.Identity.Pair = true, pair
		c.TLS = proof.ServerTLS(pair, c.Identity.Authorities, false)
	})
	transport := func() *http.Transport {
		tr := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one
		tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.Pool(), ServerName: "localhost"}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	secure := func(user string, with *http.Transport) *browser {
		b := browse(t, n, user)
		b.url = "https://" + n.HTTPAddr()
		b.http = &http.Client{Transport: with}
		return b
	}
	nobody := secure("root", transport())
	for _, path := range []string{"call/WhoAmI", "call/Status", "call/ListLeases", "fleet", "figures"} {
		nobody.refused(path, `{}`, http.StatusUnauthorized, "is needed")
	}
	nobody.refused("read", `{"path":"/f"}`, http.StatusUnauthorized, "is needed")
	bob := secure("bob", transport())
	bob.header.Set("Authorization", "Bearer "+secret)
	if who := bob.asks("call/WhoAmI", `{}`, http.StatusOK); who["user"] != "bob" || who["superuser"] != nil {
		t.Errorf("%v", who)
	}
	works := func(b *browser) {
		t.Helper()
		b.asks("call/List", `{"at":{"path":"/"}}`, http.StatusOK)
		b.refused("call/Recover", `{"call":{"seq":1},"at":{"path":"/none"}}`, http.StatusNotFound, "/none")
		b.refused("read", `{"path":"/none"}`, http.StatusNotFound, "/none")
		b.asks("figures", `{}`, http.StatusOK)
	}
	works(bob)
	bob.user = "root"
	bob.refused("call/List", `{"at":{"path":"/"}}`, http.StatusUnauthorized, "of user")
	bob.header.Set("Authorization", "Bearer wrong")
	bob.refused("call/WhoAmI", `{}`, http.StatusUnauthorized, "not known")
	rooted := transport()
	rooted.TLSClientConfig.Certificates = append(rooted.TLSClientConfig.Certificates, ca.Pair("root", time.Now().Add(time.Hour)))
	if who := secure("", rooted).asks("call/WhoAmI", `{}`, http.StatusOK); who["user"] != "root" || who["superuser"] != true {
		t.Errorf("%v", who)
	}
	works(secure("root", rooted)) // in the same tab
	old := secure("root", rooted)
	old.tab = base64.StdEncoding.EncodeToString(make([]byte, 16))
	old.refused("call/Status", `{}`, http.StatusBadRequest, "load the page again")
}

// TestAFileIsFollowed: the page reads a file over blocks and tail, and follows it until it is
// closed; who may not read it gets nothing.
func TestAFileIsFollowed(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.BlockSize, c.MaxTail = 64<<10, 4096 })
	b := browse(t, n, "root")
	f := n.Client(t)
	w, err := f.Create(t.Context(), "/log")
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.Repeat([]byte("0123456789abcdef"), 10<<10) // two blocks and a half
	if _, err := w.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := func(request string) (data string, out map[string]any) {
		t.Helper()
		out = b.asks("read", request, http.StatusOK)
		raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(out["data"]))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), out
	}
	if data, out := read(`{"path":"/log","last":true}`); data != string(whole[len(whole)-64<<10:]) || out["offset"] != float64(len(whole)-64<<10) {
		t.Errorf("its end: %d bytes, %v", len(data), out["offset"])
	}
	all := ""
	for len(all) < len(whole) {
		data, _ := read(fmt.Sprintf(`{"path":"/log","offset":%d}`, len(all)))
		if len(data) == 0 || len(data) > 64<<10 {
			t.Fatalf("%d bytes at once", len(data))
		}
		all += data
	}
	if all != string(whole) {
		t.Error("other bytes")
	}
	more := make(chan string)
	go func() {
		resp := b.post(t.Context(), "read", fmt.Sprintf(`{"path":"/log","offset":%d,"follow":true}`, len(whole)))
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		more <- string(text)
	}()
	if _, err := w.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-more; !strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("more"))) {
		t.Errorf("followed: %s", got)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Chmod(t.Context(), "/log", 0o600); err != nil {
		t.Fatal(err)
	}
	browse(t, n, "eve").refused("read", `{"path":"/log","last":true}`, http.StatusForbidden, "eve")
	b.refused("read", `{"path":"/"}`, http.StatusBadRequest, "directory")
	b.refused("read", `{"path":"/log","offset":-1}`, http.StatusBadRequest, "negative")
}

// TestChangesAreTold: changes come as they happen, those of a name that looks like HTML as text,
// and the stream ends with the namenode.
func TestChangesAreTold(t *testing.T) {
	n := env.Start(t)
	b := browse(t, n, "root")
	resp := b.post(t.Context(), "call/Watch", `{"path":"/","recursive":true}`)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatal(resp.Status, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	const nasty = "/<img src=x onerror=alert(1)>"
	n.Raw(t, "w").Create(nasty)
	found := false
	for !found && lines.Scan() {
		var m struct{ Events []struct{ Path, Type string } }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Events {
			found = found || e.Path == nasty && e.Type == "EVENT_TYPE_CREATE"
		}
	}
	if !found {
		t.Fatal("it was not told", lines.Err())
	}
	n.Stop(t)
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, "stopping") {
		t.Errorf("its last word: %s, %v", last, lines.Err())
	}
}

// TestPageListsByPage: a folder comes a page at a time, from any name on.
func TestPageListsByPage(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "w")
	for i := range 25 {
		if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(fmt.Sprintf("/d%02d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	b := browse(t, n, "root")
	out := b.asks("call/List", `{"at":{"path":"/"},"limit":10,"after":"d04"}`, http.StatusOK)
	first, _ := array(out["entries"])[0].(map[string]any)
	if len(array(out["entries"])) != 10 || first["name"] != "d05" || out["more"] != true {
		t.Errorf("%v", out)
	}
}

// TestFiguresAndFleet: what is told beside calls.
func TestFiguresAndFleet(t *testing.T) {
	n := env.Start(t, env.Limits(30*time.Second, time.Hour))
	b := browse(t, n, "root")
	if out := b.asks("fleet", `{}`, http.StatusOK); len(array(out["members"])) != 0 || out["problem"] != "" {
		t.Errorf("%v", out)
	}
	out := b.asks("figures", `{"after":-1}`, http.StatusOK)
	if out["soft_limit_ms"] != 30_000.0 || out["hard_limit_ms"] != 3_600_000.0 || len(array(out["samples"])) != 0 {
		t.Errorf("%v", out)
	}
	b.refused("figures", `{"after":"x"}`, http.StatusBadRequest, "figures")
}

// TestThePageIsAudited: what is asked on the page is a call as any other: it is in the audit
// log, with who asked and from where, and takes a share of the calls a second.
func TestThePageIsAudited(t *testing.T) {
	dir := t.TempDir()
	log, shares := filepath.Join(dir, "audit"), filepath.Join(dir, "shares")
	if err := os.WriteFile(shares, []byte("user ann calls=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := env.Start(t, func(c *namenode.Config) {
		c.Audit.File = log
		var err error
		if c.Shares, err = namenode.OpenShares(clock.System{}, shares); err != nil {
			t.Fatal(err)
		}
	})
	ann := browse(t, n, "ann")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := ann.post(ctx, "call/Watch", `{"path":"/"}`)
	defer func() { _ = watch.Body.Close() }()
	refused := make(chan bool, 20)
	for range cap(refused) { // her share, those that wait for it, and more
		go func() {
			resp := ann.post(ctx, "call/List", `{"at":{"path":"/"}}`)
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			refused <- resp.StatusCode == http.StatusTooManyRequests && strings.Contains(string(text), "ann makes more calls")
		}()
	}
	some := false
	for range cap(refused) {
		some = <-refused || some
	}
	if !some {
		t.Error("calls of the page have no limit")
	}
	n.Stop(t)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"op":"ls","path":"/"`, `"op":"watch"`, `"user":"ann"`, `"client":"page"`, `"address":"127.`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in the audit log:\n%s", want, text)
		}
	}
}
