package data_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/gateway/hdfs/data"
)

// showing shows the connections that it accepts.
type showing struct {
	net.Listener
	accepted chan net.Conn
}

func (l *showing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

// TestReadersMayPause: the kernel does not end the connection of a reader that takes nothing
// for as long as a client may be silent. It counts that as if he were gone.
func TestReadersMayPause(t *testing.T) {
	l := &showing{accepted: make(chan net.Conn, 1)}
	const idle = 7 * time.Minute
	r := start(t, func(c *data.Config) {
		l.Listener, c.Listener, c.Idle = c.Listener, l, idle
	})
	if err := r.fs.WriteFile(t.Context(), "/f", []byte("content")); err != nil {
		t.Fatal(err)
	}
	at, err := r.files.Locate(t.Context(), r.u, "/f", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	r.read(at.Blocks.At(0), 0, 7, true) // so the connection is served
	raw, err := (<-l.accepted).(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ms := 0
	if cerr := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if got := time.Duration(ms) * time.Millisecond; got != idle {
		t.Errorf("the kernel ends a connection after %s without progress, a client may be silent for %s", got, idle)
	}
}
