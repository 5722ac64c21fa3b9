package namenode

import (
	"bytes"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/trash"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// request asks for a change that happens once.
type request = trash.Request

// asked returns the caller of a change, who is also to own what it makes, and the id of the call.
func (s *desk) asked(ctx context.Context, r request) (c *namespace.Call, id namespace.CallID, err error) {
	var owner *pb.Owner
	if r, ok := r.(interface{ GetOwner() *pb.Owner }); ok {
		owner = r.GetOwner()
	}
	if c, err = s.callerFor(ctx, r.GetCaller(), owner); err == nil {
		id, err = callID(r, r.GetCall())
	}
	if err == nil && !bytes.Equal(id.Session[:], r.GetCaller().GetSession()) {
		err = s.ownSession(identity.Of(ctx), id.Session[:], pb.SessionUser(r.GetCaller()))
	}
	return c, id, err
}

// callID takes a request's call id and hashes the rest of the request, so that
// a number used twice for different requests is noticed.
func callID(req proto.Message, id *pb.CallId) (namespace.CallID, error) {
	var out namespace.CallID
	if id == nil || id.GetSeq() == 0 || len(id.GetSession()) != len(out.Session) {
		return out, fserror.New(fserror.InvalidArgument, "", "", "the request has no call id (16 bytes of session and a number from 1 on)")
	}
	if id.GetAcked() >= id.GetSeq() {
		return out, fserror.New(fserror.InvalidArgument, "", "", "call %d is said to be answered already (acked %d)", id.GetSeq(), id.GetAcked())
	}
	copy(out.Session[:], id.GetSession())
	out.Seq, out.Acked = id.GetSeq(), id.GetAcked()
	var err error
	if out.Hash, err = pb.HashRequest(req); err != nil {
		return out, fserror.Wrap(fserror.InvalidArgument, "", "", err)
	}
	return out, nil
}
