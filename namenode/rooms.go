package namenode

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/watch"
)

// gate is the reign as the engine knows it.
type gate struct{ s *Server }

func (g gate) Active() error  { return g.s.checkActive() }
func (g gate) Window() error  { return g.s.checkWindow() }
func (g gate) Fail(why error) { g.s.stepDown(why) }

// rooms is the rest of the namenode as the engine knows it.
type rooms struct{ s *Server }

func (r rooms) Admit(grows bool) error {
	if grows {
		if err := r.s.pressure.refuse(); err != nil {
			return err
		}
	}
	return r.s.images.Refuse()
}

func (r rooms) Park(ctx context.Context) (back func(), err error) { return r.s.park(ctx, nil) }

func (r rooms) Taker(ctx context.Context, c *namespace.Call) share.Taker { return taker(ctx, c) }

func (r rooms) Refuse(tx *engine.Tx, by namespace.SessionID, op namespace.Op) error {
	if err := r.s.drafts.Refuse(tx, by, op); err != nil {
		return err
	}
	return r.s.leases.RenewWriter(tx, op)
}

func (r rooms) Applied(tx *engine.Tx, e namespace.Entry, done namespace.Result) {
	switch op := e.Op.(type) {
	case *namespace.OpCreateAs:
		r.s.drafts.Made(e.Call.Session, &op.OpCreate)
	case *namespace.OpCreate:
		r.s.drafts.Made(e.Call.Session, op)
	}
	r.s.leases.Applied(done)
	r.s.sessions.Applied(done)
	r.s.waits.Applied(done)
	r.s.removals.tell(tx.Tree, e.Op, done.Inode)
	r.s.keepEvents(e, done.Events)
}

// newImages makes the keeper of the images: in the data folder, or of several
// namenodes in the block store.
func (s *Server) newImages() *images.Keeper {
	folder := images.Folder{FS: s.cfg.FS, Dir: s.dir.File(datadir.ImageDir), Log: s.log, Reserve: s.cfg.Reserve}
	cfg := images.Config{
		Store: &folder, Engine: s.engine, Clock: s.cfg.Clock, Log: s.log, ID: s.dir.ID, Folder: s.dir.path,
		Records: s.cfg.CheckpointRecords, Bytes: s.cfg.CheckpointBytes, Every: s.cfg.CheckpointEvery,
		Open: s.openJournal, Applied: s.keepEvents,
		Begin: func(from uint64) {
			s.events = watch.New(watch.Config{MaxEvents: s.cfg.WatchEvents, MaxBytes: s.cfg.WatchBytes}, from)
		},
	}
	if s.cfg.HA != nil {
		cfg.Store = &images.Objects{Objects: s.objects, Local: folder}
		cfg.Shared = &images.Shared{
			Path:  s.cfg.HA.Path(""),
			Fresh: func() bool { return s.shared.journal.Fresh() },
			Kept:  func() int64 { return s.shared.journal.Kept() },
			Check: s.owner.Check,
			Remove: func(ctx context.Context, remove func(context.Context) error) error {
				err := s.owner.While(ctx, remove)
				if errors.Is(err, owner.ErrHeldBack) {
					return nil
				}
				return err
			},
		}
	}
	return images.New(cfg)
}
