package hdfs_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// raw is a client that makes any call.
type raw struct {
	t    *testing.T
	nc   net.Conn
	in   *bufio.Reader
	last int32

	retry int32 // what calls say of how often they were made before
}

const (
	clientProtocol = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
	haProtocol     = "org.apache.hadoop.ha.HAServiceProtocol"
)

// dial connects as a user, by another where that is not empty.
func dial(t *testing.T, s *hdfs.Server, user, by string) *raw {
	t.Helper()
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	check(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	check(t, nc.SetDeadline(time.Now().Add(5*time.Minute)))
	_, err = nc.Write([]byte("hrpc\x09\x00\x00"))
	check(t, err)
	r := &raw{t: t, nc: nc, in: bufio.NewReader(nc)}
	who := &pb.UserInformationProto{EffectiveUser: &user}
	if by != "" {
		who.RealUser = &by
	}
	r.send(-3, &pb.IpcConnectionContextProto{UserInfo: who})
	return r
}

func (r *raw) send(id int32, all ...proto.Message) {
	r.t.Helper()
	var b strings.Builder
	h := &pb.RpcRequestHeaderProto{RpcKind: proto.Int32(2), RpcOp: proto.Int32(0), CallId: &id, ClientId: []byte("0123456789abcdef"), RetryCount: &r.retry}
	for _, m := range append([]proto.Message{h}, all...) {
		_, err := protodelim.MarshalTo(&b, m)
		check(r.t, err)
	}
	_, err := r.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(b.Len())), b.String()...))
	check(r.t, err)
}

// refusal is an error of the gateway.
type refusal struct{ class, text string }

func (e *refusal) Error() string     { return e.class + ": " + e.text }
func (e *refusal) Exception() string { return e.class }

// call makes a call of a protocol.
func (r *raw) call(protocol, method string, request, answer proto.Message) error {
	r.t.Helper()
	r.last++
	r.send(r.last, &pb.RequestHeaderProto{MethodName: &method, DeclaringClassProtocolName: &protocol, ClientProtocolVersion: proto.Uint64(1)}, request)
	return r.reply(answer)
}

// reply reads the answer to a call.
func (r *raw) reply(answer proto.Message) error {
	r.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(r.in, size[:])
	check(r.t, err)
	in := bufio.NewReader(io.LimitReader(r.in, int64(binary.BigEndian.Uint32(size[:]))))
	var h pb.RpcResponseHeaderProto
	check(r.t, protodelim.UnmarshalFrom(in, &h))
	if h.GetStatus() != pb.RpcResponseHeaderProto_SUCCESS {
		return &refusal{h.GetExceptionClassName(), h.GetErrorMsg()}
	}
	check(r.t, protodelim.UnmarshalFrom(in, answer))
	return nil
}

// ask makes a call of ClientProtocol that has to succeed.
func ask[T any, M interface {
	*T
	proto.Message
}](r *raw, method string, request proto.Message, answer M,
) M {
	r.t.Helper()
	if err := r.call(clientProtocol, method, request, answer); err != nil {
		r.t.Fatalf("%s: %v", method, err)
	}
	return answer
}

func of(path string) *pb.PathRequestProto { return &pb.PathRequestProto{Src: &path} }

func write(t *testing.T, c *native.Client, name string, b []byte, blockSize int64) {
	t.Helper()
	w, err := c.CreateFile(name, 1, blockSize, 0o644)
	check(t, err)
	_, err = w.Write(b)
	check(t, err, w.Close())
}

// TestCallsOfOthers: calls that Hadoop's Java client makes and the Go client does not.
func TestCallsOfOthers(t *testing.T) {
	_, s := start(t)
	write(t, connect(t, s, "root"), "/f", make([]byte, 2500), 1024)
	r := dial(t, s, "root", "")

	st := ask(r, "getLocatedFileInfo", &pb.GetLocatedFileInfoRequestProto{Src: proto.String("/f")}, new(pb.StatusResponseProto)).GetFs()
	if n := len(st.GetLocations().GetBlocks()); n != 3 || st.GetBlocksize() != 1024 || st.GetBlockReplication() != 1 || st.GetLength() != 2500 {
		t.Errorf("%d blocks of %v", n, st)
	}
	byInode := fmt.Sprint("/.reserved/.inodes/", st.GetFileId())
	check(t, connect(t, s, "root").Rename("/f", "/g"))
	if again := ask(r, "getLocatedFileInfo", &pb.GetLocatedFileInfoRequestProto{Src: &byInode}, new(pb.StatusResponseProto)).GetFs(); again.GetFileId() != st.GetFileId() || len(again.GetLocations().GetBlocks()) != 3 {
		t.Errorf("by inode: %v", again)
	}
	for _, path := range []string{"/.reserved/.inodes/", "/.reserved/.inodes/x", "/.reserved/.inodes/0", "/.reserved/.inodes/-1"} {
		wantClass(t, path, r.call(clientProtocol, "getFileInfo", of(path), new(pb.StatusResponseProto)), "org.apache.hadoop.fs.InvalidPathException")
	}
	if fs := ask(r, "getFileInfo", of("/none"), new(pb.StatusResponseProto)).GetFs(); fs != nil {
		t.Errorf("of nothing: %v", fs)
	}
	if fs := ask(r, "getFileInfo", of("/g/below"), new(pb.StatusResponseProto)).GetFs(); fs != nil {
		t.Errorf("of what is below a file: %v", fs)
	}

	ask(r, "createSymlink", &pb.CreateSymlinkRequestProto{Target: proto.String("/g"), Link: proto.String("/a/b/link"), DirPerm: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(true)}, new(pb.EmptyProto))
	if got := ask(r, "getLinkTarget", of("/a/b/link"), new(pb.TextResponseProto)).GetText(); got != "/g" {
		t.Errorf("target %q", got)
	}
	if fs := ask(r, "getFileLinkInfo", of("/a/b/link"), new(pb.StatusResponseProto)).GetFs(); fs.GetFileType() != pb.HdfsFileStatusProto_IS_SYMLINK || string(fs.GetSymlink()) != "/g" {
		t.Errorf("a link: %v", fs)
	}
	if fs := ask(r, "getFileInfo", of("/a/b/link"), new(pb.StatusResponseProto)).GetFs(); fs.GetFileId() != st.GetFileId() {
		t.Errorf("followed: %v", fs)
	}

	l := ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/"), StartAfter: []byte{}, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList()
	if p := l.GetPartialListing(); len(p) != 2 || string(p[0].GetPath()) != "a" || p[0].GetLocations() != nil || string(p[1].GetPath()) != "g" || len(p[1].GetLocations().GetBlocks()) != 3 || l.GetRemainingEntries() != 0 {
		t.Errorf("a listing with blocks: %v", l)
	}
	l = ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/g"), StartAfter: []byte{}, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList()
	if p := l.GetPartialListing(); len(p) != 1 || len(p[0].GetPath()) != 0 || len(p[0].GetLocations().GetBlocks()) != 3 {
		t.Errorf("a listing of a file: %v", l)
	}
	if l := ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/none"), StartAfter: []byte{}, NeedLocation: proto.Bool(false)}, new(pb.GetListingResponseProto)); l.GetDirList() != nil {
		t.Errorf("a listing of nothing: %v", l)
	}

	if !ask(r, "isFileClosed", of("/g"), new(pb.BoolResponseProto)).GetResult() {
		t.Error("a closed file is open")
	}
	wantClass(t, "a directory", r.call(clientProtocol, "isFileClosed", of("/a"), new(pb.BoolResponseProto)), "java.io.FileNotFoundException")
	wantClass(t, "too long", r.call(clientProtocol, "truncate", &pb.TruncateRequestProto{Src: proto.String("/g"), NewLength: proto.Uint64(9999), ClientName: proto.String("c")}, new(pb.BoolResponseProto)), "org.apache.hadoop.HadoopIllegalArgumentException")
	wantClass(t, "open of a directory", r.call(clientProtocol, "getBlockLocations", &pb.GetBlockLocationsRequestProto{Src: proto.String("/a"), Offset: proto.Uint64(0), Length: proto.Uint64(1)}, new(pb.EmptyProto)), "java.io.FileNotFoundException")
	if !ask(r, "setReplication", &pb.SetReplicationRequestProto{Src: proto.String("/g"), Replication: proto.Uint32(2)}, new(pb.BoolResponseProto)).GetResult() {
		t.Error("replication was not kept")
	}
	if st := ask(r, "getFileInfo", of("/g"), new(pb.StatusResponseProto)).GetFs(); st.GetBlockReplication() != 2 || st.GetBlocksize() != 1024 {
		t.Errorf("%v", st)
	}
	if n := ask(r, "getPreferredBlockSize", of("/g"), new(pb.GetPreferredBlockSizeResponseProto)).GetBsize(); n != 1024 {
		t.Errorf("block size %d", n)
	}
	if ask(r, "setSafeMode", &pb.SetSafeModeRequestProto{Action: pb.SetSafeModeRequestProto_SAFEMODE_GET.Enum()}, new(pb.BoolResponseProto)).GetResult() {
		t.Error("safe mode is on")
	}
	if di := ask(r, "getDatanodeReport", &pb.GetDatanodeReportRequestProto{Type: proto.Int32(2)}, new(pb.GetDatanodeReportResponseProto)).GetDi(); len(di) != 1 || net.JoinHostPort(di[0].GetId().GetIpAddr(), fmt.Sprint(di[0].GetId().GetXferPort())) != s.DataAddr() || di[0].GetCapacity() == 0 {
		t.Errorf("%v", di)
	}
	if acl := ask(r, "getAclStatus", of("/g"), new(pb.GetAclStatusResponseProto)).GetResult(); acl.GetOwner() != "root" || acl.GetPermission().GetPerm() != 0o644 || len(acl.GetEntries()) != 0 {
		t.Errorf("%v", acl)
	}
	ask(r, "checkAccess", &pb.CheckAccessRequestProto{Path: proto.String("/g"), Mode: proto.Uint32(6)}, new(pb.EmptyProto))
	var v pb.VersionResponseProto
	check(t, r.call("org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol", "versionRequest", new(pb.EmptyProto), &v))
	if pool := st.GetLocations().GetBlocks()[0].GetB().GetPoolId(); v.GetInfo().GetBlockPoolID() != pool {
		t.Errorf("pools %q and %q", v.GetInfo().GetBlockPoolID(), pool)
	}

	wantClass(t, "an unknown method", r.call(clientProtocol, "fly", new(pb.EmptyProto), new(pb.EmptyProto)), "org.apache.hadoop.ipc.RpcNoSuchMethodException")
	wantClass(t, "an unknown protocol", r.call("x.Y", "getFileInfo", new(pb.EmptyProto), new(pb.EmptyProto)), "org.apache.hadoop.ipc.RpcNoSuchProtocolException")
	wantClass(t, "a call without its path", r.call(clientProtocol, "getFileInfo", new(pb.EmptyProto), new(pb.EmptyProto)), "org.apache.hadoop.ipc.RpcServerException")
	wantClass(t, "a relative path", r.call(clientProtocol, "getFileInfo", of("x"), new(pb.StatusResponseProto)), "org.apache.hadoop.fs.InvalidPathException")
}

// TestOpenFiles: a file that is written is its client's, and blocks of others lead nowhere.
func TestOpenFiles(t *testing.T) {
	n, s := start(t)
	r := dial(t, s, "root", "")
	create := func(name, by string, flag uint32) (*pb.StatusResponseProto, error) {
		var st pb.StatusResponseProto
		err := r.call(clientProtocol, "create", &pb.CreateRequestProto{
			Src: &name, ClientName: &by, CreateFlag: &flag, Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o644)}, CreateParent: proto.Bool(true),
			Replication: proto.Uint32(3), BlockSize: proto.Uint64(128 << 20),
		}, &st)
		return &st, err
	}
	st, err := create("/d/f", "first\xff", 1)
	check(t, err)
	_, err = create("/d/f", "other", 1)
	wantClass(t, "create of an open file", err, "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException")
	for what, flag := range map[string]uint32{"append": 5} {
		_, err = create("/d/g", "other", flag)
		wantClass(t, what, err, "org.apache.hadoop.HadoopIllegalArgumentException")
	}
	_, err = create("/d/g", strings.Repeat("x", 256), 1)
	wantClass(t, "a long name", err, "org.apache.hadoop.HadoopIllegalArgumentException")
	_, err = create("/d/g", "other", 2)
	wantClass(t, "overwrite of nothing", err, "java.io.FileNotFoundException")

	fs, err := client.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}, User: "root"})
	check(t, err)
	defer fs.Close()
	i, err := fs.Stat(t.Context(), "/d/f")
	check(t, err)
	if i.Open == nil || i.Open.Holder.Client != `first\xff` || i.Open.Holder.User != "root" {
		t.Errorf("the holder is %+v", i.Open)
	}
	if _, err := fs.Append(t.Context(), "/d/f"); fserror.KindOf(err) != fserror.Held {
		t.Errorf("another program's append: %v", err)
	}
	if ask(r, "isFileClosed", of("/d/f"), new(pb.BoolResponseProto)).GetResult() {
		t.Error("an open file is closed")
	}
	add := func(b *pb.ExtendedBlockProto) (*pb.LocatedBlockProto, error) {
		var a pb.BlockResponseProto
		err := r.call(clientProtocol, "addBlock", &pb.AddBlockRequestProto{Src: proto.String("/d/f"), ClientName: proto.String("first\xff"), Previous: b, FileId: st.GetFs().FileId}, &a)
		return a.GetBlock(), err
	}
	b, err := add(nil)
	check(t, err)
	foreign := proto.CloneOf(b.GetB())
	foreign.PoolId = proto.String("leasefs-another")
	_, err = add(foreign)
	wantClass(t, "a block of another namespace", err, "java.io.IOException")
	for user, told := range map[string]bool{"root": true, "ann": false} { // who is told whose file it is
		err := dial(t, s, user, "").call(clientProtocol, "fsync", &pb.FsyncRequestProto{Src: proto.String("/x"), Client: proto.String("other"), FileId: st.GetFs().FileId}, new(pb.EmptyProto))
		wantClass(t, "a file of another client", err, "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException")
		if told != strings.Contains(err.Error(), "first") || told != strings.Contains(err.Error(), "root") {
			t.Errorf("%s is told: %v", user, err)
		}
	}
	ask(r, "renewLease", of("first\xff"), new(pb.EmptyProto))
	if !ask(r, "recoverLease", &pb.RecoverLeaseRequestProto{Src: proto.String("/d/f"), ClientName: proto.String("other")}, new(pb.BoolResponseProto)).GetResult() {
		t.Error("not recovered")
	}
	_, err = add(b.GetB())
	wantClass(t, "a block after recovery", err, "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException")
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestReportsOfBadBlocks: nobody can fill the log with them.
func TestReportsOfBadBlocks(t *testing.T) {
	log, begin := new(lines), time.Now()
	_, s := start(t, func(c *hdfs.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	r := dial(t, s, "root", "")
	bad := &pb.LocatedBlockProto{B: &pb.ExtendedBlockProto{PoolId: proto.String("p"), BlockId: proto.Uint64(1), GenerationStamp: proto.Uint64(1)}, Offset: proto.Uint64(0), Corrupt: proto.Bool(true), BlockToken: &pb.TokenProto{Identifier: []byte{}, Password: []byte{}, Kind: proto.String(""), Service: proto.String("")}}
	for range 20 {
		ask(r, "reportBadBlocks", &pb.ReportBadBlocksRequestProto{Blocks: []*pb.LocatedBlockProto{bad, bad, bad}}, new(pb.EmptyProto))
	}
	if n, most := log.count("do not match their checksum"), 1+int(time.Since(begin)/time.Minute); n < 1 || n > most {
		t.Errorf("%d lines, want 1 to %d", n, most)
	}
}

// TestProxies: who acts for another has to be allowed to.
func TestProxies(t *testing.T) {
	_, s := start(t, func(c *hdfs.Config) { c.Proxies = []string{"knox", "hue users=ann", "far from=192.0.2.1"} })
	r := dial(t, s, "root", "knox")
	ask(r, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/d"), Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(true)}, new(pb.BoolResponseProto))
	if st := ask(r, "getFileInfo", of("/d"), new(pb.StatusResponseProto)).GetFs(); st.GetOwner() != "root" {
		t.Errorf("%v", st)
	}
	if st := ask(dial(t, s, "ann", "hue"), "getFileInfo", of("/d"), new(pb.StatusResponseProto)).GetFs(); st.GetOwner() != "root" {
		t.Errorf("%v", st)
	}
	for by, text := range map[string]string{
		"eve": "User: eve is not allowed to impersonate root", "hue": "User: hue is not allowed to impersonate root",
		"far": "Unauthorized connection for super-user: far from IP 127.0.0.1",
	} {
		r = dial(t, s, "root", by)
		var size [4]byte
		_, err := io.ReadFull(r.in, size[:])
		check(t, err)
		var h pb.RpcResponseHeaderProto
		check(t, protodelim.UnmarshalFrom(r.in, &h))
		if h.GetStatus() != pb.RpcResponseHeaderProto_FATAL || !strings.Contains(h.GetErrorMsg(), text) {
			t.Errorf("%s: %v", by, &h)
		}
		if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
			t.Errorf("%s: the connection did not end: %q, %v", by, rest, err)
		}
	}
}

// TestTwoGateways: a client that knows two continues by the second when the first is gone.
func TestTwoGateways(t *testing.T) {
	n, a := start(t)
	cfg := hdfs.Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0", Data: "127.0.0.1:0"}
	b, err := hdfs.Start(t.Context(), cfg)
	check(t, err)
	c, err := native.NewClient(native.ClientOptions{Addresses: []string{b.Addr(), a.Addr()}, User: "root"})
	check(t, err)
	defer func() { _ = c.Close() }()
	data := []byte("some bytes")
	write(t, c, "/f", data, 1<<20)
	check(t, b.Close(t.Context()))
	env.Eventually(t, "the other gateway answers", func() bool { // the first call finds the connection broken
		got, err := c.ReadFile("/f")
		return err == nil && string(got) == string(data)
	})
}

// TestNoNamenode: while none answers, a client is told to try again, and then it works.
func TestNoNamenode(t *testing.T) {
	_, s := start(t, func(c *hdfs.Config) {
		c.Client.Namenodes, c.Client.Timeout = []string{"127.0.0.1:1"}, time.Second
	})
	r := dial(t, s, "root", "")
	wantClass(t, "no namenode", r.call(clientProtocol, "getFileInfo", of("/"), new(pb.StatusResponseProto)), "org.apache.hadoop.ipc.RetriableException")
}

// TestNoNamenodeOfOne: a client who knows another gateway is sent there when no namenode answers
// this one, before it opened a session for him and after.
func TestNoNamenodeOfOne(t *testing.T) {
	n, s := start(t, func(c *hdfs.Config) { c.Client.Timeout, c.Pair = time.Second, true })
	root := dial(t, s, "root", "")
	healthy := func(r *raw) (state pb.HAServiceStateProto, err error) {
		t.Helper()
		st := new(pb.GetServiceStatusResponseProto)
		check(t, r.call(haProtocol, "getServiceStatus", new(pb.EmptyProto), st))
		return st.GetState(), r.call(haProtocol, "monitorHealth", new(pb.EmptyProto), new(pb.EmptyProto))
	}
	answers := func() bool { // in a second, which a busy machine may take, and gRPC tries to connect after a while
		return root.call(clientProtocol, "getFileInfo", of("/"), new(pb.StatusResponseProto)) == nil
	}
	env.Eventually(t, "a namenode answers", answers)
	env.Eventually(t, "it says that it is active", func() bool {
		state, err := healthy(root)
		return state == pb.HAServiceStateProto_ACTIVE && err == nil
	})
	n.Stop(t)
	for _, user := range []string{"root", "ann"} {
		r := dial(t, s, user, "")
		wantClass(t, user, r.call(clientProtocol, "getFileInfo", of("/"), new(pb.StatusResponseProto)), hadoop.Standby)
		state, err := healthy(r)
		if wantClass(t, user, err, hadoop.HealthCheckFailed); state != pb.HAServiceStateProto_STANDBY {
			t.Errorf("%s is told that the gateway is %s", user, state)
		}
	}
	n.Start(t)
	env.Eventually(t, "it finds the namenode again", answers)
	var err error
	env.Eventually(t, "a rename is answered", func() bool {
		err = root.call(clientProtocol, "rename2", &pb.Rename2RequestProto{Src: proto.String("/none"), Dst: proto.String("/g"), OverwriteDest: proto.Bool(false)}, new(pb.EmptyProto))
		var r *refusal
		return !errors.As(err, &r) || r.class != hadoop.Standby
	})
	wantClass(t, "another error", err, hadoop.FileNotFound)
}

// noStore is a block store that takes nothing.
type noStore struct{}

func (noStore) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Body: http.NoBody}, nil
}

// TestNoBlockStoreOfOne: where only the block store does not serve, a client is not sent to another gateway, which
// would have no other one.
func TestNoBlockStoreOfOne(t *testing.T) {
	_, s := start(t, func(c *hdfs.Config) {
		c.Client.Timeout, c.Pair, c.Client.HTTPClient = time.Minute, true, &http.Client{Transport: noStore{}}
	})
	open, all := s.Tables()
	u, err := all.Get(t.Context(), users.Key{User: "root"})
	check(t, err)
	defer all.Release(u)
	o, err := open.Create(t.Context(), u, "c", "/f", files.Create{Mode: 0o644, Create: true})
	check(t, err)
	b, err := open.AddBlock(t.Context(), u, "c", "/f", o.Info.Inode, nil)
	check(t, err)
	id, password := open.Token(u, b, true)
	g, err := open.Check(id, password, b.ID, true)
	check(t, err)
	p, err := open.Pipe(t.Context(), g, files.Setup{Block: b, Empty: true})
	check(t, err)
	defer p.Close()
	_, err = p.Write(0, random(2<<20, 1)) // more than goes to the namenode
	check(t, err)
	err = dial(t, s, "root", "").call(clientProtocol, "fsync", &pb.FsyncRequestProto{Src: proto.String("/f"), Client: proto.String("c"), FileId: &o.Info.Inode}, new(pb.EmptyProto))
	wantClass(t, "no block store", err, hadoop.Retriable)
	if err == nil || !strings.Contains(err.Error(), "could not be stored") {
		t.Error(err)
	}
}

// TestConfigRefused: what makes no sense is an error that says so.
func TestConfigRefused(t *testing.T) {
	for what, cfg := range map[string]hdfs.Config{
		"an address of others": {Listen: "0.0.0.0:0", Data: "127.0.0.1:0"},
		"a data address":       {Listen: "127.0.0.1:0", Data: "0.0.0.0:0"},
		"open files":           {Listen: "127.0.0.1:0", Data: "127.0.0.1:0", Open: -1},
		"silence":              {Listen: "127.0.0.1:0", Data: "127.0.0.1:0", Idle: time.Millisecond},
	} {
		if _, err := hdfs.Start(t.Context(), cfg); fserror.KindOf(err) != fserror.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := hdfs.Start(t.Context(), hdfs.Config{Listen: "127.0.0.1:99999"}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("no address: %v", err)
	}
}

// TestManyEntries: a listing of more than one page, by a client that asks for the rest.
func TestManyEntries(t *testing.T) {
	n, s := start(t)
	fs, err := client.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}, User: "root"})
	check(t, err)
	defer fs.Close()
	check(t, fs.Mkdir(t.Context(), "/many", 0o755))
	var all []client.FileData
	for i := range 1100 {
		all = append(all, client.FileData{Path: fmt.Sprintf("/many/f%04d", i), Data: []byte("x")})
	}
	_, err = fs.WriteFiles(t.Context(), all)
	check(t, err)
	l, err := connect(t, s, "root").ReadDir("/many")
	check(t, err)
	if len(l) != 1100 {
		t.Fatalf("%d entries", len(l))
	}
	for i, e := range l {
		if e.Name() != fmt.Sprintf("f%04d", i) || e.Size() != 1 {
			t.Fatalf("entry %d is %s of %d bytes", i, e.Name(), e.Size())
		}
	}
	r := dial(t, s, "root", "")
	names, after := 0, []byte{}
	for {
		d := ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/many"), StartAfter: after, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList()
		for _, e := range d.GetPartialListing() {
			if len(e.GetLocations().GetBlocks()) != 1 {
				t.Fatalf("%s: %v", e.GetPath(), e.GetLocations())
			}
			names++
			after = e.GetPath()
		}
		if d.GetRemainingEntries() == 0 {
			break
		}
	}
	if names != 1100 {
		t.Errorf("%d entries with blocks", names)
	}
}

// TestListingOfManyBlocks: a page of a listing has few files if these have many blocks, so
// that who makes files of small blocks cannot have one answer take a gigabyte.
func TestListingOfManyBlocks(t *testing.T) {
	n, s := start(t)
	fs, err := client.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}, User: "root"})
	check(t, err)
	defer fs.Close()
	check(t, fs.Mkdir(t.Context(), "/many", 0o755))
	const all, each = 20, 6000
	for i := range all {
		name := fmt.Sprintf("/many/f%02d", i)
		check(t, fs.WriteFile(t.Context(), name, make([]byte, each)))
		check(t, fs.Xattrs(name).Set(t.Context(), hadoop.AttrXattr, []byte("blocksize=1"), client.XattrAny))
	}
	r := dial(t, s, "root", "")
	names, after := 0, []byte{}
	for {
		d := ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/many"), StartAfter: after, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList()
		blocks := 0
		for _, e := range d.GetPartialListing() {
			if len(e.GetLocations().GetBlocks()) != each {
				t.Fatalf("%s has %d blocks", e.GetPath(), len(e.GetLocations().GetBlocks()))
			}
			blocks += each
			names++
			after = e.GetPath()
		}
		if blocks == 0 || blocks > 2*10_000 {
			t.Fatalf("a page with %d blocks", blocks)
		}
		if d.GetRemainingEntries() == 0 {
			break
		}
	}
	if names != all {
		t.Errorf("%d entries with blocks", names)
	}
}

// TestAnswersWithManyBlocks: who asks for many blocks and reads no answer has three quarters
// of the room for these; another user has his answer, and all that wait have theirs in the end,
// whole, or are told to try again.
func TestAnswersWithManyBlocks(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	for path, blocks := range map[string]int{"/many": 10_000, "/few": 3} {
		check(t, fs.WriteFile(t.Context(), path, make([]byte, blocks)))
		check(t, fs.Xattrs(path).Set(t.Context(), hadoop.AttrXattr, []byte("blocksize=1"), client.XattrAny))
	}
	method, protocol := "getBlockLocations", clientProtocol
	of := func(path string) *pb.GetBlockLocationsRequestProto {
		return &pb.GetBlockLocationsRequestProto{Src: &path, Offset: proto.Uint64(0), Length: proto.Uint64(1 << 40)}
	}
	const calls, most = 20, 7 // 7 x 10,000 are less than 3/4 of 100,000
	greedy := dial(t, s, "root", "")
	for id := range int32(calls) {
		greedy.send(id, &pb.RequestHeaderProto{MethodName: &method, DeclaringClassProtocolName: &protocol, ClientProtocolVersion: proto.Uint64(1)}, of("/many"))
	}
	env.Eventually(t, "one user has all that he may", func() bool {
		used := s.Located()
		if used > most*10_000 {
			t.Fatalf("answers describe %d blocks", used)
		}
		return used == most*10_000
	})
	if l := ask(dial(t, s, "ann", ""), method, of("/few"), new(pb.GetBlockLocationsResponseProto)).GetLocations(); len(l.GetBlocks()) != 3 || l.GetBlocks()[2].GetOffset() != 2 || l.GetLastBlock().GetOffset() != 2 {
		t.Errorf("another user is told %v", l)
	}
	whole := 0
	for range calls {
		var l pb.GetBlockLocationsResponseProto
		err := greedy.reply(&l)
		if err != nil {
			wantClass(t, "who has waited for long", err, "org.apache.hadoop.ipc.RetriableException")
			continue
		}
		whole++
		if n := len(l.GetLocations().GetBlocks()); n != 10_000 {
			t.Fatalf("an answer has %d blocks", n)
		}
	}
	if whole < most {
		t.Errorf("%d answers are whole", whole)
	}
	env.Eventually(t, "all room is given back", func() bool { return s.Located() == 0 })
}
