package namenode

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	collectPage = 1000      // keys one record names
	sweepPage   = 1_000_000 // keys of the store held against the tree at once
	urlMargin   = time.Minute
)

// collectGarbage deletes blocks that no file has any more, once every URL that
// was signed for them is over. That they are garbage is durable before the
// store is touched, so nothing can make them part of a file again.
func (s *Server) collectGarbage(ctx context.Context) (deleted, waiting int, err error) {
	for ctx.Err() == nil {
		now := s.cfg.Clock.Wall()
		s.mu.RLock()
		keys := s.tree.Garbage(now.Add(-s.cfg.URLLife).UnixMilli(), collectPage)
		last, _ := s.tree.Last()
		waiting = s.tree.Counts().Garbage - len(keys)
		s.mu.RUnlock()
		if len(keys) == 0 {
			return deleted, waiting, nil
		}
		if err := s.waitDurable(ctx, last); err != nil {
			return deleted, waiting, err
		}
		if err := s.store.Delete(ctx, keys...); err != nil {
			return deleted, waiting, err
		}
		if _, err := s.own(ctx, func() (namespace.Op, error) { return &namespace.OpCollected{Keys: keys}, nil }); err != nil {
			return deleted, waiting, err
		}
		deleted += len(keys)
	}
	return deleted, waiting, ctx.Err()
}

// sweep searches the store for orphans: blocks that were put and never
// committed. They become garbage by a record, and are collected as such.
func (s *Server) sweep(ctx context.Context) (orphans int, err error) {
	var after blockstore.Key
	for ctx.Err() == nil {
		page, err := s.listStore(ctx, after)
		if err != nil || len(page) == 0 {
			return orphans, err
		}
		after = page[len(page)-1]
		n, err := s.sweepKeys(ctx, s.notPending(page))
		orphans += n
		if err != nil {
			return orphans, err
		}
	}
	return orphans, ctx.Err()
}

func (s *Server) listStore(ctx context.Context, after blockstore.Key) ([]blockstore.Key, error) {
	var keys []blockstore.Key
	for len(keys) < sweepPage {
		infos, err := s.store.List(ctx, after, collectPage)
		if err != nil {
			return nil, err
		}
		for _, in := range infos {
			keys = append(keys, in.Key)
		}
		if len(infos) < collectPage {
			break
		}
		after = infos[len(infos)-1].Key
	}
	return keys, nil
}

// notPending keeps the keys that may not be committed any more. What it lets
// through can be in the tree already, but cannot come into it: so the tree is
// looked at after this.
func (s *Server) notPending(keys []blockstore.Key) []blockstore.Key {
	now := s.cfg.Clock.Mono()
	oldTermsOver := now > s.activated+s.cfg.URLLife+urlMargin
	out := keys[:0]
	for _, k := range keys {
		switch {
		case k.Term > s.term: // a later reign's: never ours to touch
		case k.Term < s.term && oldTermsOver:
			out = append(out, k)
		case k.Term == s.term && s.allocs.dropExpired(k, now-urlMargin):
			out = append(out, k)
		}
	}
	return out
}

// sweepKeys makes garbage of those keys that no file has. The plan looks at the
// tree under the lock.
func (s *Server) sweepKeys(ctx context.Context, keys []blockstore.Key) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	unowned := make(map[blockstore.Key]struct{}, len(keys))
	for _, k := range keys {
		unowned[k] = struct{}{}
	}
	t, err := s.snapshot(ctx)
	if err != nil {
		return 0, err
	}
	t.Referenced(func(_ namespace.InodeID, b namespace.Block) bool {
		delete(unowned, b.Key)
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	page := make([]blockstore.Key, 0, collectPage)
	n := 0
	flush := func() error {
		_, err := s.own(ctx, func() (namespace.Op, error) {
			op := s.tree.PlanTombstone(page)
			if op == nil {
				return nil, nil
			}
			n += len(op.Keys)
			return op, nil
		})
		page = page[:0]
		return err
	}
	for _, k := range keys {
		if _, ok := unowned[k]; !ok || t.IsGarbage(k) {
			continue
		}
		if page = append(page, k); len(page) == collectPage {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}

// collectAll is admin gc: search, then delete what may be deleted.
func (s *Server) collectAll(ctx context.Context) (*pb.CollectResponse, error) {
	orphans, err := s.sweep(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	known := s.tree.Counts().Garbage
	s.mu.RUnlock()
	deleted, waiting, err := s.collectGarbage(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.CollectResponse{Garbage: uint64(max(known, 0)), Deleted: uint64(deleted), Waiting: uint64(max(waiting, 0)), Orphans: uint64(orphans)}, nil //nolint:gosec // counts
}
