package blockio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockcache"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// maxTables bounds how many blocks' checksum tables a Fetcher remembers (512
// bytes each at the default block size).
const maxTables = 128

// ErrMoved says that the file does not have the block where it was: a new List tells
// where its bytes are now.
var ErrMoved = errors.New("the block list is out of date")

// File is the file whose blocks a Fetcher reads.
type File struct {
	Path  string
	Ahead int // how many blocks are fetched ahead of one that is read whole
	// Tries begins the tries of one transfer.
	Tries func() Tries
	// Again lists a block again, with a URL that was signed after that time. What is
	// at its place now may be another one, or nil; or the error is ErrMoved.
	Again func(ctx context.Context, b *Block, signedAfter time.Time) (*Block, error)
	// Cache keeps blocks on this machine; nil: there is none.
	Cache *blockcache.Cache
}

// Fetcher reads blocks of one file and verifies them. It keeps the last few whole
// ones, and fetches others ahead. It is safe for concurrent use.
type Fetcher struct {
	transport *Transport
	file      File

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // fetches

	mu     sync.Mutex
	blocks []*held // the one used last at the end
	tables map[blockstore.Key]blockstore.Table
	closed bool
	used   time.Time // when a block was last asked for
	slow   time.Time // when blocks made room because none had been asked for
}

// NewFetcher returns a Fetcher that lives as long as the context, until Close.
func NewFetcher(ctx context.Context, t *Transport, file File) *Fetcher {
	f := &Fetcher{transport: t, file: file, tables: make(map[blockstore.Key]blockstore.Table)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// Close breaks off what is being fetched, and lets go of all that is kept.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
	f.transport.memory.forget(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.blocks {
		f.drop(c)
	}
}

// held is a whole block in memory, or on its way there.
type held struct {
	key    blockstore.Key
	buf    *Buffer // its object, verified, once done is closed and err is nil
	err    error
	done   chan struct{}
	cancel context.CancelFunc
	refs   int   // users and the fetch itself; under Fetcher.mu
	gone   bool  // not in Fetcher.blocks any more
	room   int64 // what it has of the memory
}

// Whole has a block of a List read whole, and those after it begun, as far as
// they begin before length. use gets the block's bytes from off on; they are its own only
// until it returns. Where there is no memory for a whole block it gets no more of them than
// n, or if that is 0 than a piece. ErrMoved: see File.Again.
func (f *Fetcher) Whole(ctx context.Context, l *List, b *Block, length, off int64, n int, use func([]byte)) error {
	h, all := f.hold(l, b, length)
	if !all && f.transport.memory.makeRoom() {
		if h != nil {
			f.release(h)
		}
		h, _ = f.hold(l, b, length)
	}
	if h == nil {
		return f.some(ctx, b, off, n, use)
	}
	defer f.release(h)
	select {
	case <-h.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.err == nil {
		use(h.buf.B[off:b.Used])
	}
	return h.err
}

// some is Whole without memory for a whole block.
func (f *Fetcher) some(ctx context.Context, b *Block, off int64, n int, use func([]byte)) error {
	if n == 0 {
		n = piece
	}
	buf := NewBuffer(min(int64(n), b.Used-off))
	defer buf.Free()
	n, err := f.Range(ctx, b, buf.B[:min(n, cap(buf.B))], off) // no more than the block has
	if err == nil {
		use(buf.B[:n])
	}
	return err
}

// hold returns the whole block, begun to be fetched if it was not, and begins
// those after it, as far as there is memory, which all tells; nil: there is none. Else release has to follow.
func (f *Fetcher) hold(l *List, b *Block, length int64) (h *held, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = time.Now()
	if f.used.Sub(f.slow) < slowTime && !slices.ContainsFunc(f.blocks, func(c *held) bool { return c.key == b.Key }) {
		return nil, true
	}
	i := l.index(b.Off)
	keep := []blockstore.Key{b.Key}
	for j := i + 1; j <= i+f.file.Ahead && j < len(l.Blocks) && l.Blocks[j].Off < length; j++ {
		keep = append(keep, l.Blocks[j].Key)
	}
	c := f.begin(b, keep)
	if c == nil {
		return nil, false
	}
	c.refs++
	all = true
	for j := range keep[1:] {
		if all = f.begin(&l.Blocks[i+1+j], keep) != nil; !all {
			break
		}
	}
	f.evict(keep, f.file.Ahead+1)
	return c, all
}

// begin is fetchAhead, for which all but those to be kept make room if need be. The caller holds mu.
func (f *Fetcher) begin(b *Block, keep []blockstore.Key) *held {
	c := f.fetchAhead(b)
	if c == nil {
		f.evict(keep, 0)
		c = f.fetchAhead(b)
	}
	return c
}

// inMemory copies bytes of a block that is in memory already.
func (f *Fetcher) inMemory(b *Block, p []byte, off int64) (n int) {
	f.mu.Lock()
	f.used = time.Now()
	var h *held
	for _, c := range f.blocks {
		if c.key == b.Key {
			h = c
			h.refs++
		}
	}
	f.mu.Unlock()
	if h == nil {
		return 0
	}
	defer f.release(h)
	select {
	case <-h.done:
		if h.err == nil {
			n = copy(p, h.buf.B[off:b.Used])
		}
	default: // still on its way: a range is quicker
	}
	return n
}

// fetchAhead begins to fetch a block unless it is there; nil: there is no memory for it.
// The caller holds mu.
func (f *Fetcher) fetchAhead(b *Block) *held {
	for _, c := range f.blocks {
		if c.key == b.Key {
			return c
		}
	}
	ctx, cancel := context.WithCancel(f.ctx)
	c := &held{key: b.Key, done: make(chan struct{}), cancel: cancel, refs: 1}
	if f.closed {
		f.blocks = append(f.blocks, c)
		c.err = context.Canceled
		close(c.done)
		return c
	}
	if !f.transport.memory.take(f, b.Stored) {
		cancel()
		return nil
	}
	c.room = b.Stored
	f.blocks = append(f.blocks, c)
	f.wg.Go(func() {
		var fetched bool
		c.buf, fetched, c.err = f.fetchBlock(ctx, b)
		if fetched {
			f.keepWhole(c, b)
		}
		close(c.done)
		cancel()
		if c.err != nil {
			f.mu.Lock()
			f.drop(c) // who waits gets the error; who comes later tries again
			f.mu.Unlock()
		}
		f.release(c)
	})
	return c
}

// evict lets go of blocks that are not to be kept, the oldest first, until no
// more than most are held. The caller holds mu.
func (f *Fetcher) evict(keep []blockstore.Key, most int) {
	for i := 0; i < len(f.blocks) && len(f.blocks) > most; {
		c := f.blocks[i]
		wanted := false
		for _, k := range keep {
			wanted = wanted || k == c.key
		}
		if wanted {
			i++
			continue
		}
		f.drop(c)
	}
}

// drop takes a block out of the list. The caller holds mu.
func (f *Fetcher) drop(c *held) {
	if c.gone {
		return
	}
	c.gone = true
	for i := range f.blocks {
		if f.blocks[i] == c {
			f.blocks = append(f.blocks[:i:i], f.blocks[i+1:]...)
			break
		}
	}
	f.recycle(c)
}

// dropIdle drops what nobody uses, if no block was asked for in idleTime. What is ahead of one who
// reads is not idle.
func (f *Fetcher) dropIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.used) < idleTime {
		return
	}
	for _, c := range slices.Clone(f.blocks) {
		if c.refs == 0 {
			f.slow = now
			f.drop(c)
		}
	}
}

func (f *Fetcher) release(c *held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.refs--
	f.recycle(c)
}

// recycle breaks off the fetch of a dropped block that nobody waits for any
// more, and takes its memory back once nobody uses it. The caller holds mu.
func (f *Fetcher) recycle(c *held) {
	if c.gone && c.refs <= 1 {
		c.cancel()
	}
	if !c.gone || c.refs > 0 {
		return
	}
	if c.buf != nil {
		c.buf.Free()
		c.buf = nil
	}
	f.transport.memory.give(c.room)
	c.room = 0
}

// fetchBlock reads and verifies a whole block, from the block cache or, which
// fetched tells, from the store. What does not match is read once more: the fault may
// be on the way.
func (f *Fetcher) fetchBlock(ctx context.Context, b *Block) (buf *Buffer, fetched bool, err error) {
	buf = NewBuffer(b.Stored)
	buf.B = buf.B[:b.Stored]
	if table, ok := f.file.Cache.Read(b.cached(), nil, 0, buf.B[:b.Data]); ok {
		copy(buf.B[b.Data:], table)
		return buf, false, nil
	}
	for range 2 {
		if err = f.get(ctx, b, 0, buf.B); err != nil {
			break
		}
		if err = blockstore.Verify(b.Key, buf.B, b.CRC); err == nil {
			return buf, true, nil
		}
		err = f.wrong(b, err)
	}
	buf.Free()
	return nil, false, err
}

// keepWhole offers a whole block to the block cache.
func (f *Fetcher) keepWhole(c *held, b *Block) {
	f.mu.Lock()
	c.refs++
	f.mu.Unlock()
	object := c.buf.B
	if !f.file.Cache.Offer(b.cached(), object[b.Data:], 0, object[:b.Data], func() { f.release(c) }) {
		f.release(c)
	}
}

// Near reads bytes of a block, from off on, into p, from the block cache. 0: they are not there, or the block is
// in memory or on its way there; Whole is to be called then, since only that fetches ahead. Nothing in p is to be used.
func (f *Fetcher) Near(b *Block, p []byte, off int64) int {
	f.mu.Lock()
	held := slices.ContainsFunc(f.blocks, func(c *held) bool { return c.key == b.Key })
	f.mu.Unlock()
	if held {
		return 0
	}
	return f.cached(b, p[:min(int64(len(p)), b.Used-off)], off)
}

// cached reads bytes of a block into p, all of them or none, from the block cache.
func (f *Fetcher) cached(b *Block, p []byte, off int64) int {
	if f.file.Cache == nil {
		return 0
	}
	start, length := blockstore.AlignRange(b.Data, off, int64(len(p)))
	chunks := p
	if start != off || length != int64(len(p)) {
		buf := NewBuffer(length)
		defer buf.Free()
		chunks = buf.B[:length]
	}
	f.mu.Lock()
	known := f.tables[b.Key]
	f.mu.Unlock()
	table, ok := f.file.Cache.Read(b.cached(), known, start, chunks)
	if !ok {
		return 0
	}
	if known == nil {
		f.remember(b.Key, table)
	}
	return copy(p, chunks[off-start:])
}

// wrong turns an error of a verification into one that names the file too.
func (f *Fetcher) wrong(b *Block, err error) error {
	var d *blockstore.Damage
	if errors.As(err, &d) {
		return f.damaged(b, d.Offset, d.Detail)
	}
	return fserror.With(err, "read", f.file.Path)
}

// Range reads bytes of a block, from off on, into p: from memory or the block cache
// if they are there, else with the chunks that they are in. ErrMoved: see File.Again.
func (f *Fetcher) Range(ctx context.Context, b *Block, p []byte, off int64) (int, error) {
	p = p[:min(int64(len(p)), b.Used-off)]
	if n := f.inMemory(b, p, off); n > 0 {
		return n, nil
	}
	if n := f.cached(b, p, off); n > 0 {
		return n, nil
	}
	start, length := blockstore.AlignRange(b.Data, off, int64(len(p)))
	chunks, free := p, func() {}
	if f.file.Cache != nil || start != off || length != int64(len(p)) {
		buf := NewBuffer(length)
		chunks, free = buf.B[:length], buf.Free
	}
	defer func() { free() }()
	var err error
	for range 2 {
		var table blockstore.Table
		if table, err = f.table(ctx, b); err != nil {
			return 0, err
		}
		if err = f.get(ctx, b, start, chunks); err != nil {
			return 0, err
		}
		if err = blockstore.VerifyRange(b.Key, table, b.Data, start, chunks); err == nil {
			n := copy(p, chunks[off-start:])
			if f.file.Cache.Offer(b.cached(), table, start, chunks, free) {
				free = func() {}
			}
			return n, nil
		}
		err = f.wrong(b, err)
	}
	clear(p) // nothing unverified gets out
	return 0, err
}

// table returns a block's checksum table, itself verified against the file's
// block list.
func (f *Fetcher) table(ctx context.Context, b *Block) (blockstore.Table, error) {
	f.mu.Lock()
	t, ok := f.tables[b.Key]
	f.mu.Unlock()
	if ok {
		return t, nil
	}
	raw := make([]byte, b.Stored-b.Data)
	var err error
	for range 2 {
		if err = f.get(ctx, b, b.Data, raw); err != nil {
			return nil, err
		}
		if t, err = blockstore.ParseTable(b.Key, raw, b.Data, b.CRC); err == nil {
			break
		}
		err = f.wrong(b, err)
	}
	if err != nil {
		return nil, err
	}
	f.remember(b.Key, t)
	return t, nil
}

// remember keeps a table, and lets go of another if there are too many.
func (f *Fetcher) remember(key blockstore.Key, t blockstore.Table) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.tables { // any one: they are cheap to get again
		if len(f.tables) < maxTables {
			break
		}
		delete(f.tables, k)
	}
	f.tables[key] = t
}

// get downloads part of a block's object.
func (f *Fetcher) get(ctx context.Context, b *Block, off int64, dst []byte) error {
	tries := f.file.Tries()
	deadline := time.Now().Add(tries.Limit)
	url, headers := b.URL, b.Headers
	for n, short, refused := 0, 0, 0; ; n++ {
		began := time.Now()
		err := f.transport.Download(ctx, max(time.Until(deadline), minPatience), url, headers, off, b.Stored, dst)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch status := Status(err); {
		case errors.Is(err, errShort):
			// Once may be a broken connection's fault.
			if short++; short > 1 {
				return f.damaged(b, b.Data, "the stored object is truncated")
			}
		case errors.Is(err, errLong):
			return f.damaged(b, b.Data, "the stored object is longer than the block")
		case status == http.StatusNotFound || status == http.StatusGone || status == http.StatusForbidden || status == http.StatusUnauthorized:
			now, aerr := f.file.Again(ctx, b, began)
			if aerr != nil {
				return aerr
			}
			if now == nil || now.Key != b.Key || now.Off != b.Off {
				return ErrMoved
			}
			if status == http.StatusNotFound || status == http.StatusGone {
				// Asked again with a fresh URL, it is still not there.
				if refused++; refused > 1 {
					return f.damaged(b, 0, "the block is missing from the block store")
				}
			} else if refused++; refused > maxRefused {
				return fserror.Wrap(fserror.Unavailable, "read", f.file.Path, err).Because(fserror.ReasonBlockStore)
			}
			url, headers = now.URL, now.Headers
			continue
		case status/100 == 4 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
			return fserror.Wrap(fserror.Internal, "read", f.file.Path, err)
		}
		if !tries.Pause(ctx, n, deadline, err) {
			return fserror.Wrap(fserror.Unavailable, "read", f.file.Path, fmt.Errorf("block %s could not be read within %s: %w", b.Key, tries.Limit, err)).Because(fserror.ReasonBlockStore)
		}
	}
}

// damaged names the file, the block and the offset in the file of what is wrong.
func (f *Fetcher) damaged(b *Block, inBlock int64, what string) error {
	return fserror.New(fserror.Damaged, "read", f.file.Path, "block %s is damaged at offset %d of the file (%d of the block): %s", b.Key, b.Off+inBlock, inBlock, what)
}
