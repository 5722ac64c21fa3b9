package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
)

// readChunk is how many bytes of a segment are read at a time.
const readChunk = 4 << 20

const (
	remedyRestore = "restore the segment from a copy; without one, the records from here on are lost (docs/design/journal.md, \"Remedies\")"
	remedyMissing = "put the missing segment back; without it, the records from there on are lost (docs/design/journal.md, \"Remedies\")"
	remedyNewer   = "start the version of leasefs that wrote it"
	remedyEnd     = "put the last segments back as they were; without a copy, remove " + reachedName + " to start without the records that are missing (docs/design/journal.md, \"Remedies\")"
	remedyReached = "remove it: it only says how far the journal had come"
	remedyTorn    = "none needed: it was never acknowledged; the next start cuts it"
)

// segment is one file of the journal.
type segment struct {
	first uint64
	size  int64 // of the file, in bytes
}

func (s segment) name() string { return segmentName(s.first) }

// listSegments returns the segments of dir, oldest first. Other names are none
// of its business.
func listSegments(fsys vfs.FS, dir string) ([]segment, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var segs []segment
	for _, name := range names {
		first, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		st, err := fsys.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		segs = append(segs, segment{first: first, size: st.Size()})
	}
	slices.SortFunc(segs, func(a, b segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	return segs, nil
}

// storedBatch is one good batch and where it is.
type storedBatch struct {
	segment segment
	off     int64
	header  batchHeader
	payload []byte // nobody writes to it again
}

func (b *storedBatch) size() int64 { return batchHeaderSize + int64(b.header.length) }

// walk reads a journal from a segment to its end and changes nothing.
type walk struct {
	fs    vfs.FS
	dir   string
	segs  []segment
	fresh uint64 // the first txid of a journal without segments
	// end is where the last segment ends, if a writer of this process is behind
	// it; 0: at the end of the file, and there may be a torn batch before that.
	end int64
	at  place // where to begin in its segment, if that is the first one; zero: at its beginning
}

// place is the end of a batch, in the segment of that first txid.
type place struct {
	segment uint64
	off     int64
	next    expectation
}

// walked is what a walk found.
type walked struct {
	next   expectation          // of the batch to write next
	last   *storedBatch         // in the last segment; nil if there is none
	header segmentHeader        // of the last segment
	end    int64                // of the good part of the last segment
	used   int64                // of all that it holds, room ahead left out
	torn   *journal.DamageError // what is between the two, or nil
	hollow bool                 // the last segment is torn from its header on
	bytes  int64                // of batches visited
	start  int                  // index of the first segment visited
	ends   []int64              // of those from start on, as their successors say
}

// startOf returns the index of the segment in which record from is, or would be.
func startOf(segs []segment, from uint64) int {
	i := len(segs) - 1
	for i > 0 && segs[i].first > from {
		i--
	}
	return i
}

// run visits each good batch from segment start on, in order. A torn last batch
// is reported in walked, all other damage is a *journal.DamageError.
func (w *walk) run(ctx context.Context, start int, visit func(*storedBatch) error) (walked, error) {
	res := walked{next: expectation{first: w.fresh}, start: start}
	if len(w.segs) == 0 {
		return res, nil
	}
	hdr, err := w.header(start)
	if errors.Is(err, errHollow) && start > 0 {
		start-- // whether it continues the one before shows from there
		res.start = start
		hdr, err = w.header(start)
	}
	if err != nil {
		return w.hollowOnly(res, start, err)
	}
	res.next = expectation{first: hdr.first, chain: hdr.chain}
	for i := start; i < len(w.segs); i++ {
		var succ segmentHeader
		end, openEnd := w.segs[i].size, false
		isLast := i == len(w.segs)-1
		if !isLast {
			if succ, err = w.header(i + 1); err != nil {
				if !errors.Is(err, errHollow) || i+1 != len(w.segs)-1 {
					return res, err
				}
				res.hollow, openEnd = true, true
			} else if succ.prevFirst != hdr.first {
				return res, w.damage(i+1, 0, succ.prevFirst, fmt.Errorf("segment %s before it is missing", segmentName(succ.prevFirst)), remedyMissing)
			} else if end = int64(succ.prevEnd); end < segHeaderSize || end > w.segs[i].size { //nolint:gosec // negative is refused
				return res, w.damage(i, w.segs[i].size, 0, fmt.Errorf("segment has %d bytes where its successor says %d", w.segs[i].size, succ.prevEnd), remedyRestore)
			} else {
				res.ends = append(res.ends, end)
			}
		} else if w.end > 0 {
			end = w.end
		} else {
			openEnd = true
		}
		res.header, res.end = hdr, 0
		if err := w.segment(ctx, i, end, openEnd, &res, visit); err != nil {
			return res, err
		}
		if isLast {
			break
		}
		if res.next.first != w.segs[i+1].first || !res.hollow && succ.chain != res.next.chain {
			return res, w.damage(i+1, 0, res.next.first, fmt.Errorf("segment does not continue the one before it, which ends before record %d", res.next.first), remedyMissing)
		}
		if res.hollow {
			res.torn = w.damage(i+1, 0, res.next.first, errHollow, remedyTorn)
			break
		}
		hdr = succ
	}
	return res, nil
}

// hollowOnly allows a torn header in the only segment of a new journal.
func (w *walk) hollowOnly(res walked, i int, err error) (walked, error) {
	if !errors.Is(err, errHollow) || len(w.segs) > 1 {
		return res, err
	}
	if w.segs[i].first != w.fresh {
		return res, w.damage(i, 0, w.segs[i].first, err, remedyRestore)
	}
	res.hollow = true
	res.torn = w.damage(i, 0, w.fresh, err, remedyTorn)
	return res, nil
}

func (w *walk) damage(i int, off int64, txid uint64, detail error, remedy string) *journal.DamageError {
	return &journal.DamageError{
		Segment: filepath.Join(w.dir, w.segs[i].name()),
		Offset:  off, TxID: txid, Detail: detail.Error(), Remedy: remedy,
	}
}

// errHollow: a last segment with less than a header, which no batch can follow.
var errHollow = errors.New("segment ends within its header, or holds only zeros")

// header reads the header of segment i. The error is errHollow if it could be
// one that a crash left.
func (w *walk) header(i int) (segmentHeader, error) {
	seg := w.segs[i]
	f, err := w.fs.Open(filepath.Join(w.dir, seg.name()))
	if err != nil {
		return segmentHeader{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	buf := make([]byte, min(seg.size, segHeaderSize))
	if err := readFull(f, buf, 0); err != nil {
		return segmentHeader{}, err
	}
	h, err := decodeSegmentHeader(buf)
	if err == nil && h.first != seg.first {
		err = fmt.Errorf("segment header says first record %d, its name %d", h.first, seg.first)
	}
	if err == nil {
		return h, nil
	}
	if i == len(w.segs)-1 {
		hollow, rerr := isHollow(f, buf, seg.size)
		if rerr != nil {
			return segmentHeader{}, rerr
		}
		if hollow {
			return segmentHeader{}, errHollow
		}
	}
	remedy := remedyRestore
	if errors.Is(err, errNewer) {
		remedy = remedyNewer
	}
	return segmentHeader{}, w.damage(i, 0, seg.first, err, remedy)
}

func isHollow(f io.ReaderAt, start []byte, size int64) (bool, error) {
	if size < segHeaderSize {
		n := min(len(start), len(segMagic))
		return isZero(start) || string(start[:n]) == segMagic[:n], nil
	}
	if size > sectorSize {
		return false, nil
	}
	buf := make([]byte, size)
	err := readFull(f, buf, 0)
	return isZero(buf), err
}

// readFull fills buf from offset off.
func readFull(f io.ReaderAt, buf []byte, off int64) error {
	n, err := f.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// segment visits the batches of segment i up to end. If that is the end of the
// file and nothing else says where the segment ends (openEnd), then room ahead
// may be behind its last batch, or, in the last segment, a torn one.
func (w *walk) segment(ctx context.Context, i int, end int64, openEnd bool, res *walked, visit func(*storedBatch) error) error {
	seg := w.segs[i]
	f, err := w.fs.Open(filepath.Join(w.dir, seg.name()))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	r := chunkReader{f: f, end: end}
	pos := int64(segHeaderSize)
	if seg.first == w.at.segment {
		pos, res.next = w.at.off, w.at.next
	}
	res.last, res.end, res.used = nil, pos, end
	for pos < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := &storedBatch{segment: seg, off: pos}
		bad, err := r.batch(b, res.next)
		if err != nil {
			return fmt.Errorf("read %s at offset %d: %w", f.Name(), pos, err)
		}
		if bad != nil && openEnd && res.header.version > 1 {
			if end, err = r.used(pos); err != nil {
				return fmt.Errorf("read %s at offset %d: %w", f.Name(), pos, err)
			}
			if res.used = end; end == pos {
				return nil // only room ahead
			}
		}
		if bad != nil && openEnd && !res.hollow {
			rest, err := r.peek(pos, int(min(end-pos, maxBatch+1)))
			if err != nil {
				return fmt.Errorf("read %s at offset %d: %w", f.Name(), pos, err)
			}
			if bad = tornTail(rest, pos, res.next); bad == nil {
				res.torn = w.damage(i, pos, res.next.first, fmt.Errorf("the last batch was cut short: %d bytes", end-pos), remedyTorn)
				return nil
			}
		}
		if bad == nil {
			if err := visit(b); err != nil {
				var framing *group.FramingError
				if !errors.As(err, &framing) {
					return err
				}
				bad = framing
			}
		}
		if bad != nil {
			return w.damage(i, pos, res.next.first, bad, remedyRestore)
		}
		res.next = res.next.after(b.header)
		res.last = b
		pos += b.size()
		res.bytes += b.size()
		res.end = pos
	}
	return nil
}

// chunkReader reads a segment in large pieces. What it returns is never
// overwritten, so that the bodies of records may be kept.
type chunkReader struct {
	f   vfs.File
	end int64
	off int64 // of buf
	buf []byte
}

// peek returns n bytes from off on, or fewer at the end.
func (r *chunkReader) peek(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), r.end-off))
	at := off - r.off
	if at < 0 || at+int64(n) > int64(len(r.buf)) {
		buf := make([]byte, min(max(int64(n), readChunk), r.end-off))
		if err := readFull(r.f, buf, off); err != nil {
			return nil, err
		}
		r.buf, r.off, at = buf, off, 0
	}
	return r.buf[at : at+int64(n) : at+int64(n)], nil
}

// used returns where, from off on, the last byte is that is not zero: the offset
// behind it, or off.
func (r *chunkReader) used(off int64) (int64, error) {
	end := off
	for at := off; at < r.end; {
		buf, err := r.peek(at, readChunk)
		if err != nil {
			return 0, err
		}
		if trimmed := bytes.TrimRight(buf, "\x00"); len(trimmed) > 0 {
			end = at + int64(len(trimmed))
		}
		at += int64(len(buf))
	}
	return end, nil
}

// batch reads the batch at b.off. bad says why there is no good one.
func (r *chunkReader) batch(b *storedBatch, due expectation) (bad, err error) {
	head, err := r.peek(b.off, batchHeaderSize)
	if err != nil {
		return nil, err
	}
	h, ok := decodeBatchHeader(head)
	if !ok {
		return errors.New("checksum of the batch header does not fit"), nil
	}
	if bad := due.check(h); bad != nil {
		return bad, nil
	}
	total := batchHeaderSize + int(h.length)
	all, err := r.peek(b.off, total)
	if err != nil {
		return nil, err
	}
	if len(all) < total {
		return errors.New("batch ends beyond the end of the segment"), nil
	}
	if group.Checksum(all[batchHeaderSize:]) != h.payloadCRC {
		return errors.New("checksum of the batch does not fit"), nil
	}
	b.header, b.payload = h, all[batchHeaderSize:]
	return nil, nil
}
