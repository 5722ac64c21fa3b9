package conns

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/leasefs/leasefs/test/env/frames"
)

// readOnReady is what gRPC looks for.
type readOnReady interface {
	ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error)
}

// pool counts the buffers that are taken, each of which it tells of.
type pool struct {
	taken chan struct{}
	out   int
}

func (p *pool) Get(n int) *[]byte {
	p.out++
	p.taken <- struct{}{}
	b := make([]byte, n)
	return &b
}

func (p *pool) Put(*[]byte) { p.out-- }

// tcp is both ends of a connection; the first went through the table.
func tcp(t *testing.T, table *Table) (raw, other net.Conn) {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	if other, err = new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if raw, err = table.Listener(lis).Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = raw.Close(), other.Close() })
	return raw, other
}

// plain is tcp with the first end as gRPC gets it without TLS.
func plain(t *testing.T, table *Table) (conn, other net.Conn) {
	t.Helper()
	raw, other := tcp(t, table)
	conn, _, err := table.Creds(insecure.NewCredentials()).ServerHandshake(raw)
	if err != nil {
		t.Fatal(err)
	}
	return conn, other
}

// Under TLS what is on the wire is not what gRPC reads: it gets a reader of what was
// decrypted, and that is what counts.
func TestNotReadyUnderTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	srv.Close()
	table := New(16, 1<<20)
	raw, other := tcp(t, table)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	begun := append([]byte(preface), frames.Encode(frames.Headers, 4, 1, nil)...)
	begun = append(begun, frames.Encode(frames.Data, 0, 1, append(frames.Prefix(100), make([]byte, 60)...))...)
	sent := make(chan error, 1)
	go func() {
		_, err := tls.Client(other, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}).Write(begun)
		sent <- err
	}()
	conn, _, err := table.Creds(credentials.NewTLS(&tls.Config{Certificates: srv.TLS.Certificates, MinVersion: tls.VersionTLS12})).ServerHandshake(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := conn.(readOnReady); ok {
		t.Fatalf("%T would read what is encrypted", conn)
	}
	got := make([]byte, len(begun))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, begun) {
		t.Errorf("read %q, %v", got, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if got := table.Stats().Unfinished; got != 65+frameCost {
		t.Errorf("%d bytes count", got)
	}
}

// A connection takes a buffer when it has something to read, and what it reads counts.
func TestReady(t *testing.T) {
	table := New(16, 1<<20)
	conn, other := plain(t, table)
	r, ok := conn.(readOnReady)
	if !ok {
		t.Fatalf("%T reads into a buffer of its own", conn)
	}
	p := &pool{taken: make(chan struct{}, 100)}
	begun := append([]byte(preface), frames.Encode(frames.Headers, 4, 1, nil)...)
	begun = append(begun, frames.Encode(frames.Data, 0, 1, append(frames.Prefix(100), make([]byte, 60)...))...)
	if _, err := other.Write(begun); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < len(begun); {
		b, n, err := r.ReadOnReady(40, p)
		if err != nil || n == 0 || n > 40 || string((*b)[:n]) != string(begun[got:got+n]) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		got += n
		p.Put(b)
	}
	if got := table.Stats().Unfinished; got != 65+frameCost {
		t.Errorf("%d bytes count", got)
	}

	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadOnReady(40, p); !errors.As(err, new(net.Error)) || p.out != 0 {
		t.Errorf("after its deadline: %v, %d buffers are out", err, p.out)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadOnReady(40, p); !errors.Is(err, io.EOF) || p.out != 0 {
		t.Errorf("after the end: %v, %d buffers are out", err, p.out)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadOnReady(40, p); !errors.Is(err, net.ErrClosed) || p.out != 0 {
		t.Errorf("closed: %v, %d buffers are out", err, p.out)
	}
}

// A read that waits holds no buffer, and ends with the connection.
func TestReadyWaits(t *testing.T) {
	conn, _ := plain(t, New(16, 1<<20))
	p := &pool{taken: make(chan struct{}, 100)}
	ended := make(chan error)
	go func() {
		_, _, err := conn.(readOnReady).ReadOnReady(40, p)
		ended <- err
	}()
	<-p.taken // it has looked whether there is something
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) || p.out != 0 {
		t.Errorf("%v, %d buffers are out", err, p.out)
	}
}
