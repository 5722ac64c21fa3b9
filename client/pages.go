package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxPages bounds what a Reader remembers of a very long file's block list.
	maxPages = 32
	// maxMoves is how often the place of a byte is looked up again because the
	// file's blocks changed under the Reader.
	maxMoves = 4
)

// page returns a page that holds the byte, fetching it if need be. newer asks
// for one that is not as old as that time. Of a file that was shortened since
// cut it is an error of kind Truncated.
func (r *Reader) page(ctx context.Context, cut uint64, off int64, newer time.Time) (*blockio.List, error) {
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
		if !p.Has(off) {
			continue
		}
		if inTail := p.Find(off) == nil; inTail || p.Newer(newer) {
			r.mu.Unlock()
			return p, nil
		}
		r.pages = append(r.pages[:i], r.pages[i+1:]...)
		break
	}
	r.mu.Unlock()
	resp, at, err := r.fs.getFile(ctx, "read", r.path, &pb.GetFileRequest{At: pb.Inode(r.inode), Offset: off})
	if err != nil {
		return nil, err
	}
	p, err := blockio.NewList(resp, r.path, at, off)
	if err != nil {
		return nil, err
	}
	if resp.GetCut() != cut {
		return nil, r.truncated("read")
	}
	if !p.Has(off) {
		return nil, fserror.New(fserror.Internal, "read", r.path, "inconsistent block list: no block covers offset %d of %d", off, resp.GetAttr().GetLength())
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
	return r.withBytes(ctx, cut, off, p, func(data []byte) (int, error) { return copy(p, data), nil })
}

// withBytes hands fn the bytes from off to the end of their block, or of the
// file as the Reader sees it, or fewer if there is no memory for the block. They are fn's only until it returns. Those that the
// block cache has come into p instead, if that has room for a chunk.
func (r *Reader) withBytes(ctx context.Context, cut uint64, off int64, p []byte, fn func([]byte) (int, error)) (int, error) {
	var newer time.Time
	for range maxMoves {
		pg, err := r.page(ctx, cut, off, newer)
		if err != nil {
			return 0, err
		}
		b := pg.Find(off)
		if b == nil {
			data := pg.Tail[off-pg.TailOff:]
			return fn(data[:r.clip(len(data), off)])
		}
		if len(p) >= blockstore.ChunkSize { // for less, whole blocks in memory are quicker
			if n := r.blocks.Near(b, p[:r.clip(len(p), off)], off-b.Off); n > 0 {
				return n, nil
			}
		}
		var n int
		var ferr error
		err = r.blocks.Whole(ctx, pg, b, r.Length(), off-b.Off, len(p), func(data []byte) {
			n, ferr = fn(data[:r.clip(len(data), off)])
		})
		if err == nil {
			return n, ferr
		}
		if !errors.Is(err, blockio.ErrMoved) {
			return 0, r.readErr(ctx, err)
		}
		newer = time.Now()
	}
	return 0, r.moving(off)
}

func (r *Reader) readErr(ctx context.Context, err error) error {
	switch {
	case r.ctx.Err() != nil:
		return r.closedErr("read")
	case ctx.Err() != nil:
		return fserror.Ended(ctx, "read", r.path)
	}
	return fserror.With(err, "read", r.path)
}

// moving is the error of a read whose block was elsewhere each time.
func (r *Reader) moving(off int64) error {
	return fserror.New(fserror.Unavailable, "read", r.path, "the file's blocks keep changing at offset %d", off)
}

// again lists a block again.
func (r *Reader) again(ctx context.Context, b *blockio.Block, signedAfter time.Time) (*blockio.Block, error) {
	pg, err := r.page(ctx, b.Cut, b.Off, signedAfter)
	if errors.Is(err, fserror.Truncated) {
		return nil, blockio.ErrMoved // whether for who reads too, he finds out
	}
	if err != nil {
		return nil, err
	}
	return pg.Find(b.Off), nil
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
		b := pg.Find(off)
		if b == nil {
			return copy(p, pg.Tail[off-pg.TailOff:]), nil
		}
		n, err := r.blocks.Range(ctx, b, p, off-b.Off)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, blockio.ErrMoved) {
			return n, r.readErr(ctx, err)
		}
		newer = time.Now()
	}
	return 0, r.moving(off)
}
