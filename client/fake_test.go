package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// fake is as much of a namenode and of a block store as the protocol needs:
// flat, in memory, with levers to make things go wrong.
type fake struct {
	pb.UnimplementedNamenodeServer
	pb.UnimplementedAdminServer

	soft, hard, renewEvery time.Duration
	blockSize, maxTail     int64
	urlLife                time.Duration
	role                   string // as Status tells
	silent                 bool   // keep-alives get no answer

	mu       sync.Mutex
	changed  *sync.Cond
	files    map[string]*fakeFile
	leases   map[uint64]bool
	inodes   map[uint64]*fakeFile
	objects  map[blockstore.Key][]byte
	minted   map[blockstore.Key]*pb.BlockIntent
	seq      uint64
	results  map[string]any // of calls, by session and seq
	calls    map[string]int // by method, without the service
	renewals []*pb.RenewLeaseRequest
	streams  map[int]context.CancelFunc
	urlGen   int // URLs of an older generation are refused
	puts     int
	gets     int

	// before may answer a call in place of the fake; after may lose the reply.
	before func(method string, req any) error
	after  func(method string, req any) error
	// put and get may answer HTTP in place of the store; 0: they continue.
	put func(n int) int
	get func(n int, key blockstore.Key) int
	// renew may change the answer to a renewal; false drops it.
	renew func(req *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool
}

type fakeFile struct {
	path   string
	inode  uint64
	blocks []*pb.Block
	tail   []byte
	open   *pb.WriterId // nil when closed
	mtime  int64
	lease  uint64
}

func (f *fakeFile) blocksLength() (n int64) {
	for _, b := range f.blocks {
		n += b.UsedLength
	}
	return n
}

func (f *fakeFile) length() int64 { return f.blocksLength() + int64(len(f.tail)) }

func newFake() *fake {
	f := &fake{
		soft: time.Minute, hard: 20 * time.Minute, renewEvery: 30 * time.Second,
		blockSize: 256 << 10, maxTail: 64 << 10, urlLife: 15 * time.Minute,
		files: map[string]*fakeFile{}, leases: map[uint64]bool{}, inodes: map[uint64]*fakeFile{}, objects: map[blockstore.Key][]byte{},
		minted: map[blockstore.Key]*pb.BlockIntent{}, results: map[string]any{}, calls: map[string]int{},
		streams: map[int]context.CancelFunc{},
	}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// pipes is a listener without a network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// network is a set of fakes by address.
type network struct {
	mu  sync.Mutex
	lis map[string]*pipes
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.lis[address]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.dial(ctx)
}

// serve starts the fake under an address and returns what stops it.
func (n *network) serve(address string, f *fake) (stop func()) {
	l := newPipes()
	n.mu.Lock()
	if n.lis == nil {
		n.lis = map[string]*pipes{}
	}
	n.lis[address] = l
	n.mu.Unlock()
	s := grpc.NewServer(grpc.UnaryInterceptor(f.unary), grpc.MaxRecvMsgSize(8<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	r := callstream.NewServer(context.Background(), callstream.AtOnce(f.unary), 1000).Register(s)
	pb.RegisterNamenodeServer(r, f)
	pb.RegisterAdminServer(r, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return func() {
		n.mu.Lock()
		delete(n.lis, address)
		n.mu.Unlock()
		s.Stop()
		<-done
	}
}

// start serves the fake under "nn" and connects to it.
func start(t *testing.T, f *fake, change ...func(*Config)) *FS {
	t.Helper()
	n := new(network)
	stop := n.serve("nn", f)
	t.Cleanup(stop)
	return connect(t, n, f, change...)
}

func connect(t *testing.T, n *network, f *fake, change ...func(*Config)) *FS {
	t.Helper()
	cfg := Config{
		Namenodes: []string{"nn"}, User: "tester", Client: "t", Host: "h", Timeout: 2 * time.Minute,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(n.dial)}, HTTPClient: &http.Client{Transport: f},
	}
	for _, c := range change {
		c(&cfg)
	}
	limit := cfg.Timeout
	cfg.Timeout, cfg.callTimeout = max(limit, time.Minute), limit // a short one is of calls: not of New, nor of one attempt
	fs, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	fs.cfg.Timeout = limit // calls look at it, and there is none yet
	t.Cleanup(func() {
		if err := fs.Close(); err != nil && !errors.Is(err, fserror.Closed) {
			t.Logf("close: %v", err)
		}
	})
	return fs
}

func (f *fake) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	f.mu.Lock()
	f.calls[method]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(method, req); err != nil {
			return nil, wire.ToStatus(err)
		}
	}
	var key string
	if c, ok := req.(interface{ GetCall() *pb.CallId }); ok {
		key = fmt.Sprintf("%x/%d", c.GetCall().GetSession(), c.GetCall().GetSeq())
		f.mu.Lock()
		done, ok := f.results[key]
		f.mu.Unlock()
		if ok {
			if after != nil {
				if err := after(method, req); err != nil {
					return nil, err
				}
			}
			if err, ok := done.(error); ok {
				return nil, wire.ToStatus(err)
			}
			return done, nil
		}
	}
	resp, err := h(ctx, req)
	if key != "" {
		f.mu.Lock()
		f.results[key] = resp
		if err != nil {
			f.results[key] = err
		}
		f.mu.Unlock()
	}
	if after != nil {
		if aerr := after(method, req); aerr != nil {
			return nil, aerr
		}
	}
	return resp, wire.ToStatus(err)
}

// count returns how often a method was called.
func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *fake) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// fence takes a file from its writer, as recovery does.
func (f *fake) fence(path string) {
	f.set(func() { f.files[path].open = nil })
}

// content is what a file has.
func (f *fake) content(path string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[path]
	if file == nil {
		return nil
	}
	var out []byte
	for _, b := range file.blocks {
		out = append(out, f.objects[keyOf(b.Term, b.Seq)][:b.UsedLength]...)
	}
	return append(out, file.tail...)
}

func (f *fake) isOpen(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files[path] != nil && f.files[path].open != nil
}

func (f *fake) Session(s grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	f.mu.Lock()
	f.calls["Session"]++
	before, soft, hard := f.before, f.soft, f.hard
	f.mu.Unlock()
	if before != nil {
		if err := before("Session", nil); err != nil {
			return wire.ToStatus(err)
		}
	}
	err := s.Send(&pb.SessionResponse{Kind: &pb.SessionResponse_Welcome{Welcome: &pb.Welcome{
		NamespaceId: "ns", Term: 1, SoftLimitMs: soft.Milliseconds(), HardLimitMs: hard.Milliseconds(),
		BlockSize: f.blockSize, MaxTail: f.maxTail, MaxMessage: 1 << 20, RenewEveryMs: f.renewEvery.Milliseconds(), SmallFile: 32 << 10,
	}}})
	for err == nil {
		var m *pb.SessionRequest
		if m, err = s.Recv(); err != nil {
			break
		}
		resp, ok := f.renewal(m.GetRenew())
		if ok {
			err = s.Send(&pb.SessionResponse{Kind: &pb.SessionResponse_Renewed{Renewed: resp}})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (f *fake) renewal(r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals = append(f.renewals, r)
	resp := &pb.RenewLeaseResponse{NextRenewalMs: f.renewEvery.Milliseconds(), Seq: r.GetSeq()}
	if f.renew != nil {
		return resp, f.renew(r, resp)
	}
	return resp, true
}

func (f *fake) RenewLease(_ context.Context, r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	resp, ok := f.renewal(r)
	if !ok {
		return nil, fserror.New(fserror.Retry, "", "", "not now")
	}
	return resp, nil
}

func (f *fake) opened(file *fakeFile, c *pb.Caller, closed bool) *pb.OpenResponse {
	f.seq++
	if !closed {
		file.open = &pb.WriterId{Inode: file.inode, Epoch: f.seq, Token: make([]byte, 16), Session: c.GetSession()}
	}
	return &pb.OpenResponse{Attr: f.attr(file), Writer: file.open, Length: file.length(), BlocksLength: file.blocksLength()}
}

func (f *fake) attr(file *fakeFile) *pb.Attr {
	a := &pb.Attr{Inode: file.inode, Type: pb.FileType_FILE_TYPE_FILE, Mode: 0o644, Length: file.length(), MtimeUnixMs: file.mtime}
	if file.open != nil {
		a.Open = &pb.OpenState{Epoch: file.open.Epoch, Holder: &pb.HolderInfo{Client: "t"}}
	}
	return a
}

func (f *fake) Create(_ context.Context, r *pb.CreateRequest) (*pb.OpenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[r.At.Path] != nil && !r.Overwrite {
		return nil, fserror.New(fserror.Exists, "", "", "it exists")
	}
	f.seq++
	file := &fakeFile{path: r.At.Path, inode: f.seq, tail: bytes.Clone(r.Data), mtime: r.MtimeUnixMs, lease: r.Lease}
	f.files[r.At.Path], f.inodes[file.inode] = file, file
	return f.opened(file, r.Caller, r.Close), nil
}

func (f *fake) Append(_ context.Context, r *pb.AppendRequest) (*pb.OpenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[r.At.Path]
	if file == nil && r.Writer != nil {
		file, _ = f.writer(r.Writer)
	}
	switch {
	case file == nil:
		return nil, fserror.New(fserror.NotFound, "", "", "not there")
	case file.open != nil && r.Writer == nil:
		return nil, &fserror.Error{Kind: fserror.Held, Holder: &fserror.Holder{Client: "x"}}
	case r.HasExpectedLength && r.ExpectedLength != file.length():
		return nil, &fserror.Error{Kind: fserror.NotAtEnd, Length: file.length()}
	}
	return f.opened(file, r.Caller, false), nil
}

func (f *fake) writer(w *pb.WriterId) (*fakeFile, error) {
	file := f.inodes[w.GetInode()]
	if file == nil || file.open == nil || file.open.Epoch != w.GetEpoch() {
		return nil, &fserror.Error{Kind: fserror.LeaseLost, Reason: "recovered", Message: "not yours any more"}
	}
	return file, nil
}

func (f *fake) AppendTail(_ context.Context, r *pb.AppendTailRequest) (*pb.AppendTailResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.writer(r.Writer)
	if err != nil {
		return nil, err
	}
	end := r.Offset + int64(len(r.Data))
	if start := r.Offset - file.blocksLength(); end == file.length() && start >= 0 && bytes.Equal(file.tail[start:], r.Data) {
		return &pb.AppendTailResponse{Length: end}, nil
	}
	switch {
	case blockstore.CRC(r.Data) != r.Crc32C:
		return nil, fserror.New(fserror.InvalidArgument, "", "", "crc")
	case r.Offset != file.length():
		return nil, &fserror.Error{Kind: fserror.NotAtEnd, Length: file.length()}
	case int64(len(file.tail)+len(r.Data)) > f.maxTail:
		return nil, fserror.New(fserror.TooLarge, "", "", "tail")
	}
	file.tail = append(file.tail, r.Data...)
	f.changed.Broadcast()
	return &pb.AppendTailResponse{Length: file.length()}, nil
}

func (f *fake) AllocateBlock(_ context.Context, r *pb.AllocateBlockRequest) (*pb.AllocateBlockResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.writer(r.Writer); err != nil {
		return nil, err
	}
	resp := new(pb.AllocateBlockResponse)
	for _, b := range r.Blocks {
		f.seq++
		f.minted[blockstore.Key{Term: 1, Seq: f.seq}] = b
		resp.Targets = append(resp.Targets, &pb.BlockTarget{Term: 1, Seq: f.seq, Url: fmt.Sprintf("http://store/put/%d", f.seq),
			Headers: map[string]string{"Content-Length": strconv.FormatInt(b.StoredLength, 10), "X-Signed": "yes"}})
	}
	return resp, nil
}

func (f *fake) Commit(_ context.Context, r *pb.CommitRequest) (*pb.CommitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.writer(r.Writer)
	if err != nil {
		return nil, err
	}
	if n := len(file.blocks); n > 0 && file.blocks[n-1].Seq == r.Block.Seq {
		return &pb.CommitResponse{Length: file.length(), BlocksLength: file.blocksLength()}, nil
	}
	object := f.objects[keyOf(r.Block.Term, r.Block.Seq)]
	covered := r.TailCovered
	switch {
	case object == nil:
		return nil, fserror.New(fserror.InvalidArgument, "", "", "not stored")
	case r.Offset != file.blocksLength():
		return nil, &fserror.Error{Kind: fserror.NotAtEnd, Length: file.blocksLength()}
	case covered > int64(len(file.tail)) || covered < int64(len(file.tail)) && covered != r.Block.UsedLength:
		return nil, fserror.New(fserror.InvalidArgument, "", "", "covers %d of %d", covered, len(file.tail))
	case blockstore.CRC(file.tail[:covered]) != r.TailCrc32C || !bytes.Equal(object[:covered], file.tail[:covered]):
		return nil, fserror.New(fserror.InvalidArgument, "", "", "other bytes than the tail's")
	}
	file.blocks = append(file.blocks, r.Block)
	file.tail = file.tail[covered:]
	f.changed.Broadcast()
	return &pb.CommitResponse{Length: file.length(), BlocksLength: file.blocksLength()}, nil
}

func (f *fake) Close(_ context.Context, r *pb.CloseRequest) (*pb.CloseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.writer(r.Writer)
	if err != nil {
		return nil, err
	}
	if r.Length >= 0 && r.Length != file.length()+int64(len(r.Data)) {
		return nil, &fserror.Error{Kind: fserror.NotAtEnd, Length: file.length()}
	}
	file.tail = append(file.tail, r.Data...)
	file.open, file.mtime = nil, r.MtimeUnixMs
	f.changed.Broadcast()
	return &pb.CloseResponse{Length: file.length()}, nil
}

func (f *fake) Recover(_ context.Context, r *pb.RecoverRequest) (*pb.RecoverResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[r.At.Path]
	if file == nil {
		return nil, fserror.New(fserror.NotFound, "", "", "not there")
	}
	was := file.open != nil
	file.open = nil
	f.changed.Broadcast()
	return &pb.RecoverResponse{WasOpen: was, Length: file.length()}, nil
}

func (f *fake) GetFile(_ context.Context, r *pb.GetFileRequest) (*pb.GetFileResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.files[r.At.Path]
	if r.At.Base != 0 {
		file = f.inodes[r.At.Base]
	}
	if file == nil {
		return nil, fserror.New(fserror.NotFound, "", "", "not there")
	}
	for r.WaitMs > 0 && file.length() <= r.WaitBeyond && file.open != nil && (!r.OrBelow || file.length() == r.WaitBeyond) {
		f.changed.Wait()
	}
	resp := &pb.GetFileResponse{Attr: f.attr(file), Path: file.path, TailOffset: file.blocksLength(), BlocksOffset: file.blocksLength(), UrlsExpireMs: f.urlLife.Milliseconds()}
	limit := int(r.MaxBlocks)
	if limit == 0 {
		limit = 4
	}
	at := int64(0)
	for _, b := range file.blocks {
		begin := at
		at += b.UsedLength
		if at <= r.Offset {
			continue
		}
		if len(resp.Blocks) == limit {
			resp.MoreBlocks = true
			return resp, nil
		}
		if len(resp.Blocks) == 0 {
			resp.BlocksOffset = begin
		}
		resp.Blocks = append(resp.Blocks, &pb.Block{Term: b.Term, Seq: b.Seq, StoredLength: b.StoredLength, UsedLength: b.UsedLength, Crc32C: b.Crc32C,
			Url: fmt.Sprintf("http://store/get/%d?gen=%d", b.Seq, f.urlGen)})
	}
	if from := max(r.Offset, resp.TailOffset); from < file.length() {
		resp.Tail = file.tail[from-resp.TailOffset:]
		resp.TailCrc32C = blockstore.CRC(resp.Tail)
	}
	return resp, nil
}

func (f *fake) Stat(_ context.Context, r *pb.StatRequest) (*pb.StatResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file := f.files[r.At.Path]; file != nil {
		return &pb.StatResponse{Attr: f.attr(file)}, nil
	}
	return nil, fserror.New(fserror.NotFound, "", "", "not there")
}

func (f *fake) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Role: f.role}, nil
}

func (f *fake) Mkdir(context.Context, *pb.MkdirRequest) (*pb.MutateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	return &pb.MutateResponse{Txid: f.seq}, nil
}

// RoundTrip is the block store.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answer := func(status int, body []byte) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Header: http.Header{}}, nil
	}
	seq, _ := strconv.ParseUint(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], 10, 64)
	key := blockstore.Key{Term: 1, Seq: seq}
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.puts++
		if f.put != nil {
			if s := f.put(f.puts); s != 0 {
				return answer(s, nil)
			}
		}
		b := f.minted[key]
		switch {
		case b == nil || b.StoredLength != int64(len(body)) || r.ContentLength != b.StoredLength || r.Header.Get("X-Signed") != "yes":
			return answer(http.StatusForbidden, nil)
		case blockstore.CRC(body) != b.Crc32C:
			return answer(http.StatusBadRequest, nil)
		case f.objects[key] != nil:
			return answer(http.StatusPreconditionFailed, nil)
		}
		f.objects[key] = body
		return answer(http.StatusOK, nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	if f.get != nil {
		if s := f.get(f.gets, key); s != 0 {
			return answer(s, nil)
		}
	}
	object := f.objects[key]
	switch {
	case r.URL.Query().Get("gen") != strconv.Itoa(f.urlGen):
		return answer(http.StatusForbidden, nil)
	case object == nil:
		return answer(http.StatusNotFound, nil)
	}
	var from, to int64
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
		if from >= int64(len(object)) {
			return answer(http.StatusRequestedRangeNotSatisfiable, nil)
		}
		return answer(http.StatusPartialContent, object[from:min(to+1, int64(len(object)))])
	}
	return answer(http.StatusOK, object)
}

func keyOf(term, seq uint64) blockstore.Key { return blockstore.Key{Term: term, Seq: seq} }
