package namenode_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env"
)

// TestAClientReadsAuthoritiesAgain: a client that runs follows its file to another authority, for
// calls and blocks, and keeps what it had while the file is broken.
func TestAClientReadsAuthoritiesAgain(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	dir := t.TempDir()
	name, tokenFile := filepath.Join(dir, "authorities"), filepath.Join(dir, "token")
	write := func(file string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) []byte {
		t.Helper()
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	first := read(f.ca.File)
	write(name, first)
	write(tokenFile, []byte("root "+string(f.root)))
	var mu sync.Mutex
	var conns []net.Conn
	fsys := f.Client(t, func(c *client.Config) {
		c.User, c.TLS, c.TokenFile, c.Authorities, c.Timeout = "", &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "localhost"}, tokenFile, name, time.Minute
		c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
			}
			return conn, err
		})}
	})
	breakConns := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
		conns = nil
	}
	content := bytes.Repeat([]byte("x"), 3<<20) // in a block, which the store on the second port has
	check := func(what, path string) {
		t.Helper()
		if err := fsys.WriteFile(t.Context(), path, content); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, err := fsys.ReadFile(t.Context(), path); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	check("with the first authority", "/a")
	next := env.NewAuthority(t, f.dir, "next")
	write(name, append(read(next.File), "-----BEGIN CERTIFICATE-----\nhalf"...))
	breakConns()
	check("with a broken file", "/b")

	write(name, append(first, read(next.File)...))
	next.Issue("namenode", time.Now().Add(day)) // to the namenode's files
	awaitShown := func() bool {
		shown := f.clientTLS(nil)
		shown.RootCAs = next.Pool()
		c, err := tls.Dial("tcp", f.HTTPAddr(), shown)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	env.Eventually(t, "the namenode shows its new certificate", awaitShown)
	breakConns()
	check("with both authorities", "/c")

	// The first one is withdrawn: a namenode whom it has signed is no namenode any more.
	write(name, read(next.File))
	f.ca.Issue("namenode", time.Now().Add(day))
	env.Eventually(t, "the namenode shows the old one again", func() bool { return !awaitShown() })
	breakConns()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := fsys.Stat(ctx, "/a"); err == nil {
		t.Error("a namenode signed by an authority that was withdrawn is believed")
	}
	next.Issue("namenode", time.Now().Add(day))
	env.Eventually(t, "the namenode shows its new certificate", awaitShown)
	check("with the next authority", "/d")
}
