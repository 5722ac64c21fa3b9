package env

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Raw speaks the wire contract without the library: one session, without a
// stream until Connect, that renews nothing by itself. Its errors are of
// package fserror. All its calls end with the test.
type Raw struct {
	NN    pb.NamenodeClient
	Admin pb.AdminClient
	Who   *pb.Caller

	t    testing.TB
	http *http.Client
	seq  atomic.Uint64
}

// Raw makes a session of the client with that name, of user root.
func (n *Namenode) Raw(t testing.TB, name string) *Raw {
	t.Helper()
	r := RawAt(t, n.cfg.Listen, name, n.Dial...)
	if n.HTTP != nil {
		r.http = n.HTTP
	}
	return r
}

// RawFrom is Raw for a user at an address of this machine.
func (n *Namenode) RawFrom(t testing.TB, user, from string) *Raw {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	r := RawAt(t, n.cfg.Listen, user, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", addr)
	}))
	r.Who.User = user
	return r
}

// RawAt is Raw for a namenode anywhere.
func RawAt(t testing.TB, addr, name string, more ...grpc.DialOption) *Raw {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, Multiplier: 2}, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, eventuallyLimit) // some calls wait, while others are made
			defer cancel()
			return wire.FromStatus(invoke(ctx, method, req, reply, cc, opts...))
		})}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	r := &Raw{
		NN: pb.NewNamenodeClient(cc), Admin: pb.NewAdminClient(cc), t: t, http: http.DefaultClient,
		Who: &pb.Caller{User: "root", Client: name, Session: pb.NewSession("root"), Host: "h", Pid: 1},
	}
	return r
}

// Connect opens the session's stream. The function ends it and returns when
// the namenode has taken notice.
func (r *Raw) Connect() (end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	s, err := r.NN.Session(ctx)
	if err == nil {
		err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who}}})
	}
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		cancel()
		r.t.Fatalf("open the session's stream: %v", err)
	}
	return func() {
		_ = s.CloseSend()
		_, _ = s.Recv()
		cancel()
	}
}

// At is the same session at another namenode.
func (r *Raw) At(addr string) *Raw {
	r.t.Helper()
	other := RawAt(r.t, addr, "")
	other.Who = r.Who
	other.seq.Store(r.seq.Load())
	return other
}

// Call is a new call id, which acknowledges nothing.
func (r *Raw) Call() *pb.CallId { return &pb.CallId{Session: r.Who.GetSession(), Seq: r.seq.Add(1)} }

// CallInTurn is a new call id that acknowledges all before it. It is for a session
// with one call at a time that makes more of them than the namenode keeps results.
func (r *Raw) CallInTurn() *pb.CallId {
	c := r.Call()
	c.Acked = c.GetSeq() - 1
	return c
}

// insist repeats a call, for two minutes at most, that the namenode does not
// answer, or whose outcome it does not know, because it cannot tell whether it is active: where a
// machine stands still for seconds that is so until the next write.
func (r *Raw) insist(call func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := call()
		if k := fserror.KindOf(wire.FromStatus(err)); k != fserror.NotActive && k != fserror.Unknown || time.Since(began) > 2*time.Minute {
			return err
		}
	}
}

// Create makes a file, parents too, and opens it.
func (r *Raw) Create(path string) *pb.WriterId {
	r.t.Helper()
	var out *pb.OpenResponse
	req := &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Parents: true}
	err := r.insist(func() (err error) {
		out, err = r.NN.Create(r.t.Context(), req)
		return err
	})
	if err != nil {
		r.t.Fatalf("create %s: %v", path, err)
	}
	return out.GetWriter()
}

// Make makes whole empty files, all at once.
func (r *Raw) Make(paths ...string) {
	r.t.Helper()
	var g errgroup.Group
	for _, p := range paths {
		req := &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(p), Close: true}
		g.Go(func() error { _, err := r.NN.Create(r.t.Context(), req); return err })
	}
	if err := g.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

// Append opens a file at its end.
func (r *Raw) Append(path string) (*pb.OpenResponse, error) {
	return r.NN.Append(r.t.Context(), &pb.AppendRequest{Call: r.Call(), Caller: r.Who, At: pb.Follow(path)})
}

// Flush appends to the tail.
func (r *Raw) Flush(w *pb.WriterId, offset int64, data string) error {
	_, err := r.NN.AppendTail(r.t.Context(), TailRequest(w, offset, data))
	return err
}

// TailRequest is what Flush sends.
func TailRequest(w *pb.WriterId, offset int64, data string) *pb.AppendTailRequest {
	return &pb.AppendTailRequest{Writer: w, Offset: offset, Data: []byte(data), Crc32C: blockstore.CRC([]byte(data))}
}

// Close closes a file of that length.
func (r *Raw) Close(w *pb.WriterId, length int64) error {
	_, err := r.NN.Close(r.t.Context(), &pb.CloseRequest{Call: r.Call(), Writer: w, Offset: length, Length: length})
	return err
}

// PutBlock allocates a block and puts it; nothing is committed.
func (r *Raw) PutBlock(w *pb.WriterId, data []byte) (*pb.Block, error) {
	object, crc := blockstore.Seal(bytes.Clone(data))
	out, err := r.NN.AllocateBlock(r.t.Context(), &pb.AllocateBlockRequest{
		Writer: w, Blocks: []*pb.BlockIntent{{StoredLength: int64(len(object)), Crc32C: crc}},
	})
	if err != nil {
		return nil, err
	}
	t := out.GetTargets()[0]
	if err := put(r.t.Context(), r.http, t, object); err != nil {
		return nil, err
	}
	return &pb.Block{Term: t.GetTerm(), Seq: t.GetSeq(), StoredLength: int64(len(object)), UsedLength: int64(len(data)), Crc32C: crc}, nil
}

func put(ctx context.Context, client *http.Client, t *pb.BlockTarget, object []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, t.GetUrl(), bytes.NewReader(object))
	if err != nil {
		return err
	}
	for k, v := range t.GetHeaders() {
		req.Header.Set(k, v)
	}
	req.Close = true
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("PUT: %s: %s", resp.Status, body)
	}
	return nil
}

// Commit makes a block, put before, part of the file at offset; its first
// bytes are what tail says the tail has.
func (r *Raw) Commit(w *pb.WriterId, offset int64, b *pb.Block, tail string) error {
	_, err := r.NN.Commit(r.t.Context(), CommitRequest(w, offset, b, tail))
	return err
}

// CommitRequest is what Commit sends.
func CommitRequest(w *pb.WriterId, offset int64, b *pb.Block, tail string) *pb.CommitRequest {
	return &pb.CommitRequest{Writer: w, Offset: offset, Block: b, TailCovered: int64(len(tail)), TailCrc32C: blockstore.CRC([]byte(tail))}
}

// File is GetFile without URLs.
func (r *Raw) File(path string) *pb.GetFileResponse {
	r.t.Helper()
	var out *pb.GetFileResponse
	err := r.insist(func() (err error) {
		out, err = r.NN.GetFile(r.t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Follow(path), NoUrls: true})
		return err
	})
	if err != nil {
		r.t.Fatalf("open %s: %v", path, err)
	}
	return out
}

// Failover asks for the end of the term that Status tells.
func (r *Raw) Failover() (*pb.FailoverResponse, error) {
	st, err := r.Admin.Status(r.t.Context(), &pb.StatusRequest{Caller: r.Who})
	if err != nil {
		return nil, err
	}
	return r.Admin.Failover(r.t.Context(), &pb.FailoverRequest{Caller: r.Who, Term: st.GetTerm()})
}

// TxID is the number of the last record: what changes nothing leaves it.
func (r *Raw) TxID() uint64 {
	r.t.Helper()
	out, err := r.Admin.Status(r.t.Context(), &pb.StatusRequest{Caller: r.Who})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.GetTxid()
}
