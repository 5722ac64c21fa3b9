package data_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs/data"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestWrongBytes: bytes that do not match their checksum never reach the file, and what was before
// them stays.
func TestWrongBytes(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 1<<20)
	w := r.writing(b)
	w.put(0, []byte("hello"))
	p := w.packet(5, random(3000, 1), false, false)
	p[len(p)-1000] ^= 1
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	w.acked(1, pb.Status_ERROR_CHECKSUM)
	w.ends()
	if done, err := r.files.Recover(t.Context(), r.u, "/f"); err != nil || !done {
		t.Fatal(done, err)
	}
	if got, err := r.fs.ReadFile(t.Context(), "/f"); err != nil || !strings.HasPrefix(string(got), "hello") || len(got) > 5+2048 ||
		!bytes.Equal(got[5:], random(3000, 1)[:len(got)-5]) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// TestRecoveryOfOthers: asking for a recovery without write permission flushes nothing.
func TestRecoveryOfOthers(t *testing.T) {
	r := start(t)
	eve, err := r.users.Get(t.Context(), users.Key{User: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.users.Release(eve)
	_, b := r.create("c", "/f", 4*kib)
	p := r.pipe(b)
	defer p.Close()
	if _, err := p.Write(0, random(1000, 1)); err != nil {
		t.Fatal(err)
	}
	if closed, err := r.files.IsClosed(t.Context(), eve, "/f"); err != nil || closed {
		t.Errorf("who may look at it: %v, %v", closed, err)
	}
	_, err = r.files.Recover(t.Context(), eve, "/f")
	r.kind("recover another's file", err, fserror.Permission)
	if n := p.Durable(); n != 0 {
		t.Errorf("%d bytes were made durable by who may not", n)
	}
	if done, err := r.files.Recover(t.Context(), r.u, "/f"); err != nil || !done {
		t.Fatal(done, err)
	}
	r.holds("/f", random(1000, 1))
}

// TestWrongPackets: what makes no sense ends the connection, and nothing else.
func TestWrongPackets(t *testing.T) {
	r := start(t)
	inode, b := r.create("c", "/f", 4*kib)
	for name, garble := range map[string]func(w *wire) []byte{
		"a gap":                func(w *wire) []byte { return w.packet(10, []byte("x"), false, false) },
		"before the block":     func(w *wire) []byte { return w.packet(-10, []byte("x"), false, false) },
		"beyond the block":     func(w *wire) []byte { return w.packet(0, random(5000, 1), false, false) },
		"far away":             func(w *wire) []byte { return w.packet(1<<62, []byte("x"), false, false) },
		"a last one with data": func(w *wire) []byte { return w.packet(0, []byte("x"), true, false) },
		"huge": func(w *wire) []byte {
			return binary.BigEndian.AppendUint32(nil, 1<<31)
		},
		"a huge header": func(w *wire) []byte {
			return append(binary.BigEndian.AppendUint32(nil, 100), 255, 255, 1, 2, 3)
		},
		"no packet": func(w *wire) []byte { return bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10) },
		"other lengths": func(w *wire) []byte {
			p := w.packet(0, random(1000, 1), false, false)
			binary.BigEndian.PutUint32(p, binary.BigEndian.Uint32(p)+4)
			return append(p, 0, 0, 0, 0)
		},
	} {
		w := r.writing(b)
		if _, err := w.Write(garble(w)); err != nil {
			t.Fatal(err)
		}
		w.CloseWrite()
		w.ends()
		if i, err := r.fs.Stat(t.Context(), "/f"); err != nil || i.Length != 0 {
			t.Fatalf("%s: %d bytes are in the file: %v", name, i.Length, err)
		}
	}
	w := r.writing(b)
	w.put(0, []byte("hello"))
	w.finish(5)
	b.Length = 5
	r.complete("c", inode, &b)
	r.holds("/f", []byte("hello"))
}

// CloseWrite says that nothing more comes.
func (w *wire) CloseWrite() { _ = w.Conn.(*net.TCPConn).CloseWrite() }

// TestWrongRequests: what is not served is refused in the client's own words, and a connection
// that speaks otherwise ends.
func TestWrongRequests(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 1<<20)
	good := func() *pb.OpWriteBlockProto {
		return r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_CREATE, 0, 0, 0)
	}
	for name, c := range map[string]struct {
		change func(m *pb.OpWriteBlockProto)
		want   pb.Status
	}{
		"no token":        {func(m *pb.OpWriteBlockProto) { m.Header.BaseHeader.Token = nil }, pb.Status_ERROR_ACCESS_TOKEN},
		"a changed token": {func(m *pb.OpWriteBlockProto) { m.Header.BaseHeader.Token.Identifier[20] ^= 1 }, pb.Status_ERROR_ACCESS_TOKEN},
		"a short token":   {func(m *pb.OpWriteBlockProto) { m.Header.BaseHeader.Token.Identifier = []byte{1} }, pb.Status_ERROR_ACCESS_TOKEN},
		"another block's": {func(m *pb.OpWriteBlockProto) { *m.Header.BaseHeader.Block.BlockId++ }, pb.Status_ERROR_ACCESS_TOKEN},
		"one to read": {func(m *pb.OpWriteBlockProto) {
			m.Header = r.header(b, false)
		}, pb.Status_ERROR_ACCESS_TOKEN},
		"an older stamp": {func(m *pb.OpWriteBlockProto) { *m.Header.BaseHeader.Block.GenerationStamp-- }, pb.Status_ERROR},
		"a newer stamp":  {func(m *pb.OpWriteBlockProto) { *m.Header.BaseHeader.Block.GenerationStamp += 1 << 20 }, pb.Status_ERROR},
		"a pipeline":     {func(m *pb.OpWriteBlockProto) { m.Targets = []*pb.DatanodeInfoProto{datanode()} }, pb.Status_ERROR_UNSUPPORTED},
		"a transfer":     {func(m *pb.OpWriteBlockProto) { m.Stage = pb.OpWriteBlockProto_TRANSFER_RBW.Enum() }, pb.Status_ERROR_UNSUPPORTED},
		"tiny chunks":    {func(m *pb.OpWriteBlockProto) { m.RequestedChecksum.BytesPerChecksum = proto.Uint32(1) }, pb.Status_ERROR_UNSUPPORTED},
		"huge chunks":    {func(m *pb.OpWriteBlockProto) { m.RequestedChecksum.BytesPerChecksum = proto.Uint32(1 << 31) }, pb.Status_ERROR_UNSUPPORTED},
		"more than there is": {func(m *pb.OpWriteBlockProto) {
			m.Stage, m.MinBytesRcvd = pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND.Enum(), proto.Uint64(1<<63)
		}, pb.Status_ERROR},
	} {
		m := good()
		c.change(m)
		w := r.dial()
		w.op(80, m)
		got := new(pb.BlockOpResponseProto)
		w.receive(got)
		if got.GetStatus() != c.want || got.GetMessage() == "" {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
		w.ends()
	}
	for _, op := range []byte{82, 83, 84, 86, 87, 88, 89, 90} {
		w := r.dial()
		w.op(op, good())
		w.response(pb.Status_ERROR_UNSUPPORTED)
		w.ends()
	}
	for name, b := range map[string][]byte{
		"SASL": {0xDE, 0xAD, 0xBE, 0xEF}, "another version": {0, 27, 80}, "another operation": {0, 28, 1},
		"a huge message": {0, 28, 80, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, "half a message": {0, 28, 80, 10, 1}, "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		w := r.dial()
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.CloseWrite()
		w.ends()
		_ = name
	}
	w := r.writing(b) // nothing of all that did any harm
	w.put(0, []byte("x"))
}

func datanode() *pb.DatanodeInfoProto {
	return &pb.DatanodeInfoProto{Id: &pb.DatanodeIDProto{
		IpAddr: proto.String("127.0.0.1"), HostName: proto.String("h"), DatanodeUuid: proto.String("u"),
		XferPort: proto.Uint32(1), InfoPort: proto.Uint32(1), IpcPort: proto.Uint32(1),
	}}
}

// TestWrongReads: what a reader asks for beyond the file, or after it was cut, is refused.
func TestWrongReads(t *testing.T) {
	r := start(t)
	all := random(1000, 1)
	if err := r.fs.WriteFile(t.Context(), "/f", all); err != nil {
		t.Fatal(err)
	}
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	b := l.Blocks.At(0)
	ask := func(offset, length uint64, want pb.Status) {
		t.Helper()
		w := r.dial()
		w.op(81, &pb.OpReadBlockProto{Header: r.header(b, false), Offset: &offset, Len: &length})
		w.response(want)
	}
	ask(0, 1001, pb.Status_ERROR)
	ask(1001, 0, pb.Status_ERROR)
	ask(1<<63, 1<<63, pb.Status_ERROR)
	ask(0, 1000, pb.Status_SUCCESS)
	if err := r.fs.Truncate(t.Context(), "/f", 10); err != nil {
		t.Fatal(err)
	}
	ask(0, 10, pb.Status_ERROR)
	if err := r.fs.Remove(t.Context(), "/f"); err != nil {
		t.Fatal(err)
	}
	ask(0, 10, pb.Status_ERROR)
	b.ID = 5 << 40
	ask(0, 10, pb.Status_ERROR)
	b.ID = -1
	ask(0, 10, pb.Status_ERROR)
}

// TestForeignTokens: gateways with the same key take each other's tokens, others do not.
func TestForeignTokens(t *testing.T) {
	r := start(t)
	if err := r.fs.WriteFile(t.Context(), "/f", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	one, two, other := gateway(t, r.nn, []byte("a key")), gateway(t, r.nn, []byte("a key")), gateway(t, r.nn, nil)
	l, err := one.files.Locate(t.Context(), one.u, "/f", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	id, password := one.files.Token(one.u, l.Blocks.At(0), false)
	if g, err := two.files.Check(id, password, l.Blocks.At(0).ID, false); err != nil || g.User != "root" || g.Block.Length != 5 {
		t.Errorf("%+v %v", g, err)
	}
	_, err = other.files.Check(id, password, l.Blocks.At(0).ID, false)
	r.kind("a foreign token", err, fserror.Permission)
	_, err = two.files.Check(id, password, l.Blocks.At(0).ID, true)
	r.kind("a token to read, used to write", err, fserror.Permission)
}

// TestTokensByClocks: a token ends after ten hours by the clock of whoever is shown it, and one
// that a clock made which was far ahead is none when that is right again.
func TestTokensByClocks(t *testing.T) {
	r := start(t)
	if err := r.fs.WriteFile(t.Context(), "/f", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	var here, there clock.Fake
	table := func(c *clock.Fake) *files.Table {
		return files.New(files.Config{Users: r.users, Key: []byte("a key"), Now: c.Wall})
	}
	one, two := table(&here), table(&there)
	here.Advance(100 * 24 * time.Hour)
	there.Advance(100 * 24 * time.Hour)
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	b := l.Blocks.At(0)
	id, password := one.Token(r.u, b, false)
	for ahead, good := range map[time.Duration]bool{
		-11 * time.Hour: false, -9 * time.Hour: true, 0: true, 9 * time.Hour: true, 11 * time.Hour: false, 30000 * time.Hour: false, -2000 * time.Hour: false,
	} {
		there.ShiftWall(ahead)
		if _, err := two.Check(id, password, b.ID, false); good != (err == nil) {
			t.Errorf("a clock that is %s ahead: %v", ahead, err)
		} else if err != nil {
			r.kind("by a wrong clock", err, fserror.Permission)
		}
		there.ShiftWall(-ahead)
	}
}

// TestTokensOfOthers: a token is one user's, and opens what that user may read now.
func TestTokensOfOthers(t *testing.T) {
	r := start(t)
	if err := r.fs.WriteFile(t.Context(), "/f", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	ann, err := r.users.Get(t.Context(), users.Key{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.users.Release(ann)
	l, err := r.files.Locate(t.Context(), ann, "/f", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	b := l.Blocks.At(0)
	id, password := r.files.Token(ann, b, false)
	read := func(id []byte, want pb.Status) {
		t.Helper()
		h := r.header(b, false)
		h.BaseHeader.Token.Identifier, h.BaseHeader.Token.Password = id, password
		w := r.dial()
		w.op(81, &pb.OpReadBlockProto{Header: h, Offset: proto.Uint64(0), Len: proto.Uint64(5)})
		w.response(want)
	}
	read(id, pb.Status_SUCCESS)
	read(bytes.Replace(id, []byte("ann"), []byte("bob"), 1), pb.Status_ERROR_ACCESS_TOKEN)
	if id, _ := r.files.Token(ann, b, true); id[1] != 0 {
		t.Error("who does not write the file got a token to write it")
	}
	if err := r.fs.Chmod(t.Context(), "/f", 0o600); err != nil {
		t.Fatal(err)
	}
	read(id, pb.Status_ERROR)
	if _, err := r.files.Locate(t.Context(), ann, "/f", 0, 10); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("another user's file was located: %v", err)
	}
}

// TestSilentClients: a client that is silent, with a block open or without, is given up; its file stays
// open for it.
func TestSilentClients(t *testing.T) {
	r := start(t, func(c *data.Config) { c.Idle = 10 * time.Second }) // no stall of the machine is a client's silence
	_, b := r.create("c", "/f", 1<<20)
	w := r.writing(b)
	w.put(0, []byte("hello"))
	w.ends()
	half := r.dial()
	half.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY, b.Stamp, 5, 5))
	half.response(pb.Status_SUCCESS)
	if _, err := half.Write(half.packet(5, []byte("lost"), false, false)[:20]); err != nil {
		t.Fatal(err)
	}
	half.CloseWrite()
	half.ends()
	r.holds("/f", []byte("hello"))
	if i, err := r.fs.Stat(t.Context(), "/f"); err != nil || i.Open == nil || i.Open.Holder.Client != "c" {
		t.Errorf("%+v %v", i, err)
	}

	big := random(30<<20, 1) // a reader that takes nothing
	if err := r.fs.WriteFile(t.Context(), "/big", big); err != nil {
		t.Fatal(err)
	}
	l, err := r.files.Locate(t.Context(), r.u, "/big", 0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	slow := r.dial()
	slow.op(81, &pb.OpReadBlockProto{Header: r.header(l.Blocks.At(0), false), Offset: proto.Uint64(0), Len: proto.Uint64(uint64(len(big)))})
	slow.response(pb.Status_SUCCESS)
	env.Eventually(t, "no session is in use but the test's and the writer's", func() bool {
		_, uses := r.users.InUse()
		return uses == 2
	})
}

// TestManyWriters: a thousand connections of one user that begin to write, and send no more
// than half a packet each, keep nobody else from writing, and each file has one of them.
func TestManyWriters(t *testing.T) {
	r := start(t)
	eve, err := r.users.Get(t.Context(), users.Key{User: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.users.Release(eve)
	if err := r.fs.Mkdir(t.Context(), "/eve", 0o777); err != nil {
		t.Fatal(err)
	}
	const many, each = 1000, 10
	mine := *r
	mine.u = eve
	var all []*wire
	for n := range many / each {
		_, b := mine.create("c", fmt.Sprint("/eve/", n), 1<<20)
		for range each {
			w := mine.dial()
			w.op(80, mine.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_CREATE, b.Stamp, 0, 0))
			w.response(pb.Status_SUCCESS)
			if _, err := w.Write(w.packet(0, []byte("half"), false, false)[:20]); err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
	}
	inode, b := r.create("d", "/f", 8<<20)
	w := r.writing(b)
	content := random(3<<20, 1)
	for at := 0; at < len(content); at += 60_000 {
		w.put(int64(at), content[at:min(at+60_000, len(content))])
	}
	w.finish(int64(len(content)))
	b.Length = int64(len(content))
	r.complete("d", inode, &b)
	r.holds("/f", content)
	for n, w := range all {
		if n%each < each-1 { // another took its place
			w.ends()
		}
	}
	if i, err := r.fs.Stat(t.Context(), "/eve/0"); err != nil || i.Length != 0 || i.Open == nil {
		t.Errorf("a file of which half a packet came: %+v, %v", i, err)
	}
}

// heldConn is a connection whose first deadline of hours is set when held lets it.
type heldConn struct {
	net.Conn
	once, woke     sync.Once
	reached, woken chan struct{}
	held           <-chan struct{}
}

func (c *heldConn) SetReadDeadline(t time.Time) error {
	if time.Until(t) > time.Hour {
		c.once.Do(func() { close(c.reached); <-c.held })
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *heldConn) SetDeadline(t time.Time) error {
	err := c.Conn.SetDeadline(t)
	if time.Until(t) < 0 {
		c.woke.Do(func() { close(c.woken) })
	}
	return err
}

// holding holds the first connection.
type holding struct {
	net.Listener
	first *heldConn
}

func (l *holding) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.first.Conn == nil {
		l.first.Conn = c
		return l.first, nil
	}
	return c, err
}

// TestTakenOverInBetween: a writer that another takes over from just as it begins to wait for a
// packet does not wait for it.
func TestTakenOverInBetween(t *testing.T) {
	held := make(chan struct{})
	c := &heldConn{reached: make(chan struct{}), woken: make(chan struct{}), held: held}
	r := start(t, func(cfg *data.Config) {
		cfg.Idle = 7 * time.Hour
		cfg.Listener = &holding{cfg.Listener, c}
	})
	_, b := r.create("c", "/f", kib)
	one := r.writing(b)
	<-c.reached
	r.writing(b)
	<-c.woken
	close(held)
	one.ends()
}

// TestNoRoom: only so many files are open at once, and nobody gets all places.
func TestNoRoom(t *testing.T) {
	r := start(t)
	few := files.New(files.Config{Users: r.users, Open: 8})
	defer few.Close(t.Context())
	n := 0
	var err error
	for ; err == nil && n < 100; n++ {
		_, err = few.Create(t.Context(), r.u, "c", "/"+strings.Repeat("f", n+1), files.Create{Mode: 0o644, Create: true})
	}
	if n != 7 {
		t.Errorf("one user got %d of 8 places", n-1)
	}
	r.kind("one more", err, fserror.Retry)
}

// TestTwoGateways: when a gateway is gone, another one of the namespace continues with the client's
// file if all bytes of it are there.
func TestTwoGateways(t *testing.T) {
	r := start(t)
	key := []byte("a key")
	one, two := gateway(t, r.nn, key), gateway(t, r.nn, key)
	inode, b := one.create("c", "/f", kib)
	w := one.writing(b)
	w.put(0, random(1024, 1))
	w.finish(1024)
	_, err := two.files.AddBlock(t.Context(), two.u, "c", "/f", inode, nil)
	r.kind("while the other lives", err, fserror.Retry)
	one.srv.Close()
	one.files.Close(t.Context())
	b.Length = 1024
	one.users.Release(one.u)
	one.users.Close()
	one.users.Hold(one.u)
	var next files.Block
	env.Eventually(t, "the namenode knows that the gateway is gone", func() bool {
		next, err = two.files.AddBlock(t.Context(), two.u, "c", "/f", inode, &b)
		return err == nil
	})
	w = two.writing(next)
	w.put(0, []byte("hello"))
	next.Length = 6
	_, err = two.files.Complete(t.Context(), two.u, "c", "/f", inode, &next)
	r.kind("with bytes that nobody has", err, fserror.InvalidArgument)
	next.Length = 5
	two.complete("c", inode, &next)
	r.holds("/f", append(random(1024, 1), "hello"...))
	_, err = two.files.AddBlock(t.Context(), two.u, "c", "/f", inode, &next)
	r.kind("of a closed file", err, fserror.LeaseLost)
}

// TestRestart: the namenode is started again in the middle of a write, and nothing of it is lost
// or there twice.
func TestRestart(t *testing.T) {
	r := start(t)
	inode, b := r.create("c", "/f", 128<<20)
	w := r.writing(b)
	all := random(1<<20, 1)
	for at, n := 0, 0; at < len(all); n++ {
		if n == 3 {
			r.nn.Stop(t)
			go func() { _, _ = w.Write(w.packet(int64(at), all[at:at+100_000], false, false)) }()
			r.nn.Start(t)
			w.acked(3, pb.Status_SUCCESS)
			at += 100_000
			continue
		}
		k := min(100_000, len(all)-at)
		w.put(int64(at), all[at:at+k])
		at += k
	}
	w.finish(int64(len(all)))
	b.Length = int64(len(all))
	r.complete("c", inode, &b)
	r.holds("/f", all)
}

// TestHeartbeat: a client that has nothing to send says so, and is answered.
func TestHeartbeat(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 1<<20)
	w := r.writing(b)
	w.put(0, []byte("hello"))
	w.seqno = -1
	w.put(0, nil)
	w.seqno = 1
	w.put(5, []byte("!"))
	r.holds("/f", []byte("hello!"))
}

// TestTwoPipes: of two connections to the same block the later one writes.
func TestTwoPipes(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 1<<20)
	w := r.writing(b)
	second := r.writing(b)
	w.ends()
	second.put(0, []byte("hello"))
	r.holds("/f", []byte("hello"))
}

// FuzzPackets feeds a server's connection whatever comes after a good request.
func FuzzPackets(f *testing.F) {
	w := &wire{}
	f.Add(w.packet(0, []byte("hello"), false, true))
	f.Add(w.packet(5, nil, true, false))
	f.Add([]byte{0, 0, 0, 4, 0, 0})
	var op bytes.Buffer
	_, _ = protodelim.MarshalTo(&op, &pb.ClientReadStatusProto{Status: pb.Status_SUCCESS.Enum()})
	f.Add(op.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) { data.Decode(b) })
}

// FuzzRequests feeds a server's connection whatever comes instead of a request.
func FuzzRequests(f *testing.F) {
	header := &pb.BaseHeaderProto{
		Block: &pb.ExtendedBlockProto{PoolId: proto.String("p"), BlockId: proto.Uint64(1 << 24), GenerationStamp: proto.Uint64(1)},
		Token: &pb.TokenProto{Identifier: make([]byte, 80), Password: make([]byte, 32), Kind: proto.String(files.TokenKind), Service: proto.String("")},
	}
	client := &pb.ClientOperationHeaderProto{BaseHeader: header, ClientName: proto.String("c")}
	for op, m := range map[byte]proto.Message{
		80: &pb.OpWriteBlockProto{
			Header: client, Stage: pb.OpWriteBlockProto_PIPELINE_SETUP_CREATE.Enum(), PipelineSize: proto.Uint32(1), MinBytesRcvd: proto.Uint64(0), MaxBytesRcvd: proto.Uint64(0),
			LatestGenerationStamp: proto.Uint64(1), RequestedChecksum: &pb.ChecksumProto{Type: pb.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(), BytesPerChecksum: proto.Uint32(512)},
		},
		81: &pb.OpReadBlockProto{Header: client, Offset: proto.Uint64(0), Len: proto.Uint64(1)},
		85: &pb.OpBlockChecksumProto{Header: header},
	} {
		var b bytes.Buffer
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte{0, 28, op}, b.Bytes()...))
	}
	f.Fuzz(func(_ *testing.T, b []byte) { data.Requests(b) })
}

// TestEndWithoutNamenode: the gateway ends while a flush waits for a namenode that is not there.
func TestEndWithoutNamenode(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 1<<20)
	w := r.writing(b)
	w.put(0, []byte("hello"))
	r.nn.Stop(t)
	w.send(5, []byte("later"), false)
	began := time.Now()
	r.srv.Close()
	if d := time.Since(began); d > patience/4 { // a call is tried for patience/2
		t.Errorf("it took %s", d)
	}
	w.ends()
	r.nn.Start(t)
}
