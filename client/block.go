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
	leave  blockio.Room // what it has of Config.Ahead
}

// blockRun is one try to get a block into the file.
type blockRun struct {
	done chan struct{}
	err  error // valid once done is closed
}

// errBefore ends the run of a block after one that failed.
var errBefore = errors.New("the block before it failed")

// mayDispatch reports whether the current buffer may be sent, and takes the room that
// it then needs. The caller holds mu.
func (ct *content) mayDispatch() bool {
	if ct.round != nil || ct.unsure != nil || ct.blockErr != nil || len(ct.pending) >= ct.fs.cfg.WriteAhead {
		return false
	}
	if len(ct.pending) == 0 {
		return true
	}
	ct.leave = ct.fs.blobs.Ahead(ct.full, ct.fs.cfg.Ahead)
	return ct.leave != nil
}

// dispatch makes the current buffer a block under way and leaves none. The
// caller holds mu; no AppendTail is under way or unsure.
func (ct *content) dispatch() {
	b := &pendingBlock{buf: ct.cur, start: ct.start, end: ct.start + int64(len(ct.cur.B)), hole: ct.hole, leave: ct.leave}
	ct.leave = nil
	b.covered = int(min(max(ct.durable-b.start, 0), b.end-b.start))
	ct.cur, ct.start, ct.hole = nil, b.end, 0
	ct.pending = append(ct.pending, b)
	ct.startBlock(len(ct.pending) - 1)
}

// startBlock starts the run of the i-th pending block. The caller holds mu.
func (ct *content) startBlock(i int) {
	b := ct.pending[i]
	var before, own *blockRun
	if i > 0 {
		before = ct.pending[i-1].run
	}
	own, b.run = b.run, &blockRun{done: make(chan struct{})}
	run := b.run
	if !ct.fs.goRun(func() {
		if own != nil {
			<-own.done
			if own.err == nil { // it made it while it was being started again
				close(run.done)
				return
			}
		}
		ct.finishBlock(b, run, ct.runBlock(b, before))
	}) {
		run.err = fserror.New(fserror.Closed, "", "", "the client is closed")
		ct.blockErr = run.err
		close(run.done)
	}
}

// restart tries all blocks again after a failure. The caller holds mu.
func (ct *content) restart() {
	ct.blockErr = nil
	for i := range ct.pending {
		ct.startBlock(i)
	}
}

// finishBlock notes how the run of a block ended.
func (ct *content) finishBlock(b *pendingBlock, run *blockRun, err error) {
	err = ct.seen(err)
	ct.mu.Lock()
	defer ct.mu.Unlock()
	run.err = err
	switch {
	case err == nil:
		// Commits are in order, so it is the first.
		ct.pending = ct.pending[1:]
		b.leave.Give()
		ct.durable = max(ct.durable, b.end)
		if !b.shared {
			b.buf.Free()
		}
		b.buf, b.object = nil, nil
	case !errors.Is(err, errBefore) && b.run == run: // else it is being tried again already
		ct.blockErr = err
	}
	close(run.done)
	ct.cond.Broadcast()
}

// runBlock seals, stores and commits a block. It continues where an earlier run
// stopped.
func (ct *content) runBlock(b *pendingBlock, before *blockRun) error {
	if b.object == nil {
		if b.hole > 0 {
			if err := ct.fetchTail(ct.work, b.start, b.buf.B[:b.hole]); err != nil {
				return err
			}
			b.hole = 0
		}
		b.coveredCRC = blockstore.CRC(b.buf.B[:b.covered])
		b.object, b.crc = blockstore.Seal(b.buf.B)
		b.buf.B = b.object
	}
	if b.target == nil {
		if err := ct.store(b); err != nil {
			return err
		}
	}
	if before != nil {
		select {
		case <-before.done:
			if before.err != nil {
				return errBefore
			}
		case <-ct.work.Done():
			return fserror.Ended(ct.work, "write", ct.path)
		}
	}
	err := ct.commit(b)
	if err != nil && b.target == nil {
		// The key's time was over. Once more, under a fresh one.
		if err = ct.store(b); err == nil {
			err = ct.commit(b)
		}
	}
	return err
}

// store puts the object where the namenode says, after each failure under a fresh
// key.
func (ct *content) store(b *pendingBlock) error {
	req := &pb.AllocateBlockRequest{Writer: ct.id, Blocks: []*pb.BlockIntent{{StoredLength: int64(len(b.object)), Crc32C: b.crc}}}
	at, shared, err := ct.fs.blobs.Store(ct.work, b.object, tries(ct.fs, "write", ct.path), func() (*pb.BlockTarget, error) {
		if err := ct.check(); err != nil {
			return nil, err
		}
		resp := new(pb.AllocateBlockResponse)
		c := namecall.Call{Op: "write", Path: ct.path}
		if err := ct.fs.nn.Do(ct.work, &c, pb.Namenode_AllocateBlock_FullMethodName, req, resp); err != nil {
			return nil, err
		}
		if len(resp.GetTargets()) != 1 {
			return nil, fserror.New(fserror.Internal, "", "", "the namenode allocated %d blocks for 1", len(resp.GetTargets()))
		}
		return resp.GetTargets()[0], nil
	})
	b.target, b.shared = at, b.shared || shared
	if err != nil && ct.work.Err() != nil {
		return fserror.Ended(ct.work, "write", ct.path)
	}
	return fserror.With(err, "write", ct.path)
}

// commit makes the stored block part of the file.
func (ct *content) commit(b *pendingBlock) error {
	t := b.target
	req := &pb.CommitRequest{
		Writer: ct.id, Offset: b.start, TailCovered: int64(b.covered), TailCrc32C: b.coveredCRC,
		Block: &pb.Block{
			Term: t.GetTerm(), Seq: t.GetSeq(), StoredLength: int64(len(b.object)), UsedLength: b.end - b.start, Crc32C: b.crc,
		},
	}
	if err := ct.check(); err != nil {
		return err
	}
	c, asked := namecall.Call{Op: "write", Path: ct.path, Mutates: true}, ct.fs.session.Now()
	err := ct.fs.nn.Do(ct.work, &c, pb.Namenode_Commit_FullMethodName, req, new(pb.CommitResponse))
	// The namenode renews for a commit that makes the file longer, and not for one of
	// which an earlier call left the record.
	if err == nil && b.end-b.start > int64(b.covered) && !b.lost {
		ct.lease.Renew(asked)
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
func (ct *content) fetchTail(ctx context.Context, off int64, dst []byte) error {
	req := &pb.GetFileRequest{Caller: ct.fs.caller, At: pb.Inode(ct.key.Inode), Writer: ct.id, Offset: off, NoUrls: true}
	resp := new(pb.GetFileResponse)
	if err := ct.fs.nn.Do(ctx, &namecall.Call{Op: "write", Path: ct.path}, pb.Namenode_GetFile_FullMethodName, req, resp); err != nil {
		return err
	}
	tail := resp.GetTail()
	if resp.GetTailOffset() != off || len(tail) < len(dst) {
		return fserror.New(fserror.Internal, "write", ct.path, "the file's tail has %d bytes from %d on; the namenode gave %d from %d on", len(dst), off, len(tail), resp.GetTailOffset())
	}
	if blockstore.CRC(tail) != resp.GetTailCrc32C() {
		return fserror.New(fserror.Damaged, "write", ct.path, "the file's tail at offset %d does not match its checksum", off)
	}
	copy(dst, tail)
	return nil
}

// splitTail makes blocks of a tail that is longer than one (this client's
// blocks are small), so that the rest fits a buffer. The caller holds mu.
func (ct *content) splitTail(ctx context.Context) error {
	tail := make([]byte, ct.hole)
	off := ct.start
	ct.mu.Unlock()
	ctx, cancel := ct.under(ctx)
	err := ct.fetchTail(ctx, off, tail)
	cancel()
	ct.mu.Lock()
	if err == nil {
		err = ct.usable()
	}
	if err != nil {
		return err
	}
	ct.hole = 0
	for int64(len(tail)) >= ct.full {
		ct.cur = blockio.NewBuffer(blockstore.StoredLength(ct.full))
		ct.cur.B = append(ct.cur.B, tail[:ct.full]...)
		tail = tail[ct.full:]
		ct.dispatch()
	}
	ct.cur = blockio.NewBuffer(blockstore.StoredLength(ct.full))
	ct.cur.B = append(ct.cur.B, tail...)
	return nil
}
