package namenode

import (
	"context"

	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/clocks"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/space"
	"github.com/leasefs/leasefs/namenode/watch"
)

// newRole makes the role of this namenode, alone or as one of several.
func (s *Server) newRole() *reign.Role {
	return reign.New(reign.Config{
		HA: s.cfg.HA, Clock: s.cfg.Clock, Log: s.log, FS: s.cfg.FS, Loops: s.loops, Address: s.advertised(), Page: s.front.PagesURL(), Version: s.cfg.Version,
		Superuser: s.cfg.Superuser, Supergroup: s.cfg.Supergroup, Data: s.cfg.Data, Blocks: s.cfg.Blocks, Reserve: s.cfg.Reserve, JournalAhead: s.cfg.JournalAhead, Wrote: s.meters.Wrote,
		MinLeaseTTL: s.cfg.MinLeaseTTL, SoftLimit: s.cfg.SoftLimit, HardLimit: s.cfg.HardLimit, Begun: s.startBackground,
	})
}

// rooms is the rest of the namenode as the engine knows it.
type rooms struct{ s *Server }

func (r rooms) Admit(grows bool) error {
	if grows {
		if err := r.s.space.Refuse(); err != nil {
			return err
		}
	}
	return r.s.images.Refuse()
}

func (r rooms) Park(ctx context.Context) (back func(), err error) {
	return r.s.front.Park(ctx, taker(ctx, nil))
}

func (r rooms) Taker(ctx context.Context, c *namespace.Call) share.Taker { return taker(ctx, c) }

func (r rooms) Refuse(tx *engine.Tx, by namespace.SessionID, op namespace.Op) error {
	if err := r.s.drafts.Refuse(tx, by, op); err != nil {
		return err
	}
	return r.s.leases.RenewWriter(tx, op)
}

func (r rooms) Applied(tx *engine.Tx, e namespace.Entry, done namespace.Result) {
	r.s.drafts.Applied(tx, e)
	r.s.leases.Applied(done)
	r.s.sessions.Applied(done)
	r.s.waits.Applied(done)
	r.s.calls.removals.tell(tx.Tree, e.Op)
	r.s.told(e, done)
}

// openHistory opens what is kept of who held files and granted leases.
func (s *Server) openHistory() (err error) {
	if s.cfg.LeaseHistory < 0 {
		return nil
	}
	s.history, err = history.Open(history.Config{
		FS: s.cfg.FS, Dir: s.dir.File(datadir.HistoryDir), ID: s.dir.ID, Log: s.log,
		Keep: s.cfg.LeaseHistory, Bytes: s.cfg.LeaseHistoryBytes, Reserve: s.cfg.Reserve,
	})
	return err
}

// told notes what a record did, for watches and the history of leases. The namespace is
// locked, or the caller is alone.
func (s *Server) told(e namespace.Entry, r namespace.Result) {
	s.history.Applied(&e, &r)
	var few [2]watch.Event // most records have no more
	s.events.Keep(watchEvents(few[:0], &e, &r), e.TxID)
}

// newImages makes the keeper of the images: in the data folder, or of several
// namenodes in the block store.
func (s *Server) newImages() *images.Keeper {
	folder := images.Folder{FS: s.cfg.FS, Dir: s.dir.File(datadir.ImageDir), Log: s.log, Reserve: s.cfg.Reserve}
	cfg := images.Config{
		Store: &folder, Engine: s.engine, Clock: s.cfg.Clock, Log: s.log, ID: s.dir.ID, Folder: s.cfg.Data,
		Records: s.cfg.CheckpointRecords, Bytes: s.cfg.CheckpointBytes, Every: s.cfg.CheckpointEvery,
		Open: s.role.OpenJournal, Applied: s.told, Needs: s.archive.Needs,
		Begin: func(t *namespace.Tree) {
			from, _ := t.Last()
			s.history.Begin(t)
			s.events = watch.NewFeed(watch.Config{MaxEvents: s.cfg.WatchEvents, MaxBytes: s.cfg.WatchBytes}, from)
		},
	}
	if cfg.Shared = s.role.Images(s.owner); cfg.Shared != nil {
		cfg.Store = &images.Objects{Objects: s.blocks.Noting(s.objects), Local: folder}
	}
	return images.New(cfg)
}

// newArchive makes the archive of the journal, in the store of blocks.
func newArchive(s *Server) *archive.Archive {
	return archive.New(archive.Config{
		Clock: s.cfg.Clock, Log: s.log, Objects: s.blocks.Noting(s.objects), Beside: s.cfg.HA == nil && (s.private() || space.SameDisk(s.cfg.Data, s.cfg.BlocksDir)), ID: s.dir.ID, Keep: s.owner.Kept, Snapshot: s.engine.Snapshot, Now: s.engine.Now,
		Local: images.Folder{FS: s.cfg.FS, Dir: s.dir.File(datadir.ArchiveDir), Log: s.log, Reserve: s.cfg.Reserve},
		Check: s.owner.Check, Term: s.owner.Overrules, Remove: s.owner.Remove,
	})
}

// newClocks are compared with those of whoever this namenode works with.
func (s *Server) newClocks() *clocks.Clocks {
	return clocks.New(s.log,
		&clocks.Other{Name: "zookeeper", Machine: "ZooKeeper's leader", Compare: func(ctx context.Context) (clock.Skew, bool) {
			skew, err := s.role.CompareClock(ctx)
			return skew, err == nil
		}},
		&clocks.Other{Name: "store", Machine: "the block store", Compare: func(context.Context) (skew clock.Skew, known bool) {
			if st, ok := s.store.(*s3.Store); ok {
				skew, known = st.Skew()
			}
			return skew, known
		}})
}
