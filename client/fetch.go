package client

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// maxTables bounds how many blocks' checksum tables a Reader remembers (512
// bytes each at the default block size).
const maxTables = 128

// cached is a whole block in memory, or on its way there.
type cached struct {
	key    blockstore.Key
	buf    *blockio.Buffer // its object, verified, once done is closed and err is nil
	err    error
	done   chan struct{}
	cancel context.CancelFunc
	refs   int  // users and the fetch itself; under Reader.mu
	gone   bool // not in Reader.blocks any more
}

// hold returns the whole block, begun to be fetched if it was not, and begins
// those after it. release has to follow.
func (r *Reader) hold(pg *page, s *span) *cached {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.fetchAhead(s)
	c.refs++
	i := indexOf(pg, s)
	keep := []blockstore.Key{s.key}
	for j := i + 1; j <= i+r.fs.cfg.ReadAhead && j < len(pg.spans) && pg.spans[j].off < r.length; j++ {
		r.fetchAhead(&pg.spans[j])
		keep = append(keep, pg.spans[j].key)
	}
	r.evict(keep)
	return c
}

func indexOf(pg *page, s *span) int {
	for i := range pg.spans {
		if &pg.spans[i] == s {
			return i
		}
	}
	return len(pg.spans)
}

// held returns a block that is in memory or on its way, or nil.
func (r *Reader) held(key blockstore.Key) *cached {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.blocks {
		if c.key == key {
			c.refs++
			return c
		}
	}
	return nil
}

// fetchAhead begins to fetch a block unless it is there. The caller holds mu.
func (r *Reader) fetchAhead(s *span) *cached {
	for _, c := range r.blocks {
		if c.key == s.key {
			return c
		}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	c := &cached{key: s.key, done: make(chan struct{}), cancel: cancel, refs: 1}
	r.blocks = append(r.blocks, c)
	if r.closed {
		c.err = r.closedErr("read")
		close(c.done)
		return c
	}
	r.wg.Go(func() {
		c.buf, c.err = r.fetchBlock(ctx, s)
		close(c.done)
		cancel()
		if c.err != nil {
			r.mu.Lock()
			r.drop(c) // who waits gets the error; who comes later tries again
			r.mu.Unlock()
		}
		r.release(c)
	})
	return c
}

// evict lets go of blocks that are not to be kept, the oldest first, until no
// more than those to be kept are held. The caller holds mu.
func (r *Reader) evict(keep []blockstore.Key) {
	for i := 0; i < len(r.blocks) && len(r.blocks) > r.fs.cfg.ReadAhead+1; {
		c := r.blocks[i]
		wanted := false
		for _, k := range keep {
			wanted = wanted || k == c.key
		}
		if wanted {
			i++
			continue
		}
		r.drop(c)
	}
}

// drop takes a block out of the list. The caller holds mu.
func (r *Reader) drop(c *cached) {
	if c.gone {
		return
	}
	c.gone = true
	for i := range r.blocks {
		if r.blocks[i] == c {
			r.blocks = append(r.blocks[:i:i], r.blocks[i+1:]...)
			break
		}
	}
	r.recycle(c)
}

func (r *Reader) release(c *cached) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.refs--
	r.recycle(c)
}

// recycle breaks off the fetch of a dropped block that nobody waits for any
// more, and takes its memory back once nobody uses it. The caller holds mu.
func (r *Reader) recycle(c *cached) {
	if c.gone && c.refs <= 1 {
		c.cancel()
	}
	if c.gone && c.refs == 0 && c.buf != nil {
		c.buf.Free()
		c.buf = nil
	}
}

// fetchBlock reads and verifies a whole object. What does not match is read
// once more: the fault may be on the way.
func (r *Reader) fetchBlock(ctx context.Context, s *span) (*blockio.Buffer, error) {
	buf := blockio.NewBuffer(s.stored)
	buf.B = buf.B[:s.stored]
	var err error
	for range 2 {
		if err = r.get(ctx, s, 0, buf.B); err != nil {
			break
		}
		if err = blockstore.Verify(s.key, buf.B, s.crc); err == nil {
			return buf, nil
		}
		err = r.wrong(s, err)
	}
	buf.Free()
	return nil, err
}

// wrong turns an error of a verification into one that names the file too.
func (r *Reader) wrong(s *span, err error) error {
	var d *blockstore.Damage
	if errors.As(err, &d) {
		return r.damaged(s, d.Offset, d.Detail)
	}
	return fserror.With(err, "read", r.path)
}

// fetchRange reads the bytes of a block from off on into p, with the chunks
// they are in.
func (r *Reader) fetchRange(ctx context.Context, s *span, p []byte, off int64) (int, error) {
	start, length := blockstore.AlignRange(s.data, off, int64(len(p)))
	chunks := p
	if start != off || length != int64(len(p)) {
		buf := blockio.NewBuffer(length)
		defer buf.Free()
		chunks = buf.B[:length]
	}
	var err error
	for range 2 {
		var table blockstore.Table
		if table, err = r.table(ctx, s); err != nil {
			return 0, err
		}
		if err = r.get(ctx, s, start, chunks); err != nil {
			return 0, err
		}
		if err = blockstore.VerifyRange(s.key, table, s.data, start, chunks); err == nil {
			return copy(p, chunks[off-start:]), nil
		}
		err = r.wrong(s, err)
	}
	clear(p) // nothing unverified gets out
	return 0, err
}

// table returns a block's checksum table, itself verified against the file's
// block list.
func (r *Reader) table(ctx context.Context, s *span) (blockstore.Table, error) {
	r.mu.Lock()
	t, ok := r.tables[s.key]
	r.mu.Unlock()
	if ok {
		return t, nil
	}
	raw := make([]byte, s.stored-s.data)
	var err error
	for range 2 {
		if err = r.get(ctx, s, s.data, raw); err != nil {
			return nil, err
		}
		if t, err = blockstore.ParseTable(s.key, raw, s.data, s.crc); err == nil {
			break
		}
		err = r.wrong(s, err)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.tables { // any one: they are cheap to get again
		if len(r.tables) < maxTables {
			break
		}
		delete(r.tables, k)
	}
	r.tables[s.key] = t
	return t, nil
}
