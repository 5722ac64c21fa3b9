package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Writer is a file open for write by this client, and by nobody else for as
// long as its Context lives. Bytes are appended at the end of the file; they
// are durable, and readers see them, once Flush or Close has returned.
//
// It is safe for concurrent use: each Write's bytes stay together, and
// Flushes that come together share a call. Memory is bounded by
// (Config.WriteAhead+1) × Config.BlockSize; a Write beyond that waits for the
// block store.
//
// When the lease is lost (another took the file over, it was recovered or
// deleted, or no renewal came through for the hard limit), Context ends with
// the cause, and each later Write, Flush and Close returns it: an error of
// kind LeaseLost. Other files of the same FS are not touched by that.
type Writer struct {
	fs       *engine
	path     string
	id       *pb.WriterId // shared by all requests, never changed
	key      session.Key
	tookOver bool
	mtime    int64 // for Close; 0: now
	full     int64 // data bytes of a full block

	ctx      context.Context // ends with the cause when the lease is lost
	cancel   context.CancelCauseFunc
	work     context.Context // of blocks and flushes under way; ends earlier, with Abort
	stopWork context.CancelCauseFunc
	lost     atomic.Pointer[fserror.Error]
	closing  atomic.Bool   // Close, Abort or Detach has begun
	done     chan struct{} // closed when it has ended
	lease    clock.Stamp

	writeMu sync.Mutex // one Write at a time, also while it waits

	mu   sync.Mutex
	cond *sync.Cond // something below changed
	// cur holds the bytes of the file from start on: first what is in the
	// tail already, then what is not flushed. The first hole bytes are in the
	// tail and not known here (the file was opened for append).
	cur   *blockio.Buffer
	start int64
	hole  int
	// durable is the end of what the namenode has; length that of what was
	// written.
	durable int64
	length  int64
	pending []*pendingBlock // blocks under way, in order
	// blockErr is why the first of them failed. Who meets it starts them again.
	blockErr error
	round    *flushRound // the flush under way
	// unsure is a piece of tail whose reply was lost. It must be sent again
	// just so, before anything else.
	unsure *tailPiece
	// unclosed is why the end of writing was not confirmed.
	unclosed error
}

func (f *engine) newWriter(op, path string, r *pb.OpenResponse, sent clock.Reading, mtime int64) (*Writer, error) {
	id := r.GetWriter()
	if id == nil {
		return nil, fserror.New(fserror.Internal, op, path, "the namenode opened the file and named no writer")
	}
	w := &Writer{
		fs: f, path: path, id: id, key: session.Key{Inode: id.GetInode(), Epoch: id.GetEpoch()}, tookOver: r.GetTookOver(), mtime: mtime,
		full: f.about().BlockSize, start: r.GetBlocksLength(), hole: int(r.GetLength() - r.GetBlocksLength()),
		durable: r.GetLength(), length: r.GetLength(),
	}
	if w.hole < 0 {
		return nil, fserror.New(fserror.Internal, op, path, "the namenode gave a length of %d bytes, %d of them in blocks", r.GetLength(), r.GetBlocksLength())
	}
	w.cond, w.done = sync.NewCond(&w.mu), make(chan struct{})
	w.ctx, w.cancel = context.WithCancelCause(f.ctx)
	w.work, w.stopWork = context.WithCancelCause(w.ctx)
	w.lease.Renew(sent)
	if !f.session.Add(openFile{w}) {
		_ = w.Abort() // nothing was written
		return nil, fserror.New(fserror.Closed, op, path, "the client was closed meanwhile")
	}
	return w, nil
}

// Path is the path under which the file was opened. A rename by anybody does
// not change it, and does not disturb the Writer.
func (w *Writer) Path() string { return w.path }

// Inode is the file's number, the same over renames.
func (w *Writer) Inode() uint64 { return w.key.Inode }

// Token is the epoch of this opening: it grows with each opening of the file,
// also over delete and re-create, so it fences other systems as well.
func (w *Writer) Token() uint64 { return w.key.Epoch }

// TookOver reports whether the file was taken from another holder, whose
// flushed bytes are in it.
func (w *Writer) TookOver() bool { return w.tookOver }

// Context ends when the lease is lost, with the cause (context.Cause; kind
// LeaseLost), and when the Writer is closed: with a cause of kind Closed, or
// with why the namenode did not confirm that. Work that must not continue without
// the file belongs under it.
func (w *Writer) Context() context.Context { return w.ctx }

// Length is how many bytes the file has with all that was written, flushed or not.
func (w *Writer) Length() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.length
}

// Durable is how many bytes of the file are durable.
func (w *Writer) Durable() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable
}

// Write appends p. It buffers; full blocks are stored in the background. An
// error of a block that was under way is returned here once, with the bytes
// still kept, and the block tried again: LeaseLost, NoSpace, Retry,
// Unavailable. n counts what was accepted of p.
func (w *Writer) Write(p []byte) (n int, err error) {
	return w.WriteContext(context.Background(), p)
}

// WriteContext is Write, whose wait for the block store ends with the context.
func (w *Writer) WriteContext(ctx context.Context, p []byte) (n int, err error) {
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	for n < len(p) {
		k, err := w.put(ctx, p[n:])
		n += k
		if err != nil {
			return n, fserror.With(err, "write", w.path)
		}
	}
	if len(p) == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return 0, fserror.With(w.usable(), "write", w.path)
	}
	return n, nil
}

// copyPiece is how much ReadFrom takes from a reader at once.
const copyPiece = 256 << 10

// ReadFrom appends all that r gives, until io.EOF. It does not flush.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	return w.readFrom(context.Background(), r)
}

func (w *Writer) readFrom(ctx context.Context, r io.Reader) (n int64, err error) {
	buf := blockio.NewBuffer(copyPiece)
	defer buf.Free()
	piece := buf.B[:copyPiece]
	for {
		k, rerr := r.Read(piece)
		if k > 0 {
			m, werr := w.WriteContext(ctx, piece[:k])
			n += int64(m)
			if werr != nil {
				return n, werr
			}
		}
		if rerr == io.EOF { //nolint:errorlint // a reader returns io.EOF itself
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// put copies into the current buffer as much of p as it has room for, waiting
// for room first.
func (w *Writer) put(ctx context.Context, p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.makeRoom(ctx); err != nil {
		return 0, err
	}
	n := int(min(int64(len(p)), w.full-int64(len(w.cur.B))))
	w.reserve(n)
	w.cur.B = append(w.cur.B, p[:n]...)
	w.length += int64(n)
	if int64(len(w.cur.B)) == w.full && w.mayDispatch() {
		w.dispatch()
	}
	return n, nil
}

// usable tells whether bytes can be written and flushed. The caller holds mu.
func (w *Writer) usable() error {
	if e := w.lost.Load(); e != nil {
		return e
	}
	if w.closing.Load() {
		return fserror.New(fserror.Closed, "", "", "the writer is closed")
	}
	return nil
}

// wait waits until something under mu changes, or the context ends. The caller
// holds mu.
func (w *Writer) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock() // not before Wait has let go of it
		defer w.mu.Unlock()
		w.cond.Broadcast()
	})
	w.cond.Wait()
	stop()
	if ctx.Err() != nil {
		return fserror.Ended(ctx, "write", w.path)
	}
	return nil
}

// makeRoom waits until the current buffer has room. The caller holds mu.
func (w *Writer) makeRoom(ctx context.Context) error {
	for {
		if err := w.usable(); err != nil {
			return err
		}
		if err := w.blockErr; err != nil {
			w.restart()
			return err
		}
		if w.cur == nil {
			if w.hole == 0 || int64(w.hole) < w.full {
				w.cur = &blockio.Buffer{}
				w.reserve(w.hole)
				w.cur.B = w.cur.B[:w.hole]
				return nil
			}
			if err := w.splitTail(ctx); err != nil {
				return err
			}
			continue
		}
		if int64(len(w.cur.B)) < w.full {
			return nil
		}
		switch {
		case w.mayDispatch():
			w.dispatch()
		case w.unsure != nil && w.round == nil:
			r := w.startRound(false)
			for w.round == r {
				if err := w.wait(ctx); err != nil {
					return err
				}
			}
			if r.err != nil {
				return r.err
			}
		default:
			if err := w.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// reserve makes room in the current buffer's memory for n more bytes: little
// for little files, then one block from the pool. The caller holds mu.
func (w *Writer) reserve(n int) {
	const small, medium = 4 << 10, 128 << 10
	need := len(w.cur.B) + n
	if need <= cap(w.cur.B) {
		return
	}
	var b *blockio.Buffer
	switch {
	case need <= small && small < w.full:
		b = &blockio.Buffer{B: make([]byte, 0, small)}
	case need <= medium && medium < w.full:
		b = &blockio.Buffer{B: make([]byte, 0, medium)}
	default:
		b = blockio.NewBuffer(blockstore.StoredLength(w.full))
	}
	// A flush under way may still read the old memory: it goes to the
	// garbage collector.
	b.B = append(b.B, w.cur.B...)
	w.cur = b
}

// openFile is the Writer as the session knows it.
type openFile struct{ *Writer }

func (f openFile) Key() session.Key      { return f.key }
func (f openFile) Stamp() *clock.Stamp   { return &f.lease }
func (f openFile) Closing() bool         { return f.closing.Load() }
func (f openFile) Lose(e *fserror.Error) { f.lose(e) }

// check finds a lease that is over before the watchdog does.
func (w *Writer) check() error {
	if w.lost.Load() == nil {
		w.fs.session.Check(openFile{w})
	}
	if e := w.lost.Load(); e != nil {
		return e
	}
	return nil
}

// lose ends the Writer: its lease is lost. The first cause counts.
func (w *Writer) lose(e *fserror.Error) {
	c := *e
	if c.Path == "" {
		c.Path = w.path
	}
	if !w.lost.CompareAndSwap(nil, &c) {
		return
	}
	w.fs.session.Lost(openFile{w})
	w.cancel(&c)
	w.mu.Lock()
	w.cond.Broadcast()
	w.mu.Unlock()
	w.fs.cfg.Logger.Warn("leasefs: lease lost", "path", w.path, "inode", w.key.Inode, "epoch", w.key.Epoch, "err", &c)
}

// seen takes note of the error of a call of this writer, and returns it.
func (w *Writer) seen(err error) error {
	if err == nil {
		return nil
	}
	if k := fserror.KindOf(err); k == fserror.LeaseLost || k == fserror.LeaseLostGone {
		var e *fserror.Error
		if errors.As(err, &e) {
			w.lose(e)
			return w.lost.Load()
		}
	}
	return err
}
