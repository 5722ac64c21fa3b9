package namenode

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	collectPage = 1000      // keys one record names
	sweepPage   = 1_000_000 // keys of the store held against the tree at once
	urlMargin   = time.Minute
	shortPage   = 64 // keys deleted at once while room is short
	shortBlocks = 16 // room is short below so many full blocks
	spareBlocks = 64 // garbage may take as much as so many full blocks, and as files
)

// collector is what the deletion of blocks goes by.
type collector struct {
	wake chan struct{} // room is short, or garbage takes too much
	turn turn          // who has it may delete, or change safe mode

	mu    sync.Mutex
	holds map[int]int64 // times of reigns: what became garbage then or later stays
	next  int
}

func (c *collector) init() {
	c.wake, c.turn, c.holds = make(chan struct{}, 1), newTurn(), map[int]int64{}
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
	c := &s.collector
	var id int
	s.engine.Look(func(t *namespace.Tree) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next++
		id = c.next
		c.holds[id] = t.Reigned()
	})
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
// a deleted file can end it. When room is short, or garbage takes more than the
// blocks of files and some spare, blocks go at once, the oldest garbage first
// and only until that is mended. A reader who misses one asks for
// the file again, and gets its present blocks or NotFound; a PUT that comes late
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
	unlock, err := s.collector.turn.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	short, err := s.roomShort(ctx)
	if err != nil {
		return 0, 0, err
	}
	var keys []blockstore.Key
	var last uint64
	s.engine.Look(func(t *namespace.Tree) {
		// By the time of reigns, as garbage is stamped; and that may run fast.
		var lastMS int64
		last, lastMS = t.Last()
		before, limit, enough := t.Reigned()+max(0, s.engine.Now()-lastMS)-engine.Longest(s.cfg.URLLife).Milliseconds(), collectPage, int64(math.MaxInt64)
		if short {
			before, limit = math.MaxInt64, shortPage
		} else if excess := s.garbageExcess(t.Counts()); excess > 0 {
			before, enough = math.MaxInt64, excess
		}
		if !t.SafeMode() {
			keys = t.Garbage(s.collector.before(before), limit, enough)
		}
		waiting = t.Counts().Garbage - len(keys)
	})
	if len(keys) == 0 {
		return 0, waiting, nil
	}
	if err := s.engine.WaitDurable(ctx, last); err != nil {
		return 0, waiting, err
	}
	err = s.owner.While(ctx, func(ctx context.Context) error { return s.store.Delete(ctx, keys...) })
	if errors.Is(err, owner.ErrHeldBack) {
		return 0, waiting + len(keys), nil
	}
	if err != nil {
		return 0, waiting, err
	}
	_, err = s.engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return &namespace.OpCollected{Keys: keys}, nil }})
	return len(keys), waiting, err
}

// garbageExcess is how many bytes of garbage are too many to wait for the end
// of their URLs.
func (s *Server) garbageExcess(n namespace.Counts) int64 {
	return n.GarbageBytes - n.StoredBytes - spareBlocks*s.cfg.BlockSize
}

// roomShort reports whether the block store has room for a few blocks only.
func (s *Server) roomShort(ctx context.Context) (bool, error) {
	free, total, err := s.store.Usage(ctx)
	return total > 0 && free < shortBlocks*s.cfg.BlockSize, err
}

// sweepPass is the sweep that happens by itself: of blocks that surely are of this
// history. It also removes the parts of images that a crash left, and objects of
// reigns long ago.
func (s *Server) sweepPass(ctx context.Context) error {
	err := s.owner.While(ctx, s.removeLeftovers)
	if errors.Is(err, owner.ErrHeldBack) {
		return nil
	}
	if err == nil {
		_, err = s.sweep(ctx, false)
	}
	return err
}

func (s *Server) removeLeftovers(ctx context.Context) error {
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
	if s.private() {
		return nil
	}
	return s.owner.ForgetReigns(ctx)
}

// sweep searches the store for orphans: blocks that were put and never
// committed. They become garbage by a record, and are collected as such. Those for
// which no record vouches are left unless all are asked for: they can be another
// history's, which only an operator can know.
func (s *Server) sweep(ctx context.Context, all bool) (orphans int, err error) {
	if s.engine.Facts().SafeMode {
		return 0, nil
	}
	var after blockstore.Key
	left := 0
	for ctx.Err() == nil {
		page, err := s.listStore(ctx, after)
		if err == nil && len(page) == 0 && !all {
			s.noteUnswept(left)
		}
		if err != nil || len(page) == 0 {
			return orphans, err
		}
		after = page[len(page)-1].Key
		blocks := s.notPending(page)
		if !all {
			n := len(blocks)
			blocks = s.keepVouched(blocks)
			left += n - len(blocks)
		}
		n, err := s.sweepBlocks(ctx, blocks)
		orphans += n
		if err != nil {
			return orphans, err
		}
	}
	return orphans, ctx.Err()
}

// keepVouched keeps the blocks that are in the tree or may be swept without asking.
func (s *Server) keepVouched(blocks []namespace.StoredBlock) []namespace.StoredBlock {
	s.engine.Look(func(t *namespace.Tree) {
		reigns := t.Reigns()
		blocks = slices.DeleteFunc(blocks, func(b namespace.StoredBlock) bool {
			k := b.Key
			return k.Term != s.term && !s.owner.Vouched(reigns, k) && !t.HasBlock(k) && !t.IsGarbage(k)
		})
	})
	return blocks
}

// noteUnswept says how many blocks wait for an operator.
func (s *Server) noteUnswept(left int) {
	if was := s.unswept.Swap(int64(left)); int64(left) > was {
		s.log.Warn("the block store has blocks that no file has and for which no record vouches: put shortly before a reign ended, or another copy's; leasefs admin gc deletes them", "blocks", left)
	}
}

func (s *Server) listStore(ctx context.Context, after blockstore.Key) ([]namespace.StoredBlock, error) {
	var blocks []namespace.StoredBlock
	for len(blocks) < sweepPage {
		infos, err := s.store.List(ctx, after, collectPage)
		if err != nil {
			return nil, err
		}
		for _, in := range infos {
			blocks = append(blocks, namespace.StoredBlock{Key: in.Key, Stored: uint32(min(in.Length, math.MaxUint32))}) //nolint:gosec // a length
		}
		if len(infos) < collectPage {
			break
		}
		after = infos[len(infos)-1].Key
	}
	return blocks, nil
}

// notPending keeps the blocks that may not be committed any more. What it lets
// through can be in the tree already, but cannot come into it: so the tree is
// looked at after this.
func (s *Server) notPending(blocks []namespace.StoredBlock) []namespace.StoredBlock {
	now := s.cfg.Clock.Mono()
	oldTermsOver := now > s.activated+s.cfg.URLLife+urlMargin
	out := blocks[:0]
	for _, b := range blocks {
		switch k := b.Key; {
		case k.Term > s.term: // a later reign's: never ours to touch
		case k.Term < s.term && oldTermsOver:
			out = append(out, b)
		case k.Term == s.term && s.allocs.dropExpired(k, now-urlMargin):
			out = append(out, b)
		}
	}
	return out
}

// sweepBlocks makes garbage of those blocks that no file has. The plan looks at the
// tree under the lock.
func (s *Server) sweepBlocks(ctx context.Context, blocks []namespace.StoredBlock) (int, error) {
	if len(blocks) == 0 {
		return 0, nil
	}
	unowned := make(map[blockstore.Key]struct{}, len(blocks))
	for _, b := range blocks {
		unowned[b.Key] = struct{}{}
	}
	t, err := s.engine.Snapshot(ctx)
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
	page := make([]namespace.StoredBlock, 0, collectPage)
	n := 0
	flush := func() error {
		found := 0
		_, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			found = 0
			op := tx.Tree.PlanTombstone(page)
			if op == nil || tx.Tree.SafeMode() {
				return nil, nil
			}
			found = len(op.Blocks)
			return op, nil
		}})
		n += found
		page = page[:0]
		return err
	}
	for _, b := range blocks {
		if _, ok := unowned[b.Key]; !ok || t.IsGarbage(b.Key) {
			continue
		}
		if page = append(page, b); len(page) == collectPage {
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
	if err := s.engine.View(ctx, c, func(tx *engine.Tx) error { return tx.RefuseInSafeMode(c) }); err != nil {
		return nil, err
	}
	if err := s.owner.Check(ctx); err != nil {
		return nil, err
	}
	if s.owner.Conflict() != "" {
		return nil, s.owner.HeldBack()
	}
	orphans, err := s.sweep(ctx, true)
	if err != nil {
		return nil, err
	}
	known := s.engine.Facts().Garbage
	deleted, waiting, err := s.collectGarbage(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.CollectResponse{Garbage: uint64(max(known, 0)), Deleted: uint64(deleted), Waiting: uint64(max(waiting, 0)), Orphans: uint64(orphans)}, nil //nolint:gosec // counts
}
