package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/s3env"
	"github.com/leasefs/leasefs/test/env/size"
)

// TestS3 is a namenode alone whose blocks are in a bucket.
func TestS3(t *testing.T) {
	t.Parallel()
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := s3env.Start(t, name)
			for _, c := range []struct {
				name string
				test func(context.Context, *testing.T, *s3env.Server)
			}{
				{"Trees", s3Trees},
				{"LargeFilePassesBy", s3LargeFilePassesBy},
				{"Changes", s3Changes},
				{"CredentialsFile", s3CredentialsFile},
				{"WrongSettings", s3WrongSettings},
				{"WrongStore", s3WrongStore},
				{"StoreAway", s3StoreAway},
				{"ArchiveOutlivesTheDisk", s3ArchiveOutlivesTheDisk},
			} {
				t.Run(c.name, func(t *testing.T) {
					c.test(deadline(t, 4*time.Minute), t, server)
				})
			}
		})
	}
}

// onS3 is a namenode, not yet started, whose blocks are at the URL.
func onS3(t *testing.T, server *s3env.Server, url string) *namenode {
	t.Helper()
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", url)
	n.env = server.Env()
	return n
}

// startOnS3 starts one on a prefix of its own.
func startOnS3(ctx context.Context, t *testing.T, server *s3env.Server) *namenode {
	t.Helper()
	n := onS3(t, server, server.URL(prefixOf(t)))
	n.start(ctx)
	return n
}

// prefixOf is a prefix in the bucket that no other test has.
func prefixOf(t testing.TB) string { return strings.ReplaceAll(t.Name(), "/", "-") }

var keyInList = regexp.MustCompile(`<Key>([^<]*)</Key>`)

// stored are the names in the bucket below the test's prefix that have that part.
func stored(t *testing.T, server *s3env.Server, part string) (list []string) {
	t.Helper()
	for _, m := range keyInList.FindAllStringSubmatch(server.List(t, prefixOf(t)+"/"), -1) {
		if strings.Contains(m[1], part) {
			list = append(list, m[1])
		}
	}
	return list
}

// s3Trees: a tree goes in and comes out, over a crash of the namenode.
func s3Trees(ctx context.Context, t *testing.T, server *s3env.Server) {
	n := startOnS3(ctx, t, server)
	odd := oddTree(t)
	began := time.Now()
	n.run(ctx, "put", "-r", odd, "/odd")
	put := time.Since(began)
	n.crash(ctx)
	out := filepath.Join(t.TempDir(), "out")
	began = time.Now()
	n.run(ctx, "get", "-r", "/odd", out)
	files, size := sameTrees(ctx, t, odd, out)
	t.Logf("%d files, %s: put %.2f s, get %.2f s", files, mib(size), put.Seconds(), time.Since(began).Seconds())
	n.fsck(ctx)
	if local, _ := folderBytes(t, filepath.Join(n.data, "blocks")); local != 0 {
		t.Errorf("%d bytes of blocks are in the data folder", local)
	}
	names(t, n.page(ctx, "metrics"), `leasefs_s3_requests_total{outcome="ok"}`, "leasefs_s3_retries_total ", "leasefs_s3_clock_skew_seconds")
	if got, want := len(stored(t, server, "/blocks/")), int(n.status(ctx).Blocks); got != want || want == 0 {
		t.Errorf("%d blocks are in the store, files have %d", got, want)
	}
}

// page is a page of a namenode's HTTP port.
func (n *namenode) page(ctx context.Context, name string) string {
	n.t.Helper()
	return n.pageAt(ctx, n.http, name)
}

// pageAt is page of any process.
func (n *namenode) pageAt(ctx context.Context, addr, name string) string {
	n.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/"+name, http.NoBody)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("%s: %s %v\n%s", name, resp.Status, err, text)
	}
	return string(text)
}

// relay counts the bytes that pass on their way to an address.
type relay struct {
	addr  string
	bytes atomic.Int64
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String()}
	var pumps sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	pump := func(dst, src net.Conn) {
		defer func() { _ = dst.Close() }() // ends the other direction, too
		_, _ = io.Copy(countingWriter{dst, &r.bytes}, src)
	}
	pumps.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			keep(in)
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			keep(out)
			pumps.Go(func() { pump(out, in) })
			pumps.Go(func() { pump(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		pumps.Wait()
	})
	return r
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// s3LargeFilePassesBy: several blocks go in and come out, and the namenode sees none of it.
func s3LargeFilePassesBy(ctx context.Context, t *testing.T, server *s3env.Server) {
	n := onS3(t, server, server.URL(prefixOf(t)))
	calls, pages := newRelay(t, n.listen), newRelay(t, n.http)
	n.flags = append(n.flags, "--advertise-http", pages.addr)
	n.start(ctx)
	data := make([]byte, size.Of(32<<20, 64<<20))
	_, _ = rand.NewChaCha8([32]byte{6, 4}).Read(data)
	want := sha256.Sum256(data)
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	through := func(args ...string) *process {
		t.Helper()
		p := start(ctx, t, spec{argv: append([]string{leasefs}, args...), env: []string{"LEASEFS_NAMENODE=" + calls.addr}, stdin: reader("")})
		p.ends(ctx, 0)
		return p
	}
	began := time.Now()
	through("put", file, "/large")
	put := time.Since(began)
	began = time.Now()
	back := filepath.Join(t.TempDir(), "back")
	through("get", "/large", back)
	get := time.Since(began)
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	got, err := os.ReadFile(back)
	if err != nil || sum(got) != hex.EncodeToString(want[:]) {
		t.Errorf("%d bytes came back, of another checksum (%v)", len(got), err)
	}
	if got := through("cat", "/large").out.String(); sum([]byte(got)) != hex.EncodeToString(want[:]) {
		t.Error("cat has other bytes")
	}
	if seen := calls.bytes.Load() + pages.bytes.Load(); seen > 1<<20 || seen == 0 {
		t.Errorf("%s passed through the namenode", mib(seen))
	} else {
		t.Logf("%s: put %.2f s, get %.2f s; %d bytes passed through the namenode's ports", mib(int64(len(data))), put.Seconds(), get.Seconds(), seen)
	}
}

// s3Changes: all that makes, rewrites and deletes blocks.
func s3Changes(ctx context.Context, t *testing.T, server *s3env.Server) {
	n := startOnS3(ctx, t, server)
	want := ""
	// Tails, and blocks that are made of them.
	w := n.begin(ctx, nil, "create", "--flush", "line", "--ack", "/log")
	for i := range 50 {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i*10))
		want += line
		w.feed(line)
	}
	w.acksUpTo(ctx, int64(len(want)))
	w.eof()
	w.ends(ctx, 0)
	for i := range 5 {
		more := strings.Repeat(fmt.Sprintf("%d ", i), 200_000) // over a small tail
		n.write(ctx, more, "append", "/log")
		want += more
	}
	check := func(path, want string) {
		t.Helper()
		if got := n.run(ctx, "cat", path); got != want {
			t.Fatalf("%s has %d bytes, not the %d that were written", path, len(got), len(want))
		}
	}
	check("/log", want)
	n.crash(ctx)
	check("/log", want)
	// Truncating, and concatenating, write no byte.
	n.run(ctx, "truncate", "--size", "1000000", "/log")
	want = want[:1_000_000]
	check("/log", want)
	n.write(ctx, want, "create", "/second")
	n.write(ctx, "end", "create", "/third")
	before := len(stored(t, server, "/blocks/"))
	n.run(ctx, "concat", "/log", "/second", "/third")
	check("/log", want+want+"end")
	if after := len(stored(t, server, "/blocks/")); after < before {
		t.Errorf("%d blocks in the store, %d before", after, before)
	}
	n.fsck(ctx)
	// A block that is lost, or altered, is found and named.
	names := stored(t, server, "/blocks/")
	good := names[len(names)-1]
	_, body, err := server.Send(ctx, http.MethodGet, "/"+server.Bucket+"/"+good, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), body...)
	bad[0] ^= 1
	server.Put(t, good, bad)
	if r := n.try(ctx, "", "admin", "fsck", "--blocks"); r.code == 0 || !strings.Contains(r.out+r.err, "/log") {
		t.Errorf("fsck of an altered block: %d %s %s", r.code, r.out, r.err)
	}
	server.Put(t, good, body)
	n.fsck(ctx)
	// What is deleted waits for its URLs.
	n.run(ctx, "rm", "/log")
	n.run(ctx, "admin", "gc")
	if s := n.status(ctx); s.Blocks != 0 || s.GarbageBlocks == 0 {
		t.Errorf("%+v", s)
	}
	n.term(ctx)
}

// s3CredentialsFile: the credentials come from ~/.aws, of a profile.
func s3CredentialsFile(ctx context.Context, t *testing.T, server *s3env.Server) {
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n\n[leasefs]\naws_access_key_id = %s\naws_secret_access_key = %s\n", server.AccessKey, server.SecretKey)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := onS3(t, server, server.URL(prefixOf(t)))
	common := []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=" + file}
	n.env = append(common, "AWS_PROFILE=leasefs")
	n.start(ctx)
	n.write(ctx, strings.Repeat("by file ", 300_000), "create", "/f")
	n.fsck(ctx)
	n.term(ctx)
	n.env = common // the default profile is another's
	text = n.cannotStart(ctx, 8)
	names(t, text, "does not know the access key", "AWS_ACCESS_KEY_ID")
}

// cannotStart starts it, which must fail with that exit code and one line.
func (n *namenode) cannotStart(ctx context.Context, code int) string {
	n.t.Helper()
	began := time.Now()
	p := n.launch(ctx)
	p.ends(ctx, code)
	if p.out.String() != "" {
		n.t.Errorf("it printed %q", p.out)
	}
	line := behindLog(p.err.String())
	oneLine(n.t, line)
	n.t.Logf("%.1f s, exit code %d: %s", time.Since(began).Seconds(), code, line)
	return line
}

// behindLog is what a namenode printed besides lines of its log, which come first.
func behindLog(stderr string) (rest string) {
	for l := range strings.Lines(stderr) {
		if !strings.HasPrefix(l, "time=") {
			rest += l
		}
	}
	return rest
}

// without is an environment less one variable.
func without(env []string, name string) (out []string) {
	for _, pair := range env {
		if !strings.HasPrefix(pair, name+"=") {
			out = append(out, pair)
		}
	}
	return out
}

// answering is a proxy that gives an answer of its own to requests of a method.
func answering(t *testing.T, server *s3env.Server, method string, status int, code string) *s3env.Proxy {
	t.Helper()
	p := server.Proxy(t)
	p.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if r.Method != method {
			return send(body)
		}
		return &s3env.Reply{Status: status, Header: http.Header{"Content-Type": {"application/xml"}}, Body: []byte("<Error><Code>" + code + "</Code><Message>no</Message></Error>")}
	})
	return p
}

// s3WrongSettings: each is one line that says what to do.
func s3WrongSettings(ctx context.Context, t *testing.T, server *s3env.Server) {
	url := server.URL(prefixOf(t))
	fast := server.Proxy(t) // its clock is two hours ahead
	fast.Set(func(_ *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		reply := send(body)
		if reply != nil {
			reply.Header.Set("Date", time.Now().Add(2*time.Hour).UTC().Format(http.TimeFormat))
		}
		return reply
	})
	nobody := httptest.NewServer(http.NotFoundHandler())
	defer nobody.Close()
	careless := httptest.NewServer(&carelessStore{objects: map[string][]byte{}})
	defer careless.Close()
	for _, c := range []struct {
		what string
		url  string
		env  []string
		code int
		says []string
	}{
		{"secret", url, append(without(server.Env(), "AWS_SECRET_ACCESS_KEY"), "AWS_SECRET_ACCESS_KEY=wrong"), 8, []string{"AWS_SECRET_ACCESS_KEY"}},
		{"access key", url, append(without(server.Env(), "AWS_ACCESS_KEY_ID"), "AWS_ACCESS_KEY_ID=nobody"), 8, []string{"AWS_ACCESS_KEY_ID"}},
		{"no credentials", url, without(without(server.Env(), "AWS_ACCESS_KEY_ID"), "AWS_SECRET_ACCESS_KEY"), 8, []string{"no credentials", "AWS_ACCESS_KEY_ID", "~/.aws/credentials"}},
		{"bucket", strings.Replace(url, server.Bucket, "no-such-bucket", 1), nil, 9, []string{"there is no bucket no-such-bucket"}},
		{"region", strings.Replace(url, "region="+server.Region, "region=elsewhere", 1), nil, 2, []string{"another region than elsewhere"}},
		{"permission", answering(t, server, http.MethodPut, http.StatusForbidden, "AccessDenied").URL(prefixOf(t)), nil, 8, []string{"AccessDenied", "put"}},
		{"permission to list", answering(t, server, http.MethodGet, http.StatusForbidden, "AccessDenied").URL(prefixOf(t)), nil, 8, []string{"may not do that", "list"}},
		{"clock", fast.URL(prefixOf(t)), nil, 9, []string{"2h0m0s behind", "NTP"}},
		{"no S3 server", "s3://" + server.Bucket + "?endpoint=" + nobody.URL + "&region=us-east-1", nil, 9, []string{"does not answer like an S3 server"}},
		{"enforces nothing", "s3://" + server.Bucket + "?endpoint=" + careless.URL + "&region=us-east-1", nil, 1, []string{"cannot be trusted", "signed checksum", "use another"}},
		{"URL", "s3://Bad_Bucket/x", nil, 2, []string{"no name of a bucket"}},
		{"secret in the URL", "s3://key:secret@" + server.Bucket, nil, 2, []string{"must not have credentials"}},
	} {
		if c.what == "region" && server.Name == s3env.SeaweedFS {
			continue // it takes any region
		}
		n := onS3(t, server, c.url)
		if c.env != nil {
			n.env = c.env
		}
		line := n.cannotStart(ctx, c.code)
		for _, part := range c.says {
			if !strings.Contains(line, part) {
				t.Errorf("%s: %q does not say %q", c.what, line, part)
			}
		}
		if strings.Contains(line, server.SecretKey) {
			t.Errorf("%s: %q has the secret", c.what, line)
		}
	}
	if left := stored(t, server, ""); len(left) != 0 {
		t.Errorf("namenodes that did not come up left %v", left)
	}
}

// TestS3NobodyThere takes a while: it is tried again, with pauses.
func TestS3NobodyThere(t *testing.T) {
	t.Parallel()
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", "s3://bucket?endpoint=http://127.0.0.1:1")
	n.env = []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}
	names(t, n.cannotStart(deadline(t, time.Minute), 9), "cannot be reached", "127.0.0.1:1")
}

// carelessStore takes everything from everybody, as some stores do.
type carelessStore struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (c *carelessStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // all is well with it
	object, there := c.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPut:
		c.objects[r.URL.Path] = body
	case r.Method == http.MethodPost:
		clear(c.objects)
		_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
	case strings.Contains(r.URL.RawQuery, "list-type=2"):
		_, _ = io.WriteString(w, "<ListBucketResult><Name>b</Name></ListBucketResult>")
	case !there:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		_, _ = w.Write(object)
	}
}

// s3WrongStore: another bucket or prefix, and a folder, are refused like a disk
// that is not mounted.
func s3WrongStore(ctx context.Context, t *testing.T, server *s3env.Server) {
	n := startOnS3(ctx, t, server)
	n.write(ctx, strings.Repeat("here", 300_000), "create", "/f")
	n.term(ctx)
	right := n.flags
	for _, wrong := range [][]string{{"--blocks", server.URL(prefixOf(t) + "/other")}, {"--blocks", server.URL("")}, nil, {"--blocks", "file://" + t.TempDir()}} {
		n.flags = wrong
		line := n.cannotStart(ctx, 3)
		names(t, line, "--blocks")
	}
	n.flags = right
	n.start(ctx)
	n.fsck(ctx)
	n.term(ctx)
	// Lost, or not that of this namespace.
	for _, name := range stored(t, server, "/named/namespace") {
		if status, _, err := server.Send(ctx, http.MethodDelete, "/"+server.Bucket+"/"+name, nil); err != nil || status/100 != 2 {
			t.Fatal(status, err)
		}
	}
	names(t, n.cannotStart(ctx, 3), "elsewhere", "--blocks")
	// The other way: blocks in a folder are not in the bucket.
	local := startNamenode(ctx, t)
	local.term(ctx)
	local.flags, local.env = right, server.Env()
	names(t, local.cannotStart(ctx, 3), "elsewhere", "--blocks")
}

// s3StoreAway: without the store small writes and all that is metadata continue,
// and blocks wait.
func s3StoreAway(ctx context.Context, t *testing.T, server *s3env.Server) {
	proxy := server.Proxy(t)
	n := onS3(t, server, proxy.URL(prefixOf(t)))
	n.start(ctx)
	large := strings.Repeat("large ", 400_000)
	n.write(ctx, large, "create", "/before")
	proxy.Set(func(*http.Request, []byte, func([]byte) *s3env.Reply) *s3env.Reply { return s3env.Trouble() })
	n.write(ctx, "small", "create", "/small")
	n.write(ctx, " more", "append", "/small")
	n.run(ctx, "mv", "/small", "/moved")
	if got := n.run(ctx, "cat", "/moved"); got != "small more" {
		t.Errorf("%q", got)
	}
	r := n.try(ctx, large, "--timeout", "2s", "create", "/blocked")
	if r.code == 0 {
		t.Error("a block was written to a store that takes none")
	}
	oneLine(t, r.err)
	r = n.try(ctx, "", "--timeout", "2s", "cat", "/before")
	if r.code == 0 || r.out != "" && !strings.HasPrefix(large, r.out) {
		t.Errorf("exit code %d, %d bytes", r.code, len(r.out))
	}
	oneLine(t, r.err)
	w := n.begin(ctx, reader(large), "create", "/later")
	waiting := proxy.Count(http.MethodPut)
	eventually(ctx, t, "the writer tries", func() bool { return proxy.Count(http.MethodPut) > waiting || w.ended() })
	proxy.Set(nil)
	w.ends(ctx, 0)
	for _, f := range []string{"/before", "/later"} {
		if got := n.run(ctx, "cat", f); got != large {
			t.Errorf("%s: %d bytes", f, len(got))
		}
	}
	n.fsck(ctx)
	n.term(ctx)
}
