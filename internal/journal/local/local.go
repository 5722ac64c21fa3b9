package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Defaults of Config, in bytes.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultMaxBacklog   = 64 << 20
	DefaultAhead        = 512 << 10
)

const lockName = "journal.lock"

// Config says where a journal is and how large its parts may be.
type Config struct {
	FS  vfs.FS // nil: vfs.OS()
	Dir string // made if it is missing; nothing else may write segments there

	// SegmentBytes is the size at which a new segment is begun; 0 means
	// DefaultSegmentBytes. A segment is larger only if one batch is.
	SegmentBytes int64
	// MaxBacklog is how many bytes may wait to become durable before Append
	// fails with journal.ErrFull; 0 means DefaultMaxBacklog. A single record is
	// taken whatever its size.
	MaxBacklog int64
	// Ahead is up to how many zeros, at most 1 MiB, are written behind a batch
	// at a time, for the next ones to be written over: a sync that need not
	// make a longer file durable is faster. 0 means DefaultAhead, less than 0
	// none. docs/adr/0012-segments-allocated-ahead.md.
	Ahead int64
	// Spare is how many bytes of zeros are kept in a file to write a segment
	// into when the disk is full. 0 means four times Ahead, which is enough for
	// the last batch again and thousands of deletions; less than 0 none.
	Spare int64
	// First is the txid of the first record if there are no segments yet; 0
	// means 1. For a journal that continues from a restored image.
	First uint64

	// Wrote and Mono are those of group.Config; nil: nobody asks.
	Wrote func(took time.Duration, bytes int)
	Mono  func() time.Duration

	Logger *slog.Logger // nil: slog.Default()
}

// Journal implements journal.Journal in the segments of one folder. See the
// package comment.
type Journal struct {
	*group.Commit
	group *group.Writer

	fs       vfs.FS
	dir      string
	segBytes int64
	step     int64 // of zeros ahead; 0: none
	// spareSize is how long the spare file is; 0: there is none.
	spareSize int64
	fresh     uint64
	log       *slog.Logger
	lock      io.Closer

	// replayMu serializes Replay, BeginTerm and Purge, which do I/O.
	replayMu sync.Mutex
	purgeErr error // of a SyncDir in Purge; final

	mu         sync.Mutex
	positioned bool      // Replay has read to the end
	segs       []segment // oldest first; the size of the last is what is durable
	read       place     // where the last Replay ended
	term       uint64    // what BeginTerm wrote, or the last one found

	// Only the writer's goroutine uses these once it runs.
	cur  vfs.File
	kept reserve
	off  int64 // end of cur
	next expectation
	seg  segmentHeader // of cur
	// ahead is where zeros behind off end; beyond any offset if there was no
	// room for them.
	ahead int64
}

var _ journal.Journal = (*Journal)(nil)

// Open takes the journal's lock and looks at its folder. It reads no record:
// that is Replay, which comes next. The error satisfies vfs.ErrLocked if
// another process has the journal.
func Open(cfg Config) (*Journal, error) {
	if cfg.Dir == "" {
		return nil, errors.New("journal: no folder given")
	}
	j := &Journal{
		fs: cfg.FS, dir: cfg.Dir, segBytes: cfg.SegmentBytes, step: cfg.Ahead,
		fresh: max(cfg.First, 1), log: cfg.Logger,
	}
	j.fs = cmp.Or(j.fs, vfs.OS())
	if j.segBytes <= 0 {
		j.segBytes = DefaultSegmentBytes
	}
	if cfg.MaxBacklog <= 0 {
		cfg.MaxBacklog = DefaultMaxBacklog
	}
	j.step = cmp.Or(j.step, DefaultAhead)
	j.step = min(max(j.step, 0), int64(len(zeros)))
	if j.spareSize = cfg.Spare; j.spareSize == 0 {
		j.spareSize = 4 * j.step
	}
	j.spareSize = max(j.spareSize, 0)
	j.log = cmp.Or(j.log, slog.Default())
	j.group = group.New(group.Config{
		Header: batchHeaderSize, Target: batchTarget, MaxBacklog: cfg.MaxBacklog, Mono: cfg.Mono, Wrote: cfg.Wrote, Log: j.log.With("dir", j.dir),
	})
	j.Commit = j.group.Commit
	j.group.OnClose(j.flushAndStop)
	if err := j.enter(); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.Dir, err)
	}
	return j, nil
}

func (j *Journal) enter() error {
	if err := j.fs.MkdirAll(j.dir); err != nil {
		return err
	}
	lock, err := j.fs.Lock(filepath.Join(j.dir, lockName))
	if err != nil {
		return err
	}
	j.segs, err = listSegments(j.fs, j.dir)
	if err == nil && len(j.segs) == 0 {
		err = syncPath(j.fs, j.dir)
	}
	if err != nil {
		_ = lock.Close()
		return err
	}
	j.lock = lock
	j.kept = reserve{fs: j.fs, name: filepath.Join(j.dir, lockName)}
	return nil
}

// syncPath makes the name of dir durable, and those of the folders above it:
// whoever made them, now or before a crash, may not have. A folder above that
// this user may not read was there before us.
func syncPath(fsys vfs.FS, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		if err := fsys.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// Replay implements journal.Journal. The first one also makes ready for
// BeginTerm: it cuts a torn last batch and writes the last good one again, since
// a failed sync before this start may have left it in memory only. Bodies may
// be kept; they share buffers of up to 5 MiB. It may be called again at any
// time, and then sees what is durable when it begins; BeginTerm, Purge and Close
// wait for it, so fn must not call them. One that asks for what follows the one
// before reads nothing twice.
func (j *Journal) Replay(ctx context.Context, from uint64, fn func(journal.Record) error) (uint64, error) {
	j.replayMu.Lock()
	defer j.replayMu.Unlock()
	from = max(from, 1)
	j.mu.Lock()
	w := walk{fs: j.fs, dir: j.dir, segs: append([]segment(nil), j.segs...), fresh: j.fresh}
	first := !j.positioned
	if !first && len(w.segs) > 0 {
		w.end = w.segs[len(w.segs)-1].size
		if j.read.next.first <= from && j.read.segment == w.segs[startOf(w.segs, from)].first {
			w.at = j.read
		}
	}
	j.mu.Unlock()
	switch {
	case j.group.Closing():
		return 0, journal.ErrClosed
	case first && j.Err() != nil:
		return 0, j.Err()
	case len(w.segs) > 0 && from < w.segs[0].first:
		return 0, journal.Purged(from, w.segs[0].first)
	}
	found, err := j.walk(ctx, &w, from, fn)
	if !first && found.end > 0 {
		j.mu.Lock()
		j.read = place{found.header.first, found.end, found.next}
		j.mu.Unlock()
	}
	if err != nil {
		return 0, err
	}
	if !first {
		return found.next.first - 1, nil
	}
	if err := w.checkReached(found); err != nil {
		return 0, err
	}
	if err := j.position(found); err != nil {
		return 0, fmt.Errorf("make journal %s ready: %w", j.dir, err)
	}
	return found.next.first - 1, nil
}

// walk runs w and hands out the records from from on.
func (j *Journal) walk(ctx context.Context, w *walk, from uint64, fn func(journal.Record) error) (walked, error) {
	var kept int64
	found, err := w.run(ctx, startOf(w.segs, from), func(b *storedBatch) error {
		if b.header.first+uint64(b.header.count) > from {
			kept += b.size()
		}
		return decodeRecords(b.header, b.payload, from, fn)
	})
	found.bytes = kept
	return found, err
}

// position makes the disk and the journal ready to continue behind what was found.
func (j *Journal) position(found walked) error {
	j.removeLeftovers()
	if found.torn != nil {
		if err := j.cut(found); err != nil {
			return err
		}
		if found.hollow {
			j.segs = j.segs[:len(j.segs)-1]
		}
	}
	if len(j.segs) > 0 {
		if err := j.rewriteLast(found); err != nil {
			return err
		}
	} else {
		j.next = expectation{first: j.fresh}
	}
	j.trimOlder(found)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.group.MoveTo(j.next.first - 1)
	j.group.SetSinceRoll(found.bytes)
	j.term = j.next.term
	j.positioned = true
	return nil
}

// cut removes a torn last batch.
func (j *Journal) cut(found walked) error {
	last := &j.segs[len(j.segs)-1]
	name := filepath.Join(j.dir, last.name())
	j.log.Warn("journal: cut a batch that was never acknowledged",
		"segment", name, "offset", found.torn.Offset, "bytes", found.used-found.torn.Offset, "txid", found.torn.TxID)
	if found.hollow {
		if err := j.fs.Remove(name); err != nil {
			return err
		}
		return j.fs.SyncDir(j.dir)
	}
	last.size = found.end
	return j.shorten(name, found.end)
}

// shorten cuts a segment, durably.
func (j *Journal) shorten(name string, end int64) error {
	f, err := j.fs.OpenWrite(name)
	if err != nil {
		return err
	}
	return vfs.Durably(f, func() error { return f.Truncate(end) })
}

// rewriteLast writes the last batch again, into a segment of its own that
// supersedes it. All batches before it were synced before it was begun; of it
// alone that is not known, if what is read back is the page cache of a sync
// that failed. A rewrite in place could lose it, and it may be acknowledged.
func (j *Journal) rewriteLast(found walked) error {
	hdr, content := found.header, []byte(nil)
	j.next = found.next
	if b := found.last; b != nil {
		if b.header.first != hdr.first {
			hdr = segmentHeader{
				first:     b.header.first,
				prevFirst: hdr.first,
				prevEnd:   uint64(b.off), //nolint:gosec // an offset is not negative
				chain:     b.header.chain,
			}
		}
		buf := make([]byte, batchHeaderSize, b.size())
		h := b.header
		h.chain = hdr.chain
		content, h = seal(append(buf, b.payload[:len(b.payload)-1]...), segHeaderSize, h)
		j.next = found.next.after(h)
	}
	err := j.newSegment(hdr, content)
	if vfs.Full(err) {
		// The room ahead of the last segment found is room for the next one.
		if err := j.shorten(filepath.Join(j.dir, j.segs[len(j.segs)-1].name()), found.end); err != nil {
			return err
		}
		err = j.newSegment(hdr, content)
	}
	return err
}

// newSegment writes a segment under a temporary name, and under its own only
// when it is durable, and makes it the current one. It replaces one that has
// the same first txid.
func (j *Journal) newSegment(hdr segmentHeader, content []byte) error {
	name := filepath.Join(j.dir, segmentName(hdr.first))
	hdr.version = formatVersion
	data := append(hdr.encode(), content...)
	ahead, err := j.writeSegment(name+tmpSuffix, data)
	if err == nil {
		err = j.fs.Rename(name+tmpSuffix, name)
	}
	if err == nil {
		err = j.kept.do(func() error { return j.fs.SyncDir(j.dir) })
	}
	if err != nil {
		return err
	}
	var f vfs.File
	if err := j.kept.do(func() (err error) { f, err = j.fs.OpenWrite(name); return err }); err != nil {
		return err
	}
	if j.cur != nil {
		j.trimCurrent()
		if err := j.cur.Close(); err != nil {
			_ = f.Close()
			return err
		}
	}
	j.cur, j.seg, j.off, j.ahead = f, hdr, int64(len(data)), ahead
	j.kept.fill()
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.segs); n > 0 && j.segs[n-1].first == hdr.first {
		j.segs = j.segs[:n-1]
	}
	j.segs = append(j.segs, segment{first: hdr.first, size: j.off})
	return nil
}

// BeginTerm implements journal.Journal. The term must be above the last one in
// the journal; it is recorded, durably, before BeginTerm returns.
func (j *Journal) BeginTerm(ctx context.Context, term uint64) error {
	j.replayMu.Lock()
	defer j.replayMu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	j.mu.Lock()
	err := j.group.MayBegin(j.positioned, term, j.term)
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.writeTerm(term); err != nil {
		j.group.Fail(err)
		return j.Err()
	}
	j.makeSpare()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.term = term
	j.group.Begin(j.write)
	return nil
}

// Term returns the last term in the journal, after the first Replay: what
// BeginTerm is given next must be above that. 0 if there was none.
func (j *Journal) Term() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.term
}

// writeTerm writes a batch that has a term and no record.
func (j *Journal) writeTerm(term uint64) error {
	if j.cur == nil {
		if err := j.newSegment(segmentHeader{first: j.next.first}, nil); err != nil {
			return err
		}
	}
	j.next.term = term
	return j.writeBatch(make([]byte, batchHeaderSize, batchHeaderSize+1), 0)
}

// removeLeftovers removes files that a crash left under a temporary name. A
// failure costs only disk.
func (j *Journal) removeLeftovers() {
	names, err := j.fs.List(j.dir)
	if err != nil {
		return
	}
	for _, name := range names {
		if base, ok := strings.CutSuffix(name, tmpSuffix); ok {
			if _, ok := parseSegmentName(base); ok || base == reachedName || base == spareName {
				_ = j.fs.Remove(filepath.Join(j.dir, name))
			}
		}
	}
}

// Purge implements journal.Journal. The current segment is always kept.
// Segments go oldest first, each durably before the next, so that a crash
// leaves no hole.
func (j *Journal) Purge(ctx context.Context, before uint64) error {
	j.replayMu.Lock()
	defer j.replayMu.Unlock()
	for {
		err := j.Err()
		if j.group.Closing() {
			err = journal.ErrClosed
		}
		var old segment
		j.mu.Lock()
		if len(j.segs) > 1 && j.segs[1].first <= before {
			old = j.segs[0]
		}
		j.mu.Unlock()
		if err == nil {
			err = errors.Join(j.purgeErr, ctx.Err())
		}
		if err != nil || old.first == 0 {
			return err
		}
		name := filepath.Join(j.dir, old.name())
		if err := j.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("purge journal: %w", err)
		}
		j.mu.Lock()
		j.segs = j.segs[1:]
		j.mu.Unlock()
		if err := j.fs.SyncDir(j.dir); err != nil {
			j.purgeErr = fmt.Errorf("purge journal: nothing more is purged until the next start: %w", err)
			return j.purgeErr
		}
	}
}
