package e2e_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// hdfsCall is a call of a client of HDFS as it is on the wire.
func hdfsCall(id int32, method string, request proto.Message) []byte {
	return rpcFrame(id, &pb.RequestHeaderProto{
		MethodName: &method, DeclaringClassProtocolName: proto.String("org.apache.hadoop.hdfs.protocol.ClientProtocol"), ClientProtocolVersion: proto.Uint64(1),
	}, request)
}

// leaving is the connection of a client that gives up.
type leaving struct {
	*net.TCPConn
	t    *testing.T
	what string
}

func leave(ctx context.Context, t *testing.T, addr, what string) leaving {
	t.Helper()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	end, _ := ctx.Deadline() // it has one
	if err := c.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	return leaving{c.(*net.TCPConn), t, what} //nolint:errcheck,forcetypeassert // it is TCP
}

func (c leaving) send(all ...[]byte) {
	c.t.Helper()
	for _, b := range all {
		if _, err := c.Write(b); err != nil {
			c.t.Fatalf("%s: %v", c.what, err)
		}
	}
}

// succeeds waits for an answer.
func (c leaving) succeeds() {
	c.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(c, size[:])
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if err == nil {
		_, err = io.ReadFull(c, frame)
	}
	var h pb.RpcResponseHeaderProto
	if err == nil {
		err = protodelim.UnmarshalFrom(bufio.NewReader(strings.NewReader(string(frame))), &h)
	}
	if err != nil || h.GetStatus() != pb.RpcResponseHeaderProto_SUCCESS {
		c.t.Fatalf("%s: %v, %v", c.what, &h, err)
	}
}

// ends waits until the gateway has ended the connection: what was sent is dealt with then, and nothing of
// it was done.
func (c leaving) ends() {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 4") || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("%s: answered %q, %v", c.what, b, err)
	}
}

// TestHadoopPausedGateway: a gateway is stopped amid calls and amid a block that a client writes, for
// longer than the soft limit, while another one serves the clients. When it continues, what they were
// told still holds, and nothing that they have given up is carried out.
func TestHadoopPausedGateway(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "5s")
	paused, other := startGateway(ctx, n), startGateway(ctx, n)
	connect := func(g *gateway) *native.Client {
		t.Helper()
		c, err := native.NewClient(native.ClientOptions{Addresses: []string{strings.TrimPrefix(g.hdfs, "hdfs://")}, User: "root"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	fs := n.client(ctx)
	names := []string{"/created", "/deleted", "/renamed", "/half", "/silent", "/web", "/web-deleted", "/web-silent"}
	for _, name := range names {
		if err := fs.WriteFile(ctx, name, []byte("before")); err != nil {
			t.Fatal(err)
		}
	}

	const block = 1 << 20
	stream := strings.Repeat("0123456789abcde\n", 4*block/16)
	const told, sent = 2*block + block/2, 2*block + 3*block/4
	w, err := connect(paused).CreateFile("/stream", 1, block, 0o644)
	if err == nil {
		_, err = io.WriteString(w, stream[:told])
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "what the writer has flushed is there", func() bool { i, err := fs.Stat(ctx, "/stream"); return err == nil && i.Length == told })
	if _, err := io.WriteString(w, stream[told:sent]); err != nil {
		t.Fatal(err)
	}

	calls := strings.TrimPrefix(paused.hdfs, "hdfs://")
	ended, silent := leave(ctx, t, calls, "a client that ends its connection"), leave(ctx, t, calls, "a client that cannot end its connection")
	perm := &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}
	for _, c := range []leaving{ended, silent} {
		c.send(hrpc("root", ""), hdfsCall(1, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/told"), Masked: perm, CreateParent: proto.Bool(true)}))
		c.succeeds()
	}
	remove := func(id int32, name string) []byte {
		return hdfsCall(id, "delete", &pb.DeleteRequestProto{Src: &name, Recursive: proto.Bool(false)})
	}
	half := remove(2, "/half")
	ended.send(half[:len(half)/2])
	web := leave(ctx, t, paused.addr, "a client of WebHDFS that brings bytes")
	web.send([]byte("PUT /webhdfs/v1/web?op=CREATE&overwrite=true&data=true&user.name=root HTTP/1.1\r\nHost: localhost\r\n"))
	webSilent := leave(ctx, t, paused.addr, "a client of WebHDFS that cannot end its connection")
	webSilent.send([]byte("GET /webhdfs/v1/?op=GETFILESTATUS&user.name=root HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(webSilent), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	paused.stop(ctx)
	began := time.Now()

	ended.send(half[len(half)/2:],
		hdfsCall(3, "create", &pb.CreateRequestProto{
			Src: proto.String("/created"), ClientName: proto.String("c"), CreateFlag: proto.Uint32(1 | 2), CreateParent: proto.Bool(false), // and overwrite
			Masked: perm, Replication: proto.Uint32(1), BlockSize: proto.Uint64(block),
		}),
		remove(4, "/deleted"),
		hdfsCall(5, "rename2", &pb.Rename2RequestProto{Src: proto.String("/renamed"), Dst: proto.String("/created"), OverwriteDest: proto.Bool(true)}))
	silent.send(remove(2, "/silent"))
	webSilent.send([]byte("DELETE /webhdfs/v1/web-silent?op=DELETE&user.name=root HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	web.send([]byte("Content-Length: 3\r\n\r\nold"))
	gone := leave(ctx, t, paused.addr, "a client of WebHDFS")
	gone.send([]byte("DELETE /webhdfs/v1/web-deleted?op=DELETE&user.name=root HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	for _, c := range []leaving{ended, web, gone} {
		if err := c.CloseWrite(); err != nil { // the gateway cannot tell it from the end of the process
			t.Fatal(err)
		}
	}
	late := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w, stream[sent:])
		late <- errors.Join(err, w.Close())
	}()

	// The other gateway serves them meanwhile, and they do more than they had asked the first one for.
	c := connect(other)
	for _, name := range names {
		if err := c.Remove(name); err != nil {
			t.Fatal(err)
		}
		f, err := c.CreateFile(name, 1, block, 0o644)
		if err == nil {
			_, err = io.WriteString(f, "by the other")
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	next, err := c.Append("/stream")
	for isHeld(err) && ctx.Err() == nil {
		rest(ctx, 100*time.Millisecond)
		next, err = c.Append("/stream")
	}
	if err == nil {
		_, err = io.WriteString(next, "next\n")
		err = errors.Join(err, next.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	rest(ctx, 17*time.Second-time.Since(began)) // the gateway has stood still for long enough to drop all calls

	paused.signal(syscall.SIGCONT)
	for _, c := range []leaving{ended, silent, web, gone, webSilent} {
		c.ends()
	}
	if err := <-late; err == nil {
		t.Error("the writer did not learn that its file was taken over")
	}
	again := connect(paused)
	for _, name := range names {
		if got, err := again.ReadFile(name); err != nil || string(got) != "by the other" {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	got, err := again.ReadFile("/stream")
	text, ours := strings.CutSuffix(string(got), "next\n")
	if err != nil || !ours || len(text) < told || !strings.HasPrefix(stream[:sent], text) {
		t.Errorf("the writer had flushed %d bytes and sent %d, and its file has %d: %v", told, sent, len(text), err)
	}
	if i, err := again.Stat("/told"); err != nil || !i.IsDir() {
		t.Errorf("/told: %v", err)
	}
	if code, body := webhdfs(ctx, t, http.MethodGet, "http://"+paused.addr+"/webhdfs/v1/told?op=GETFILESTATUS&user.name=root"); code != http.StatusOK {
		t.Errorf("WebHDFS: %d %s", code, body)
	}
	n.fsck(ctx)
}

// isHeld tells whether another writes the file.
func isHeld(err error) bool {
	var e native.Error
	return errors.As(err, &e) && strings.HasSuffix(e.Exception(), ".AlreadyBeingCreatedException")
}
