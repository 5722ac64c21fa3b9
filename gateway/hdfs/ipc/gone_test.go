package ipc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/internal/clock"
)

// stopped is a listener of a process that was stopped: it accepts a connection when the client has
// ended it.
type stopped struct {
	net.Listener
	ended chan struct{} // closed when the server has ended a connection
	once  sync.Once
}

// tcp is a connection of a stopped one.
type tcp struct {
	*net.TCPConn
	l *stopped
}

func (c tcp) Close() error {
	err := c.TCPConn.Close()
	c.l.once.Do(func() { close(c.l.ended) })
	return err
}

func (l *stopped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var perr error
	err = raw.Control(func(fd uintptr) {
		for perr = unix.EINTR; perr == unix.EINTR; { //nolint:errorlint // it is not wrapped
			_, perr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1)
		}
	})
	if err == nil {
		err = perr
	}
	return tcp{c.(*net.TCPConn), l}, err
}

// TestClientHasGone: a call that must not happen twice, and that a gateway reads when its client has
// ended the connection, is not made: the client may have made it elsewhere, and more since then.
func TestClientHasGone(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &stopped{Listener: raw, ended: make(chan struct{})}
	var made atomic.Int32
	s := Serve(l, Config{
		Admit: func(Client) error { return nil },
		Once:  func(string, string) bool { return true },
		Handle: func(context.Context, *Call) (proto.Message, error) {
			made.Add(1)
			return new(pb.EmptyProto), nil
		},
	})
	nc, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, nc: nc, id: "0123456789abcdef"}
	all := append([]byte{'h', 'r', 'p', 'c', version, 0, authNone}, framed(t, p.header(contextID), &pb.IpcConnectionContextProto{UserInfo: &pb.UserInformationProto{EffectiveUser: proto.String("ann")}})...)
	for id := range int32(3) { // another one stands behind the first
		all = append(all, framed(t, p.header(id), &pb.RequestHeaderProto{
			MethodName: proto.String("create"), DeclaringClassProtocolName: proto.String("test"), ClientProtocolVersion: proto.Uint64(1),
		}, new(pb.EmptyProto))...)
	}
	if _, err := nc.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := nc.Close(); err != nil {
		t.Fatal(err)
	}
	<-l.ended
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := made.Load(); n > 0 {
		t.Errorf("%d calls were made of a client that had gone", n)
	}
}

// TestChangesAfterAStandstill: a call that changes something, and that HDFS takes for idempotent, as a
// truncation, is not made either after the process stood still. One that only reads is.
func TestChangesAfterAStandstill(t *testing.T) {
	var c clock.Fake
	changes := func(_, method string) bool { return method == "truncate" }
	run(t, Config{Changes: changes, Still: still.New(&c)}, func(t *testing.T, b *bench) {
		made := 0
		b.methods["truncate"] = func(context.Context, *Call) (proto.Message, error) {
			made++
			return &pb.PathRequestProto{Src: proto.String("done")}, nil
		}
		p, q := b.meet("ann"), b.meet("joe")
		pass(time.Minute + still.Pulse/2)
		p.call(1, "truncate", "")
		p.text(1)
		c.Advance(still.Limit + still.Pulse)
		q.call(1, "echo", "x")
		q.text(1)
		p.call(2, "truncate", "")
		p.ended()
		if made != 1 {
			t.Errorf("%d calls were made, want 1", made)
		}
	})
}

// TestStandstill: after the process stood still, connections end before a call is made that must not
// happen twice.
func TestStandstill(t *testing.T) {
	var c clock.Fake // what it tells is not of the process: that may be suspended with its machine
	once := func(_, method string) bool { return method == "add" }
	run(t, Config{Once: once, Still: still.New(&c)}, func(t *testing.T, b *bench) {
		made := 0
		b.methods["add"] = func(context.Context, *Call) (proto.Message, error) {
			made++
			return &pb.PathRequestProto{Src: proto.String("done")}, nil
		}
		p, q := b.meet("ann"), b.meet("joe")
		pass(time.Minute)
		p.call(1, "add", "")
		p.text(1)
		c.Advance(still.Limit - 2*still.Pulse) // a machine that is busy
		p.call(2, "add", "")
		p.text(2)
		pass(still.Pulse)
		c.Advance(still.Limit + still.Pulse)
		p.call(3, "add", "")
		p.ended()
		pass(still.Pulse)
		q.ended() // what it might have sent is as old
		if made != 2 {
			t.Errorf("%d calls were made, want 2", made)
		}
		p = b.meet("ann")
		p.call(3, "add", "")
		if p.text(3); made != 3 {
			t.Errorf("%d calls were made, want 3", made)
		}
	})
}
