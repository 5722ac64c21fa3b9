package data_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/data"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for how long a test waits for what has to come, on a machine that stalls.
const patience = 60 * time.Second

// rig is a namenode, and what a gateway has without the calls.
type rig struct {
	t     testing.TB
	nn    *env.Namenode
	users *users.Table
	files *files.Table
	srv   *data.Server
	u     *users.User
	fs    *client.FS
}

func start(t testing.TB, mods ...func(*data.Config)) *rig {
	t.Helper()
	nn := env.Start(t)
	r := gateway(t, nn, nil, mods...)
	r.fs = nn.Client(t)
	return r
}

// gateway starts one, which ends with the test or by end.
func gateway(t testing.TB, nn *env.Namenode, key []byte, mods ...func(*data.Config)) *rig {
	t.Helper()
	life, kill := context.WithCancel(context.Background()) //nolint:usetesting // it ends after the test
	r := &rig{t: t, nn: nn, users: users.New(life, client.Config{Namenodes: []string{nn.Addr()}, WriteAhead: 1, ReadAhead: 1, Timeout: patience / 2}, 100, nil)}
	r.files = files.New(files.Config{Users: r.users, Key: key})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := data.Config{Files: r.files, Users: r.users, Listener: l}
	for _, mod := range mods {
		mod(&cfg)
	}
	r.srv = data.Start(cfg)
	if r.u, err = r.users.Get(t.Context(), users.Key{User: "root"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience) //nolint:usetesting // the test's own is over
		defer cancel()
		r.files.Close(ctx)
		r.users.Release(r.u)
		r.users.Close()
		kill()
	})
	return r
}

// kib is the block size of most tests.
const kib = 1 << 10

// create makes a file with blocks of so many bytes and asks for its first block.
func (r *rig) create(name, path string, size int64) (inode uint64, b files.Block) {
	r.t.Helper()
	o, err := r.files.Create(r.t.Context(), r.u, name, path, files.Create{Mode: 0o644, Create: true, CreateParent: true, Attr: hadoop.Attr{BlockSize: size}})
	if err != nil {
		r.t.Fatal(err)
	}
	return o.Info.Inode, r.add(name, o.Info.Inode, nil)
}

func (r *rig) add(name string, inode uint64, previous *files.Block) files.Block {
	r.t.Helper()
	b, err := r.files.AddBlock(r.t.Context(), r.u, name, "/f", inode, previous)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) complete(name string, inode uint64, last *files.Block) {
	r.t.Helper()
	if done, err := r.files.Complete(r.t.Context(), r.u, name, "/f", inode, last); err != nil || !done {
		r.t.Fatalf("complete: %v %v", done, err)
	}
}

// holds fails the test unless a reader of the library sees just these bytes.
func (r *rig) holds(path string, want []byte) {
	r.t.Helper()
	got, err := r.fs.ReadFile(r.t.Context(), path)
	if err != nil || !bytes.Equal(got, want) {
		r.t.Fatalf("%s has %d bytes, or others, want %d: %v", path, len(got), len(want), err)
	}
}

func (r *rig) kind(what string, err error, want fserror.Kind) {
	r.t.Helper()
	if err == nil || fserror.KindOf(err) != want {
		r.t.Fatalf("%s: %v, want %s", what, err, want)
	}
}

// wire is a data connection as a client has it.
type wire struct {
	net.Conn
	t     testing.TB
	in    *bufio.Reader
	seqno int64
}

func (r *rig) dial() *wire {
	r.t.Helper()
	c, err := net.Dial("tcp", r.srv.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { c.Close() })
	return &wire{Conn: c, t: r.t, in: bufio.NewReader(c)}
}

func (w *wire) op(code byte, m proto.Message) {
	w.t.Helper()
	var b bytes.Buffer
	b.Write([]byte{0, 28, code})
	if _, err := protodelim.MarshalTo(&b, m); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) receive(m proto.Message) {
	w.t.Helper()
	if err := protodelim.UnmarshalFrom(w.in, m); err != nil {
		w.t.Fatal(err)
	}
}

// response expects one with a status.
func (w *wire) response(want pb.Status) *pb.BlockOpResponseProto {
	w.t.Helper()
	m := new(pb.BlockOpResponseProto)
	w.receive(m)
	if m.GetStatus() != want {
		w.t.Fatalf("the answer is %s %q, want %s", m.GetStatus(), m.GetMessage(), want)
	}
	return m
}

func (r *rig) header(b files.Block, write bool) *pb.ClientOperationHeaderProto {
	id, password := r.files.Token(r.u, b, write)
	return &pb.ClientOperationHeaderProto{
		BaseHeader: &pb.BaseHeaderProto{
			Block: &pb.ExtendedBlockProto{PoolId: proto.String("p"), BlockId: proto.Uint64(uint64(b.ID)), GenerationStamp: proto.Uint64(uint64(b.Stamp)), NumBytes: proto.Uint64(uint64(b.Length))},
			Token: &pb.TokenProto{Identifier: id, Password: password, Kind: proto.String(files.TokenKind), Service: proto.String("")},
		},
		ClientName: proto.String("DFSClient_x"),
	}
}

// request is one to write a block.
func (r *rig) request(b files.Block, stage pb.OpWriteBlockProto_BlockConstructionStage, stamp, least, most int64) *pb.OpWriteBlockProto {
	return &pb.OpWriteBlockProto{
		Header: r.header(b, true), Stage: stage.Enum(), PipelineSize: proto.Uint32(1), LatestGenerationStamp: proto.Uint64(uint64(stamp)),
		MinBytesRcvd: proto.Uint64(uint64(least)), MaxBytesRcvd: proto.Uint64(uint64(most)),
		RequestedChecksum: &pb.ChecksumProto{Type: pb.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(), BytesPerChecksum: proto.Uint32(512)},
	}
}

// closed makes a closed file of one block, not full.
func (r *rig) closed(path string, bytes []byte) (inode uint64, b files.Block) {
	r.t.Helper()
	inode, b = r.create("c", path, 4*kib)
	w := r.writing(b)
	w.put(0, bytes)
	b.Length = int64(len(bytes))
	w.finish(b.Length)
	r.complete("c", inode, &b)
	return inode, b
}

// pipe is how the first bytes of a block get into its file.
func (r *rig) pipe(b files.Block) *files.Pipe {
	r.t.Helper()
	id, password := r.files.Token(r.u, b, true)
	g, err := r.files.Check(id, password, b.ID, true)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.files.Pipe(r.t.Context(), g, files.Setup{Block: b, Empty: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// writing is a connection on which the server takes packets for an empty block.
func (r *rig) writing(b files.Block) *wire {
	r.t.Helper()
	w := r.dial()
	w.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_CREATE, 0, 0, 0))
	w.response(pb.Status_SUCCESS)
	return w
}

// packet makes one.
func (w *wire) packet(offset int64, b []byte, last, sync bool) []byte {
	head, err := proto.Marshal(&pb.PacketHeaderProto{OffsetInBlock: &offset, Seqno: &w.seqno, LastPacketInBlock: &last, DataLen: proto.Int32(int32(len(b))), SyncBlock: &sync})
	if err != nil {
		w.t.Fatal(err)
	}
	var sums []byte
	for at := 0; at < len(b); at += 512 {
		sums = binary.BigEndian.AppendUint32(sums, crc32.Checksum(b[at:min(at+512, len(b))], crc32.MakeTable(crc32.Castagnoli)))
	}
	p := binary.BigEndian.AppendUint32(nil, uint32(4+len(sums)+len(b)))
	p = binary.BigEndian.AppendUint16(p, uint16(len(head)))
	p = append(append(append(p, head...), sums...), b...)
	w.seqno++
	return p
}

// send sends one, and returns its number.
func (w *wire) send(offset int64, b []byte, last bool) int64 {
	w.t.Helper()
	if _, err := w.Write(w.packet(offset, b, last, false)); err != nil {
		w.t.Fatal(err)
	}
	return w.seqno - 1
}

// acked expects the acknowledgement of a packet.
func (w *wire) acked(seqno int64, want pb.Status) {
	w.t.Helper()
	m := new(pb.PipelineAckProto)
	w.receive(m)
	if m.GetSeqno() != seqno || len(m.GetReply()) != 1 || m.GetReply()[0] != want {
		w.t.Fatalf("acknowledged: %v, want packet %d to be %s", m, seqno, want)
	}
}

// put sends bytes, and waits until they are acknowledged.
func (w *wire) put(offset int64, b []byte) {
	w.t.Helper()
	w.acked(w.send(offset, b, false), pb.Status_SUCCESS)
}

// finish ends a block.
func (w *wire) finish(offset int64) {
	w.t.Helper()
	w.acked(w.send(offset, nil, true), pb.Status_SUCCESS)
}

// ends expects that the server closes the connection.
func (w *wire) ends() {
	w.t.Helper()
	for {
		if _, err := w.in.ReadByte(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.t.Fatal("the connection is still open")
			}
			return
		}
	}
}

// read reads a range of a block as clients do.
func (r *rig) read(b files.Block, offset, length int64, checksums bool) []byte {
	r.t.Helper()
	w := r.dial()
	return w.read(r, b, offset, length, checksums)
}

func (w *wire) read(r *rig, b files.Block, offset, length int64, checksums bool) []byte {
	w.t.Helper()
	w.op(81, &pb.OpReadBlockProto{Header: r.header(b, false), Offset: proto.Uint64(uint64(offset)), Len: proto.Uint64(uint64(length)), SendChecksums: &checksums})
	m := w.response(pb.Status_SUCCESS)
	begin := int64(m.GetReadOpChecksumInfo().GetChunkOffset())
	if begin > offset || begin <= offset-512 || begin%512 != 0 {
		w.t.Fatalf("it begins at %d for %d", begin, offset)
	}
	var got []byte
	for seqno := int64(0); ; seqno++ {
		var lens [6]byte
		w.full(lens[:])
		head := make([]byte, binary.BigEndian.Uint16(lens[4:]))
		w.full(head)
		h := new(pb.PacketHeaderProto)
		if err := proto.Unmarshal(head, h); err != nil {
			w.t.Fatal(err)
		}
		n := int(h.GetDataLen())
		sums := make([]byte, int(binary.BigEndian.Uint32(lens[:]))-4-n)
		w.full(sums)
		d := make([]byte, n)
		w.full(d)
		if h.GetSeqno() != seqno || h.GetOffsetInBlock() != begin+int64(len(got)) || h.GetLastPacketInBlock() != (n == 0) {
			w.t.Fatalf("packet %d: %v", seqno, h)
		}
		for at := 0; checksums && at < n; at += 512 {
			if crc32.Checksum(d[at:min(at+512, n)], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(sums[at/512*4:]) {
				w.t.Fatalf("packet %d: a checksum is wrong", seqno)
			}
		}
		got = append(got, d...)
		if h.GetLastPacketInBlock() {
			break
		}
	}
	if _, err := protodelim.MarshalTo(w, &pb.ClientReadStatusProto{Status: pb.Status_CHECKSUM_OK.Enum()}); err != nil {
		w.t.Fatal(err)
	}
	return got[offset-begin:]
}

func (w *wire) full(b []byte) {
	w.t.Helper()
	for n := 0; n < len(b); {
		k, err := w.in.Read(b[n:])
		if err != nil {
			w.t.Fatal(err)
		}
		n += k
	}
}
