package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sort"
	"time"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxPages bounds what a Reader remembers of a very long file's block list.
	maxPages = 32
	// urlMargin is how long before its end a URL is not begun with any more.
	urlMargin = 5 * time.Second
	// minPatience is how long a block's first bytes may take though the time of
	// the call is nearly over.
	minPatience = 100 * time.Millisecond
	// maxMoves is how often the place of a byte is looked up again because the
	// file's blocks changed under the Reader.
	maxMoves = 4
)

// page is a run of a file's blocks, as one answer listed them, and the tail if
// it follows them. It is not changed once made.
type page struct {
	from, to int64 // bytes of the file
	spans    []span
	tailOff  int64
	tail     []byte
	fresh    time.Time // when its URLs were signed
	expires  time.Time
}

// span is one block of a file.
type span struct {
	key     blockstore.Key
	off     int64 // in the file
	used    int64 // bytes of it that belong to the file
	data    int64 // bytes of data in the object
	stored  int64
	crc     uint32
	url     string
	headers map[string]string
	cut     uint64 // of the file when it had this block here
}

// newPage checks an answer and makes a page of it.
func (r *Reader) newPage(resp *pb.GetFileResponse, at time.Time, asked int64) (*page, error) {
	bad := func(format string, args ...any) error {
		return fserror.New(fserror.Internal, "open", r.path, "the namenode's block list makes no sense: %s", fmt.Sprintf(format, args...))
	}
	pg := &page{from: asked, to: asked, spans: make([]span, 0, len(resp.GetBlocks())), fresh: at, expires: at.Add(ms(resp.GetUrlsExpireMs()))}
	off := resp.GetBlocksOffset()
	for i, b := range resp.GetBlocks() {
		if i == 0 {
			pg.from = off
		}
		s := span{
			key: keyOf(b.GetTerm(), b.GetSeq()), off: off, used: b.GetUsedLength(), stored: b.GetStoredLength(),
			crc: b.GetCrc32C(), url: b.GetUrl(), headers: b.GetHeaders(), cut: resp.GetCut(),
		}
		var err error
		if s.data, err = blockstore.DataLength(s.stored); err != nil || s.used <= 0 || s.used > s.data {
			return nil, bad("block %s has %d of %d stored bytes", s.key, s.used, s.stored)
		}
		if off < 0 || off > math.MaxInt64-s.used {
			return nil, bad("block %s is at %d", s.key, off)
		}
		pg.spans = append(pg.spans, s)
		off += s.used
		pg.to = off
	}
	if resp.GetMoreBlocks() {
		return pg, nil
	}
	pg.tail = resp.GetTail()
	pg.tailOff = max(resp.GetTailOffset(), asked)
	if len(pg.tail) == 0 {
		return pg, nil
	}
	if blockstore.CRC(pg.tail) != resp.GetTailCrc32C() {
		return nil, fserror.New(fserror.Damaged, "open", r.path, "the bytes in the file's tail, from offset %d on, do not match their checksum", pg.tailOff)
	}
	if pg.tailOff < 0 || pg.tailOff > math.MaxInt64-int64(len(pg.tail)) {
		return nil, bad("the tail is at %d", pg.tailOff)
	}
	if len(pg.spans) > 0 && pg.to != pg.tailOff {
		return nil, bad("blocks end at %d, the tail begins at %d", pg.to, pg.tailOff)
	}
	if len(pg.spans) == 0 {
		pg.from = pg.tailOff
	}
	pg.to = pg.tailOff + int64(len(pg.tail))
	return pg, nil
}

// find returns the span that holds the byte, or nil if it is in the tail.
func (p *page) find(off int64) *span {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].off+p.spans[i].used > off })
	if i == len(p.spans) {
		return nil
	}
	return &p.spans[i]
}

// page returns a page that holds the byte, fetching it if need be. newer asks
// for one that is not as old as that time. Of a file that was shortened since
// cut it is an error of kind Truncated.
func (r *Reader) page(ctx context.Context, cut uint64, off int64, newer time.Time) (*page, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, r.closedErr("read")
	}
	if r.cut != cut {
		r.mu.Unlock()
		return nil, r.truncated("read")
	}
	if off >= r.length {
		r.mu.Unlock()
		return nil, io.EOF
	}
	for i, p := range r.pages {
		if off < p.from || off >= p.to {
			continue
		}
		inTail := p.find(off) == nil
		if inTail || p.fresh.After(newer) && time.Until(p.expires) > urlMargin {
			r.mu.Unlock()
			return p, nil
		}
		r.pages = append(r.pages[:i], r.pages[i+1:]...)
		break
	}
	r.mu.Unlock()
	resp, at, err := r.fs.getFile(ctx, "read", r.path, &pb.GetFileRequest{Inode: r.inode, Offset: off})
	if err != nil {
		return nil, err
	}
	p, err := r.newPage(resp, at, off)
	if err != nil {
		return nil, err
	}
	if resp.GetCut() != cut {
		return nil, r.truncated("read")
	}
	if off < p.from || off >= p.to {
		return nil, fserror.New(fserror.Internal, "read", r.path, "the namenode's block list makes no sense: it has nothing at offset %d of a file of %d bytes", off, resp.GetAttr().GetLength())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut != cut {
		return nil, r.truncated("read")
	}
	if len(r.pages) >= maxPages {
		r.pages = append(r.pages[:0], r.pages[1:]...)
	}
	r.pages = append(r.pages, p)
	return p, nil
}

// readSome reads bytes from one block, or from the tail; io.EOF at the end.
func (r *Reader) readSome(ctx context.Context, cut uint64, p []byte, off int64, sequential bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !sequential {
		return r.readChunks(ctx, cut, p, off)
	}
	return r.withBytes(ctx, cut, off, func(data []byte) (int, error) { return copy(p, data), nil })
}

// withBytes hands fn the bytes from off to the end of their block, or of the
// file as the Reader sees it. They are fn's only until it returns.
func (r *Reader) withBytes(ctx context.Context, cut uint64, off int64, fn func([]byte) (int, error)) (int, error) {
	var newer time.Time
	for range maxMoves {
		pg, err := r.page(ctx, cut, off, newer)
		if err != nil {
			return 0, err
		}
		s := pg.find(off)
		if s == nil {
			data := pg.tail[off-pg.tailOff:]
			return fn(data[:r.clip(len(data), off)])
		}
		c := r.hold(pg, s)
		select {
		case <-c.done:
		case <-ctx.Done():
			r.release(c)
			return 0, contextError(ctx, "read", r.path, false)
		}
		if c.err == nil {
			data := c.buf.B[off-s.off : s.used]
			n, err := fn(data[:r.clip(len(data), off)])
			r.release(c)
			return n, err
		}
		err = c.err
		r.release(c)
		if !errors.Is(err, errMoved) {
			return 0, r.readErr(err)
		}
		newer = time.Now()
	}
	return 0, fserror.New(fserror.Unavailable, "read", r.path, "the file's blocks keep changing at offset %d", off)
}

func (r *Reader) readErr(err error) error {
	if r.ctx.Err() != nil {
		return r.closedErr("read")
	}
	return fserror.With(err, "read", r.path)
}

// readChunks reads from one block no more than the chunks that are needed.
func (r *Reader) readChunks(ctx context.Context, cut uint64, p []byte, off int64) (int, error) {
	var newer time.Time
	for range maxMoves {
		pg, err := r.page(ctx, cut, off, newer)
		if err != nil {
			return 0, err
		}
		p := p[:r.clip(len(p), off)]
		if len(p) == 0 {
			continue // the Reader was refreshed meanwhile
		}
		s := pg.find(off)
		if s == nil {
			return copy(p, pg.tail[off-pg.tailOff:]), nil
		}
		p = p[:min(int64(len(p)), s.off+s.used-off)]
		if c := r.held(s.key); c != nil {
			var n int
			select {
			case <-c.done:
				if c.err == nil {
					n = copy(p, c.buf.B[off-s.off:s.used])
				}
			default: // still on its way: a range is quicker
			}
			r.release(c)
			if n > 0 {
				return n, nil
			}
		}
		n, err := r.fetchRange(ctx, s, p, off-s.off)
		if !errors.Is(err, errMoved) {
			if err != nil {
				err = r.readErr(err)
			}
			return n, err
		}
		newer = time.Now()
	}
	return 0, fserror.New(fserror.Unavailable, "read", r.path, "the file's blocks keep changing at offset %d", off)
}

// errMoved: the file does not have this block (any more) where it was, or the
// URL is over: look it up again.
var errMoved = errors.New("the block list is out of date")

// get downloads part of a block's object. errMoved sends the caller back to
// the namenode.
func (r *Reader) get(ctx context.Context, s *span, off int64, dst []byte) error {
	deadline, w := time.Now().Add(r.fs.cfg.Timeout), r.fs.waits("read", r.path)
	url, headers := s.url, s.headers
	for n, short, refused := 0, 0, 0; ; n++ {
		began := time.Now()
		err := r.fs.blobs.Download(ctx, max(time.Until(deadline), minPatience), url, headers, off, s.stored, dst)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return contextError(ctx, "read", r.path, false)
		}
		switch status := blockio.Status(err); {
		case errors.Is(err, blockio.ErrShort):
			// Once may be a broken connection's fault.
			if short++; short > 1 {
				return r.damaged(s, s.data, "the stored object is truncated")
			}
		case errors.Is(err, blockio.ErrLong):
			return r.damaged(s, s.data, "the stored object is longer than the block")
		case status == http.StatusNotFound || status == http.StatusGone || status == http.StatusForbidden || status == http.StatusUnauthorized:
			fresh, ferr := r.page(ctx, s.cut, s.off, began)
			if errors.Is(ferr, fserror.Truncated) {
				return errMoved // whether for who reads too, he finds out
			}
			if ferr != nil {
				return ferr
			}
			now := fresh.find(s.off)
			if now == nil || now.key != s.key || now.off != s.off {
				return errMoved
			}
			if status == http.StatusNotFound || status == http.StatusGone {
				// Asked again with a fresh URL, it is still not there.
				if refused++; refused > 1 {
					return r.damaged(s, 0, "the block is missing from the block store")
				}
			} else if refused++; refused > maxPuts {
				return fserror.Wrap(fserror.Unavailable, "read", r.path, err)
			}
			url, headers = now.url, now.headers
			continue
		case status/100 == 4 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
			return fserror.Wrap(fserror.Internal, "read", r.path, err)
		}
		delay := backoffFor(n)
		if time.Now().Add(delay).After(deadline) {
			return fserror.Wrap(fserror.Unavailable, "read", r.path, fmt.Errorf("block %s could not be read within %s: %w", s.key, r.fs.cfg.Timeout, err))
		}
		w.sleep(ctx, ctx, delay, storeCause(err), true)
	}
}

// damaged names the file, the block and the offset in the file of what is wrong.
func (r *Reader) damaged(s *span, inBlock int64, what string) error {
	return fserror.New(fserror.Damaged, "read", r.path, "block %s is damaged at offset %d of the file (%d of the block): %s", s.key, s.off+inBlock, inBlock, what)
}
