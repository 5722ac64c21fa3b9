// Package blocks looks after the blocks of files: which keys are handed out and may
// still be committed, the sealing of tails into blocks, and the deletion of blocks that
// no file has.
package blocks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/owner"
)

// ErrStale says that the file has changed since it was looked at.
var ErrStale = errors.New("changed meanwhile")

// Config is what Blocks work with. All but Absent is required.
type Config struct {
	Clock     clock.Clock
	Log       *slog.Logger
	Engine    *engine.Engine
	Store     blockstore.Store
	Objects   blockstore.Objects
	Owner     *owner.Owner
	BlockSize int64         // of full blocks, in bytes
	URLLife   time.Duration // of signed URLs
	// TailBudget is how many bytes tails may have in memory, SealAfter after how
	// long without a write a large one is sealed all the same.
	TailBudget int64
	SealAfter  time.Duration
	// Imaged is what became garbage then or later, by Tree.Reigned, that the newest image may name:
	// it stays until there is a newer one, while there is room.
	Imaged func() int64
	// Early is told when some of it was deleted nevertheless, for want of room.
	Early func()
	// Absent is told of blocks of files that a listing of the store lacks, until it returns
	// false; nil: nobody is. They may have been deleted meanwhile.
	Absent func(namespace.InodeID, namespace.Block) (more bool)
}

// Blocks are those of one namenode. Its methods are safe for concurrent use.
type Blocks struct {
	Config
	// Due has an element when garbage should be looked for at once: room is short,
	// or garbage takes too much.
	Due chan struct{}
	// Deleted has an element when there may be memory of deleted directories, or blocks of
	// deleted snapshots, to be given back.
	Deleted chan struct{}

	turn      turn.Turn // its holder may delete, or change safe mode
	term      uint64    // of the reign
	activated time.Duration
	allocs    *allocTable
	unmerged  seldom
	early     atomic.Int64 // blocks that were deleted although the archive needs them
	tellEarly seldom
	full      atomic.Bool  // the store has refused something for want of room
	fullAt    atomic.Int64 // when it last did, by the clock
	unswept   atomic.Int64 // blocks that the last sweep left, for nothing vouches for them
	kept      keptKeys     // of garbage; the holder of the turn has it

	mu    sync.Mutex
	holds map[int]int64 // times of reigns: what became garbage then or later stays
	next  int
}

// New returns the blocks of a store.
func New(cfg Config) *Blocks {
	return &Blocks{Config: cfg, Due: make(chan struct{}, 1), Deleted: make(chan struct{}, 1), turn: turn.New(), allocs: newAllocTable(), holds: map[int]int64{}, kept: keptKeys{}}
}

// Begin is called when a reign begins.
func (bs *Blocks) Begin(r tables.Reign, now time.Duration) {
	bs.term, bs.activated = r.Term, now
	bs.allocs.begin(r.Term, r.Base())
	bs.Wake() // what was deleted in the reign before may not be given back yet
}

// Stop waits until no block is being deleted, and has none deleted until resume is
// called.
func (bs *Blocks) Stop(ctx context.Context) (resume func(), err error) { return bs.turn.Lock(ctx) }

// Hurry has garbage collected at once if the store has little room, or garbage takes
// much of it.
func (bs *Blocks) Hurry(free, total int64) {
	if excessOf(bs.Engine.Facts().Counts, bs.Owner.Kept(), bs.BlockSize) <= 0 && (total <= 0 || free >= shortBlocks*bs.BlockSize) {
		return
	}
	bs.hurry()
}

func (bs *Blocks) hurry() {
	select {
	case bs.Due <- struct{}{}:
	default:
	}
}

// NoteFull says that the store has refused something for want of room: a page of the oldest
// garbage goes, whether or not it is due. An S3 store does not tell how much room it has.
func (bs *Blocks) NoteFull() {
	bs.full.Store(true)
	bs.fullAt.Store(int64(bs.Clock.Mono()))
	bs.hurry()
}

// Noting is o, but NoteFull is called when it refuses an object for want of room.
func (bs *Blocks) Noting(o blockstore.Objects) blockstore.Objects { return noting{o, bs} }

type noting struct {
	blockstore.Objects
	bs *Blocks
}

func (n noting) PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc uint32) error {
	err := n.Objects.PutNamed(ctx, name, body, length, crc)
	if errors.Is(err, fserror.NoSpace) {
		n.bs.NoteFull()
	}
	return err
}

// Early is how many blocks were deleted although the archive needs them, since the namenode was
// started.
func (bs *Blocks) Early() int64 { return bs.early.Load() }

// Unswept is how many blocks the last sweep has left for an operator.
func (bs *Blocks) Unswept() int64 { return bs.unswept.Load() }

// Allocated is how many keys are handed out.
func (bs *Blocks) Allocated() int { return bs.allocs.len() }

// Admit refuses n more keys to a session that has many which it has not committed, and
// any key before the store knows of this reign.
func (bs *Blocks) Admit(ctx context.Context, session namespace.SessionID, n int) error {
	if !bs.allocs.admit(session, n, bs.Clock.Mono()+bs.URLLife-giveUpAfter) {
		return &fserror.Error{Kind: fserror.Retry, Reason: "allocated blocks", RetryAfter: time.Second,
			Message: fmt.Sprintf("this client has %d blocks allocated that it has not committed; commit them first", maxOutstanding)}
	}
	return bs.Owner.MayMint(ctx)
}

// Allocate hands out a key to a writer, and the request that puts the block: so many
// bytes with that CRC32C.
func (bs *Blocks) Allocate(w namespace.Writer, by namespace.SessionID, stored int64, crc uint32) (blockstore.Key, blockstore.Signed, error) {
	key := bs.allocs.mint(alloc{session: by, inode: w.Inode, epoch: w.Epoch, stored: stored, crc: crc, expires: bs.Clock.Mono() + bs.URLLife})
	signed, err := bs.Store.SignPut(key, stored, crc, bs.Clock.Wall().Add(bs.URLLife))
	if err != nil {
		bs.Drop(key)
	}
	return key, signed, err
}

// Drop forgets a key: it is committed, or may never be.
func (bs *Blocks) Drop(k blockstore.Key) { bs.allocs.drop(k) }

// Expire forgets the keys that are too old to be committed.
func (bs *Blocks) Expire() { bs.allocs.expire(bs.Clock.Mono() - bs.URLLife) }

// Older reports whether a key of an earlier reign may still be committed: what was
// allocated then is not known any more, so the block has to be read.
func (bs *Blocks) Older(k blockstore.Key) bool {
	return k.Term < bs.term && bs.Clock.Mono() <= bs.activated+bs.URLLife
}

// MayCommit decides whether a key may still become part of a file. A key of
// this term must be one handed out to this writer. One of an earlier term may
// have been handed out before a restart: until its URL is surely over, and
// unless it is garbage (the tree knows), it may.
func (bs *Blocks) MayCommit(w namespace.Writer, b namespace.Block) error {
	refused := fserror.New(fserror.InvalidArgument, "", "", "block %d/%d was not allocated to this writer, or its URL has expired: allocate a new block and upload again", b.Key.Term, b.Key.Seq)
	switch {
	case bs.Older(b.Key):
		return nil
	case b.Key.Term < bs.term:
		return refused
	}
	a, ok := bs.allocs.get(b.Key)
	if !ok || a.inode != w.Inode || a.epoch != w.Epoch || a.stored != int64(b.Stored) || a.crc != b.CRC {
		return refused
	}
	return nil
}

// Has reports whether a file has the block now: one that none has any more may be gone.
func (bs *Blocks) Has(k blockstore.Key) (has bool) {
	bs.Engine.Look(func(t *namespace.Tree) { has = t.HasBlock(k) })
	return has
}

// Fetch reads a whole object and verifies it. It is Damaged only if the store has
// another: else it may be whole.
func (bs *Blocks) Fetch(ctx context.Context, b namespace.Block) ([]byte, error) {
	rc, err := bs.Store.Get(ctx, b.Key, 0, -1)
	if fserror.KindOf(err) == fserror.InvalidArgument { // no byte is there to begin at
		return nil, fserror.New(fserror.Damaged, "", "", "block %d/%d is empty, and %d bytes were written", b.Key.Term, b.Key.Seq, b.Stored)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	object := make([]byte, b.Stored)
	switch _, err := io.ReadFull(rc, object); {
	case errors.As(err, new(*fserror.Error)): // it may have an EOF in it, of a connection
		return nil, err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fserror.New(fserror.Damaged, "", "", "block %d/%d is shorter than the %d bytes written: %v", b.Key.Term, b.Key.Seq, b.Stored, err)
	case err != nil:
		return nil, err
	}
	if n, _ := io.ReadFull(rc, make([]byte, 1)); n > 0 {
		return nil, fserror.New(fserror.Damaged, "", "", "block %d/%d is longer than the %d bytes written", b.Key.Term, b.Key.Seq, b.Stored)
	}
	return object, blockstore.Verify(b.Key, object, b.CRC)
}
