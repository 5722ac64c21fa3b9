package client

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// pendingBlock is a block under way into the file.
type pendingBlock struct {
	buf        *blockio.Buffer
	start, end int64 // bytes of the file
	hole       int   // bytes at the start of buf that are to be fetched first
	covered    int   // bytes at its start that are in the file's tail
	coveredCRC uint32

	object []byte // sealed; nil before
	crc    uint32
	lost   bool            // a reply to its commit was lost: it may be in the file
	shared bool            // a PUT that failed may still be reading the object
	target *pb.BlockTarget // set once the object is stored there
	run    *blockRun
}

// blockRun is one try to get a block into the file.
type blockRun struct {
	done chan struct{}
	err  error // valid once done is closed
}

// errBefore ends the run of a block after one that failed.
var errBefore = errors.New("the block before it failed")

// mayDispatch reports whether the current buffer may be sent. The caller
// holds mu.
func (w *Writer) mayDispatch() bool {
	return w.round == nil && w.unsure == nil && w.blockErr == nil && len(w.pending) < w.fs.cfg.WriteAhead
}

// dispatch makes the current buffer a block under way and leaves none. The
// caller holds mu; no AppendTail is under way or unsure.
func (w *Writer) dispatch() {
	b := &pendingBlock{buf: w.cur, start: w.start, end: w.start + int64(len(w.cur.B)), hole: w.hole}
	b.covered = int(min(max(w.durable-b.start, 0), b.end-b.start))
	w.cur, w.start, w.hole = nil, b.end, 0
	w.pending = append(w.pending, b)
	w.startBlock(len(w.pending) - 1)
}

// startBlock starts the run of the i-th pending block. The caller holds mu.
func (w *Writer) startBlock(i int) {
	b := w.pending[i]
	var before, own *blockRun
	if i > 0 {
		before = w.pending[i-1].run
	}
	own, b.run = b.run, &blockRun{done: make(chan struct{})}
	run := b.run
	if !w.fs.goRun(func() {
		if own != nil {
			<-own.done
			if own.err == nil { // it made it while it was being started again
				close(run.done)
				return
			}
		}
		w.finishBlock(b, run, w.runBlock(b, before))
	}) {
		run.err = fserror.New(fserror.Closed, "", "", "the client is closed")
		w.blockErr = run.err
		close(run.done)
	}
}

// restart tries all blocks again after a failure. The caller holds mu.
func (w *Writer) restart() {
	w.blockErr = nil
	for i := range w.pending {
		w.startBlock(i)
	}
}

// finishBlock notes how the run of a block ended.
func (w *Writer) finishBlock(b *pendingBlock, run *blockRun, err error) {
	err = w.seen(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	run.err = err
	switch {
	case err == nil:
		// Commits are in order, so it is the first.
		w.pending = w.pending[1:]
		w.durable = max(w.durable, b.end)
		if !b.shared {
			b.buf.Free()
		}
		b.buf, b.object = nil, nil
	case !errors.Is(err, errBefore) && b.run == run: // else it is being tried again already
		w.blockErr = err
	}
	close(run.done)
	w.cond.Broadcast()
}

// runBlock seals, stores and commits a block. It continues where an earlier run
// stopped.
func (w *Writer) runBlock(b *pendingBlock, before *blockRun) error {
	if b.object == nil {
		if b.hole > 0 {
			if err := w.fetchTail(w.work, b.start, b.buf.B[:b.hole]); err != nil {
				return err
			}
			b.hole = 0
		}
		b.coveredCRC = blockstore.CRC(b.buf.B[:b.covered])
		b.object, b.crc = blockstore.Seal(b.buf.B)
		b.buf.B = b.object
	}
	if b.target == nil {
		if err := w.store(b); err != nil {
			return err
		}
	}
	if before != nil {
		select {
		case <-before.done:
			if before.err != nil {
				return errBefore
			}
		case <-w.work.Done():
			return fserror.Ended(w.work, "write", w.path)
		}
	}
	err := w.commit(b)
	if err != nil && b.target == nil {
		// The key's time was over. Once more, under a fresh one.
		if err = w.store(b); err == nil {
			err = w.commit(b)
		}
	}
	return err
}

// store puts the object where the namenode says, after each failure under a fresh
// key.
func (w *Writer) store(b *pendingBlock) error {
	req := &pb.AllocateBlockRequest{Writer: w.id, Blocks: []*pb.BlockIntent{{StoredLength: int64(len(b.object)), Crc32C: b.crc}}}
	at, shared, err := w.fs.blobs.Store(w.work, b.object, tries(w.fs, "write", w.path), func() (*pb.BlockTarget, error) {
		if err := w.check(); err != nil {
			return nil, err
		}
		resp := new(pb.AllocateBlockResponse)
		c := namecall.Call{Op: "write", Path: w.path}
		if err := w.fs.nn.Do(w.work, &c, pb.Namenode_AllocateBlock_FullMethodName, req, resp); err != nil {
			return nil, err
		}
		if len(resp.GetTargets()) != 1 {
			return nil, fserror.New(fserror.Internal, "", "", "the namenode allocated %d blocks for 1", len(resp.GetTargets()))
		}
		return resp.GetTargets()[0], nil
	})
	b.target, b.shared = at, b.shared || shared
	if err != nil && w.work.Err() != nil {
		return fserror.Ended(w.work, "write", w.path)
	}
	return fserror.With(err, "write", w.path)
}

// commit makes the stored block part of the file.
func (w *Writer) commit(b *pendingBlock) error {
	t := b.target
	req := &pb.CommitRequest{
		Writer: w.id, Offset: b.start, TailCovered: int64(b.covered), TailCrc32C: b.coveredCRC,
		Block: &pb.Block{
			Term: t.GetTerm(), Seq: t.GetSeq(), StoredLength: int64(len(b.object)), UsedLength: b.end - b.start, Crc32C: b.crc,
		},
	}
	if err := w.check(); err != nil {
		return err
	}
	c, asked := namecall.Call{Op: "write", Path: w.path, Mutates: true}, w.fs.session.Now()
	err := w.fs.nn.Do(w.work, &c, pb.Namenode_Commit_FullMethodName, req, new(pb.CommitResponse))
	// The namenode renews for a commit that makes the file longer, and not for one of
	// which an earlier call left the record.
	if err == nil && b.end-b.start > int64(b.covered) && !b.lost {
		w.lease.Renew(asked)
	}
	b.lost = b.lost || c.AnyLost
	if err == nil || c.Lost {
		return err
	}
	switch fserror.KindOf(err) {
	case fserror.NotFound, fserror.InvalidArgument:
		b.target = nil // not the namenode's any more: it is to be stored again
	}
	return err
}

// fetchTail reads the bytes of the file's tail from off on, which a writer
// that opened for append does not know.
func (w *Writer) fetchTail(ctx context.Context, off int64, dst []byte) error {
	req := &pb.GetFileRequest{Caller: w.fs.caller, At: pb.Inode(w.key.Inode), Writer: w.id, Offset: off, NoUrls: true}
	resp := new(pb.GetFileResponse)
	if err := w.fs.nn.Do(ctx, &namecall.Call{Op: "write", Path: w.path}, pb.Namenode_GetFile_FullMethodName, req, resp); err != nil {
		return err
	}
	tail := resp.GetTail()
	if resp.GetTailOffset() != off || len(tail) < len(dst) {
		return fserror.New(fserror.Internal, "write", w.path, "the file's tail has %d bytes from %d on; the namenode gave %d from %d on", len(dst), off, len(tail), resp.GetTailOffset())
	}
	if blockstore.CRC(tail) != resp.GetTailCrc32C() {
		return fserror.New(fserror.Damaged, "write", w.path, "the file's tail at offset %d does not match its checksum", off)
	}
	copy(dst, tail)
	return nil
}

// splitTail makes blocks of a tail that is longer than one (this client's
// blocks are small), so that the rest fits a buffer. The caller holds mu.
func (w *Writer) splitTail(ctx context.Context) error {
	tail := make([]byte, w.hole)
	off := w.start
	w.mu.Unlock()
	ctx, cancel := w.under(ctx)
	err := w.fetchTail(ctx, off, tail)
	cancel()
	w.mu.Lock()
	if err == nil {
		err = w.usable()
	}
	if err != nil {
		return err
	}
	w.hole = 0
	for int64(len(tail)) >= w.full {
		w.cur = blockio.NewBuffer(blockstore.StoredLength(w.full))
		w.cur.B = append(w.cur.B, tail[:w.full]...)
		tail = tail[w.full:]
		w.dispatch()
	}
	w.cur = blockio.NewBuffer(blockstore.StoredLength(w.full))
	w.cur.B = append(w.cur.B, tail...)
	return nil
}
