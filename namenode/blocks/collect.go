package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/owner"
)

const (
	collectPage = 1000      // keys one record names
	listPage    = 100_000   // keys asked of the store at once: each time a folder lists its folders
	sweepPage   = 1_000_000 // keys of the store held against the tree at once
	absentPage  = 10_000    // keys that a page lacks of which it tells
	urlMargin   = time.Minute
	shortPage   = 64 // keys deleted at once while room is short
	shortBlocks = 16 // room is short below so many full blocks
	// SpareBlocks is how many full blocks garbage may take, besides as much as files.
	SpareBlocks = 64
	// spareKept is how many blocks may be garbage that the archive needs, besides as many as
	// files have: each takes some memory.
	spareKept = 4_000_000
	retryKept = time.Hour // after that a block is tried again that the store could not delete
	mostKept  = 100_000   // so many of them are known; with more, the oldest hold up all
)

// before is the time of the newest garbage that may go, if ms were it.
func (bs *Blocks) before(ms int64) int64 {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, h := range bs.holds {
		ms = min(ms, h-1)
	}
	return ms
}

// Hold keeps in the store, until release, all that files have now.
func (bs *Blocks) Hold() (release func()) {
	var id int
	bs.Engine.Look(func(t *namespace.Tree) {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		bs.next++
		id = bs.next
		bs.holds[id] = t.Reigned()
	})
	return func() {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		delete(bs.holds, id)
	}
}

// Collect deletes blocks that no file has any more, but not in safe mode
// and not what a running backup copies. That they are garbage is durable before
// the store is touched.
//
// A block goes once every URL that was signed for it is over, so that who reads a deleted file can
// end it, and once the newest image, which a restore would begin with, cannot name it. When room is short, or
// garbage takes more than the blocks of files and some spare (more of it if the archive needs it), blocks go
// at once, the oldest garbage first and only until that is mended. A reader who misses one asks for
// the file again, and gets its present blocks or NotFound; a PUT that comes late
// makes an orphan, since no commit takes a key that was committed or given up.
//
// What the store has kept lately is tried again only for an operator, who may have mended that.
func (bs *Blocks) Collect(ctx context.Context, operator bool) (deleted, waiting int, err error) {
	if operator {
		unlock, err := bs.turn.Lock(ctx)
		if err != nil {
			return 0, 0, err
		}
		clear(bs.kept)
		unlock()
	}
	for {
		n, left, e := bs.collectSome(ctx)
		deleted, waiting, err = deleted+n, left, cmp.Or(err, e)
		if n == 0 {
			return deleted, waiting, err
		}
	}
}

// CollectPass is one round of what happens by itself. It asks the store whose it is also
// when there is nothing to collect. A store that is away is told of by what needs it.
func (bs *Blocks) CollectPass(ctx context.Context) error {
	if err := bs.Owner.Check(ctx); errors.Is(err, fserror.Unavailable) {
		return nil
	} else if err != nil {
		return err
	}
	_, _, err := bs.Collect(ctx, false)
	return err
}

func (bs *Blocks) collectSome(ctx context.Context) (deleted, waiting int, err error) {
	unlock, err := bs.turn.Lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer unlock()
	keep, err := bs.Owner.KeptForSure(ctx)
	if err != nil {
		return 0, 0, err
	}
	short := bs.full.Swap(false)
	if !short {
		if short, err = bs.fewFree(ctx); err != nil {
			return 0, 0, err
		}
	}
	bs.kept.expire(bs.Clock.Mono())
	var keys []blockstore.Key
	var last uint64
	early := 0 // so many of them the archive needs, or without one the newest image
	bs.Engine.Look(func(t *namespace.Tree) {
		last, _ = t.Last()
		old, imaged := aged(bs, t, keep), bs.Imaged()-1
		before, limit, enough := min(old, imaged), collectPage, int64(math.MaxInt64)
		if short {
			before, limit = math.MaxInt64, shortPage
		} else if excess := excessOf(t.Counts(), keep, bs.BlockSize) - int64(len(bs.kept))*bs.BlockSize; excess > 0 { // what the store keeps is no reason to hurry the rest
			before, enough = math.MaxInt64, excess
		}
		if !t.SafeMode() {
			keys = t.Garbage().OldestBut(bs.kept.has, bs.before(before), limit, enough)
		}
		needed := old
		if keep == 0 {
			needed = imaged
		}
		if before > needed {
			early = len(keys) - len(t.Garbage().OldestBut(bs.kept.has, bs.before(needed), len(keys), enough))
		}
		waiting = t.Counts().Garbage - len(keys)
	})
	if len(keys) == 0 {
		return 0, waiting, nil
	}
	if err := bs.Engine.WaitDurable(ctx, last); err != nil {
		return 0, waiting, err
	}
	gone, err := remove(ctx, bs, keys)
	waiting += len(keys) - len(gone)
	if len(gone) == 0 {
		return 0, waiting, err
	}
	if early > 0 && keep == 0 {
		bs.Early()
		if bs.tellEarly.now(bs.Clock.Mono()) {
			bs.Log.Warn("blocks that the newest image names are deleted early, for want of room: if ZooKeeper were lost before the next image, which is due now, files that had them could not be brought back")
		}
	} else if early > 0 {
		bs.early.Add(int64(early))
		if bs.tellEarly.now(bs.Clock.Mono()) {
			bs.Log.Error("blocks that the archive needs are deleted early, for want of room: files that had them cannot be brought back", "reason", fserror.ReasonArchive)
		}
	}
	_, derr := bs.Engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return &namespace.OpCollected{Keys: gone}, nil }})
	if derr != nil {
		return 0, waiting + len(gone), derr
	}
	return len(gone), waiting, err
}

// remove deletes blocks, and returns those that are gone; none while nothing may be deleted. A
// block that the store keeps holds up no others, now and until it is tried again.
func remove(ctx context.Context, bs *Blocks, keys []blockstore.Key) (gone []blockstore.Key, err error) {
	err = bs.Owner.While(ctx, func(ctx context.Context) error { return bs.Store.Delete(ctx, keys...) })
	var kept *blockstore.KeptError
	switch {
	case err == nil:
		return keys, nil
	case errors.Is(err, owner.ErrHeldBack):
		return nil, nil
	case errors.As(err, &kept) && bs.kept.add(kept.Keys, bs.Clock.Mono()):
		return slices.DeleteFunc(keys, func(k blockstore.Key) bool { return slices.Contains(kept.Keys, k) }), err
	}
	return nil, err
}

// keptKeys are keys that the store could not delete, and until when nothing tries again.
type keptKeys map[blockstore.Key]time.Duration

// expire forgets the keys whose time is over.
func (m keptKeys) expire(now time.Duration) {
	maps.DeleteFunc(m, func(_ blockstore.Key, until time.Duration) bool { return until <= now })
}

func (m keptKeys) has(k blockstore.Key) bool {
	_, is := m[k]
	return is
}

// add notes keys, unless they are too many.
func (m keptKeys) add(keys []blockstore.Key, now time.Duration) bool {
	if len(m)+len(keys) > mostKept {
		return false
	}
	for _, k := range keys {
		m[k] = now + retryKept
	}
	return true
}

// kept is for how long garbage stays for an archive of that time: an eighth longer than its
// moments, so that a restore of the oldest one has time to copy.
func kept(keep time.Duration) time.Duration { return keep + keep/8 }

// aged is when what is old enough to be deleted by now became garbage, since garbage stays for a while, longer for
// an archive of that time: by the time of reigns, as garbage is stamped; and that may run fast.
func aged(bs *Blocks, t *namespace.Tree, keep time.Duration) int64 {
	_, last := t.Last()
	stays := engine.Longest(max(bs.URLLife, kept(keep)))
	return t.Reigned() + max(0, bs.Engine.Now()-last) - stays.Milliseconds()
}

// Overdue is how late the oldest block is that nothing keeps and that is not deleted; 0: none is.
func (bs *Blocks) Overdue() (late time.Duration) {
	bs.Engine.Look(func(t *namespace.Tree) {
		if since, there := t.Garbage().Since(); there && since < bs.Imaged() {
			late = time.Duration(max(0, bs.before(aged(bs, t, bs.Owner.Kept()))-since)) * time.Millisecond
		}
	})
	return late
}

// excessOf is how many bytes of garbage are too many to wait for the end
// of their URLs. What the archive needs is bounded in number only.
func excessOf(n calls.Counts, keep time.Duration, blockSize int64) int64 {
	if keep > 0 {
		return int64(n.Garbage-n.Blocks-n.Held-spareKept) * blockSize
	}
	return n.GarbageBytes - n.StoredBytes - n.HeldBytes - SpareBlocks*blockSize
}

// RoomShort reports whether the block store has room for a few blocks only, or has refused
// something for want of room within the last minute.
func (bs *Blocks) RoomShort(ctx context.Context) (bool, error) {
	if at := bs.fullAt.Load(); at > 0 && int64(bs.Clock.Mono())-at < int64(time.Minute) {
		return true, nil
	}
	return bs.fewFree(ctx)
}

// fewFree reports whether the block store has room for a few blocks only.
func (bs *Blocks) fewFree(ctx context.Context) (bool, error) {
	free, total, err := bs.Store.Usage(ctx)
	return total > 0 && free < shortBlocks*bs.BlockSize, err
}

// SweepPass is the sweep that happens by itself: of blocks that surely are of this
// history. It also removes the parts of images that a crash left, and objects of
// reigns long ago; it sweeps also if that fails, as where the credentials may not list uploads.
func (bs *Blocks) SweepPass(ctx context.Context) error {
	var failed error
	err := bs.Owner.While(ctx, func(ctx context.Context) error {
		failed = bs.removeLeftovers(ctx)
		return nil
	})
	if errors.Is(err, owner.ErrHeldBack) {
		return nil
	}
	if err == nil {
		_, err = bs.Sweep(ctx, false)
	}
	return errors.Join(failed, err)
}

func (bs *Blocks) removeLeftovers(ctx context.Context) (err error) {
	if u, ok := bs.Objects.(interface {
		RemoveUnfinished(context.Context) (int, error)
	}); ok {
		var n int
		if n, err = u.RemoveUnfinished(ctx); n > 0 {
			bs.Log.Info("images that were not finished were removed from the block store", "number", n)
		}
		if err != nil {
			err = fmt.Errorf("uploads that were not finished cannot be removed from the block store: %w", err)
		}
	}
	if bs.Owner.Private {
		return err
	}
	return errors.Join(err, bs.Owner.ForgetReigns(ctx))
}

// Sweep searches the store for orphans: blocks that were put and never
// committed; and for blocks of files that it does not have, of which it tells Absent. Orphans become garbage by a record, and are collected as such. Those for
// which no record vouches are left unless all are asked for: they can be another
// history's, which only an operator can know.
func (bs *Blocks) Sweep(ctx context.Context, all bool) (orphans int, err error) {
	if bs.Engine.Facts().SafeMode {
		return 0, nil
	}
	var after blockstore.Key
	left := 0
	for ctx.Err() == nil {
		had, err := bs.Engine.Snapshot(ctx) // before it lists: all that files have then was put
		if err != nil {
			return orphans, err
		}
		page, err := bs.listStore(ctx, after)
		if err == nil && bs.Absent != nil {
			tellAbsent(bs, had, after, page)
		}
		if err == nil && len(page) == 0 {
			bs.noteUnswept(left)
		}
		if err != nil || len(page) == 0 {
			return orphans, err
		}
		after = page[len(page)-1].Key
		blocks := bs.notPending(page)
		if !all {
			n := len(blocks)
			blocks = bs.keepVouched(blocks)
			left += n - len(blocks)
		}
		n, err := bs.sweepBlocks(ctx, blocks)
		orphans += n
		if err != nil {
			return orphans, err
		}
	}
	return orphans, ctx.Err()
}

// tellAbsent tells of the blocks of files that a page, which begins behind a key, lacks. The tree is
// older than the page; what was deleted meanwhile no file has any more. An empty page ends the listing.
func tellAbsent(bs *Blocks, t *namespace.Tree, after blockstore.Key, page []tables.StoredBlock) {
	absent, i := map[blockstore.Key]bool{}, 0
	t.BlocksFrom(after, func(k blockstore.Key) bool {
		for i < len(page) && page[i].Key.Less(k) {
			i++
		}
		switch {
		case k == after || i < len(page) && page[i].Key == k:
			return true
		case i > 0 && i == len(page):
			return false // the next page begins
		case bs.Has(k):
			absent[k] = true
		}
		return len(absent) < absentPage
	})
	if len(absent) > 0 {
		t.Referenced(0, func(id namespace.InodeID, b namespace.Block) bool { return !absent[b.Key] || bs.Absent(id, b) })
	}
}

// keepVouched keeps the blocks that are in the tree or may be swept without asking.
func (bs *Blocks) keepVouched(blocks []tables.StoredBlock) []tables.StoredBlock {
	bs.Engine.Look(func(t *namespace.Tree) {
		reigns := t.Reigns()
		blocks = slices.DeleteFunc(blocks, func(b tables.StoredBlock) bool {
			k := b.Key
			return !bs.allocs.minted(k) && !bs.Owner.Vouched(reigns, k) && !t.HasBlock(k) && !t.IsGarbage(k)
		})
	})
	return blocks
}

// noteUnswept says how many blocks wait for an operator.
func (bs *Blocks) noteUnswept(left int) {
	if was := bs.unswept.Swap(int64(left)); int64(left) > was {
		bs.Log.Warn("the block store has blocks that no file has and for which no record vouches: put shortly before a reign ended, or another copy's; they are deleted when an operator asks for it", "reason", fserror.ReasonUnsweptBlocks, "blocks", left)
	}
}

func (bs *Blocks) listStore(ctx context.Context, after blockstore.Key) ([]tables.StoredBlock, error) {
	var blocks []tables.StoredBlock
	for len(blocks) < sweepPage {
		infos, err := bs.Store.List(ctx, after, listPage)
		if err != nil {
			return nil, err
		}
		for _, in := range infos {
			blocks = append(blocks, tables.StoredBlock{Key: in.Key, Stored: uint32(min(in.Length, math.MaxUint32))}) //nolint:gosec // a length
		}
		if len(infos) < listPage {
			break
		}
		after = infos[len(infos)-1].Key
	}
	return blocks, nil
}

// notPending keeps the blocks that may not be committed any more. What it lets
// through can be in the tree already, but cannot come into it: so the tree is
// looked at after this.
func (bs *Blocks) notPending(blocks []tables.StoredBlock) []tables.StoredBlock {
	now := bs.Clock.Mono()
	oldTermsOver := now > bs.activated+bs.URLLife+urlMargin
	out := blocks[:0]
	for _, b := range blocks {
		switch k := b.Key; {
		case k.Term > bs.term: // a later reign's: never ours to touch
		case k.Term < bs.term && oldTermsOver:
			out = append(out, b)
		case k.Term == bs.term && bs.allocs.dropExpired(k, now-urlMargin):
			out = append(out, b)
		}
	}
	return out
}

// sweepBlocks makes garbage of those blocks that no file has. The plan looks at the
// tree under the lock.
func (bs *Blocks) sweepBlocks(ctx context.Context, blocks []tables.StoredBlock) (int, error) {
	if len(blocks) == 0 {
		return 0, nil
	}
	unowned := make(map[blockstore.Key]struct{}, len(blocks))
	for _, b := range blocks {
		unowned[b.Key] = struct{}{}
	}
	t, err := bs.Engine.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	t.Referenced(0, func(_ namespace.InodeID, b namespace.Block) bool {
		delete(unowned, b.Key)
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	page := make([]tables.StoredBlock, 0, collectPage)
	n := 0
	flush := func() error {
		found := 0
		_, err := bs.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			found = 0
			op := namespace.PlanTombstone(tx.Tree, page)
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
