package webhdfs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// closing is a context for the end of a test.
func closing(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's own is over
	t.Cleanup(cancel)
	return ctx
}

// want fails the test unless a reply is as expected.
func want(t *testing.T, what string, r reply, status int, part string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, part) {
		t.Fatalf("%s: %d %s, want %d with %q", what, r.status, r.body, status, part)
	}
}

// opened makes a first request and returns where the second goes.
func opened(t *testing.T, s *webhdfs.Server, method, url string) string {
	t.Helper()
	r := once(t, s, method, url, "")
	if r.location == "" {
		t.Fatalf("%s %s: %d %s", method, url, r.status, r.body)
	}
	return r.location
}

// half sends the head of a second request and a first chunk of its body.
func half(t *testing.T, s *webhdfs.Server, method, location, chunk string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", method, u.RequestURI(), u.Host, len(chunk), chunk)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answerOf reads the answer on a connection.
func answerOf(t *testing.T, c net.Conn) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: resp.StatusCode, body: string(b)}
}

// has waits until a file has this content, and is closed if that is wanted.
func has(t *testing.T, fs *client.FS, path, content string, closed bool) {
	t.Helper()
	env.Eventually(t, path+" has "+content, func() bool {
		i, err := fs.Stat(t.Context(), path)
		if err != nil || closed && i.Open != nil {
			return false
		}
		b, err := fs.ReadFile(t.Context(), path)
		return err == nil && string(b) == content
	})
}

// TestRepeatedAppend: an APPEND that says where it begins is made once, however often and
// from wherever it is sent.
func TestRepeatedAppend(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	want(t, "create", both(t, s, "PUT", "/f?op=CREATE", "0123"), 201, "")
	long := strings.Repeat("leasefs ", 50_000)
	for _, c := range []struct {
		what, body string
		from       int
		status     int
		part       string
		after      string
	}{
		{"the first", "4567", 4, 200, "", "01234567"},
		{"again", "4567", 4, 200, "", "01234567"},
		{"more of it", "456789", 4, 200, "", "0123456789"},
		{"less of it", "45", 4, 200, "", "0123456789"},
		{"nothing", "", 4, 200, "", "0123456789"},
		{"something else", "4x", 4, 403, "6 more than expected, and they are not what this request appends", "0123456789"},
		{"too late", "x", 11, 403, "has 10 bytes, 1 fewer than expected", "0123456789"},
		{"long", long, 10, 200, "", "0123456789" + long},
		{"long again", long, 10, 200, "", "0123456789" + long},
		{"long and more", long + "!", 10, 200, "", "0123456789" + long + "!"},
		{"all of it", "0123456789" + long + "!?", 0, 200, "", "0123456789" + long + "!?"},
	} {
		r := both(t, s, "POST", fmt.Sprintf("/f?op=APPEND&expectedlength=%d", c.from), c.body)
		want(t, c.what, r, c.status, c.part)
		b, err := fs.ReadFile(t.Context(), "/f")
		if err != nil || string(b) != c.after {
			t.Fatalf("%s: the file has %d bytes, want %d: %v", c.what, len(b), len(c.after), err)
		}
		i, err := fs.Stat(t.Context(), "/f")
		if err != nil || i.Open != nil {
			t.Fatalf("%s: it is open: %v", c.what, err)
		}
	}
	before, err := fs.Stat(t.Context(), "/f")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "once more", both(t, s, "POST", "/f?op=APPEND&expectedlength=10", long), 200, "")
	if after, err := fs.Stat(t.Context(), "/f"); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("what changed nothing changed the modification time: %v", err)
	}
}

// TestMoreAppends: each further request to the place where an APPEND was sent appends to
// its file, whatever the file is called by then; one that says where it begins is made once.
func TestMoreAppends(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	want(t, "create", both(t, s, "PUT", "/f?op=CREATE", "0"), 201, "")
	at := opened(t, s, "POST", "/f?op=APPEND")
	want(t, "the first", once(t, s, "POST", at, "1"), 200, "")
	want(t, "more", once(t, s, "POST", at, "2"), 200, "")
	want(t, "of another user", once(t, s, "POST", strings.Replace(at, "user.name=root", "user.name=ann", 1), "x"), 403, "LeaseExpiredException")
	if err := errors.Join(fs.Rename(t.Context(), "/f", "/g", false), fs.WriteFile(t.Context(), "/f", []byte("another"))); err != nil {
		t.Fatal(err)
	}
	want(t, "renamed", once(t, s, "POST", at, "3"), 200, "")
	has(t, fs, "/g", "0123", true)
	has(t, fs, "/f", "another", true)
	single := opened(t, s, "POST", "/g?op=APPEND&expectedlength=4")
	want(t, "once", once(t, s, "POST", single, "4"), 200, "")
	want(t, "twice", once(t, s, "POST", single, "4"), 403, "LeaseExpiredException")
	if err := fs.Remove(t.Context(), "/g"); err != nil {
		t.Fatal(err)
	}
	want(t, "removed", once(t, s, "POST", at, "5"), 404, "FileNotFoundException")
}

// TestPause: what arrived is seen while the client is silent.
func TestPause(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	c := half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE"), "hello")
	has(t, fs, "/f", "hello", false)
	if i, err := fs.Stat(t.Context(), "/f"); err != nil || i.Open == nil {
		t.Errorf("it is closed: %v", err)
	}
	if _, err := io.WriteString(c, "1\r\n!\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	want(t, "the end", answerOf(t, c), 201, "")
	has(t, fs, "/f", "hello!", true)
}

// TestSilentBody: a client that says nothing for too long ends its request and its lease.
func TestSilentBody(t *testing.T) {
	n, s := start(t, func(c *webhdfs.Config) { c.Idle = time.Second })
	fs := n.Client(t)
	c := half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE"), "hello")
	want(t, "the end", answerOf(t, c), 403, "the request's body was cut off; the file has ")
	if i, err := fs.Stat(t.Context(), "/f"); err != nil || i.Open != nil {
		t.Errorf("it is open: %v", err)
	}
}

// TestCutOff: a client that is gone leaves a closed file with what it has sent.
func TestCutOff(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE"), "hello").Close()
	has(t, fs, "/f", "hello", true)
	half(t, s, "POST", opened(t, s, "POST", "/f?op=APPEND"), " world").Close()
	has(t, fs, "/f", "hello world", true)
	c := half(t, s, "POST", opened(t, s, "POST", "/f?op=APPEND"), "!")
	if _, err := io.WriteString(c, "no length\r\n"); err != nil {
		t.Fatal(err)
	}
	want(t, "a bad chunk", answerOf(t, c), 403, "the request's body was cut off; the file has 12 bytes now")
	has(t, fs, "/f", "hello world!", true)
}

// TestLostLease: what another did to a file while it was written is told by Hadoop's name.
func TestLostLease(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"replaced", func() error {
			want(t, "replace", both(t, s, "PUT", "/f?op=CREATE&overwrite=true", "new"), 201, "")
			return nil
		}},
		{"deleted", func() error { return fs.Remove(t.Context(), "/f") }},
		{"recovered", func() error { _, err := fs.Recover(t.Context(), "/f", true); return err }},
	} {
		w := half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE&overwrite=true"), "old")
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "4\r\nmore\r\n0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		want(t, c.what, answerOf(t, w), 403, `"javaClassName":"org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"`)
	}
}

// TestLostLeaseOfASilentBody: who sends nothing learns at once that his file was recovered, and keeps no
// place among the streams, whichever session had it.
func TestLostLeaseOfASilentBody(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	for _, name := range []string{"", "&clientname=c"} {
		for what, lose := range map[string]func() error{
			"by another client": func() error { _, err := fs.Recover(t.Context(), "/f", true); return err },
			"by WebHDFS": func() error {
				want(t, "recover", once(t, s, "POST", "/f?op=RECOVERLEASE", ""), 200, "true")
				return nil
			},
			"by an overwrite": func() error {
				want(t, "replace", both(t, s, "PUT", "/f?op=CREATE&overwrite=true", "new"), 201, "")
				return nil
			},
		} {
			w := half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE&overwrite=true"+name), "hello")
			has(t, fs, "/f", "hello", false)
			if err := errors.Join(w.SetReadDeadline(time.Now().Add(5*time.Minute)), lose()); err != nil {
				t.Fatal(err)
			}
			want(t, "recovered "+what+name, answerOf(t, w), 403, "LeaseExpiredException")
			env.Eventually(t, "the place is given back", func() bool { _, streams := s.InUse(); return streams == 0 })
		}
	}
}

// TestReaderStaysWithItsFile: a reader that comes again reads the file of its first
// request, or nothing.
func TestReaderStaysWithItsFile(t *testing.T) {
	_, s := start(t)
	want(t, "create", both(t, s, "PUT", "/f?op=CREATE", "old"), 201, "")
	at := opened(t, s, "GET", "/f?op=OPEN")
	want(t, "rename", once(t, s, "PUT", "/f?op=RENAME&destination=/g", ""), 200, "true")
	want(t, "create", both(t, s, "PUT", "/f?op=CREATE", "new"), 201, "")
	want(t, "renamed", once(t, s, "GET", at, ""), 200, "old")
	want(t, "delete", once(t, s, "DELETE", "/g?op=DELETE", ""), 200, "true")
	want(t, "deleted", once(t, s, "GET", at, ""), 404, "FileNotFoundException")
}

// TestTwoGateways: they serve the same files, and one does not take the other's writers.
func TestTwoGateways(t *testing.T) {
	n, a := start(t)
	b := gateway(t, n, func(c *webhdfs.Config) { c.Advertise = "localhost:1" })
	want(t, "create", both(t, a, "PUT", "/f?op=CREATE", "x"), 201, "")
	at := opened(t, a, "POST", "/f?op=APPEND")
	want(t, "held", once(t, b, "POST", "/f?op=APPEND", ""), 403, "AlreadyBeingCreatedException")
	want(t, "the other", once(t, b, "POST", strings.Replace(at, a.Addr(), b.Addr(), 1), "y"), 403, "LeaseExpiredException")
	want(t, "its own", once(t, a, "POST", at, "y"), 200, "")
	if at := opened(t, b, "GET", "/f?op=OPEN"); !strings.HasPrefix(at, "http://localhost:1/webhdfs/v1/f?") {
		t.Errorf("the advertised address is not used: %s", at)
	}
	want(t, "read", both(t, a, "GET", "/f?op=OPEN", ""), 200, "xy")
}

// TestWhoGetsIn: addresses, hosts and pages from which requests are not taken.
func TestWhoGetsIn(t *testing.T) {
	n, s := start(t)
	_, err := webhdfs.Start(t.Context(), webhdfs.Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "0.0.0.0:0"})
	if !errors.Is(err, fserror.InvalidArgument) || fserror.ReasonOf(err) != fserror.ReasonTrust {
		t.Errorf("an address that others reach: %v", err)
	}
	open := gateway(t, n, func(c *webhdfs.Config) { c.Listen, c.TrustClients = "0.0.0.0:0", true })
	named := gateway(t, n, func(c *webhdfs.Config) {
		c.Listen, c.TrustClients, c.Advertise, c.Names = "0.0.0.0:0", true, "gateway.example:9870", []string{"balancer.example"}
	})
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s                  *webhdfs.Server
		host, origin, site string
		status             int
	}{
		{s, "", "", "", 200},
		{s, "localhost:9870", "", "", 200},
		{s, "[::1]:9870", "", "", 200},
		{s, "[::1]", "", "", 200},
		{s, machine + ":9870", "", "", 200},
		{s, "evil.example", "", "", 403},
		{s, "localhost", "http://evil.example", "", 403},
		{s, "localhost", "", "none", 200}, // a person typed it
		{s, "localhost", "", "cross-site", 403},
		{s, "localhost", "", "same-site", 403},
		{open, "192.0.2.1:9870", "", "", 200},
		{open, strings.ToUpper(machine), "", "", 200},
		{open, "gateway.example", "", "", 403},
		{open, "evil.example:9870", "", "", 403},
		{named, "gateway.example:9870", "", "", 200},
		{named, "Gateway.example.", "", "", 200},
		{named, "balancer.example:80", "", "", 200},
		{named, "evil.example", "", "", 403},
		{named, "gateway.example", "http://evil.example", "", 403},
		{named, "gateway.example", "", "cross-site", 403},
	} {
		_, port, err := net.SplitHostPort(c.s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port+"/webhdfs/v1/?op=GETFILESTATUS&user.name=root", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			req.Header.Set("Sec-Fetch-Site", c.site)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("host %q, origin %q, site %q: %d, %v, want %d", c.host, c.origin, c.site, resp.StatusCode, err, c.status)
		}
		if c.host == "evil.example:9870" && !strings.Contains(string(body), "advertise that name") {
			t.Errorf("it is not told what to do: %s", body)
		}
		if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("a browser may guess what an answer is: %q", got)
		}
	}
	for url, status := range map[string]int{"/": 404, "/webhdfs/v1x": 404, "/webhdfs": 404, "/webhdfs/v1?op=GETFILESTATUS": 200, "/webhdfs/v1//?op=GETFILESTATUS": 200} {
		if !strings.Contains(url, "?") {
			url += "?"
		}
		if r := once(t, s, "GET", "http://"+s.Addr()+url, ""); r.status != status {
			t.Errorf("%s: %d, want %d", url, r.status, status)
		}
	}
}

// TestTrustIsTold: the log warns of a gateway that believes others.
func TestTrustIsTold(t *testing.T) {
	n := env.Start(t)
	for _, trust := range []bool{false, true} {
		var log bytes.Buffer
		s, err := webhdfs.Start(t.Context(), webhdfs.Config{
			Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0", TrustClients: trust,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(closing(t)); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "level=WARN msg=\"clients are trusted"); got != trust {
			t.Errorf("trusting is %t, the log has %s", trust, log.String())
		}
	}
}

// TestTwoSpellings: a parameter that is given in two spellings is refused; which of
// them counted would be by chance.
func TestTwoSpellings(t *testing.T) {
	_, s := start(t)
	want(t, "two users", once(t, s, "GET", "/?op=GETFILESTATUS&User.Name=joe&user.name=root", ""), 400, `parameter \"user.name\": it is given in small and in capital letters`)
	want(t, "one", once(t, s, "GET", "/?op=GETFILESTATUS&user.name=root", ""), 200, "")
	want(t, "in capitals", once(t, s, "GET", "/?OP=GETHOMEDIRECTORY&user.name=joe", ""), 200, "/user/joe")
}

// TestManyLocations: an answer has at most 1,000 blocks, which are the whole file.
func TestManyLocations(t *testing.T) {
	_, s := start(t)
	want(t, "create", both(t, s, "PUT", "/f?op=CREATE&blocksize=1", strings.Repeat("x", 5_000)), 201, "")
	for op, each := range map[string]string{"GETFILEBLOCKLOCATIONS": `"cachedHosts":`, "GET_BLOCK_LOCATIONS": `"startOffset":`} {
		r := once(t, s, "GET", "/f?op="+op, "")
		if got := strings.Count(r.body, each); r.status != 200 || got < 500 || got > 1_001 { // the last one comes twice
			t.Errorf("%s: %d, %d blocks", op, r.status, got)
		}
	}
}

// TestBlockSizeHasABound: blocks are not so large that no number has one.
func TestBlockSizeHasABound(t *testing.T) {
	_, s := start(t)
	want(t, "too large", once(t, s, "PUT", fmt.Sprintf("/f?op=CREATE&blocksize=%d", hadoop.MaxBlockSize+1), ""), 400, "is too large")
	want(t, "the largest", both(t, s, "PUT", fmt.Sprintf("/f?op=CREATE&blocksize=%d", hadoop.MaxBlockSize), "x"), 201, "")
	want(t, "it is kept", once(t, s, "GET", "/f?op=GETFILESTATUS", ""), 200, fmt.Sprintf(`"blockSize":%d`, hadoop.MaxBlockSize))
}

// TestHugeRequests: a request that says too much is refused, and others are served.
func TestHugeRequests(t *testing.T) {
	_, s := start(t)
	want(t, "many parameters", once(t, s, "GET", "/?op=GETFILESTATUS"+strings.Repeat("&a=b", 100), ""), 400, "at most 64 are allowed")
	want(t, "a long query", once(t, s, "GET", "/?op=GETFILESTATUS&a="+strings.Repeat("x", 200<<10), ""), 400, "at most 196608 are allowed")
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// It is cut off before it is sent, or told why.
	if _, err = io.WriteString(c, "GET /webhdfs/v1/?a="+strings.Repeat("x", 8<<20)+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err == nil {
		want(t, "a long head", answerOf(t, c), 431, "")
	}
	want(t, "a long name", once(t, s, "PUT", "/"+strings.Repeat("x", 256)+"?op=MKDIRS", ""), 403, "FSLimitException$PathComponentTooLongException")
	want(t, "a name that is no text", once(t, s, "GET", "/?op=GETFILESTATUS&user.name=%FF", ""), 400, "IllegalArgumentException")
	want(t, "a bad escape", once(t, s, "GET", "/?op=GETFILESTATUS&a=%zz", ""), 400, "the query cannot be decoded")
	want(t, "a body where none is wanted", once(t, s, "PUT", "/d?op=MKDIRS", strings.Repeat("x", 1<<20)), 200, "true")
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // two blocks
	want(t, "a large file", both(t, s, "PUT", "/big?op=CREATE", string(big)), 201, "")
	if r := both(t, s, "GET", "/big?op=OPEN&offset=5", ""); r.status != 200 || r.body != string(big[5:]) {
		t.Errorf("a large file: %d, %d bytes", r.status, len(r.body))
	}
}

// TestManyEntries lists a directory of several pages, with attributes for some.
func TestManyEntries(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	const count = 2500
	files := make([]client.FileData, count)
	for i := range files {
		files[i] = client.FileData{Path: fmt.Sprintf("/d/%04d", i), Options: []client.OpenOption{client.WithParents()}}
	}
	if _, err := fs.WriteFiles(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < count; i += 100 {
		want(t, "set", once(t, s, "PUT", fmt.Sprintf("/d/%04d?op=SETREPLICATION&replication=5", i), ""), 200, "true")
	}
	r := once(t, s, "GET", "/d?op=LISTSTATUS", "")
	if got := strings.Count(r.body, `"pathSuffix":"`); got != count || strings.Count(r.body, `"replication":5`) != count/100 {
		t.Errorf("%d entries", got)
	}
	seen := 0
	for after, more := "", true; more; {
		r := once(t, s, "GET", "/d?op=LISTSTATUS_BATCH&startAfter="+after, "")
		seen += strings.Count(r.body, `"pathSuffix":"`)
		_, rest, _ := strings.Cut(r.body[strings.LastIndex(r.body, `"pathSuffix":"`):], `:"`)
		after, _, _ = strings.Cut(rest, `"`)
		more = !strings.Contains(r.body, `"remainingEntries":0`)
	}
	if seen != count {
		t.Errorf("%d entries in batches", seen)
	}
}

// TestStreams: there are only so many files at once, a user takes at most a share, and
// whoever waits gets the place of one that ends.
func TestStreams(t *testing.T) {
	_, s := start(t, func(c *webhdfs.Config) { c.Streams = 32 })
	want(t, "mkdir", once(t, s, "PUT", "/d?op=MKDIRS&permission=777", ""), 200, "true")
	want(t, "chmod", once(t, s, "PUT", "/d?op=SETPERMISSION&permission=777", ""), 200, "")
	var at []string
	for i := range 24 {
		at = append(at, opened(t, s, "PUT", fmt.Sprintf("/d/ann%d?op=CREATE&user.name=ann", i)))
	}
	want(t, "joe", both(t, s, "PUT", "/d/joe?op=CREATE&user.name=joe", "x"), 201, "") // the reserve
	waited := make(chan *http.Response, 1)
	go func() {
		defer close(waited)
		req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://"+s.Addr()+"/webhdfs/v1/d/ann?op=CREATE&data=true&user.name=ann", strings.NewReader("x"))
		if err != nil {
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			waited <- resp
		}
	}()
	want(t, "another operation", once(t, s, "GET", "/d?op=LISTSTATUS&user.name=ann", ""), 200, `"pathSuffix":"ann23"`)
	for _, url := range at {
		want(t, "ann", once(t, s, "PUT", url, "x"), 201, "")
	}
	if resp := <-waited; resp == nil || resp.StatusCode != http.StatusCreated {
		t.Errorf("who waited got %v", resp)
	}
}

// TestEnd: files under way are closed at what has arrived, and a client is told.
func TestEnd(t *testing.T) {
	n := env.Start(t)
	fs := n.Client(t)
	s, err := webhdfs.Start(t.Context(), webhdfs.Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	half(t, s, "PUT", opened(t, s, "PUT", "/f?op=CREATE"), "hello")
	opened(t, s, "PUT", "/g?op=CREATE")
	has(t, fs, "/f", "hello", false)
	http.DefaultClient.CloseIdleConnections()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(over); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"/f": "hello", "/g": ""} {
		i, err := fs.Stat(t.Context(), path)
		if err != nil || i.Open != nil || i.Length != int64(len(content)) {
			t.Errorf("%s: %v, %v", path, i, err)
		}
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// TestNoNamenode: a gateway without a namenode tells so, and serves once there is one.
func TestNoNamenode(t *testing.T) {
	n, s := start(t, func(c *webhdfs.Config) { c.Client.Timeout = 300 * time.Millisecond })
	env.Eventually(t, "it serves", func() bool { return once(t, s, "PUT", "/d?op=MKDIRS", "").status == 200 })
	n.Stop(t)
	want(t, "a known user", once(t, s, "PUT", "/e?op=MKDIRS", ""), 403, "org.apache.hadoop.ipc.RetriableException")
	want(t, "a new one", once(t, s, "GET", "/?op=LISTSTATUS&user.name=joe", ""), 403, "org.apache.hadoop.ipc.RetriableException")
	n.Start(t)
	env.Eventually(t, "it serves again", func() bool { return once(t, s, "PUT", "/e?op=MKDIRS", "").status == 200 })
	env.Eventually(t, "it serves the new one", func() bool {
		r := once(t, s, "GET", "/?op=LISTSTATUS&user.name=joe", "")
		return r.status == 200 && strings.Contains(r.body, `"pathSuffix":"e"`)
	})
}

// TestSafeMode has Hadoop's name for it.
func TestSafeMode(t *testing.T) {
	n, s := start(t, func(c *webhdfs.Config) { c.Client.Timeout = 300 * time.Millisecond })
	fs := n.Client(t)
	if _, err := fs.Admin().SafeMode(t.Context(), client.SafeModeEnter); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "safe mode is told", func() bool {
		r := once(t, s, "PUT", "/d?op=MKDIRS", "")
		return r.status == 403 && strings.Contains(r.body, "org.apache.hadoop.hdfs.server.namenode.SafeModeException")
	})
}

// TestNames: any name that leasefs allows goes through both requests.
func TestNames(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	for _, name := range []string{"a b", "a+b", "a%25b", "a%b", "a;b", "a&b=c", "a#b", "a?b", "ü€", `a"b\`, "a:b", "a,b", "[a]*{b}", "<a>"} {
		at := "/" + url.PathEscape(name)
		want(t, name, both(t, s, "PUT", at+"?op=CREATE", name), 201, "")
		if b, err := fs.ReadFile(t.Context(), "/"+name); err != nil || string(b) != name {
			t.Errorf("%q: %q, %v", name, b, err)
		}
		want(t, name, both(t, s, "GET", at+"?op=OPEN", ""), 200, name)
		want(t, name, once(t, s, "PUT", at+"?op=RENAME&destination="+url.QueryEscape("/"+name+"2"), ""), 200, "true")
		want(t, name, once(t, s, "DELETE", "/"+url.PathEscape(name+"2")+"?op=DELETE", ""), 200, "true")
	}
}

// TestACLs: the operations of ACLs, in Hadoop's words.
func TestACLs(t *testing.T) {
	_, s := start(t)
	put := func(url string) reply { return once(t, s, "PUT", url, "") }
	status := func(path string) string { return once(t, s, "GET", path+"?op=GETACLSTATUS", "").body }
	is := func(what, path, entries, permission string) {
		t.Helper()
		got := status(path)
		if !strings.Contains(got, `"entries":[`+entries+`],`) || !strings.Contains(got, `"permission":"`+permission+`"`) || !strings.Contains(got, `"stickyBit":false`) {
			t.Fatalf("%s: %s", what, got)
		}
	}
	bit := func() bool {
		return strings.Contains(once(t, s, "GET", "/d?op=GETFILESTATUS", "").body, `"aclBit":true`)
	}
	want(t, "mkdir", put("/d?op=MKDIRS&permission=750"), 200, "true")
	is("none", "/d", ``, "750")
	if bit() {
		t.Fatal("it has the bit without an ACL")
	}
	want(t, "modify", put("/d?op=MODIFYACLENTRIES&aclspec=user:bob:rwx,default:group:staff:r-x"), 200, "")
	const access = `"user:bob:rwx","group::r-x"`
	const byDefault = `"default:user::rwx","default:group::r-x","default:group:staff:r-x","default:mask::r-x","default:other::---"`
	is("modified", "/d", access+","+byDefault, "770")
	if !bit() {
		t.Fatal("it has no bit with an ACL")
	}
	want(t, "a child", put("/d/sub?op=MKDIRS&permission=700&unmaskedpermission=777"), 200, "true")
	is("a child", "/d/sub", `"group::r-x","group:staff:r-x",`+byDefault, "750")
	want(t, "remove entries", put("/d?op=REMOVEACLENTRIES&aclspec=user:bob:,default:group:staff"), 200, "")
	is("removed", "/d", `"group::r-x","default:user::rwx","default:group::r-x","default:mask::r-x","default:other::---"`, "750")
	want(t, "remove default", put("/d?op=REMOVEDEFAULTACL"), 200, "")
	is("no default", "/d", `"group::r-x"`, "750")
	want(t, "set", put("/d?op=SETACL&aclspec=user::rwx,user:eve:r--,group::---,other::---"), 200, "")
	is("set", "/d", `"user:eve:r--","group::---"`, "740")
	want(t, "remove", put("/d?op=REMOVEACL"), 200, "")
	is("removed", "/d", ``, "700")
	for spec, class := range map[string]string{
		"user::rwx":           "org.apache.hadoop.hdfs.protocol.AclException",
		"user:bob:rwz":        "IllegalArgumentException",
		"user:bob:rwX":        "IllegalArgumentException",
		"":                    "IllegalArgumentException",
		"user:bob,group::rwx": "IllegalArgumentException",
	} {
		if r := put("/d?op=SETACL&aclspec=" + spec); r.status < 400 || !strings.Contains(r.body, class) {
			t.Errorf("%q: %d %s", spec, r.status, r.body)
		}
	}
	want(t, "not the owner's", put("/d?op=REMOVEACL&user.name=mallory"), 403, "AccessControlException")
	want(t, "nothing there", once(t, s, "GET", "/none?op=GETACLSTATUS", ""), 404, "FileNotFoundException")
}

// TestQuotas: SETQUOTA, GETQUOTAUSAGE and GETCONTENTSUMMARY answer as HDFS does.
func TestQuotas(t *testing.T) {
	n := env.Start(t)
	s := gateway(t, n)
	for _, c := range []struct {
		method, url string
		status      int
		part        string
	}{
		{"PUT", "/q/d?op=MKDIRS", 200, "true"},
		{"PUT", "/q?op=SETQUOTA&namespacequota=3", 200, ""},
		{"PUT", "/q?op=SETQUOTA&storagespacequota=10", 200, ""},
		{"GET", "/q?op=GETQUOTAUSAGE", 200, `{"QuotaUsage":{"fileAndDirectoryCount":2,"quota":3,"spaceConsumed":0,"spaceQuota":10,"typeQuota":{}}}`},
		{"GET", "/q?op=GETCONTENTSUMMARY", 200, `"quota":3,`},
		{"GET", "/q?op=GETCONTENTSUMMARY", 200, `"spaceQuota":10,`},
		{"PUT", "/q/d/a/b?op=MKDIRS", 403, `"NSQuotaExceededException"`},
		{"PUT", "/q?op=SETQUOTA&namespacequota=-1&storagespacequota=-1", 200, ""},
		{"GET", "/q?op=GETQUOTAUSAGE", 200, `"quota":-1,`},
		{"PUT", "/q?op=SETQUOTA&namespacequota=-2", 400, `"IllegalArgumentException"`},
		{"PUT", "/q?op=SETQUOTA&namespacequota=many", 400, `"IllegalArgumentException"`},
		{"PUT", "/q?op=SETQUOTA&storagespacequota=many", 400, `"IllegalArgumentException"`},
		{"PUT", "/none?op=SETQUOTA&namespacequota=5", 404, `"FileNotFoundException"`},
		{"PUT", "/q?op=SETQUOTABYSTORAGETYPE&storagetype=SSD&storagespacequota=5", 400, "leasefs has no quotas by storage type"},
	} {
		want(t, c.method+" "+c.url, once(t, s, c.method, c.url+"&user.name=root", ""), c.status, c.part)
	}
	check := func(code int, body, part string) {
		t.Helper()
		if got := both(t, s, "PUT", "/q/f?op=CREATE&overwrite=true&user.name=root", body); got.status != code || !strings.Contains(got.body, part) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	want(t, "bytes", once(t, s, "PUT", "/q?op=SETQUOTA&user.name=root&storagespacequota=10", ""), 200, "")
	check(403, "12345678901", `"DSQuotaExceededException"`)
	check(201, "1234567890", "")
}
