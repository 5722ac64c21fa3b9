package blockcache

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// DefaultSize is the limit of a folder in bytes unless configured otherwise.
	DefaultSize = 1 << 30
	// MinSize is the least limit that makes sense: two blocks of the default size.
	MinSize = 2 * blockstore.DefaultBlockSize
	// maxQueued bounds the bytes that wait to be written; one piece of any size may.
	maxQueued = 32 << 20
	// pauseTime is for how long nothing is written after the folder took something
	// not, because its disk is full or broken.
	pauseTime = 30 * time.Second
	// drainTime is how long Close writes what waits.
	drainTime = 2 * time.Second
	// touchAge is how old the time of a file's last use may be before it is noted
	// again.
	touchAge = time.Minute
)

// Near says where a client keeps blocks, near its readers.
type Near struct {
	// BlockCache is a folder of this machine in which blocks are kept that were read
	// from the block store; empty: none. It must exist on a local disk, be this user's
	// with mode 0700, and be empty or have been used so before. Several processes and
	// namespaces may share it. What is read from it is verified as what comes from the
	// store is, and read from there if it does not match, or if the folder fails.
	// Blocks are written in the background: some 32 MiB may wait in memory, and Close
	// writes these for two seconds at most.
	BlockCache string
	// BlockCacheSize limits in bytes what the folder takes on disk; blocks not used
	// for the longest time are removed first. 0: DefaultSize; at least MinSize.
	// Processes that share a folder should be given the same.
	BlockCacheSize int64
}

// Config says where blocks are kept.
type Config struct {
	// Dir is an existing folder, empty or one that was used so before. It must be
	// this user's, and nobody else's to read.
	Dir string
	// Size limits in bytes what the files take on disk; 0: DefaultSize, at least
	// MinSize. Processes that share a folder should be given the same.
	Size int64
	// Logger is told when the folder takes nothing, and when it does again.
	Logger *slog.Logger
}

// Block identifies what is kept: two objects of one namespace that have the same of
// all three have the same bytes.
type Block struct {
	Key    blockstore.Key
	Stored int64 // bytes of the object, its checksum table included
	CRC    uint32
}

// Stats count since Open, for this process only.
type Stats struct {
	Hits, HitBytes uint64 // reads that the folder answered, and their bytes
	Misses         uint64 // reads that it did not
	StoredBytes    uint64 // written into it
	Evicted        uint64 // files removed to keep the limit
	Damaged        uint64 // files removed because they had other bytes than were written
	Skipped        uint64 // pieces not written: too many waited, or the disk took none
}

// Cache is a folder of blocks, as one process uses it. It is safe for concurrent
// use. A nil Cache keeps nothing.
type Cache struct {
	folder *folder
	log    *slog.Logger
	began  time.Time // of pausedUntil
	prefix string    // namespace and slash; empty until Use

	ctx    context.Context // ends last in Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // for the goroutine that writes: something waits, or the end

	pausedUntil atomic.Int64 // time.Duration since began
	failing     bool         // the last piece could not be written; of the goroutine that writes

	mu     sync.Mutex
	queue  []piece
	queued int64 // bytes in queue and being written
	closed bool

	hits, hitBytes, misses, stored, skipped atomic.Uint64
}

// piece is data of a block, of whole chunks, that waits to be written.
type piece struct {
	block Block
	table blockstore.Table
	off   int64
	data  []byte
	done  func() // nobody needs data any more
}

// Open checks the folder and opens it. InvalidArgument, NotFound, NotDirectory,
// Permission, Unsupported: it cannot be used, and why. Use has to follow before anything is kept.
func Open(cfg Config) (*Cache, error) {
	if cfg.Size == 0 {
		cfg.Size = DefaultSize
	}
	if cfg.Size < MinSize {
		return nil, refused(fserror.InvalidArgument, cfg.Dir, "a limit of %d bytes is too small; give at least %d", cfg.Size, int64(MinSize))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f, err := openFolder(cfg.Dir, cfg.Size)
	if err != nil {
		return nil, err
	}
	c := &Cache{folder: f, log: cfg.Logger, began: time.Now(), wake: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Use keeps blocks of that namespace from now on. It is called once, before any
// Read and Offer.
func (c *Cache) Use(namespace string) error {
	if c == nil {
		return nil
	}
	if !isNamespace(namespace) {
		return fserror.New(fserror.Internal, "block cache", c.folder.name, "the namenode calls its namespace %.64q, which is no id of 32 hexadecimal digits", namespace)
	}
	c.prefix = namespace + "/"
	c.wg.Go(c.write)
	return nil
}

// Close writes what waits, for two seconds at most, and lets go of the folder.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
	t := time.AfterFunc(drainTime, c.cancel)
	c.wg.Wait()
	t.Stop()
	c.cancel()
	c.folder.close()
}

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	return Stats{
		Hits: c.hits.Load(), HitBytes: c.hitBytes.Load(), Misses: c.misses.Load(), StoredBytes: c.stored.Load(),
		Evicted: c.folder.evicted.Load(), Damaged: c.folder.damaged.Load(), Skipped: c.skipped.Load(),
	}
}

func (c *Cache) path(b Block) string {
	return fmt.Sprintf("%s%x-%x-%x-%08x", c.prefix, b.Key.Term, b.Key.Seq, b.Stored, b.CRC)
}

// Read fills dst with a block's data from off on, if all of it is kept and matches
// its checksums. off and the end of dst are limits of chunks, or the end of the
// data. known is the block's table if the caller has it; Read returns it if it
// returns true. What is in dst if it returns false is not to be used.
func (c *Cache) Read(b Block, known blockstore.Table, off int64, dst []byte) (blockstore.Table, bool) {
	if c == nil {
		return nil, false
	}
	name := c.path(b)
	table, modified, err := readObject(c.folder.root, name, b, known, off, dst)
	if err != nil {
		c.misses.Add(1)
		return nil, false
	}
	c.hits.Add(1)
	c.hitBytes.Add(uint64(len(dst)))
	if now := time.Now(); now.Sub(modified).Abs() >= touchAge {
		_ = c.folder.root.Chtimes(name, now, now) // else it is removed earlier
	}
	return table, true
}

// readObject reads and verifies a range of a block's data.
func readObject(root *os.Root, name string, b Block, table blockstore.Table, off int64, dst []byte) (_ blockstore.Table, modified time.Time, err error) {
	data, err := blockstore.DataLength(b.Stored)
	if err != nil {
		return nil, modified, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // what is no file does not make it wait
	if err != nil {
		return nil, modified, err
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() != b.Stored) {
		err = errDamaged
	}
	if err != nil {
		return nil, modified, err
	}
	if table == nil {
		raw := make([]byte, b.Stored-data)
		if _, err := f.ReadAt(raw, data); err != nil {
			return nil, modified, err
		}
		if table, err = blockstore.ParseTable(b.Key, raw, data, b.CRC); err != nil {
			return nil, modified, err
		}
	}
	if _, err := f.ReadAt(dst, off); err != nil {
		return nil, modified, err
	}
	return table, st.ModTime(), blockstore.VerifyRange(b.Key, table, data, off, dst)
}

// Offer has a block's data from off on written into the folder, soon: whole chunks
// that the caller has verified, and the block's table, neither of which changes until
// done is called. It returns false, and never calls done, if too much waits or the
// folder takes nothing for now.
func (c *Cache) Offer(b Block, table blockstore.Table, off int64, data []byte, done func()) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.prefix == "" || c.paused() || c.queued > 0 && c.queued+int64(len(data)) > maxQueued {
		c.skipped.Add(1)
		return false
	}
	c.queue = append(c.queue, piece{b, table, off, data, done})
	c.queued += int64(len(data))
	c.signal()
	return true
}

func (c *Cache) paused() bool { return time.Since(c.began) < time.Duration(c.pausedUntil.Load()) }

// signal wakes the goroutine that writes.
func (c *Cache) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what is offered until Close.
func (c *Cache) write() {
	c.folder.trim(c.ctx)
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			closed := c.closed
			c.mu.Unlock()
			if closed {
				return
			}
			<-c.wake
			continue
		}
		p := c.queue[0]
		c.queue[0] = piece{}
		c.queue = c.queue[1:]
		c.mu.Unlock()
		c.writePiece(p)
		p.done()
		c.mu.Lock()
		c.queued -= int64(len(p.data))
		c.mu.Unlock()
	}
}

func (c *Cache) writePiece(p piece) {
	if c.ctx.Err() != nil || c.paused() {
		c.skipped.Add(1)
		return
	}
	n, err := c.folder.add(c.ctx, c.path(p.block), p)
	c.stored.Add(uint64(n)) //nolint:gosec // not negative
	switch {
	case c.ctx.Err() != nil:
	case err != nil:
		c.skipped.Add(1)
		c.pausedUntil.Store(int64(time.Since(c.began) + pauseTime))
		if !c.failing {
			c.log.Warn("leasefs: the block cache takes no blocks for now; reading continues from the block store", "dir", c.folder.name, "err", err, "reason", fserror.ReasonBlockCache)
		}
		c.failing = true
	case c.failing:
		c.failing = false
		c.log.Info("leasefs: the block cache takes blocks again", "dir", c.folder.name)
	}
}

func isNamespace(name string) bool {
	if len(name) != 32 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func refused(kind fserror.Kind, dir, format string, args ...any) error {
	return fserror.New(kind, "block cache", dir, format, args...).Because(fserror.ReasonBlockCache)
}
