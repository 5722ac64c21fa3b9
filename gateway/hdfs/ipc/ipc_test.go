package ipc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	come chan net.Conn
	once sync.Once
	end  chan struct{}
}

func newPipes() *pipes { return &pipes{come: make(chan net.Conn), end: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.end) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// bench is a server and what its handler does by method.
type bench struct {
	t       *testing.T
	server  *Server
	pipes   *pipes
	methods map[string]func(context.Context, *Call) (proto.Message, error)
	log     bytes.Buffer
}

// run tests a server in simulated time.
func run(t *testing.T, cfg Config, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, pipes: newPipes(), methods: map[string]func(context.Context, *Call) (proto.Message, error){}}
		cfg.Logger = slog.New(slog.NewTextHandler(&b.log, nil))
		cfg.Handle = func(ctx context.Context, c *Call) (proto.Message, error) {
			f := b.methods[c.Method]
			if f == nil {
				return nil, hadoop.Refuse(hadoop.NoSuchMethod, "Unknown method %s", c.Method)
			}
			return f(ctx, c)
		}
		if cfg.Admit == nil {
			cfg.Admit = func(Client) error { return nil }
		}
		b.server = Serve(b.pipes, cfg)
		defer func() {
			if err := b.server.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		b.methods["echo"] = func(_ context.Context, c *Call) (proto.Message, error) {
			var m pb.PathRequestProto
			if err := c.Decode(&m); err != nil {
				return nil, err
			}
			return &m, nil
		}
		test(t, b)
	})
}

// peer is a client.
type peer struct {
	t  *testing.T
	nc net.Conn
	in *bufio.Reader
	id string
}

func (b *bench) dial() *peer {
	b.t.Helper()
	mine, theirs := net.Pipe()
	b.pipes.come <- theirs
	b.t.Cleanup(func() { _ = mine.Close() })
	return &peer{b.t, mine, bufio.NewReader(mine), "0123456789abcdef"}
}

// send writes without waiting for the server to read all of it: it may have ended.
func (p *peer) send(b []byte) {
	go func() { _, _ = p.nc.Write(b) }()
	synctest.Wait()
}

func framed(t *testing.T, all ...proto.Message) []byte {
	t.Helper()
	f := make([]byte, 4)
	for _, m := range all {
		var err error
		if f, err = put(f, m); err != nil {
			t.Fatal(err)
		}
	}
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return f
}

func (p *peer) header(id int32) *pb.RpcRequestHeaderProto {
	return &pb.RpcRequestHeaderProto{RpcKind: proto.Int32(kindProto), RpcOp: proto.Int32(opCall), CallId: &id, ClientId: []byte(p.id)}
}

func (p *peer) hello(auth byte) { p.send([]byte{'h', 'r', 'p', 'c', version, 0, auth}) }

func (p *peer) introduce(user, proxy string) {
	c := &pb.IpcConnectionContextProto{UserInfo: &pb.UserInformationProto{EffectiveUser: &user}}
	if proxy != "" {
		c.UserInfo.RealUser = &proxy
	}
	p.send(framed(p.t, p.header(contextID), c))
}

// meet begins a connection of a user.
func (b *bench) meet(user string) *peer {
	p := b.dial()
	p.hello(authNone)
	p.introduce(user, "")
	return p
}

func (p *peer) call(id int32, method, text string) {
	p.send(framed(p.t, p.header(id), &pb.RequestHeaderProto{
		MethodName: &method, DeclaringClassProtocolName: proto.String("test"), ClientProtocolVersion: proto.Uint64(1),
	}, &pb.PathRequestProto{Src: &text}))
}

// reply reads one.
func (p *peer) reply() (h *pb.RpcResponseHeaderProto, rest []byte) {
	p.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(p.in, size[:])
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if err == nil {
		_, err = io.ReadFull(p.in, body)
	}
	h = new(pb.RpcResponseHeaderProto)
	if err == nil {
		rest, err = take(body, h)
	}
	if err != nil {
		p.t.Fatal("no reply:", err)
	}
	return h, rest
}

// text reads the reply to a call of echo.
func (p *peer) text(id int32) string {
	p.t.Helper()
	h, rest := p.reply()
	var m pb.PathRequestProto
	if _, err := take(rest, &m); err != nil || h.GetCallId() != uint32(id) || h.GetStatus() != pb.RpcResponseHeaderProto_SUCCESS || !bytes.Equal(h.GetClientId(), []byte(p.id)) {
		p.t.Fatalf("%v, %v, want the success of call %d", h, err, id)
	}
	return m.GetSrc()
}

// fails reads the reply to a call that fails.
func (p *peer) fails(class, text string) *pb.RpcResponseHeaderProto {
	p.t.Helper()
	h, _ := p.reply()
	if h.GetStatus() == pb.RpcResponseHeaderProto_SUCCESS || h.GetExceptionClassName() != class || !strings.Contains(h.GetErrorMsg(), text) {
		p.t.Fatalf("%v, want %s with %q", h, class, text)
	}
	return h
}

// pass lets simulated time pass.
func pass(d time.Duration) { <-time.After(d) }

// ended fails the test unless the server has closed the connection.
func (p *peer) ended() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.in); err != nil || len(rest) > 0 {
		p.t.Fatalf("the connection did not end: %q, %v", rest, err)
	}
}

func TestCalls(t *testing.T) {
	run(t, Config{}, func(t *testing.T, b *bench) {
		b.methods["who"] = func(_ context.Context, c *Call) (proto.Message, error) {
			return &pb.PathRequestProto{Src: proto.String(c.Protocol + " " + c.User + " " + c.Real)}, nil
		}
		free := make(chan struct{})
		b.methods["wait"] = func(context.Context, *Call) (proto.Message, error) {
			<-free
			return &pb.PathRequestProto{Src: proto.String("waited")}, nil
		}
		b.methods["fail"] = func(context.Context, *Call) (proto.Message, error) {
			return nil, hadoop.Refuse(hadoop.FileNotFound, "no\xffsuch\nthing")
		}
		b.methods["break"] = func(context.Context, *Call) (proto.Message, error) { panic("broken") }
		p := b.dial()
		p.hello(authNone)
		p.introduce("ann", "knox")
		p.call(0, "who", "")
		if got := p.text(0); got != "test ann knox" {
			t.Errorf("%q", got)
		}
		p.call(1, "wait", "")
		p.send(framed(t, p.header(pingCall)))
		p.call(2, "echo", "x")
		if got := p.text(2); got != "x" {
			t.Errorf("%q", got)
		}
		close(free)
		if got := p.text(1); got != "waited" {
			t.Errorf("%q", got)
		}
		p.call(3, "fail", "")
		p.fails(hadoop.FileNotFound, "no?such thing")
		p.call(4, "break", "")
		p.fails(hadoop.RuntimeException, "fault of the gateway")
		p.call(5, "none", "")
		if h := p.fails(hadoop.NoSuchMethod, "none"); h.GetErrorDetail() != pb.RpcResponseHeaderProto_ERROR_NO_SUCH_METHOD {
			t.Error(h)
		}
		p.call(6, "echo", strings.Repeat("y", 3<<20))
		if got := p.text(6); len(got) != 3<<20 {
			t.Errorf("%d bytes", len(got))
		}
		synctest.Wait()
		if used := b.server.room.Used(); used != 0 {
			t.Errorf("%d bytes are not given back", used)
		}
		if !strings.Contains(b.log.String(), "broken") {
			t.Error("a fault is not logged")
		}
		h := p.header(7)
		h.RpcOp = proto.Int32(opClose)
		p.send(framed(t, h))
		p.ended()
	})
}

// TestSASL: a client that would rather prove who it is is offered SIMPLE, and either says
// that it takes it, or just continues.
func TestSASL(t *testing.T) {
	for _, says := range []bool{true, false} {
		run(t, Config{}, func(t *testing.T, b *bench) {
			p := b.dial()
			p.hello(authSASL)
			p.send(framed(t, p.header(saslCall), &pb.RpcSaslProto{State: pb.RpcSaslProto_NEGOTIATE.Enum()}))
			h, rest := p.reply()
			var m pb.RpcSaslProto
			if _, err := take(rest, &m); err != nil || int32(h.GetCallId()) != saslCall || m.GetState() != pb.RpcSaslProto_NEGOTIATE || len(m.GetAuths()) != 1 || m.GetAuths()[0].GetMethod() != "SIMPLE" {
				t.Fatalf("%v %v, %v", h, &m, err)
			}
			if says {
				p.send(framed(t, p.header(saslCall), &pb.RpcSaslProto{State: pb.RpcSaslProto_INITIATE.Enum(), Auths: m.GetAuths()}))
			}
			p.introduce("ann", "")
			p.call(1, "echo", "x")
			p.text(1)
		})
	}
	run(t, Config{}, func(t *testing.T, b *bench) {
		p := b.dial()
		p.hello(authSASL)
		p.send(framed(t, p.header(saslCall), &pb.RpcSaslProto{State: pb.RpcSaslProto_INITIATE.Enum(), Auths: []*pb.RpcSaslProto_Auth{{Method: proto.String("TOKEN"), Mechanism: proto.String("DIGEST-MD5")}}}))
		p.fails(hadoop.Authorization, "SIMPLE and nothing else")
		p.ended()
	})
}

// TestRefused: what a connection must not begin with, or say.
func TestRefused(t *testing.T) {
	length := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	garbage := append(length(5), 0xff, 0xff, 0xff, 0xff, 0xff)
	good := func(p *peer) {
		p.hello(authNone)
		p.introduce("ann", "")
	}
	for name, c := range map[string]struct {
		say   func(*peer)
		class string
		text  string
	}{
		"another version": {func(p *peer) { p.send([]byte("hrpc\x0a\x00\x00")) }, hadoop.VersionMismatch, "client version 10"},
		"another proof":   {func(p *peer) { p.hello(7) }, hadoop.Authorization, "Unknown auth protocol:7"},
		"no user":         {func(p *peer) { p.hello(authNone); p.introduce("", "") }, hadoop.Authorization, "1 to 255 bytes"},
		"an odd user":     {func(p *peer) { p.hello(authNone); p.introduce("a\nb", "") }, hadoop.Authorization, "can be printed"},
		"an odd proxy":    {func(p *peer) { p.hello(authNone); p.introduce("ann", strings.Repeat("x", 256)) }, hadoop.Authorization, "1 to 255 bytes"},
		"one who may not": {func(p *peer) { p.hello(authNone); p.introduce("ann", "eve") }, hadoop.Authorization, "eve may not"},
		"a call of nobody": {func(p *peer) {
			p.hello(authNone)
			p.call(1, "echo", "x")
		}, hadoop.Authorization, "before the connection said who asks"},
		"two users":      {func(p *peer) { good(p); p.introduce("joe", "") }, hadoop.RPCServer, "number -3"},
		"a huge message": {func(p *peer) { good(p); p.send(length(5 << 20)) }, hadoop.RPCServer, "5242880 bytes"},
		"less than none": {func(p *peer) { good(p); p.send(length(-1)) }, hadoop.RPCServer, "-1 bytes"},
		"garbage":        {func(p *peer) { good(p); p.send(garbage) }, hadoop.RPCServer, "header of a call cannot be decoded"},
		"no method":      {func(p *peer) { good(p); p.send(framed(p.t, p.header(1))) }, hadoop.RPCServer, "method of a call cannot be decoded"},
		"a long client ID": {func(p *peer) {
			good(p)
			p.id = strings.Repeat("x", 1<<20)
			p.call(1, "echo", "x")
		}, hadoop.RPCServer, "client's ID has 1048576 bytes"},
		"another kind": {func(p *peer) {
			good(p)
			h := p.header(1)
			h.RpcKind = proto.Int32(1)
			p.send(framed(p.t, h))
		}, hadoop.RPCServer, "takes protocol buffers"},
	} {
		t.Run(name, func(t *testing.T) {
			admit := func(c Client) error {
				if c.By == "eve" {
					return errors.New("eve may not")
				}
				return nil
			}
			run(t, Config{Admit: admit}, func(t *testing.T, b *bench) {
				p := b.dial()
				c.say(p)
				if h := p.fails(c.class, c.text); h.GetStatus() != pb.RpcResponseHeaderProto_FATAL {
					t.Error(h)
				}
				p.ended()
				if got := b.log.String(); got != "" { // else anybody could fill the log
					t.Errorf("an operator is told %q", got)
				}
			})
		})
	}
	run(t, Config{}, func(t *testing.T, b *bench) {
		p := b.dial()
		p.send([]byte("GET / HTTP/1.1\r\n\r\n"))
		all, _ := io.ReadAll(p.in)
		if !bytes.HasPrefix(all, []byte("HTTP/1.1 404")) {
			t.Errorf("%q", all)
		}
		p = b.dial()
		p.send([]byte("SSH-2.0-x\r\n"))
		p.ended()
	})
}

// TestSilentConnections: a connection ends that says nothing, or half of something, but not while it
// waits for an answer.
func TestSilentConnections(t *testing.T) {
	run(t, Config{Idle: time.Minute}, func(t *testing.T, b *bench) {
		after := func(say func(p *peer)) time.Duration {
			p := b.dial()
			began := time.Now()
			say(p)
			p.ended()
			return time.Since(began)
		}
		for name, c := range map[string]struct {
			say  func(*peer)
			want time.Duration
		}{
			"nothing":       {func(*peer) {}, frameTime},
			"half a magic":  {func(p *peer) { p.send([]byte("hr")) }, frameTime},
			"nobody":        {func(p *peer) { p.hello(authNone) }, frameTime},
			"a user":        {func(p *peer) { p.hello(authNone); p.introduce("ann", "") }, time.Minute},
			"half a length": {func(p *peer) { p.hello(authNone); p.introduce("ann", ""); p.send([]byte{0, 0}) }, frameTime},
			"half a call":   {func(p *peer) { p.hello(authNone); p.introduce("ann", ""); p.send([]byte{0, 0, 1, 0, 9}) }, frameTime},
		} {
			if got := after(c.say); got != c.want {
				t.Errorf("%s: it ended after %s, want %s", name, got, c.want)
			}
		}
		b.methods["long"] = func(context.Context, *Call) (proto.Message, error) {
			pass(90 * time.Second)
			return &pb.PathRequestProto{Src: proto.String("done")}, nil
		}
		p := b.meet("ann")
		p.call(1, "long", "")
		if got := p.text(1); got != "done" {
			t.Errorf("%q", got)
		}
	})
}

// TestUnread: a client that does not read its answers ends.
func TestUnread(t *testing.T) {
	run(t, Config{}, func(t *testing.T, b *bench) {
		p := b.meet("ann")
		p.call(1, "echo", "x")
		pass(writeTime + time.Second)
		p.ended()
	})
}

// TestAnswered: what an answer takes is given back when its client has read it, or is gone.
func TestAnswered(t *testing.T) {
	run(t, Config{}, func(t *testing.T, b *bench) {
		held := 0
		b.methods["take"] = func(_ context.Context, c *Call) (proto.Message, error) {
			held++
			c.Answered(func() { held-- })
			if c.Taker.Names[0] != "user ann" {
				return nil, hadoop.Refuse(hadoop.IOException, "%v", c.Taker)
			}
			return &pb.PathRequestProto{Src: proto.String("x")}, nil
		}
		p := b.meet("ann")
		p.call(1, "take", "")
		synctest.Wait()
		if held != 1 {
			t.Errorf("%d are held while the answer is not read", held)
		}
		if got := p.text(1); got != "x" {
			t.Errorf("%q", got)
		}
		synctest.Wait()
		if held != 0 {
			t.Errorf("%d are held after the answer", held)
		}
		p.call(2, "take", "")
		pass(writeTime + time.Second)
		p.ended()
		synctest.Wait()
		if held != 0 {
			t.Errorf("%d are held for one who is gone", held)
		}
	})
}

// counted counts what is written to it.
type counted struct {
	net.Conn
	writes int
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

// TestAnswersTravelTogether: what is answered while an answer is being written goes out in
// one piece after it, and a call has ended when its own answer is written.
func TestAnswersTravelTogether(t *testing.T) {
	run(t, Config{}, func(t *testing.T, b *bench) {
		mine, theirs := net.Pipe()
		defer func() { _ = mine.Close() }()
		c := &counted{Conn: theirs}
		b.pipes.come <- c
		p := &peer{t, mine, bufio.NewReader(mine), "0123456789abcdef"}
		p.hello(authNone)
		p.introduce("ann", "")
		ended := 0
		b.methods["noted"] = func(ctx context.Context, call *Call) (proto.Message, error) {
			call.Answered(func() { ended++ })
			return b.methods["echo"](ctx, call)
		}
		for id := range int32(5) {
			p.call(id, "noted", fmt.Sprint("call ", id))
		}
		synctest.Wait() // the first is being written
		if ended != 0 {
			t.Errorf("%d calls have ended whose answers were not written", ended)
		}
		for id := range int32(5) {
			if got, want := p.text(id), fmt.Sprint("call ", id); got != want {
				t.Errorf("call %d is answered %q", id, got)
			}
		}
		synctest.Wait()
		if c.writes != 2 || ended != 5 {
			t.Errorf("5 answers in %d pieces, %d calls have ended; want 2 and 5", c.writes, ended)
		}
		if n := b.server.workers.resting.Load(); n != 2 {
			t.Errorf("%d goroutines rest after 5 calls, one of which waited for its client; want 2", n)
		}
		p.call(9, "echo", "again")
		p.text(9)
		synctest.Wait()
		if n := b.server.workers.resting.Load(); n != 2 {
			t.Errorf("%d goroutines rest after one more call", n)
		}
	})
}

// TestLargeAnswersGoAlone: they are not copied together with others.
func TestLargeAnswersGoAlone(t *testing.T) {
	c := &conn{}
	for _, size := range []int{10, 20, maxTogether + 1, maxTogether + 2, maxTogether - 1, 1, 1} {
		c.queue = append(c.queue, answered{frame: make([]byte, size)})
	}
	var took []int
	for some := c.take(); len(some) > 0; some = c.take() {
		took = append(took, len(some))
	}
	if want := []int{2, 1, 1, 2, 1}; !slices.Equal(took, want) {
		t.Errorf("taken together: %v, want %v", took, want)
	}
	if c.writing {
		t.Error("somebody is said to write when there is nothing")
	}
}

// TestWorkersAreBounded: of many goroutines, some rest when they have nothing to do.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers()
		hold := make(chan struct{})
		for range 2 * maxResting {
			w.do(func() { <-hold })
		}
		close(hold)
		synctest.Wait()
		if n := w.resting.Load(); n != maxResting {
			t.Errorf("%d goroutines rest, not %d", n, maxResting)
		}
		w.close()
	})
}

// TestOnce: a call that must not happen twice does not, by whatever connection it comes
// again, and while it is under way. Another user is not told its answer, and what failed
// is made again.
func TestOnce(t *testing.T) {
	run(t, Config{Once: func(_, method string) bool { return method == "add" }}, func(t *testing.T, b *bench) {
		made, fail := 0, false
		b.methods["add"] = func(ctx context.Context, _ *Call) (proto.Message, error) {
			made++
			n := made
			pass(time.Second)
			if fail {
				return nil, errors.New("failed")
			}
			return &pb.PathRequestProto{Src: proto.String(fmt.Sprint(n))}, ctx.Err()
		}
		p := b.meet("ann")
		p.call(1, "add", "")
		_ = p.nc.Close() // its answer is lost
		q := b.meet("ann")
		q.call(1, "add", "") // while it is under way
		if got := q.text(1); got != "1" {
			t.Errorf("a call that came again was made again: %s", got)
		}
		q.call(1, "add", "")
		if got := q.text(1); got != "1" {
			t.Errorf("a call that came again was made again: %s", got)
		}
		q.call(2, "add", "")
		if got := q.text(2); got != "2" {
			t.Errorf("another call was not made: %s", got)
		}
		r := b.meet("joe")
		r.call(1, "add", "")
		if got := r.text(1); got != "3" {
			t.Errorf("another user was told an answer: %s", got)
		}
		fail = true
		q.call(3, "add", "")
		q.fails(hadoop.IOException, "failed")
		fail = false
		q.call(3, "add", "")
		if got := q.text(3); got != "5" {
			t.Errorf("a call that failed was not made again: %s", got)
		}
		pass(answerTime - time.Minute) // not so long that the connection ends
		q = b.meet("ann")
		q.call(1, "add", "")
		if got := q.text(1); got != "1" {
			t.Errorf("an answer was forgotten early: %s", got)
		}
		pass(2 * time.Minute)
		q.call(1, "add", "")
		if got := q.text(1); got == "1" {
			t.Error("an answer is kept for ever")
		}
	})
}

// TestAnswersAreBounded: a user's many answers let his own go, not another's.
func TestAnswersAreBounded(t *testing.T) {
	now := time.Unix(1, 0)
	as := newAnswers(func() time.Time { return now })
	add := func(user string, id int32) {
		_, a, err := as.claim(t.Context(), callKey{user, "c", id})
		if err != nil || a == nil {
			t.Fatal(a, err)
		}
		as.record(a, make([]byte, 64<<10))
	}
	kept := func(user string, id int32) bool { return as.byKey[callKey{user, "c", id}] != nil }
	const all = maxAnswers / (65 << 10) // and some more have room
	add("joe", 1)
	for id := range int32(all) {
		add("ann", id)
	}
	if len(as.byKey) != all+1 {
		t.Errorf("one user alone has %d of %d", len(as.byKey), all+1)
	}
	for id := range int32(all) {
		add("ann", all+id)
	}
	if kept("ann", 0) || !kept("ann", 2*all-1) || !kept("joe", 1) {
		t.Error("a user with many takes others' room, not his own")
	}
	for id := range int32(all) {
		add("bob", id)
	}
	if n := as.sizes["ann"]; as.size > maxAnswers || n < maxAnswers/4 || !kept("bob", all-1) {
		t.Errorf("%d bytes are kept, %d of who was there first", as.size, n)
	}
	now = now.Add(answerTime)
	add("eve", 1)
	if len(as.byKey) != 1 || len(as.users) != 1 || len(as.sizes) != 1 || as.order.Len() != 1 || as.size != as.sizes["eve"] {
		t.Errorf("%d are kept of %d users, %d bytes", len(as.byKey), len(as.users), as.size)
	}
}

// TestBounds: so many calls of a connection, and so many of all, and of one user three
// quarters of them.
func TestBounds(t *testing.T) {
	run(t, Config{Calls: 16}, func(t *testing.T, b *bench) {
		free, begun := make(chan struct{}), make(chan struct{}, 100)
		b.methods["wait"] = func(ctx context.Context, _ *Call) (proto.Message, error) {
			begun <- struct{}{}
			select {
			case <-free:
			case <-ctx.Done():
			}
			return new(pb.EmptyProto), nil
		}
		p := b.meet("ann")
		for id := range int32(20) {
			p.call(id, "wait", "")
		}
		synctest.Wait()
		if n := len(begun); n != 12 {
			t.Errorf("%d calls of one user are under way", n)
		}
		q := b.meet("joe")
		q.call(1, "echo", "x")
		if got := q.text(1); got != "x" {
			t.Errorf("%q", got)
		}
		for range 8 { // the others wait for a while
			p.fails(hadoop.Retriable, "try again later")
		}
		close(free)
		for range 12 {
			p.reply()
		}
	})
}

// TestClose: calls under way end before the server does, new ones are not taken.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, pipes: newPipes()}
		b.server = Serve(b.pipes, Config{
			Admit: func(Client) error { return nil },
			Handle: func(ctx context.Context, c *Call) (proto.Message, error) {
				if c.Method == "for ever" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				pass(time.Second)
				return &pb.PathRequestProto{Src: proto.String("done")}, nil
			},
		})
		p, q, idle := b.meet("ann"), b.meet("joe"), b.meet("eve")
		p.call(1, "soon", "")
		q.call(1, "for ever", "")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- b.server.Close(ctx) }()
		idle.ended()
		if took := time.Since(began); took != 0 {
			t.Errorf("an idle connection ended after %s", took)
		}
		if got := p.text(1); got != "done" {
			t.Errorf("%q", got)
		}
		p.ended()
		if err := <-closed; err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		<-b.server.Done()
		if err := b.server.Err(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzConn: no bytes make a server panic, or keep a connection for ever.
func FuzzConn(f *testing.F) {
	hello := "hrpc\x09\x00\x00"
	p := &peer{id: "0123456789abcdef"}
	user := &pb.IpcConnectionContextProto{UserInfo: &pb.UserInformationProto{EffectiveUser: proto.String("ann")}}
	frame := func(all ...proto.Message) string {
		b := make([]byte, 4)
		for _, m := range all {
			b, _ = put(b, m)
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return string(b)
	}
	call := frame(p.header(1), &pb.RequestHeaderProto{MethodName: proto.String("echo"), DeclaringClassProtocolName: proto.String("test"), ClientProtocolVersion: proto.Uint64(1)}, &pb.PathRequestProto{Src: proto.String("x")})
	for _, s := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", hello, hello + frame(p.header(contextID), user), hello + frame(p.header(contextID), user) + call,
		"hrpc\x09\x00\xdf" + frame(p.header(saslCall), &pb.RpcSaslProto{State: pb.RpcSaslProto_NEGOTIATE.Enum()}), hello + "\x7f\xff\xff\xff", hello + call,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		run(t, Config{Idle: time.Second}, func(t *testing.T, be *bench) {
			p := be.dial()
			go func() { _, _ = p.nc.Write(b) }()
			_, _ = io.ReadAll(p.in)
			if strings.Contains(be.log.String(), "fault of the gateway") {
				t.Fatal(be.log.String())
			}
		})
	})
}

// FuzzFrame: what is decoded is what was encoded.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{}, 10)
	f.Add(bytes.Repeat([]byte{1}, 100), 50)
	f.Fuzz(func(t *testing.T, b []byte, most int) {
		in := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
		got, err := readFrame(bytes.NewReader(append(in, b...)), most, func(int) error { return nil })
		if (err == nil) != (len(b) <= most) || err == nil && !bytes.Equal(got, b) {
			t.Errorf("%d bytes of %d: %v", len(got), len(b), err)
		}
		_, n := protowire.ConsumeBytes(b)
		if _, err := take(b, new(pb.EmptyProto)); err == nil && n < 0 {
			t.Error("a broken message was taken")
		}
	})
}
