package page

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// method is a call that the page makes.
type method struct {
	name    string // as gRPC has it
	request func() proto.Message
	lasts   bool // its answer is a stream, which has no end
}

func ask[M any, P interface {
	*M
	proto.Message
}](name string) method {
	return method{name: name, request: func() proto.Message { return P(new(M)) }}
}

// methods are the calls that the page makes: what it shows, and Recover.
var methods = map[string]method{
	"Status":       ask[pb.StatusRequest](pb.Admin_Status_FullMethodName),
	"WhoAmI":       ask[pb.WhoAmIRequest](pb.Namenode_WhoAmI_FullMethodName),
	"ListLeases":   ask[pb.ListLeasesRequest](pb.Namenode_ListLeases_FullMethodName),
	"LeaseHistory": ask[pb.LeaseHistoryRequest](pb.Namenode_LeaseHistory_FullMethodName),
	"Recover":      ask[pb.RecoverRequest](pb.Namenode_Recover_FullMethodName),
	"List":         ask[pb.ListRequest](pb.Namenode_List_FullMethodName),
	"Stat":         ask[pb.StatRequest](pb.Namenode_Stat_FullMethodName),
	"GetFile":      ask[pb.GetFileRequest](pb.Namenode_GetFile_FullMethodName),
	"Xattrs":       ask[pb.XattrsRequest](pb.Namenode_Xattrs_FullMethodName),
	"Acl":          ask[pb.AclRequest](pb.Namenode_Acl_FullMethodName),
	"GetQuota":     ask[pb.GetQuotaRequest](pb.Namenode_GetQuota_FullMethodName),
	"Watch":        {pb.Namenode_Watch_FullMethodName, func() proto.Message { return new(pb.WatchRequest) }, true},
}

// messages are written with the names that the wire contract gives to fields.
var messages = protojson.MarshalOptions{UseProtoNames: true}

// call makes a call for who asks.
func (p *Page) call(r *http.Request, a *asked, answer answers) error {
	m, ok := methods[r.PathValue("method")]
	if !ok {
		return fserror.New(fserror.NotFound, "", "", "the page makes no call %q", r.PathValue("method"))
	}
	req := m.request()
	if err := protojson.Unmarshal(a.Request, req); err != nil {
		return fserror.New(fserror.InvalidArgument, "", "", "the request is none of %s: %v", r.PathValue("method"), err)
	}
	if g, ok := req.(*pb.GetFileRequest); ok {
		g.NoUrls = true // nobody follows them here
	}
	if c, ok := req.(interface{ GetCall() *pb.CallId }); ok && c.GetCall() != nil {
		c.GetCall().Session = a.session()
	}
	fields := req.ProtoReflect().Descriptor().Fields()
	req.ProtoReflect().Set(fields.ByName("caller"), protoreflect.ValueOfMessage(a.caller(r).ProtoReflect()))
	ctx := r.Context()
	if !m.lasts {
		short, cancel := context.WithTimeout(ctx, maxWait)
		defer cancel()
		ctx = short
	}
	return p.cfg.Call(ctx, m.name, req, func(resp proto.Message) error {
		b, err := messages.Marshal(resp)
		if err != nil {
			return err
		}
		return answer(b)
	})
}

// statuses are those of errors whose status is not 500.
var statuses = map[fserror.Kind]int{
	fserror.InvalidPath: http.StatusBadRequest, fserror.NameTooLong: http.StatusBadRequest, fserror.InvalidArgument: http.StatusBadRequest,
	fserror.NotDirectory: http.StatusBadRequest, fserror.IsDirectory: http.StatusBadRequest, fserror.Loop: http.StatusBadRequest,
	fserror.TooLarge: http.StatusBadRequest, fserror.NotFound: http.StatusNotFound, fserror.Unsupported: http.StatusNotFound, fserror.Permission: http.StatusForbidden,
	fserror.Held: http.StatusConflict, fserror.TooOld: http.StatusGone, fserror.Retry: http.StatusTooManyRequests,
	fserror.NotActive: http.StatusServiceUnavailable, fserror.Unavailable: http.StatusServiceUnavailable, fserror.Deadline: http.StatusGatewayTimeout,
}

// statusOf is the HTTP status of an error: 401 if who asks has to prove who he is.
func statusOf(err error) int {
	err = wire.FromStatus(err)
	if fserror.ReasonOf(err) == fserror.ReasonProof {
		return http.StatusUnauthorized
	}
	if s, ok := statuses[fserror.KindOf(err)]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// wrong is an error as the page is told of it.
func wrong(err error) []byte {
	err = wire.FromStatus(err)
	var e *fserror.Error
	if !errors.As(err, &e) {
		e = fserror.Wrap(fserror.Internal, "", "", err)
	}
	d := wire.Detail(e)
	d.Message = e.Error()
	b, err := messages.Marshal(d)
	if err != nil {
		b = []byte(`{"message":"the error cannot be written as JSON"}`)
	}
	return append(append([]byte(`{"error":`), b...), '}')
}
