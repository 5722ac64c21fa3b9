package ensemble

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// Owned is what OwnZooKeeper did.
type Owned struct {
	Nodes   int64 // of the namespace, as it went
	Changed int64 // of these, which had other owners
}

// OwnZooKeeper gives all nodes of a namespace in ZooKeeper to the users of h, and
// to nobody else, while its namenodes continue. What namenodes make meanwhile is
// theirs: they have to run with these users already. It can be repeated.
func OwnZooKeeper(ctx context.Context, h *HA, log *slog.Logger) (done Owned, err error) {
	if err := h.Check(); err != nil {
		return done, err
	}
	if h.User == "" {
		return done, fserror.New(fserror.InvalidArgument, "", "", "no user is named to whom the nodes are to belong")
	}
	sess, err := h.DialOnce(ctx, log)
	if err != nil {
		return done, err
	}
	defer func() { _ = sess.Close() }()
	var nodes, changed atomic.Int64
	top := "/leasefs/" + h.Name
	err = sess.OwnAll(ctx, top, func(another bool) {
		if another {
			changed.Add(1)
		}
		nodes.Add(1)
	})
	if err == nil && nodes.Load() > 0 {
		err = sess.OwnShared(ctx, "/leasefs")
	}
	done = Owned{Nodes: nodes.Load(), Changed: changed.Load()}
	switch {
	case errors.Is(err, zookeeper.ErrNoAuth):
		err = fserror.New(fserror.Permission, "", "", "%v (%d nodes were changed)", err, done.Changed).Because(fserror.ReasonOf(err))
	case errors.Is(err, zkconn.ErrLost):
		err = fserror.New(fserror.Unavailable, "", "", "the connection to ZooKeeper was lost after %d nodes: %v; repeat the command", done.Nodes, err)
	case err == nil && done.Nodes == 0:
		err = fserror.New(fserror.NotFound, "", "", "ZooKeeper has no namespace %s: there is no node %s", h.Name, top)
	}
	return done, err
}
