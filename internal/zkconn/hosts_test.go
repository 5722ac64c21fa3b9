package zkconn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/zkconn"
)

func TestCheckServers(t *testing.T) {
	for _, good := range []string{"zk1", "zk1:2181", "10.0.0.1", "10.0.0.1:1", "[::1]:65535", "zk1.example.:2181"} {
		if err := zkconn.CheckServers([]string{"a:1", good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"":                     "host is missing",
		":2181":                "host is missing",
		"zk1:":                 `port ""`,
		"zk1:abc":              `port "abc"`,
		"zk1:0":                `port "0"`,
		"zk1:65536":            `port "65536"`,
		"zk1:+1":               `port "+1"`,
		"zk1:2181/chroot":      "a path",
		"zk://zk1:2181":        "a scheme",
		"zk1:2181 zk2:2181":    "commas",
		"zk1:2181;zk2:2181":    "commas",
		"zk1 zk2":              "commas",
		"::1":                  "brackets",
		"zk1:2181:2888":        "brackets",
		"[::1]":                "missing port",
		"[::1:2181":            "missing",
		"zk1:2888:3888;zk1:80": "commas",
	} {
		err := zkconn.CheckServers([]string{"a:1", bad})
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q: %v", bad, err)
		}
		if _, derr := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{"a:1", bad}, Logger: quiet}); derr == nil || derr.Error() != err.Error() {
			t.Errorf("Dial of %q: %v", bad, derr)
		}
	}
	if zkconn.CheckServers(nil) == nil {
		t.Error("no servers")
	}
}

// serve answers each connection at a port with fn.
func serve(t *testing.T, fn func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer func() { _ = c.Close() }(); fn(c) })
		}
	})
	return l.Addr().String()
}

// What waiting does not mend is not waited for, if it is so with all servers.
func TestUnfitServers(t *testing.T) {
	certs := httptest.NewTLSServer(nil) // for its certificate
	defer certs.Close()
	untrusted := serve(t, func(c net.Conn) { _ = tls.Server(c, certs.TLS).Handshake() })
	alien := serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	silent := serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
	wantsOurs := certs.TLS.Clone()
	wantsOurs.ClientAuth = tls.RequireAnyClientCert
	refuses := serve(t, func(c net.Conn) { _ = tls.Server(c, wantsOurs).Handshake() })
	roots := x509.NewCertPool()
	roots.AddCert(certs.Certificate())
	plain, secure := (*tls.Config)(nil), &tls.Config{MinVersion: tls.VersionTLS12}
	trusting := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, RootCAs: roots} //nolint:gosec // refused in the handshake, not after
	for _, c := range []struct {
		name    string
		servers []string
		tls     *tls.Config
		says    string // empty: it is waited for
	}{
		{"no such name", []string{"no.such.name"}, plain, "no such host"},
		{"nothing that fits", []string{"no.such.name", alien, "no.such.name:1"}, plain, "no such host"},
		{"not ZooKeeper", []string{alien}, plain, "not as a ZooKeeper server"},
		{"not TLS", []string{alien}, secure, "not look like a TLS handshake"},
		{"not trusted", []string{untrusted}, secure, "failed to verify certificate"},
		{"not trusting us", []string{refuses}, trusting, "remote error"},
		{"one without a quorum", []string{"no.such.name", silent}, plain, ""},
		{"one away", []string{alien, "away"}, plain, ""},
		{"no TLS, or no quorum", []string{silent}, secure, ""},
		{"not the first time", []string{"no.such.name", alien}, plain, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dials := 0
			_, err := zkconn.Dial(ctx, zkconn.Config{
				Servers: c.servers, SessionTimeout: 10 * time.Second, TLS: c.tls, FirstTime: c.name != "not the first time", Logger: quiet,
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dials++; c.says == "" && dials > 3*len(c.servers) {
						cancel()
					}
					switch host, _, _ := net.SplitHostPort(addr); host {
					case "no.such.name":
						return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
					case "away":
						return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
			})
			switch {
			case c.says == "" && (errors.Is(err, zkconn.ErrUnfit) || !errors.Is(err, context.Canceled)):
				t.Errorf("it was not waited for: %v", err)
			case c.says != "" && (!errors.Is(err, zkconn.ErrUnfit) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v", err)
			}
			for _, server := range c.servers {
				if c.says != "" && !strings.Contains(err.Error(), server) {
					t.Errorf("%s is not named: %v", server, err)
				}
			}
		})
	}

	// One that fits is enough.
	s := dial(t, alien, ensemble.Server(0).Addr())
	if err := s.Sync(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
}
