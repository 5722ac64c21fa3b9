package reign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// Level is at which feature level the namespace is, and what all its namenodes can do.
type Level struct {
	levels.State
	Members []election.Member // the active one first
}

// Level tells it, when that is durable.
func (r *Role) Level(ctx context.Context) (l Level, err error) {
	var last uint64
	r.rooms.Engine.Look(func(t *namespace.Tree) {
		l.State = t.Level()
		last, _ = t.Last()
	})
	if err := r.rooms.Engine.WaitDurable(ctx, last); err != nil {
		return l, err
	}
	if l.Members, err = r.Members(ctx); err == nil && l.Members == nil {
		l.Members = []election.Member{{Address: r.cfg.Address, Version: r.cfg.Version, Level: levels.Newest(), Elected: true}}
	}
	return l, err
}

// Raise raises the level, unless it is there already. It is refused while a namenode does not
// know that level. One of the release before that joins meanwhile ends when it reads of it.
func (r *Role) Raise(ctx context.Context, to uint64) error {
	if err := r.Active(); err != nil {
		return err
	}
	if to > levels.Newest() {
		return fserror.New(fserror.InvalidArgument, "upgrade", "", "there is no feature level %d; this namenode knows levels up to %d", to, levels.Newest())
	}
	unlock, err := r.raising.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := r.Level(ctx)
	if err != nil {
		return err
	}
	for _, m := range now.Members {
		if knows := max(m.Level, levels.First); knows < to {
			return fserror.New(fserror.Unsupported, "upgrade", "", "namenode %s, of leasefs %s, knows feature levels up to %d, not %d: install the new release there, or stop it, before the level is raised", m.Address, m.Version, knows, to).
				Because(fserror.ReasonUpgrade)
		}
	}
	op := &namespace.OpLevel{State: levels.State{Level: to, Release: r.cfg.Version}}
	if _, err := r.rooms.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if tx.Tree.Level().Level >= to {
			return nil, nil
		}
		r.log.Info("the feature level is raised: older releases cannot serve the namespace any more", "level", to)
		return op, nil
	}}); err != nil {
		return err
	}
	return r.mark(ctx)
}

// markInTurn is mark, beside which nobody raises the level. It may take as long as ZooKeeper is away.
func (r *Role) markInTurn(ctx context.Context) error {
	unlock, err := r.raising.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.mark(ctx)
}

// mark has the format say at which level the namespace is: older programs look there first.
func (r *Role) mark(ctx context.Context) error {
	at := r.rooms.Engine.Facts().Level
	if at.Level <= r.format.level() {
		return nil
	}
	return r.format.mark(ctx, at)
}

// format is where a namespace says at which level it is, besides in its journal.
type format interface {
	// level is that of the namespace, or of a new one.
	level() uint64
	mark(ctx context.Context, at levels.State) error
}

// inFolder is the format of a namenode alone: VERSION in its data folder.
type inFolder struct{ *Role }

func (f inFolder) level() uint64 {
	if f.dir.Fresh {
		return levels.Newest()
	}
	v := f.dir.Version()
	return v.At().Level
}

func (f inFolder) mark(_ context.Context, at levels.State) error {
	return f.dir.Update(func(v *datadir.Version) {
		v.Format, v.Release = int(at.Level), at.Release //nolint:gosec // a few
	})
}

// inZooKeeper is the format of several namenodes: a node.
type inZooKeeper struct{ *several }

func (f inZooKeeper) level() uint64 { return f.marked.Load() }

func (f inZooKeeper) mark(ctx context.Context, at levels.State) error {
	path := f.cfg.HA.Path("format")
	err := f.onSession(ctx, func(sess *zkconn.Session) error {
		raw, stat, err := sess.Get(ctx, path)
		if err != nil {
			return err
		}
		now, _, err := ensemble.ParseFormat(path, raw)
		if err != nil || now.At().Level >= at.Level {
			return err
		}
		now.Format, now.Release = int(at.Level), at.Release //nolint:gosec // a few
		if raw, err = json.Marshal(now); err != nil {
			return err
		}
		if _, err = sess.Set(ctx, path, raw, stat.Version); errors.Is(err, zookeeper.ErrBadVersion) {
			err = fmt.Errorf("%w: %w", zkconn.ErrLost, err) // a reign before this one was at it: look again
		}
		return err
	})
	if err == nil {
		f.marked.Store(at.Level)
	}
	return err
}
