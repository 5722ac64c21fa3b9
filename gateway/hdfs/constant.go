package hdfs

import (
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// hotPolicy is the number of the storage policy HOT in HDFS.
const hotPolicy = 7

// hot is the one storage policy that there is.
var hot = &pb.BlockStoragePolicyProto{
	PolicyId: proto.Uint32(hotPolicy), Name: proto.String("HOT"),
	CreationPolicy:            &pb.StorageTypesProto{StorageTypes: []pb.StorageTypeProto{pb.StorageTypeProto_DISK}},
	CreationFallbackPolicy:    new(pb.StorageTypesProto),
	ReplicationFallbackPolicy: &pb.StorageTypesProto{StorageTypes: []pb.StorageTypeProto{pb.StorageTypeProto_ARCHIVE}},
}

var serverDefaults = &pb.GetServerDefaultsResponseProto{ServerDefaults: &pb.FsServerDefaultsProto{
	BlockSize: size(hadoop.DefaultAttr.BlockSize), BytesPerChecksum: proto.Uint32(512), WritePacketSize: proto.Uint32(64 << 10),
	Replication: proto.Uint32(uint32(hadoop.DefaultAttr.Replication)), FileBufferSize: proto.Uint32(4096),
	ChecksumType: pb.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(), KeyProviderUri: proto.String(""), PolicyId: proto.Uint32(hotPolicy),
}}

var noneMissing = &pb.GetFsReplicatedBlockStatsResponseProto{
	LowRedundancy: size(0), CorruptBlocks: size(0), MissingBlocks: size(0), MissingReplOneBlocks: size(0), BlocksInFuture: size(0), PendingDeletionBlocks: size(0),
}

var noGroups = &pb.GetFsECBlockGroupStatsResponseProto{
	LowRedundancy: size(0), CorruptBlocks: size(0), MissingBlocks: size(0), BlocksInFuture: size(0), PendingDeletionBlocks: size(0),
}
