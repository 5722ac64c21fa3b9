package hdfs

import (
	"context"
	"math"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// holder is the name of a client as leases have it. One that is no text (the Go client's
// has random bytes) is quoted.
func holder(name string) (string, error) {
	if name == "" || len(name) > 255 {
		return "", hadoop.Refuse(hadoop.HadoopIllegal, "a client's name has 1 to 255 bytes, not %d", len(name))
	}
	if utf8.ValidString(name) && strconv.Quote(name) == `"`+name+`"` {
		return name, nil
	}
	return strings.Trim(strconv.QuoteToASCII(name), `"`), nil
}

// by are the path and the client of a call.
func (q *request) by(ctx context.Context, src, name string) (path, client string, err error) {
	if path, err = q.path(ctx, src); err == nil {
		client, err = holder(name)
	}
	return path, client, err
}

func (q opened) create(ctx context.Context, m *pb.CreateRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClientName())
	if err != nil {
		return nil, err
	}
	flag := pb.CreateFlagProto(m.GetCreateFlag()) //nolint:gosec // bits
	switch {
	case flag&pb.CreateFlagProto_APPEND != 0:
		return nil, hadoop.Refuse(hadoop.HadoopIllegal, "%s: create does not append", p)
	case m.GetBlockSize() == 0 || m.GetBlockSize() > hadoop.MaxBlockSize:
		return nil, hadoop.Refuse(hadoop.IOException, "%s: a block size of %d makes no sense; give 1 to %d bytes", p, m.GetBlockSize(), hadoop.MaxBlockSize)
	case m.GetEcPolicyName() != "":
		return nil, hadoop.Refuse(hadoop.Unsupported, "%s: leasefs has no erasure coding", p)
	}
	if err := hadoop.TooMany(int64(m.GetReplication()), p); err != nil {
		return nil, err
	}
	perm, less := unmasked(m.GetMasked(), m.GetUnmasked())
	a := hadoop.Attr{Replication: int64(m.GetReplication()), BlockSize: int64(m.GetBlockSize())} //nolint:gosec // it was looked at
	f, err := q.files.Create(ctx, q.user, by, p, files.Create{
		Mode: perm, Umask: less,
		Create: flag&pb.CreateFlagProto_CREATE != 0, Overwrite: flag&pb.CreateFlagProto_OVERWRITE != 0, CreateParent: m.GetCreateParent(),
		Attr: a,
	})
	if err != nil && q.call.Repeated {
		switch f, again := q.files.Created(ctx, q.user, by, p, a); {
		case again == nil:
			return &pb.StatusResponseProto{Fs: written(f)}, nil
		case client.KindOf(again) == client.ErrRetry:
			return nil, again
		}
	}
	if err != nil {
		return nil, q.fs.NotCreated(ctx, p, err)
	}
	return &pb.StatusResponseProto{Fs: written(f)}, nil
}

// written describes a file to its writer, as one with a single replica: where there
// should be three, Hadoop's client looks for further DataNodes before it appends.
func written(f files.Opened) *pb.HdfsFileStatusProto {
	st := describe(f.Info, "", f.Attr)
	st.BlockReplication = proto.Uint32(1)
	return st
}

func (q opened) append(ctx context.Context, m *pb.AppendRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClientName())
	if err != nil {
		return nil, err
	}
	f, err := q.files.Append(ctx, q.user, by, p, pb.CreateFlagProto(m.GetFlag())&pb.CreateFlagProto_NEW_BLOCK != 0, q.call.Repeated) //nolint:gosec // bits
	switch {
	case client.KindOf(err) == client.ErrIsDirectory:
		return nil, hadoop.Refuse(hadoop.FileExists, "Cannot append to directory %s; already exists as a directory.", p)
	case err != nil:
		return nil, q.fs.Held(p, err)
	}
	a := &pb.AppendResponseProto{Stat: written(f)}
	if f.Last != nil {
		a.Block = q.block(*f.Last, true)
	}
	return a, nil
}

func (q opened) addBlock(ctx context.Context, m *pb.AddBlockRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClientName())
	if err != nil {
		return nil, err
	}
	var previous *files.Block
	if m.GetPrevious() != nil {
		if previous, err = q.told(m.GetPrevious()); err != nil {
			return nil, err
		}
	}
	b, err := q.files.AddBlock(ctx, q.user, by, p, m.GetFileId(), previous)
	if err != nil {
		return nil, err
	}
	return &pb.BlockResponseProto{Block: q.block(b, true)}, nil
}

func (q opened) abandonBlock(ctx context.Context, m *pb.AbandonBlockRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetHolder())
	if err != nil {
		return nil, err
	}
	b, err := q.told(m.GetB())
	if err != nil {
		return nil, err
	}
	return done(q.files.AbandonBlock(ctx, q.user, by, p, m.GetFileId(), *b))
}

func (q opened) complete(ctx context.Context, m *pb.CompleteRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClientName())
	if err != nil {
		return nil, err
	}
	var last *files.Block
	if m.GetLast() != nil {
		if last, err = q.told(m.GetLast()); err != nil {
			return nil, err
		}
	}
	return yes(q.files.Complete(ctx, q.user, by, p, m.GetFileId(), last))
}

func (q opened) fsync(ctx context.Context, m *pb.FsyncRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClient())
	if err != nil {
		return nil, err
	}
	return done(q.files.Fsync(ctx, q.user, by, p, m.GetFileId(), m.GetLastBlockLength()))
}

func (q opened) renewLease(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	by, err := holder(m.GetSrc())
	if err != nil {
		return nil, err
	}
	q.files.Renew(ctx, q.user, by)
	return empty, nil
}

// missing gives the error of a call about a file the name and text that HDFS has for it.
func missing(p string, err error) error {
	switch client.KindOf(err) {
	case client.ErrNotFound, client.ErrNotDirectory:
		return hadoop.Refuse(hadoop.FileNotFound, "File does not exist: %s", p)
	case client.ErrIsDirectory:
		return hadoop.Refuse(hadoop.FileNotFound, "Path is not a file: %s", p)
	}
	return err
}

func (q opened) recoverLease(ctx context.Context, m *pb.RecoverLeaseRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return yes(q.files.Recover(ctx, q.user, p))
}

func (q opened) isFileClosed(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return yes(q.files.IsClosed(ctx, q.user, p))
}

func (q opened) truncate(ctx context.Context, m *pb.TruncateRequestProto) (proto.Message, error) {
	p, by, err := q.by(ctx, m.GetSrc(), m.GetClientName())
	if err != nil {
		return nil, err
	}
	if m.GetNewLength() > math.MaxInt64 {
		return nil, hadoop.Refuse(hadoop.HadoopIllegal, "Cannot truncate to a negative file size: %d.", int64(m.GetNewLength())) //nolint:gosec // as Java does
	}
	ok, err := q.files.Truncate(ctx, q.user, by, p, int64(m.GetNewLength())) //nolint:gosec // it was looked at
	if err != nil {
		err = missing(p, err)
		if client.KindOf(err) == client.ErrInvalidArgument {
			err = hadoop.Refuse(hadoop.HadoopIllegal, "Cannot truncate to a larger file size. %s", hadoop.Message(err))
		}
		return nil, q.fs.Held(p, err)
	}
	return yes(ok, nil)
}

func (q opened) updateBlockForPipeline(ctx context.Context, m *pb.UpdateBlockForPipelineRequestProto) (proto.Message, error) {
	by, err := holder(m.GetClientName())
	if err != nil {
		return nil, err
	}
	b, err := q.told(m.GetBlock())
	if err != nil {
		return nil, err
	}
	next, err := q.files.UpdateBlockForPipeline(ctx, q.user, by, *b)
	if err != nil {
		return nil, err
	}
	lb := q.block(next, true)
	lb.Locs, lb.StorageTypes, lb.StorageIDs, lb.IsCached = nil, nil, nil, nil // the client has them
	return &pb.BlockResponseProto{Block: lb}, nil
}

func (q opened) updatePipeline(ctx context.Context, m *pb.UpdatePipelineRequestProto) (proto.Message, error) {
	by, err := holder(m.GetClientName())
	if err != nil {
		return nil, err
	}
	before, err := q.told(m.GetOldBlock())
	if err != nil {
		return nil, err
	}
	after, err := q.told(m.GetNewBlock())
	if err != nil {
		return nil, err
	}
	return done(q.files.UpdatePipeline(ctx, q.user, by, *before, *after))
}

func (q opened) getBlockLocations(ctx context.Context, m *pb.GetBlockLocationsRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	if m.GetOffset() > math.MaxInt64 || m.GetLength() > math.MaxInt64 {
		return nil, hadoop.Refuse(hadoop.HadoopIllegal, "Negative offset or length is not supported. File: %s", p)
	}
	loc, err := q.files.Locate(ctx, q.user, p, int64(m.GetOffset()), int64(m.GetLength())) //nolint:gosec // they were looked at
	if err != nil {
		return nil, missing(p, err)
	}
	if err := q.makeRoom(ctx, loc.Blocks.Len()); err != nil {
		return nil, err
	}
	return &pb.GetBlockLocationsResponseProto{Locations: located(loc, q.describer(false))}, nil
}

// getLocatedFileInfo is getFileInfo with all blocks.
func (q opened) getLocatedFileInfo(ctx context.Context, m *pb.GetLocatedFileInfoRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	loc, err := q.files.Locate(ctx, q.user, p, 0, math.MaxInt64)
	if client.KindOf(err) == client.ErrIsDirectory {
		return lookup(q).getFileInfo(ctx, &pb.PathRequestProto{Src: m.Src})
	}
	if nothing(err) {
		return new(pb.StatusResponseProto), nil
	}
	if err != nil {
		return nil, err
	}
	if err := q.makeRoom(ctx, loc.Blocks.Len()); err != nil {
		return nil, err
	}
	st := describe(loc.Info, "", loc.Attr)
	st.Locations = located(loc, q.describer(false))
	return &pb.StatusResponseProto{Fs: st}, nil
}

// reportBadBlocks is what a reader says whose checksum does not match.
func (q opened) reportBadBlocks(_ context.Context, m *pb.ReportBadBlocksRequestProto) (proto.Message, error) {
	for _, b := range m.GetBlocks() {
		q.badBlocks.Do(func() {
			q.log.Warn("a client read bytes that do not match their checksum; further reports are not logged for a minute", "user", q.user.User, "block", b.GetB().GetBlockId(), "offset", b.GetOffset())
		})
	}
	return empty, nil
}

// told is a block that a client tells of. One of another namespace leads nowhere.
func (q *request) told(b *pb.ExtendedBlockProto) (*files.Block, error) {
	if pool := q.pool(); b.GetPoolId() != pool {
		return nil, hadoop.Refuse(hadoop.IOException, "block %d is of the namespace %.100q, not of this one, %q", b.GetBlockId(), b.GetPoolId(), pool)
	}
	f := block(b)
	return &f, nil
}

func block(b *pb.ExtendedBlockProto) files.Block {
	return files.Block{ID: int64(b.GetBlockId()), Stamp: int64(b.GetGenerationStamp()), Length: int64(b.GetNumBytes())} //nolint:gosec // as Java does
}

// pool is the namespace as clients know it.
func (q *request) pool() string { return "leasefs-" + q.user.FS.Info().NamespaceID }

// block is a block where it is, with the token that lets the client at it.
func (q *request) block(b files.Block, write bool) *pb.LocatedBlockProto {
	return q.describer(write)(b)
}

// describer is block for all blocks of one answer: what they have in common is there once.
func (q *request) describer(write bool) func(files.Block) *pb.LocatedBlockProto {
	var (
		pool, kind, service, no = proto.String(q.pool()), proto.String(files.TokenKind), proto.String(""), proto.Bool(false)

		locs, ids, cached, disk = []*pb.DatanodeInfoProto{q.node()}, []string{"leasefs"}, []bool{false}, []pb.StorageTypeProto{pb.StorageTypeProto_DISK}
	)
	return func(b files.Block) *pb.LocatedBlockProto {
		id, password := q.files.Token(q.user, b, write)
		return &pb.LocatedBlockProto{
			B:      &pb.ExtendedBlockProto{PoolId: pool, BlockId: size(b.ID), GenerationStamp: size(b.Stamp), NumBytes: size(b.Length)},
			Offset: size(b.Offset), Locs: locs, Corrupt: no,
			BlockToken: &pb.TokenProto{Identifier: id, Password: password, Kind: kind, Service: service},
			IsCached:   cached, StorageTypes: disk, StorageIDs: ids,
		}
	}
}

// makeRoom waits until the answer may describe so many blocks, and gives the room back when
// the client has read it. A call may make room once. An answer has all blocks that are asked
// for all the same: Go's client asks for those of a file once.
func (q *request) makeRoom(ctx context.Context, blocks int) error {
	if blocks == 0 {
		return nil
	}
	leave, err := q.Server.located.EnterAll(ctx, int64(blocks), q.call.Taker)
	if err != nil {
		return err
	}
	q.call.Answered(leave)
	return nil
}

// located is where a file's bytes are. All that readers see is said to be complete: a
// client does not ask a DataNode for the length of the last block.
func located(loc files.Located, block func(files.Block) *pb.LocatedBlockProto) *pb.LocatedBlocksProto {
	all := &pb.LocatedBlocksProto{FileLength: size(loc.Length), UnderConstruction: &loc.Open, IsLastBlockComplete: proto.Bool(true)}
	all.Blocks = make([]*pb.LocatedBlockProto, loc.Blocks.Len())
	for n := range all.GetBlocks() {
		all.Blocks[n] = block(loc.Blocks.At(n))
	}
	if loc.Last != nil {
		all.LastBlock = block(*loc.Last)
	}
	return all
}

// node is the gateway as a DataNode: where the client has reached it, unless it was told
// what to advertise.
func (q *request) node() *pb.DatanodeInfoProto {
	host, name := q.advertised, q.advertised
	if host == "" {
		name = q.host
		if host, _, _ = net.SplitHostPort(q.call.Local.String()); host == "" {
			host = name
		}
	}
	return &pb.DatanodeInfoProto{
		Id: &pb.DatanodeIDProto{
			IpAddr: &host, HostName: &name, DatanodeUuid: proto.String("leasefs"),
			XferPort: &q.dataPort, InfoPort: proto.Uint32(0), IpcPort: &q.rpcPort,
		},
		Location: proto.String("/default-rack"),
	}
}
