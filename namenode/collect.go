package namenode

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	collectPage = 1000      // keys one record names
	sweepPage   = 1_000_000 // keys of the store held against the tree at once
	urlMargin   = time.Minute
	shortPage   = 64 // keys deleted at once while room is short
	shortBlocks = 16 // room is short below so many full blocks
)

// collector is what the deletion of blocks goes by.
type collector struct {
	wake chan struct{} // room is short
	turn chan struct{} // holds one: who has it may delete, or change safe mode

	mu    sync.Mutex
	holds map[int]int64 // journal times (Unix milliseconds): what became garbage then or later stays
	next  int
}

func (c *collector) init() {
	c.wake, c.turn, c.holds = make(chan struct{}, 1), make(chan struct{}, 1), map[int]int64{}
}

// lock waits for the turn.
func (c *collector) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// before is the time of the newest garbage that may go, if ms were it.
func (c *collector) before(ms int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holds {
		ms = min(ms, h-1)
	}
	return ms
}

// holdGarbage keeps in the store, until release, all that files have now.
func (s *Server) holdGarbage() (release func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, now := s.tree.Last()
	c := &s.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := c.next
	c.holds[id] = now
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.holds, id)
	}
}

// collectGarbage deletes blocks that no file has any more, but not in safe mode
// and not what a running backup copies. That they are garbage is durable before
// the store is touched.
//
// A block goes once every URL that was signed for it is over, so that who reads
// a deleted file can end it. When room is short blocks go at once, the oldest
// garbage first and only until there is room. A reader who misses one asks for
// the file anew, and gets its present blocks or NotFound; a PUT that comes late
// makes an orphan, since no commit takes a key that was committed or given up.
func (s *Server) collectGarbage(ctx context.Context) (deleted, waiting int, err error) {
	for {
		n, left, err := s.collectSome(ctx)
		deleted, waiting = deleted+n, left
		if n == 0 || err != nil {
			return deleted, waiting, err
		}
	}
}

func (s *Server) collectSome(ctx context.Context) (deleted, waiting int, err error) {
	unlock, err := s.collector.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	short, err := s.roomShort(ctx)
	if err != nil {
		return 0, 0, err
	}
	// By the journal's time, as garbage is stamped; and that may run fast.
	before, limit := s.time.now()-(s.cfg.URLLife+s.cfg.URLLife/slew).Milliseconds(), collectPage
	if short {
		before, limit = math.MaxInt64, shortPage
	}
	var keys []blockstore.Key
	s.mu.RLock()
	if !s.tree.SafeMode() {
		keys = s.tree.Garbage(s.collector.before(before), limit)
	}
	last, _ := s.tree.Last()
	waiting = s.tree.Counts().Garbage - len(keys)
	s.mu.RUnlock()
	if len(keys) == 0 {
		return 0, waiting, nil
	}
	if err := s.waitDurable(ctx, last); err != nil {
		return 0, waiting, err
	}
	if err := s.whileOurs(ctx, func(ctx context.Context) error { return s.store.Delete(ctx, keys...) }); err != nil {
		return 0, waiting, err
	}
	_, err = s.own(ctx, func() (namespace.Op, error) { return &namespace.OpCollected{Keys: keys}, nil })
	return len(keys), waiting, err
}

// roomShort reports whether the block store has room for a few blocks only.
func (s *Server) roomShort(ctx context.Context) (bool, error) {
	free, total, err := s.store.Usage(ctx)
	return total > 0 && free < shortBlocks*s.cfg.BlockSize, err
}

// sweepPass is the sweep that happens by itself: not where orphans may be
// another namenode's blocks, which only an operator can know. It also removes
// the parts of images that a crash left.
func (s *Server) sweepPass(ctx context.Context) error {
	if err := s.checkStore(ctx); err != nil {
		return err
	}
	if u, ok := s.objects.(interface {
		RemoveUnfinished(context.Context) (int, error)
	}); ok {
		n, err := u.RemoveUnfinished(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			s.log.Info("images that were not finished were removed from the block store", "number", n)
		}
	}
	if s.dir.foreignBlocks() {
		return nil
	}
	_, err := s.sweep(ctx)
	return err
}

// sweep searches the store for orphans: blocks that were put and never
// committed. They become garbage by a record, and are collected as such.
func (s *Server) sweep(ctx context.Context) (orphans int, err error) {
	s.mu.RLock()
	safe := s.tree.SafeMode()
	s.mu.RUnlock()
	if safe {
		return 0, nil
	}
	if s.shared.unchecked.Load() {
		return 0, fserror.New(fserror.Unavailable, "", "", "the block store has not answered since this namenode took over; try again when it does")
	}
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
		found := 0
		_, err := s.own(ctx, func() (namespace.Op, error) {
			found = 0
			op := s.tree.PlanTombstone(page)
			if op == nil || s.tree.SafeMode() {
				return nil, nil
			}
			found = len(op.Keys)
			return op, nil
		})
		n += found
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
	c := &namespace.Call{}
	if err := s.read(ctx, c, func() error { return s.refuseInSafeMode(c) }); err != nil {
		return nil, err
	}
	if err := s.checkStore(ctx); err != nil {
		return nil, err
	}
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
