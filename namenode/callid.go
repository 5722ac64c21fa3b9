package namenode

import (
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// callID takes a request's call id and hashes the rest of the request, so that
// a number used twice for different requests is noticed.
func callID(id *pb.CallId, req proto.Message, clearCall func()) (namespace.CallID, error) {
	var out namespace.CallID
	if id == nil || id.GetSeq() == 0 || len(id.GetSession()) != len(out.Session) {
		return out, fserror.New(fserror.InvalidArgument, "", "", "the request has no call id (16 bytes of session and a number from 1 on)")
	}
	if id.GetAcked() >= id.GetSeq() {
		return out, fserror.New(fserror.InvalidArgument, "", "", "call %d is said to be answered already (acked %d)", id.GetSeq(), id.GetAcked())
	}
	copy(out.Session[:], id.GetSession())
	out.Seq, out.Acked = id.GetSeq(), id.GetAcked()
	clearCall()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return out, fserror.Wrap(fserror.InvalidArgument, "", "", err)
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(string(req.ProtoReflect().Descriptor().Name()))
	_, _ = d.Write(raw)
	out.Hash = d.Sum64()
	return out, nil
}
