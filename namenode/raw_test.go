package namenode_test

import (
	"context"
	"crypto/rand"
	"hash/crc32"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// raw speaks the wire contract without the client library, so that a test can
// send what the library never would.
type raw struct {
	t       *testing.T
	nn      pb.NamenodeClient
	admin   pb.AdminClient
	session []byte
	seq     atomic.Uint64
	name    string
}

func startServer(t *testing.T, mods ...func(*namenode.Config)) *namenode.Server {
	t.Helper()
	cfg := namenode.Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: namenode.Limits{Reserve: 1 << 20},
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	s, err := namenode.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func connect(t *testing.T, addr, name string) *raw {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	r := &raw{t: t, nn: pb.NewNamenodeClient(cc), admin: pb.NewAdminClient(cc), session: make([]byte, 16), name: name}
	_, _ = rand.Read(r.session)
	return r
}

func (r *raw) call() *pb.CallId {
	n := r.seq.Add(1)
	return &pb.CallId{Session: r.session, Seq: n, Acked: n - 1}
}

func (r *raw) caller() *pb.Caller {
	return &pb.Caller{User: "root", Client: r.name, Session: r.session, Host: "h", Pid: 1}
}

func (r *raw) create(path string) *pb.WriterId {
	r.t.Helper()
	out, err := r.nn.Create(r.t.Context(), &pb.CreateRequest{Call: r.call(), Caller: r.caller(), At: pb.At(path), Parents: true})
	if err != nil {
		r.t.Fatalf("create %s: %v", path, err)
	}
	return out.GetWriter()
}

func (r *raw) flush(w *pb.WriterId, offset int64, data string) error {
	_, err := r.nn.AppendTail(r.t.Context(), &pb.AppendTailRequest{Writer: w, Offset: offset, Data: []byte(data), Crc32C: crc([]byte(data))})
	return wire.FromStatus(err)
}

func (r *raw) close(w *pb.WriterId, length int64) error {
	_, err := r.nn.Close(r.t.Context(), &pb.CloseRequest{Call: r.call(), Writer: w, Offset: length, Length: length})
	return wire.FromStatus(err)
}

func (r *raw) content(path string) string {
	r.t.Helper()
	out, err := r.nn.GetFile(context.Background(), &pb.GetFileRequest{Caller: r.caller(), At: pb.Follow(path)})
	if err != nil {
		r.t.Fatalf("open %s: %v", path, err)
	}
	if len(out.GetBlocks()) > 0 {
		r.t.Fatalf("%s has blocks; read it with the library", path)
	}
	return string(out.GetTail())
}

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func TestCreateFlushCloseRestart(t *testing.T) {
	dir := t.TempDir()
	at := func(c *namenode.Config) { c.Data = dir }
	s := startServer(t, at)
	r := connect(t, s.Addr(), "a")
	w := r.create("/d/f")
	if err := r.flush(w, 0, "hello "); err != nil {
		t.Fatal(err)
	}
	if err := r.flush(w, 0, "hello "); err != nil {
		t.Fatalf("the same flush again: %v", err)
	}
	if err := r.flush(w, 6, "world"); err != nil {
		t.Fatal(err)
	}
	if got := r.content("/d/f"); got != "hello world" {
		t.Fatalf("content %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, at)
	r2 := connect(t, s.Addr(), "b")
	if got := r2.content("/d/f"); got != "hello world" {
		t.Fatalf("content after a restart %q", got)
	}
	r3 := connect(t, s.Addr(), "a")
	if err := r3.close(w, 11); err != nil {
		t.Fatalf("close by the writer after a restart: %v", err)
	}
}
