package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/tracing"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Reader reads a file as it was when it was opened, or refreshed last: later
// appends do not show, and a rename does not disturb it. When the file is
// truncated meanwhile, also if it is written again, what the Reader cannot get of
// the file it opened is an error of kind Truncated. Each byte was checked
// against the checksums of its block before it is returned; what does not
// match is an error of kind Damaged that names file, block and offset.
//
// It is safe for concurrent use; Read, Seek and WriteTo share one position.
// Sequential reads fetch Config.ReadAhead blocks ahead and hold up to
// (ReadAhead+1) blocks; reads here and there fetch chunks of 64 KiB, and so do all
// while other readers of the FS have the memory for whole blocks.
type Reader struct {
	fs    *engine
	path  string
	inode uint64

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	blocks *blockio.Fetcher

	posMu sync.Mutex // held over Read, Seek and WriteTo
	pos   int64

	mu      sync.Mutex
	info    *FileInfo
	length  int64
	cut     uint64 // of the file when the view was taken: what of another is not mixed with it
	pages   []*blockio.List
	lastEnd int64 // where the last ReadAt ended
	inRow   int   // how many began where the one before ended
	closed  bool
}

// Open opens a file for reading. A file that is being written can be read as
// far as it was flushed. NotFound, IsDirectory.
func (f *FS) Open(ctx context.Context, path string) (*Reader, error) { return f.open(ctx, path) }

func (f *engine) open(ctx context.Context, path string) (*Reader, error) {
	path, err := clean("open", path)
	if err != nil {
		return nil, err
	}
	resp, at, _, err := f.keptFile(ctx, "open", path, readKey{readFile, door.At(path), asOf(ctx)})
	if err != nil {
		return nil, err
	}
	r := newReader(ctx, f, path, resp.GetAttr().GetInode())
	if err := r.take(resp, at, 0); err != nil {
		r.cancel()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		r.cancel()
		return nil, fserror.New(fserror.Closed, "open", path, "the client is closed")
	}
	f.readers[r] = struct{}{}
	return r, nil
}

func newReader(ctx context.Context, f *engine, path string, inode uint64) *Reader {
	r := &Reader{fs: f, path: path, inode: inode}
	r.ctx, r.cancel = context.WithCancel(tracing.Under(f.ctx, ctx))
	r.blocks = blockio.NewFetcher(r.ctx, f.blobs, blockio.File{
		Path: path, Ahead: f.cfg.ReadAhead, Again: r.again, Tries: func() blockio.Tries { return tries(f, "read", path) }, Cache: f.near,
	})
	return r
}

// tries are those of one transfer of a block for op.
func tries(f *engine, op, path string) blockio.Tries {
	w := f.nn.Waits(op, path)
	return blockio.Tries{Limit: f.cfg.Timeout, Pause: func(ctx context.Context, n int, deadline time.Time, err error) bool {
		delay := namecall.Backoff(n)
		if time.Now().Add(delay).After(deadline) {
			return false
		}
		f.cfg.Logger.Debug("leasefs: a block could not be moved, will be tried again", "op", op, "path", path, "err", err)
		return w.Pause(ctx, delay, blockio.Cause(err)) || ctx.Err() != nil // who tries finds that
	}}
}

// ReadFile returns the whole content of a file, of one moment. One call if it
// has no blocks. Truncated, if the file is truncated again and again.
func (f *FS) ReadFile(ctx context.Context, path string) (data []byte, err error) {
	for range maxMoves {
		if data, err = f.readFile(ctx, path); !errors.Is(err, fserror.Truncated) {
			break
		}
	}
	return data, err
}

func (f *engine) readFile(ctx context.Context, path string) ([]byte, error) {
	r, err := f.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // a reader has nothing to lose
	data := make([]byte, r.Length())
	n, err := r.readAt(ctx, data, 0, true)
	if err != nil && n < len(data) {
		return nil, err
	}
	return data[:n], nil
}

// getFile asks for a file. at is when, for the life of the URLs.
func (f *engine) getFile(ctx context.Context, op, path string, req *pb.GetFileRequest) (*pb.GetFileResponse, time.Time, error) {
	req.Caller = f.by(ctx)
	c := namecall.Call{Op: op, Path: path}
	if req.WaitMs > 0 {
		c.Wait = ms(req.WaitMs)
	}
	at := time.Now()
	resp := new(pb.GetFileResponse)
	if err := f.nn.Do(ctx, &c, pb.Namenode_GetFile_FullMethodName, req, resp); err != nil {
		return nil, at, err
	}
	if t := resp.GetAttr().GetType(); t == pb.FileType_FILE_TYPE_DIRECTORY {
		return nil, at, fserror.New(fserror.IsDirectory, op, path, "it is a directory")
	}
	return resp, at, nil
}

// take makes an answer the Reader's view of the file: its length counts from
// now on, and its blocks replace those known.
func (r *Reader) take(resp *pb.GetFileResponse, at time.Time, asked int64) error {
	pg, err := blockio.NewList(resp, r.path, at, asked)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info = fileInfo(r.path, resp.GetAttr())
	r.length = resp.GetAttr().GetLength()
	r.cut = resp.GetCut()
	r.pages = append(r.pages[:0], pg)
	return nil
}

// Cut is the transaction that had shortened the file last when the Reader took
// its view of it, 0 if none had. Bytes read before and after a Refresh belong
// together if it is the same.
func (r *Reader) Cut() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// truncated is the error of a read that what the Reader opened is gone for.
func (r *Reader) truncated(op string) error {
	return fserror.New(fserror.Truncated, op, r.path, "the file was truncated while it was read; read it again from the beginning")
}

// clip cuts n bytes from off on at the end of the file as the Reader sees it.
func (r *Reader) clip(n int, off int64) int {
	return int(min(int64(n), max(r.Length()-off, 0)))
}

// Length is the file's length in bytes as the Reader sees it.
func (r *Reader) Length() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.length
}

// Path is the path under which the file was opened.
func (r *Reader) Path() string { return r.path }

// Stat describes the file as of Open or the last Refresh. Closed.
func (r *Reader) Stat() (*FileInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, r.closedErr("stat")
	}
	return r.info, nil
}

func (r *Reader) closedErr(op string) error {
	return fserror.New(fserror.Closed, op, r.path, "the reader is closed")
}

// Refresh takes in the file's present length and bytes, wherever it was
// renamed to. NotFound if it was deleted.
func (r *Reader) Refresh(ctx context.Context) error {
	r.mu.Lock()
	off := r.lastEnd
	r.mu.Unlock()
	resp, at, err := r.fs.getFile(ctx, "open", r.path, &pb.GetFileRequest{At: pb.Inode(r.inode), Offset: off})
	if err != nil {
		return err
	}
	return r.take(resp, at, off)
}

// minPoll is how often WaitBeyond asks at the most, should a namenode answer
// that there is nothing new without having waited.
const minPoll = 200 * time.Millisecond

// WaitBeyond waits until the file is longer than n bytes, or nobody has it
// open for write any more, or the context ends; also until it was truncated,
// which shows by another Cut. It refreshes the Reader; open tells whether more
// may come.
func (r *Reader) WaitBeyond(ctx context.Context, n int64) (length int64, open bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(r.closedErr("wait")) })()
	seen := r.Length() >= n
	for {
		began := time.Now()
		req := &pb.GetFileRequest{At: pb.Inode(r.inode), Offset: n, WaitBeyond: n, OrBelow: seen, WaitMs: waitSlice.Milliseconds()}
		resp, at, err := r.fs.getFile(ctx, "wait", r.path, req)
		if err != nil {
			return 0, false, err
		}
		length, open = resp.GetAttr().GetLength(), resp.GetAttr().GetOpen() != nil
		if length > n || !open || seen && length < n || resp.GetCut() != r.Cut() {
			return length, open, r.take(resp, at, n)
		}
		if time.Since(began) < minPoll && clock.Pause(ctx, minPoll) != nil {
			return length, open, fserror.Ended(ctx, "wait", r.path)
		}
	}
}

// Read reads the next bytes; io.EOF at the end. Damaged, Unavailable, NotFound
// (deleted, and the URLs of its blocks are over), Truncated, Closed.
func (r *Reader) Read(p []byte) (int, error) {
	r.posMu.Lock()
	defer r.posMu.Unlock()
	// One block at most, so that what is there comes without waiting for more.
	n, err := r.readSome(r.ctx, r.Cut(), p, r.pos, true)
	r.pos += int64(n)
	r.mu.Lock()
	r.lastEnd = r.pos
	r.mu.Unlock()
	return n, err
}

// ReadAt implements io.ReaderAt. It fetches chunks; calls that continue where
// the last one ended fetch whole blocks, and ahead.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fserror.New(fserror.InvalidArgument, "read", r.path, "negative offset %d", off)
	}
	r.mu.Lock()
	if off == r.lastEnd && off > 0 {
		r.inRow++
	} else if off != r.lastEnd {
		r.inRow = 0
	}
	sequential := r.inRow >= 2
	r.mu.Unlock()
	n, err := r.readAt(r.ctx, p, off, sequential)
	r.mu.Lock()
	r.lastEnd = off + int64(n)
	r.mu.Unlock()
	return n, err
}

func (r *Reader) readAt(ctx context.Context, p []byte, off int64, sequential bool) (n int, err error) {
	for cut := r.Cut(); n < len(p); {
		k, err := r.readSome(ctx, cut, p[n:], off+int64(n), sequential)
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Seek sets the position of the next Read. The end is that of Length.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	r.posMu.Lock()
	defer r.posMu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.Length()
	default:
		return 0, fserror.New(fserror.InvalidArgument, "seek", r.path, "unknown whence %d", whence)
	}
	if offset < 0 {
		return 0, fserror.New(fserror.InvalidArgument, "seek", r.path, "negative position %d", offset)
	}
	r.pos = offset
	return offset, nil
}

// WriteTo writes the rest of the file to w, a block at a time, without copying.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	r.posMu.Lock()
	defer r.posMu.Unlock()
	for cut := r.Cut(); ; {
		k, err := r.withBytes(r.ctx, cut, r.pos, nil, func(data []byte) (int, error) { return w.Write(data) })
		n += int64(k)
		r.pos += int64(k)
		if err == io.EOF { //nolint:errorlint // withBytes returns io.EOF itself
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Close ends reading; fetches under way are broken off. A second call is of
// kind Closed.
func (r *Reader) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return r.closedErr("close")
	}
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.blocks.Close()
	r.mu.Lock()
	r.pages = nil
	r.mu.Unlock()
	r.fs.mu.Lock()
	delete(r.fs.readers, r)
	r.fs.mu.Unlock()
	return nil
}
