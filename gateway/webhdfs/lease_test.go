package webhdfs_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
)

const (
	isTrue  = `{"boolean":true}`
	isFalse = `{"boolean":false}`
	isFree  = `{"Lease":null}`
)

// TestLeases: a client learns who writes a file, keeps what it has opened itself, and ends what anybody
// has, with what has arrived.
func TestLeases(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	is := func(what, method, url, body string) {
		t.Helper()
		if got := once(t, s, method, url, ""); got.status != 200 || got.body != body {
			t.Fatalf("%s: %d %s, want %s", what, got.status, got.body, body)
		}
	}
	at := opened(t, s, "PUT", "/f?op=CREATE&clientname=a%20collector")
	want(t, "whose it is", once(t, s, "GET", "/f?op=GETLEASE", ""), 200, `{"Lease":{"clientName":"a collector","host":"`)
	if i, err := fs.Stat(t.Context(), "/f"); err != nil || i.Open == nil || i.Open.Holder.Client != "a collector" || i.Open.Holder.User != "root" {
		t.Errorf("the library sees %+v, %v", i.Open, err)
	}
	is("closed", "GET", "/f?op=ISFILECLOSED", isFalse)
	is("renewed", "PUT", "/?op=RENEWLEASE&clientname=a%20collector", isTrue)
	is("renewed by another client", "PUT", "/?op=RENEWLEASE&clientname=a", isFalse)
	is("renewed by another user", "PUT", "/?op=RENEWLEASE&clientname=a%20collector&user.name=joe", isFalse)
	w := half(t, s, "PUT", at, "hello")
	is("renewed while it is written", "PUT", "/?op=RENEWLEASE&clientname=a%20collector", isTrue)
	has(t, fs, "/f", "hello", false)
	if _, err := io.WriteString(w, "7\r\n, world\r\n"); err != nil {
		t.Fatal(err)
	}
	is("recovered", "POST", "/f?op=RECOVERLEASE", isTrue)
	is("closed", "GET", "/f?op=ISFILECLOSED", isTrue)
	is("nobody's", "GET", "/f?op=GETLEASE", isFree)
	if _, err := io.WriteString(w, "1\r\n!\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	want(t, "the writer", answerOf(t, w), 403, "LeaseExpiredException")
	b, err := fs.ReadFile(t.Context(), "/f")
	if err != nil || string(b) != "hello" && string(b) != "hello, world" {
		t.Errorf("it has %q, %v", b, err)
	}
	is("recovered again", "PUT", "/f?op=RECOVERLEASE", isTrue)
	is("renewed when nothing is open", "PUT", "/?op=RENEWLEASE&clientname=a%20collector", isFalse)

	at = opened(t, s, "POST", "/f?op=APPEND&clientname=b")
	is("before the second request", "PUT", "/f?op=RECOVERLEASE", isTrue)
	if _, streams := s.InUse(); streams != 0 {
		t.Errorf("%d places are taken by what was recovered", streams)
	}
	want(t, "the second request", once(t, s, "POST", at, "x"), 403, "LeaseExpiredException")

	at = opened(t, s, "POST", "/f?op=APPEND") // without a name it is the session's
	h, err := fs.Stat(t.Context(), "/f")
	if err != nil || h.Open == nil {
		t.Fatal(h, err)
	}
	is("renewed by its name", "PUT", "/?op=RENEWLEASE&clientname="+h.Open.Holder.Client, isTrue)
	want(t, "the second request", once(t, s, "POST", at, "."), 200, "")
	at = opened(t, s, "POST", "/f?op=APPEND&clientname=c")
	want(t, "the second request", once(t, s, "POST", at, "."), 200, "")
	more := half(t, s, "POST", at, ".")
	has(t, fs, "/f", string(b)+"...", false)
	want(t, "more of the same", once(t, s, "GET", "/f?op=GETLEASE", ""), 200, `"clientName":"c"`)
	_ = more.Close()
	has(t, fs, "/f", string(b)+"...", true)
}

// TestLeasesOfOthers: what another client has open by the library is seen and ended likewise.
func TestLeasesOfOthers(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t, func(c *client.Config) { c.Client = "job-7" })
	w, err := fs.Create(t.Context(), "/f", client.WithMode(0o644))
	if err == nil {
		_, err = w.Write([]byte("hello"))
	}
	if err := errors.Join(err, w.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	want(t, "whose it is", once(t, s, "GET", "/f?op=GETLEASE&user.name=joe", ""), 200, `"clientName":"job-7"`)
	want(t, "renewed by who has it elsewhere", once(t, s, "PUT", "/?op=RENEWLEASE&clientname=job-7", ""), 200, isFalse)
	want(t, "without permission", once(t, s, "PUT", "/f?op=RECOVERLEASE&user.name=joe", ""), 403, "org.apache.hadoop.security.AccessControlException")
	want(t, "closed", once(t, s, "GET", "/f?op=ISFILECLOSED&user.name=joe", ""), 200, isFalse)
	want(t, "recovered", once(t, s, "POST", "/f?op=RECOVERLEASE", ""), 200, isTrue)
	if _, err = w.Write([]byte("lost")); err == nil {
		err = w.Flush(t.Context())
	}
	if !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("the writer: %v", err)
	}
	has(t, fs, "/f", "hello", true)
	for _, op := range []string{"GET GETLEASE", "GET ISFILECLOSED", "PUT RECOVERLEASE", "POST RECOVERLEASE"} {
		method, op, _ := strings.Cut(op, " ")
		want(t, op+" of nothing", once(t, s, method, "/none?op="+op, ""), 404, "File does not exist: /none")
		want(t, op+" of a directory", once(t, s, method, "/?op="+op, ""), 404, "Path is not a file: /")
	}
	for _, url := range []string{"PUT /g?op=CREATE", "POST /f?op=APPEND", "PUT /?op=RENEWLEASE"} {
		method, url, _ := strings.Cut(url, " ")
		for _, name := range []string{strings.Repeat("x", 256), "a%00b", "a%0Ab", "%FF"} {
			want(t, url+" by "+name, once(t, s, method, url+"&clientname="+name, ""), 400, "IllegalArgumentException")
		}
	}
	want(t, "renewed by nobody", once(t, s, "PUT", "/?op=RENEWLEASE", ""), 400, "Required param clientname")
	want(t, "nothing was made", once(t, s, "GET", "/g?op=GETLEASE", ""), 404, "")
}
