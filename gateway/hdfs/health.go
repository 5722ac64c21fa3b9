package hdfs

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// readyTime is for how long a namenode is waited for until this gateway is told to be a standby:
// half of what hdfs haadmin waits.
const readyTime = 10 * time.Second

// standby is why no namenode answers this gateway, so that calls fail; empty: one does.
func (q *request) standby(ctx context.Context) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	u, err := q.users.Get(ctx, users.Key{User: q.call.User})
	if fserror.KindOf(err) == fserror.Retry { // this gateway has no room for another user, and works for others
		return "", nil
	}
	if err == nil {
		defer q.users.Release(u)
		_, err = hadoop.FS{FS: u.FS}.Usage(ctx)
	}
	if err != nil && (ctx.Err() != nil || noNamenode(err) || hadoop.ClassOf(err) == hadoop.Retriable) {
		return hadoop.Message(err), nil
	}
	return "", err
}

func monitorHealth(ctx context.Context, q *request) (proto.Message, error) {
	why, err := q.standby(ctx)
	if why != "" {
		err = hadoop.Refuse(hadoop.HealthCheckFailed, "%s", why)
	}
	return done(err)
}

func serviceStatus(ctx context.Context, q *request) (proto.Message, error) {
	why, err := q.standby(ctx)
	if why == "" || err != nil {
		return &pb.GetServiceStatusResponseProto{State: active, ReadyToBecomeActive: proto.Bool(true)}, err
	}
	return &pb.GetServiceStatusResponseProto{State: standby, ReadyToBecomeActive: proto.Bool(false), NotReadyReason: &why}, nil
}
