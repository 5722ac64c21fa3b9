package namenode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
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

// sealPass looks for cold tails: under pressure of the tail budget every
// second, the biggest first; else once a minute, large ones only.
func (s *Server) sealPass() func(context.Context) error {
	next := s.cfg.Clock.Mono() + min(sealEvery, s.cfg.SealAfter)
	return func(ctx context.Context) error {
		s.mu.RLock()
		total := s.tree.Counts().TailBytes
		s.mu.RUnlock()
		pressed := total > s.cfg.TailBudget/2
		if now := s.cfg.Clock.Mono(); !pressed {
			if now < next {
				return nil
			}
			next = now + min(sealEvery, s.cfg.SealAfter)
		}
		goal := int64(0)
		if pressed {
			goal = total - s.cfg.TailBudget*2/5
		}
		return s.sealCold(ctx, pressed, goal)
	}
}

func (s *Server) sealCold(ctx context.Context, pressed bool, goal int64) error {
	t, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	if t.SafeMode() {
		return nil
	}
	var cold []coldTail
	before := s.cfg.Clock.Wall().Add(-s.cfg.SealAfter).UnixMilli()
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
		if err := s.seal(ctx, c.id); err != nil && !errors.Is(err, errStale) {
			return err
		}
		sealed += int64(c.bytes)
	}
	return nil
}

// seal moves a closed file's tail into a block. A last block that is short is
// merged with it, if it is not much longer than the tail: so each byte is
// rewritten a few times at most, and many small appends end in full blocks.
func (s *Server) seal(ctx context.Context, id namespace.InodeID) error {
	v, err := s.sealView(ctx, id)
	if err != nil || len(v.Tail) == 0 {
		return err
	}
	offset := v.Attr.Length - int64(len(v.Tail))
	data := bytes.Clone(v.Tail)
	var last *namespace.Block
	if n := len(v.Blocks); n > 0 && mergeable(v.Blocks[n-1], len(v.Tail), s.cfg.BlockSize) {
		last = &v.Blocks[n-1]
		object, err := s.fetchBlock(ctx, *last)
		if err != nil {
			return fserror.With(err, "seal", v.Attr.Name)
		}
		data = slices.Concat(object[:last.Used], v.Tail)
		offset -= int64(last.Used)
	}
	return s.sealInto(ctx, id, data, offset, len(v.Tail), last)
}

func mergeable(b namespace.Block, tail int, blockSize int64) bool {
	return int64(b.Used)+int64(tail) <= blockSize && int64(b.Used) <= 4*int64(tail)
}

func (s *Server) sealView(ctx context.Context, id namespace.InodeID) (v namespace.FileView, err error) {
	c := &namespace.Call{Super: true}
	err = s.read(ctx, c, func() (err error) {
		v, err = s.tree.FileInode(c, id)
		return err
	})
	if errors.Is(err, fserror.NotFound) || v.Attr.Open != nil {
		return v, errStale
	}
	return v, err
}

func (s *Server) sealInto(ctx context.Context, id namespace.InodeID, data []byte, offset int64, tail int, last *namespace.Block) error {
	used := len(data)
	object, crc := blockstore.Seal(data)
	key := s.allocs.mint(s.term, alloc{inode: id, stored: int64(len(object)), crc: crc, expires: s.cfg.Clock.Mono() + s.cfg.URLLife})
	defer s.allocs.drop(key)
	if err := s.store.Put(ctx, key, object, crc); err != nil {
		return fmt.Errorf("sealing a tail: %w", err)
	}
	b := namespace.Block{Key: key, Stored: uint32(len(object)), Used: uint32(used), CRC: crc} //nolint:gosec // within a block
	_, err := s.own(ctx, func() (namespace.Op, error) {
		if err := s.checkSafeMode(); err != nil {
			return nil, err
		}
		return orNil(s.tree.PlanMerge(id, b, offset, int64(tail), last != nil, last))
	})
	if err == nil {
		return nil
	}
	// The file changed while the block was written: the block is garbage.
	if _, terr := s.own(ctx, func() (namespace.Op, error) { return orNil(s.tree.PlanTombstone([]blockstore.Key{key}), nil) }); terr != nil {
		return terr
	}
	return errStale
}
