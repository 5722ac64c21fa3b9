package webhdfs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/test/env"
)

// TestClientHasGone: a request whose client ended the connection before it was read changes nothing:
// the client may have made it by another gateway, and more since then.
func TestClientHasGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	mine, err := conns.New(1, 0).Listener(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()

	n := env.Start(t)
	fs := n.Client(t)
	s := &Server{streams: gate.New(1, gateTime), users: users.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}}, 1, nil)}
	defer s.users.Close()
	r := (&http.Request{Method: http.MethodPut}).WithContext((&visits{still: still.New(nil), of: map[net.Conn]*visit{}}).connContext(t.Context(), mine))
	u, err := s.users.Get(t.Context(), users.Key{User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.users.Release(u)
	q := &request{Server: s, r: r, ctx: t.Context(), user: u}
	made := 0
	changed := changes(func(change) error { made++; return nil })
	if err := changed(q); err != nil || made != 1 {
		t.Fatalf("while the client is there: %v, made %d times", err, made)
	}
	if _, err := io.WriteString(theirs, "PUT / HTTP/1.1\r\n"); err != nil { // the end is behind it
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the end of the connection", mine.(*conns.Conn).Gone)
	if err := changed(q); !errors.Is(err, errCut) || made != 1 {
		t.Errorf("a change: %v, made %d times", err, made)
	}
	if err := (transfer{q}).first(-1, false, false, func(ctx context.Context) (*client.Writer, error) { return fs.Create(ctx, "/f") }); !errors.Is(err, errCut) {
		t.Errorf("a file to be written: %v", err)
	}
	if _, err := fs.Stat(t.Context(), "/f"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("it was made: %v", err)
	}

	// A request that brings its bytes is not carried out late on a file that is there. Who closes his half
	// behind a new file has it written.
	if err := fs.WriteFile(t.Context(), "/f", []byte("newer")); err != nil {
		t.Fatal(err)
	}
	bring := func(op, path string, f func(transfer) error, params params) error {
		q.op, q.path, q.params, q.fs = op, path, params, hadoop.FS{FS: u.FS, User: u.User}
		q.w, q.r.Body = httptest.NewRecorder(), io.NopCloser(strings.NewReader("old"))
		return f(transfer{q})
	}
	s.log, s.openings = slog.New(slog.DiscardHandler), &openings{server: s, writing: map[*opening]http.ResponseWriter{}}
	if err := bring("CREATE", "/f", transfer.create, params{"data": {"true"}, "overwrite": {"true"}}); !errors.Is(err, errCut) {
		t.Errorf("a file with bytes that replaces one: %v", err)
	}
	if err := bring("APPEND", "/f", transfer.append, params{"data": {"true"}}); !errors.Is(err, errCut) {
		t.Errorf("bytes to append: %v", err)
	}
	s.openings.filled = []filled{{"id", u.Key, 0}}
	if err := bring("APPEND", "/f", transfer.append, params{"opening": {"id"}}); !errors.Is(err, errCut) {
		t.Errorf("more bytes to append: %v", err)
	}
	if err := bring("CREATE", "/g", transfer.create, params{"data": {"true"}}); err != nil {
		t.Errorf("a new file with bytes: %v", err)
	}
	for path, want := range map[string]string{"/f": "newer", "/g": "old"} {
		if got, err := fs.ReadFile(t.Context(), path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
}

// TestStandstill: of a connection that is older than a standstill of the process nothing is taken that
// changes something: its client may not have been able to end it.
func TestStandstill(t *testing.T) {
	var c clock.Fake
	vs := &visits{still: still.New(&c), of: map[net.Conn]*visit{}}
	mine, theirs := net.Pipe()
	defer func() { _, _ = mine.Close(), theirs.Close() }()
	visit := func() *http.Request {
		return (&http.Request{Method: http.MethodPut}).WithContext(vs.connContext(t.Context(), mine))
	}
	old := visit()
	c.Advance(still.Limit - still.Pulse) // a machine that is busy
	if err := ifThere(old); err != nil {
		t.Errorf("before: %v", err)
	}
	c.Advance(2 * still.Pulse)
	if err := ifThere(old); !errors.Is(err, errCut) {
		t.Errorf("before the standstill is noted: %v", err)
	}
	life, end := context.WithCancel(t.Context())
	vs.still.Run(life, func(time.Duration) { end() })
	if err := ifThere(old); !errors.Is(err, errCut) {
		t.Errorf("after: %v", err)
	}
	if err := ifThere(visit()); err != nil {
		t.Errorf("of a new connection: %v", err)
	}
}
