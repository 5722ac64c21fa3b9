package client

import (
	"context"
	"io"
	"sync"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/session"
	"github.com/leasefs/leasefs/internal/tracing"
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
	tenure
	content
	tookOver bool
	mtime    int64         // for Close; 0: now
	done     chan struct{} // closed when Close, Abort or Detach has ended
	// unclosed is why the end of writing was not confirmed.
	unclosed error

	writeMu sync.Mutex // one Write at a time, also while it waits
}

func (f *engine) newWriter(ctx context.Context, op, path string, r *pb.OpenResponse, sent clock.Reading, mtime int64) (*Writer, error) {
	id := r.GetWriter()
	if id == nil {
		return nil, fserror.New(fserror.Internal, op, path, "the namenode opened the file and named no writer")
	}
	w := &Writer{
		tenure:   tenure{fs: f, path: path, id: id, key: session.Key{Inode: id.GetInode(), Epoch: id.GetEpoch()}},
		tookOver: r.GetTookOver(), mtime: mtime, done: make(chan struct{}),
	}
	w.content = content{
		tenure: &w.tenure,
		full:   f.about().BlockSize, start: r.GetBlocksLength(), hole: int(r.GetLength() - r.GetBlocksLength()),
		durable: r.GetLength(), length: r.GetLength(),
	}
	w.file = openFile{w}
	if w.hole < 0 {
		return nil, fserror.New(fserror.Internal, op, path, "the namenode gave a length of %d bytes, %d of them in blocks", r.GetLength(), r.GetBlocksLength())
	}
	w.cond = sync.NewCond(&w.mu)
	w.ctx, w.cancel = context.WithCancelCause(tracing.Under(f.ctx, ctx))
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
		k, err := w.fill(ctx, p[n:])
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

// openFile is the Writer as the session knows it.
type openFile struct{ *Writer }

func (f openFile) Key() session.Key      { return f.key }
func (f openFile) Stamp() *clock.Stamp   { return &f.lease }
func (f openFile) Closing() bool         { return f.closing.Load() }
func (f openFile) Lose(e *fserror.Error) { f.lose(e) }
