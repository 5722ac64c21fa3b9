package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/s3env"
)

// TestS3KeysRenewed: keys are replaced while a writer and the namenode are at
// work, as docs/OPERATIONS.md says. Nothing is restarted, and nobody fails.
func TestS3KeysRenewed(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	server := s3env.Start(t, s3env.Versitygw)
	file := filepath.Join(t.TempDir(), "credentials")
	use := func(key string) {
		t.Helper()
		server.AddKeys(t, key, "secret-of-"+key)
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = secret-of-%s\n", key, key)
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	proxy := server.Proxy(t)
	var signed keysSeen
	proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		signed.note(r)
		return send(body)
	})
	use("first")
	n := onS3(t, server, proxy.URL(prefixOf(t)))
	n.env = []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=" + file}
	n.start(ctx)
	piece := strings.Repeat("piece of a large file ", 150_000)
	w := n.begin(ctx, nil, "create", "--flush", "line", "--ack", "/log")
	want := ""
	write := func() {
		want += piece + "\n"
		w.feed(piece + "\n")
		w.acksUpTo(ctx, int64(len(want)))
	}
	write()
	n.write(ctx, piece, "create", "/f")
	for i, key := range []string{"second", "third"} {
		old := []string{"first", "second"}[i]
		use(key)
		eventually(ctx, t, "blocks are signed with the new keys", func() bool {
			write() // with the old keys, or the new: both are good
			return signed.last(http.MethodPut) == key
		})
		eventually(ctx, t, "the namenode's own requests are, too", func() bool {
			n.run(ctx, "admin", "gc")
			return signed.last("namenode") == key
		})
		server.RemoveKeys(t, old)
		write()
		n.write(ctx, piece, "create", "/f"+key)
		if got := n.run(ctx, "cat", "/f"); got != piece {
			t.Errorf("/f has %d bytes", len(got))
		}
	}
	w.eof()
	w.ends(ctx, 0)
	if got := n.run(ctx, "cat", "/log"); got != want {
		t.Errorf("/log has %d bytes, want %d", len(got), len(want))
	}
	n.fsck(ctx)
	n.term(ctx)
}

// TestS3KeysRemovedTooEarly: without keys that are good blocks can be neither read
// nor written, and everything works when there are some.
func TestS3KeysRemovedTooEarly(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	server := s3env.Start(t, s3env.Versitygw)
	file := filepath.Join(t.TempDir(), "credentials")
	set := func(key string) {
		t.Helper()
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = secret-of-%s\n", key, key)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server.AddKeys(t, "first", "secret-of-first")
	set("first")
	n := onS3(t, server, server.URL(prefixOf(t)))
	n.env = []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=" + file}
	n.start(ctx)
	text := strings.Repeat("piece of a large file ", 150_000)
	n.write(ctx, text, "create", "/f")
	server.RemoveKeys(t, "first")
	for _, r := range []result{n.try(ctx, "", "cat", "/f"), n.try(ctx, text, "create", "/refused")} {
		if r.code == 0 {
			t.Error("read or written with keys that are gone")
		}
		oneLine(t, r.err)
	}
	n.write(ctx, "small", "create", "/small") // needs no store
	server.AddKeys(t, "second", "secret-of-second")
	set("second")
	eventually(ctx, t, "blocks are written again", func() bool {
		return n.try(ctx, text, "create", "--overwrite", "/g").code == 0
	})
	for _, path := range []string{"/f", "/g"} {
		if got := n.run(ctx, "cat", path); got != text {
			t.Errorf("%s has %d bytes", path, len(got))
		}
	}
	n.fsck(ctx)
	n.term(ctx)
}

// TestWrongScheme: http to a port that speaks TLS, and the other way, are told in
// one line, at format and when a namespace is there, and not tried for ever.
func TestWrongScheme(t *testing.T) {
	t.Parallel()
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := deadline(t, 3*time.Minute)
			server := s3env.Start(t, name)
			target, err := url.Parse(server.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			secure := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
			secure.Config.ErrorLog = log.New(io.Discard, "", 0) // wrong greetings are what it gets
			secure.StartTLS()
			defer secure.Close()
			silent := silentTLS(t, secure.TLS)
			there := onS3(t, server, server.URL(prefixOf(t)))
			there.start(ctx)
			there.write(ctx, "here", "create", "/f")
			there.term(ctx)
			right := there.flags
			url := func(endpoint string) string {
				return strings.Replace(server.URL(prefixOf(t)), server.Endpoint, endpoint, 1)
			}
			const once, again = 1, 2 // at format, and when a namespace is there; 0: both
			for _, c := range []struct {
				url  string
				says []string
				only int
			}{
				{url(strings.Replace(server.Endpoint, "http://", "https://", 1)), []string{"speaks no TLS", "write http://"}, 0},
				{url(strings.Replace(secure.URL, "https://", "http://", 1)), []string{"wants TLS", "write https://"}, once},
				{url("http://" + silent), []string{"wants TLS", "write https://"}, again},
				{url(strings.TrimPrefix(server.Endpoint, "http://")), []string{"http://HOST[:PORT]"}, 0},
				{url("ftp://host"), []string{"http://HOST[:PORT]"}, 0},
				{server.URL(prefixOf(t)) + "&tls=yes", []string{`unknown parameter "tls"`}, 0},
			} {
				fresh := onS3(t, server, c.url)
				there.flags = []string{"--blocks", c.url}
				for i, n := range []*namenode{fresh, there} {
					if c.only == once && i == 1 || c.only == again && i == 0 {
						continue // it is tried for some seconds
					}
					names(t, n.cannotStart(ctx, 2), c.says...)
				}
			}
			there.flags = right
			there.start(ctx)
			if got := there.run(ctx, "cat", "/f"); got != "here" {
				t.Errorf("%q", got)
			}
		})
	}
}

// silentTLS listens for TLS and, unlike Go's server, ends every other connection
// without a word.
func silentTLS(t *testing.T, cfg *tls.Config) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				_ = conn.(*tls.Conn).Handshake() // it ends with the connection
				_ = conn.Close()
			}(conn)
		}
	}()
	return l.Addr().String()
}

// keysSeen remembers by which keys requests were signed last.
type keysSeen struct{ m sync.Map }

// note takes a request: of a client, whose URL is signed, by its method; else it
// is the namenode's.
func (k *keysSeen) note(r *http.Request) {
	who, by := r.Method, r.URL.Query().Get("X-Amz-Credential")
	if by == "" {
		who = "namenode"
		_, by, _ = strings.Cut(r.Header.Get("Authorization"), "Credential=")
	}
	key, _, _ := strings.Cut(by, "/")
	k.m.Store(who, key)
}

func (k *keysSeen) last(who string) string {
	key, _ := k.m.Load(who)
	s, _ := key.(string)
	return s
}
