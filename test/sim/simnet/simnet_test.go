package simnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasefs/leasefs/test/sim/simnet"
)

// pair is a connection from host a to host b.
func pair(t *testing.T, n *simnet.Network) (here, there net.Conn) {
	t.Helper()
	l, err := n.Host("b").Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if here, err = n.Host("a").DialContext(t.Context(), "tcp", "b:80"); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := io.WriteString(c, text); n != len(text) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(text), err)
	}
}

// read reads n bytes and says how long that took.
func read(t *testing.T, c net.Conn, n int) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	p := make([]byte, n)
	if _, err := io.ReadFull(c, p); err != nil {
		t.Fatal(err)
	}
	return string(p), time.Since(began)
}

func TestDelayKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New()
		here, there := pair(t, n)
		n.Line("a", "b").SetDelay(time.Second)
		write(t, here, "one ")
		n.Line("a", "b").SetDelay(0)
		write(t, here, "two")
		if got, d := read(t, there, 7); got != "one two" || d != time.Second {
			t.Errorf("%q after %v", got, d)
		}
		write(t, there, "back")
		if got, d := read(t, here, 4); got != "back" || d != 0 {
			t.Errorf("the way back: %q after %v", got, d)
		}
	})
}

func TestCutOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New()
		here, there := pair(t, n)
		n.Line("a", "b").Cut()
		write(t, here, "stuck")
		write(t, there, "fine")
		read(t, here, 4)
		if err := there.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a line that is cut carries: %v", err)
		}
		_ = there.SetReadDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.Host("a").DialContext(ctx, "tcp", "b:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialed over a line that is cut: %v", err)
		}
		n.Line("a", "b").Mend()
		if got, _ := read(t, there, 5); got != "stuck" {
			t.Errorf("after the line is mended: %q", got)
		}
	})
}

func TestFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := pair(t, simnet.New())
		_ = here.SetWriteDeadline(time.Now().Add(time.Minute))
		n, err := io.WriteString(here, strings.Repeat("x", 1<<20))
		if n >= 1<<20 || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("to a reader that does not read %d bytes went, %v", n, err)
		}
		_ = here.SetWriteDeadline(time.Time{})
		go func() { _, _ = io.Copy(io.Discard, there) }()
		write(t, here, strings.Repeat("x", 1<<20))
		here.Close()
	})
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			end   func(*simnet.Network, net.Conn)
			read  error // at the other side
			write error // at the other side, once it is known there
		}{
			"close":  {func(_ *simnet.Network, c net.Conn) { c.Close() }, io.EOF, syscall.EPIPE},
			"reset":  {func(n *simnet.Network, _ net.Conn) { n.Reset("a", "b") }, syscall.ECONNRESET, syscall.ECONNRESET},
			"forget": {func(n *simnet.Network, _ net.Conn) { n.Forget("a", "b") }, os.ErrDeadlineExceeded, nil},
			"crash":  {func(n *simnet.Network, _ net.Conn) { n.Host("a").Crash() }, os.ErrDeadlineExceeded, nil},
		} {
			n := simnet.New()
			here, there := pair(t, n)
			test.end(n, here)
			_ = there.SetReadDeadline(time.Now().Add(time.Hour))
			if _, err := there.Read(make([]byte, 1)); !errors.Is(err, test.read) {
				t.Errorf("%s: read: %v", name, err)
			}
			_, err := there.Write([]byte("x"))
			if test.write != nil && err == nil {
				_, err = there.Write([]byte("x"))
			}
			if !errors.Is(err, test.write) {
				t.Errorf("%s: write: %v", name, err)
			}
			if name != "forget" && n.Connections() != 0 {
				t.Errorf("%s: a connection is left", name)
			}
		}
	})
}

func TestCrashedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New()
		pair(t, n)
		b := n.Host("b")
		b.Crash()
		time.AfterFunc(time.Minute, b.Restart)
		began := time.Now()
		_, err := n.Host("a").DialContext(t.Context(), "tcp", "b:80")
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) != time.Minute {
			t.Errorf("a host that restarts and does not listen: %v after %v", err, time.Since(began))
		}
		if _, err := n.Host("a").DialContext(t.Context(), "tcp", "c:80"); !strings.Contains(err.Error(), "no such host") {
			t.Error(err)
		}
	})
}

// A host that stands still sends and gets nothing until it resumes, and loses nothing.
func TestPausedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New()
		here, there := pair(t, n)
		b := n.Host("b")
		write(t, there, "before")
		b.Pause()
		time.AfterFunc(time.Minute, b.Resume)
		write(t, here, "to it")
		if got, d := read(t, here, 6); got != "before" || d != time.Minute {
			t.Errorf("%q after %v", got, d)
		}
		if got, d := read(t, there, 5); got != "to it" || d != 0 {
			t.Errorf("%q after %v", got, d)
		}
		b.Pause()
		time.AfterFunc(time.Minute, b.Resume)
		began := time.Now()
		c, err := n.Host("a").DialContext(t.Context(), "tcp", "b:80")
		if err != nil || time.Since(began) != time.Minute {
			t.Fatalf("dialed a host that stood still: %v after %v", err, time.Since(began))
		}
		c.Close()
	})
}

// gRPC runs over it, and its time-outs are those of the bubble.
func TestGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New()
		l, err := n.Host("b").Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		healthpb.RegisterHealthServer(server, health.NewServer())
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		cc, err := grpc.NewClient("passthrough:///b:80", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return n.Host("a").DialContext(ctx, "tcp", addr)
			}))
		if err != nil {
			t.Fatal(err)
		}
		check := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
			return err
		}
		if err := check(); err != nil {
			t.Error(err)
		}
		n.Line("b", "a").Cut()
		began := time.Now()
		if err := check(); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "DeadlineExceeded") || time.Since(began) != time.Hour {
			t.Errorf("over a line that is cut: %v after %v", err, time.Since(began))
		}
		n.Line("b", "a").Mend()
		if err := check(); err != nil {
			t.Error(err)
		}
		cc.Close()
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
}
