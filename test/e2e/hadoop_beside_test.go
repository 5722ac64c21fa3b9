package e2e_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// beside is a namenode that serves Hadoop's clients in its own process.
type beside struct {
	*namenode
	HDFS, Data, WebHDFS string // where
}

func startBeside(ctx context.Context, t testing.TB, flags ...string) *beside {
	t.Helper()
	b := &beside{namenode: newNamenode(t, filepath.Join(t.TempDir(), "data"), append(flags, "--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0", "--webhdfs", "127.0.0.1:0")...)}
	b.process = b.launch(ctx, "--json")
	b.prints(ctx, b.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	if err := json.Unmarshal([]byte(b.out.String()), b); err != nil || b.HDFS == "" || b.Data == "" || b.WebHDFS == "" {
		t.Fatalf("%s: %v", b.out, err)
	}
	return b
}

// hrpc is how a connection for calls begins that is for a user, by another where that is not empty.
func hrpc(user, by string) []byte {
	who := &pb.UserInformationProto{EffectiveUser: &user}
	if by != "" {
		who.RealUser = &by
	}
	return append([]byte("hrpc\x09\x00\x00"), rpcFrame(-3, &pb.IpcConnectionContextProto{UserInfo: who})...)
}

// rpcFrame is a message on such a connection.
func rpcFrame(id int32, all ...proto.Message) []byte {
	var b bytes.Buffer
	h := &pb.RpcRequestHeaderProto{RpcKind: proto.Int32(2), RpcOp: proto.Int32(0), CallId: &id, ClientId: []byte("0123456789abcdef")}
	for _, m := range append([]proto.Message{h}, all...) {
		_, _ = protodelim.MarshalTo(&b, m) // a buffer takes all
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(b.Len())), b.Bytes()...) //nolint:gosec // short
}

// stranger is a connection from an address that no other has.
type stranger struct {
	net.Conn
	what, port string
	ended      atomic.Bool // by the other side
}

// strangers makes the connections of somebody who wants no good, and holds them until each is closed by
// the other side.
func strangers(ctx context.Context, t *testing.T, at *beside) (all []*stranger, ended *sync.WaitGroup) {
	t.Helper()
	noise := make([]byte, 4000)
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same each time
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	me := hrpc("root", "")
	data := func(op byte, more ...byte) []byte { return append([]byte{0, 28, op}, more...) }
	const drip, half, silent = "dripping", "half closed", "silent"
	kinds := []struct {
		port, what, how string
		begins          []byte
	}{
		{at.HDFS, "noise", "", noise},
		{at.HDFS, "HTTP", "", []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")},
		{at.HDFS, "another version", "", []byte("hrpc\x08\x00\x00")},
		{at.HDFS, "a call before a user", "", append([]byte("hrpc\x09\x00\x00"), rpcFrame(1)...)},
		{at.HDFS, "a huge message", "", append(bytes.Clone(me), 0x7f, 0xff, 0xff, 0xff)},
		{at.HDFS, "less than no message", "", append(bytes.Clone(me), 0xff, 0xff, 0xff, 0xff)},
		{at.HDFS, "noise after a user", "", append(append(bytes.Clone(me), 0, 0, 0x0f, 0xa0), noise...)},
		{at.HDFS, "nothing", silent, nil},
		{at.HDFS, "half a beginning", drip, []byte("hrp")},
		{at.HDFS, "a user", silent, me},
		{at.HDFS, "half of a message that is allowed", half, append(bytes.Clone(me), 0, 0x3f, 0xff, 0xff, 1)},
		{at.HDFS, "a message that is allowed", drip, append(bytes.Clone(me), 0, 0x3f, 0xff, 0xff, 1)},
		{at.Data, "noise", "", noise},
		{at.Data, "HTTP", "", []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")},
		{at.Data, "SASL", "", []byte{0xde, 0xad, 0xbe, 0xef}},
		{at.Data, "a huge message", "", data(80, 0xff, 0xff, 0xff, 0xff, 0x7f)},
		{at.Data, "an operation that is not served", "", data(84)},
		{at.Data, "a block without a token", "", data(81, 0)},
		{at.Data, "nothing", silent, nil},
		{at.Data, "half an operation", half, []byte{0, 28}},
		{at.Data, "a message that is allowed", drip, data(80, 0xff, 0x7f)},
		{at.WebHDFS, "noise", "", append(noise, "\r\n\r\n"...)},
		{at.WebHDFS, "TLS", "", append([]byte{22, 3, 1, 2, 0, 1}, noise[:512]...)},
		{at.WebHDFS, "a huge head", "", []byte("GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")},
		{at.WebHDFS, "two lengths", "", []byte("PUT /webhdfs/v1/x?op=CREATE&data=true&user.name=root HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")},
		{at.WebHDFS, "nothing", silent, nil},
		{at.WebHDFS, "half a head", half, []byte("GET /webhdfs/v1/")},
		{at.WebHDFS, "a head", drip, []byte("GET /webhdfs/v1/?op=LISTSTATUS&user.name=root HTTP/1.1\r\nHost: localhost\r\nX: ")},
		{at.WebHDFS, "half a body", half, []byte("PUT /webhdfs/v1/half@?op=CREATE&data=true&user.name=root HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody")},
		{at.WebHDFS, "a body that stops", silent, []byte("PUT /webhdfs/v1/stops@?op=CREATE&data=true&user.name=root HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody")},
	}
	ended = new(sync.WaitGroup)
	for n, k := range kinds {
		for twin := range 3 { // of which each has to be told of
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(n), byte(twin + 1)}), 0))}
			c, err := d.DialContext(ctx, "tcp", k.port)
			if err != nil {
				t.Fatal(err)
			}
			s := &stranger{Conn: c, what: strings.TrimSpace(k.what + " " + k.how), port: k.port}
			all = append(all, s)
			ended.Go(func() {
				defer func() { _ = s.Close() }() // it is closed by the other side
				stop := context.AfterFunc(ctx, func() { _ = s.Close() })
				defer stop()
				_, _ = s.Write(bytes.ReplaceAll(k.begins, []byte("@?"), []byte{'0' + byte(twin), '?'})) // it may be closed before all has come
				if k.how == half {
					_ = c.(*net.TCPConn).CloseWrite() //nolint:errcheck,forcetypeassert // closed is fine; it is TCP
				}
				over := make(chan struct{})
				if k.how == drip {
					go func() {
						for {
							select {
							case <-over:
								return
							case <-time.After(100 * time.Millisecond):
								_, _ = s.Write([]byte("x")) // the reader sees the end
							}
						}
					}()
				}
				_, _ = io.Copy(io.Discard, s) // however it ends
				close(over)
				s.ended.Store(ctx.Err() == nil)
			})
		}
	}
	return all, ended
}

// TestHadoopHostileRequests: the three ports at which a namenode serves Hadoop's clients in its own process
// close what is malformed, huge, slow or silent, each with one line in the log. Meanwhile all are
// answered who ask for something, and nothing of it stays.
func TestHadoopHostileRequests(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	n := startBeside(ctx, t, "--idle", "1m", "--log-level", "debug")
	n.run(ctx, "mkdir", "/d")
	c, err := native.NewClient(native.ClientOptions{Addresses: []string{n.HDFS}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fs := n.client(ctx)
	content := bytes.Repeat([]byte("content "), 100_000)
	if err := fs.WriteFile(ctx, "/d/f", content); err != nil {
		t.Fatal(err)
	}
	descriptors := n.descriptors()

	all, ended := strangers(ctx, t, n)
	var crowd sync.WaitGroup // beside them, many of one address, who leave by themselves
	const each, workers = 3000, 16
	for _, port := range []string{n.HDFS, n.Data, n.WebHDFS} {
		for w := range workers {
			crowd.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(w))) //nolint:gosec // the same each time
				b := make([]byte, 2000)
				for range each / workers {
					c, err := net.DialTimeout("tcp", port, 10*time.Second)
					if err != nil {
						continue // there is no room for him, which is fine
					}
					_ = c.SetDeadline(time.Now().Add(2 * time.Second))
					for i := range b {
						b[i] = byte(r.Uint32())
					}
					begin := [][]byte{nil, []byte("hrpc\x09\x00\x00\x00\x3f\xff\xff"), {0, 28, 80, 0xff, 0x7f}, []byte("PUT /webhdfs/v1/x HTTP/1.1\r\n"), hrpc("root", "eve")}[r.IntN(5)]
					_, _ = c.Write(append(bytes.Clone(begin), b[:r.IntN(len(b))]...)) // cut off is fine
					if r.IntN(20) == 0 {
						_, _ = c.Read(b)
					}
					_ = c.Close()
				}
			})
		}
	}
	over := make(chan struct{})
	go func() { crowd.Wait(); ended.Wait(); close(over) }()
	asked := 0
	for finished := false; !finished; asked++ {
		select {
		case <-over:
			finished = true
		case <-ctx.Done():
			for _, s := range all {
				if !s.ended.Load() {
					t.Errorf("%s at %s is still open", s.what, s.port)
				}
			}
			t.FailNow()
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := fs.Stat(ctx, "/d"); err != nil {
			t.Fatalf("the library, question %d: %v", asked, err)
		}
		if code, body := webhdfs(ctx, t, http.MethodGet, "http://"+n.WebHDFS+"/webhdfs/v1/d?op=GETFILESTATUS&user.name=root"); code != http.StatusOK {
			t.Fatalf("WebHDFS, question %d: %d %s", asked, code, body)
		}
		if _, err := c.Stat("/d"); err != nil {
			t.Fatalf("hdfs://, question %d: %v", asked, err)
		}
		if got, err := c.ReadFile("/d/f"); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("bytes by hdfs://, question %d: %d of them, %v", asked, len(got), err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	told := map[string]int{}
	for line := range strings.Lines(n.err.String()) {
		var entry struct{ From string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("the log has %q: %v", line, err)
		}
		told[entry.From]++
	}
	for _, s := range all {
		if lines := told[s.LocalAddr().String()]; lines != 1 || !s.ended.Load() {
			t.Errorf("%s at %s: %d lines of the log have it, want 1; closed: %t", s.what, s.port, lines, s.ended.Load())
		}
	}
	eventually(ctx, t, "descriptors are given back", func() bool { return n.descriptors() <= descriptors+20 })
	for _, name := range []string{"/half0", "/half2", "/stops0", "/stops2"} {
		if got, err := fs.ReadFile(ctx, name); err != nil || string(got) != "body" {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	now, peak := n.rss()
	heap := n.status(ctx).HeapBytes
	if heap > 128<<20 || peak > 1<<30 {
		t.Errorf("%s of heap, %s resident, %s at most", mib(heap), mib(now), mib(peak))
	}
	t.Logf("%d questions; %d descriptors, %s of heap, %s resident, %s at most", asked, n.descriptors(), mib(heap), mib(now), mib(peak))
	n.fsck(ctx)
}
