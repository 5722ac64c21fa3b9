package hdfs

import (
	"io/fs"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/filemode"
)

// The bits of a status's flags.
const (
	hasACL      = 1 // for which a listing shows a "+"
	maySnapshot = 8 // SNAPSHOT_ENABLED
)

// describe is a file under a name relative to what was asked for.
func describe(i *client.FileInfo, name string, a hadoop.Attr) *pb.HdfsFileStatusProto {
	mtime := uint64(max(0, i.ModTime().UnixMilli())) //nolint:gosec // not negative
	st := &pb.HdfsFileStatusProto{
		FileType: pb.HdfsFileStatusProto_IS_FILE.Enum(), Path: []byte(name), Length: proto.Uint64(0),
		Permission: &pb.FsPermissionProto{Perm: proto.Uint32(filemode.Unix(i.Mode()))}, Owner: proto.String(i.User), Group: proto.String(i.Group),
		ModificationTime: &mtime, AccessTime: proto.Uint64(0), FileId: &i.Inode,
	}
	var flags uint32
	if i.HasACL || i.HasDefault {
		flags |= hasACL
	}
	if i.Snapshots {
		flags |= maySnapshot
	}
	if flags != 0 {
		st.Flags = &flags
	}
	switch i.Type() {
	case fs.ModeDir:
		st.FileType = pb.HdfsFileStatusProto_IS_DIR.Enum()
		st.ChildrenNum = proto.Int32(int32(min(i.Entries, math.MaxInt32))) //nolint:gosec // it fits
	case fs.ModeSymlink:
		st.FileType, st.Symlink = pb.HdfsFileStatusProto_IS_SYMLINK.Enum(), []byte(i.LinkTarget)
	default:
		st.Length, st.AccessTime = size(i.Length), &mtime
		st.BlockReplication = proto.Uint32(uint32(a.Replication)) //nolint:gosec // at most hadoop.MaxReplication
		st.Blocksize = size(a.BlockSize)
	}
	return st
}

// size is a number of bytes.
func size(n int64) *uint64 { return proto.Uint64(uint64(max(n, 0))) } //nolint:gosec // not negative

// status is the answer about a file, or that there is none.
func status(i *client.FileInfo, err error) (proto.Message, error) {
	if nothing(err) {
		return new(pb.StatusResponseProto), nil
	}
	if err != nil {
		return nil, err
	}
	return &pb.StatusResponseProto{Fs: describe(i, "", hadoop.AttrOf(i))}, nil
}

// nothing tells whether an error is that there is nothing.
func nothing(err error) bool {
	return err != nil && (client.KindOf(err) == client.ErrNotFound || client.KindOf(err) == client.ErrNotDirectory)
}
