package blocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

const (
	// sealLarge is the tail in bytes from which a cold one is sealed even when
	// there is room.
	sealLarge = 64 << 10
	// sealBatch bounds the files sealed in one pass.
	sealBatch = 1000
	// sealEvery is how often cold tails are looked for when there is room.
	sealEvery = time.Minute
)

// coldTail is a file whose tail may be sealed.
type coldTail struct {
	id    namespace.InodeID
	bytes int
}

// SealPass looks for cold tails: under pressure of the tail budget every
// second, the biggest first, if those of closed files are worth it; else once a
// minute, and without pressure large ones only.
func (bs *Blocks) SealPass() func(context.Context) error {
	next := bs.Clock.Mono() + min(sealEvery, bs.SealAfter)
	return func(ctx context.Context) error {
		counts := bs.Engine.Facts().Counts
		total := counts.TailBytes
		pressed := total > bs.TailBudget/2
		// To find tails takes a walk over the whole tree.
		worth := pressed && counts.ClosedTailBytes > bs.TailBudget/10
		if now := bs.Clock.Mono(); !worth {
			if now < next {
				return nil
			}
			next = now + min(sealEvery, bs.SealAfter)
		}
		goal := int64(0)
		if pressed {
			goal = total - bs.TailBudget*2/5
		}
		return bs.SealCold(ctx, pressed, goal)
	}
}

// SealCold seals tails of closed files: if pressed, the longest first until so many bytes
// (goal) are sealed, else those that are large and old.
func (bs *Blocks) SealCold(ctx context.Context, pressed bool, goal int64) error {
	t, err := bs.Engine.Snapshot(ctx)
	if err != nil {
		return err
	}
	if t.SafeMode() {
		return nil
	}
	var cold []coldTail
	before := bs.Engine.Now() - bs.SealAfter.Milliseconds()
	t.Tails(func(id namespace.InodeID, n int, _ *namespace.Block, open bool, mtime int64) bool {
		if !open && (pressed || (n >= sealLarge && mtime <= before)) {
			cold = append(cold, coldTail{id, n})
		}
		return ctx.Err() == nil
	})
	slices.SortFunc(cold, func(a, b coldTail) int { return b.bytes - a.bytes })
	var sealed int64
	for i, c := range cold {
		if ctx.Err() != nil || i == sealBatch || (pressed && sealed >= goal) {
			break
		}
		if err := bs.Seal(ctx, c.id); err != nil && !errors.Is(err, ErrStale) {
			return err
		}
		sealed += int64(c.bytes)
	}
	return nil
}

// Seal moves a closed file's tail into a block. A last block that is short is
// merged with it, if it is not much longer than the tail: so each byte is
// rewritten a few times at most, and many small appends end in full blocks. One
// that cannot be read stays as it is: it must not hold up the sealing.
func (bs *Blocks) Seal(ctx context.Context, id namespace.InodeID) error {
	v, err := bs.sealView(ctx, id)
	if err != nil || len(v.Tail) == 0 {
		return err
	}
	var unread error
	m := merge{id: id, offset: v.Attr.Length - int64(len(v.Tail)), tail: v.Tail, data: bytes.Clone(v.Tail)}
	if n := len(v.Blocks); n > 0 {
		m.last = &v.Blocks[n-1]
		if mergeable(*m.last, len(v.Tail), bs.BlockSize) {
			object, err := bs.Fetch(ctx, *m.last)
			switch {
			case err == nil:
				m.data, m.replace = slices.Concat(object[:m.last.Used], v.Tail), true
			case ctx.Err() != nil:
				return err
			default:
				unread = err
			}
		}
	}
	err = bs.sealInto(ctx, m)
	if err == nil && unread != nil && bs.unmerged.now(bs.Clock.Mono()) {
		bs.Log.Error("a tail was sealed unmerged, since the block before it cannot be read", "reason", fserror.ReasonDamagedBlock, "file", v.Attr.Name, "inode", id, "cause", unread)
	}
	return err
}

// seldom keeps a line that could be logged often to one a minute.
type seldom struct{ next atomic.Int64 }

func (l *seldom) now(mono time.Duration) bool {
	next := l.next.Load()
	return int64(mono) >= next && l.next.CompareAndSwap(next, int64(mono+time.Minute))
}

// merge is a tail on its way into a block.
type merge struct {
	id      namespace.InodeID
	offset  int64            // of the tail in the file
	tail    []byte           // never changed, as the tree's own
	last    *namespace.Block // the block before the tail, nil: none
	replace bool             // the new block takes the place of last
	data    []byte           // of the new block
}

func mergeable(b namespace.Block, tail int, blockSize int64) bool {
	return int64(b.Used)+int64(tail) <= blockSize && int64(b.Used) <= 4*int64(tail)
}

func (bs *Blocks) sealView(ctx context.Context, id namespace.InodeID) (v calls.FileView, err error) {
	c := &namespace.Call{Super: true}
	err = bs.Engine.View(ctx, c, func(tx *engine.Tx) (err error) {
		if v, err = tx.Tree.File(c, namespace.Inode(id)); errors.Is(err, fserror.NotFound) {
			var kept bool
			if v, kept = tx.Tree.FileInTrash(c, id); kept {
				err = nil
			}
		}
		return err
	})
	if errors.Is(err, fserror.NotFound) || v.Attr.Open != nil {
		return v, ErrStale
	}
	return v, err
}

func (bs *Blocks) sealInto(ctx context.Context, m merge) error {
	if err := bs.Owner.MayMint(ctx); err != nil {
		return err
	}
	used := len(m.data)
	object, crc := blockstore.Seal(m.data)
	key := bs.allocs.mint(alloc{inode: m.id, stored: int64(len(object)), crc: crc, expires: bs.Clock.Mono() + bs.URLLife})
	defer bs.allocs.drop(key)
	if err := bs.Store.Put(ctx, key, object, crc); err != nil {
		if errors.Is(err, fserror.NoSpace) {
			bs.NoteFull()
		}
		return fmt.Errorf("sealing a tail: %w", err)
	}
	b := namespace.Block{Key: key, Stored: uint32(len(object)), Used: uint32(used), CRC: crc} //nolint:gosec // within a block
	begin := m.offset - int64(used-len(m.tail))
	_, err := bs.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := tx.RefuseInSafeMode(nil); err != nil {
			return nil, err
		}
		// A put may outlive its key: the sweep may then have deleted the block.
		if bs.MayCommit(namespace.Writer{Inode: m.id}, b) != nil {
			return nil, ErrStale
		}
		// A writer who opened the file meanwhile counts on where its tail
		// begins; and one who truncated it may have written other bytes since.
		if _, open := tx.Tree.OpenFile(m.id); open || !tx.Tree.TailIs(m.id, m.offset, m.tail) {
			return nil, ErrStale
		}
		return engine.OrNil(namespace.PlanMerge(tx.Tree, m.id, b, begin, int64(len(m.tail)), m.replace, m.last))
	}})
	if err == nil {
		return nil
	}
	// The file changed while the block was written: the block is garbage.
	if _, terr := bs.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanTombstone(tx.Tree, []tables.StoredBlock{{Key: key, Stored: b.Stored}}), nil)
	}}); terr != nil {
		return terr
	}
	if errors.Is(err, fserror.Retry) {
		return ErrStale
	}
	return err
}
