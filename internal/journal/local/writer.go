package local

import (
	"fmt"
	"time"

	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
)

// write is the writer's goroutine: one batch at a time, each durable before the
// next is begun.
func (j *Journal) write() {
	for !j.group.Done() {
		b := j.group.Take(1)
		if b == nil {
			<-j.group.Work()
			continue
		}
		err := j.prepare(b)
		if err == nil {
			err = j.writeBatch(b.Buf, b.Count)
		}
		if err != nil {
			j.group.Fail(err)
			return
		}
		j.group.Finish(true)
	}
}

// prepare begins a new segment if b is to be in one.
func (j *Journal) prepare(b *group.Batch) error {
	if j.off <= segHeaderSize {
		return nil
	}
	if !b.Roll && j.off+int64(len(b.Buf))+1 <= j.segBytes {
		return nil
	}
	if j.seg.first == j.next.first {
		return nil // it holds no record yet
	}
	err := j.newSegment(segmentHeader{
		first:     j.next.first,
		prevFirst: j.seg.first,
		prevEnd:   uint64(j.off), //nolint:gosec // an offset is not negative
		chain:     j.next.chain,
	}, nil)
	if err == nil {
		j.makeSpare()
	}
	return err
}

// writeBatch completes a batch in buf, writes and syncs it.
func (j *Journal) writeBatch(buf []byte, count uint32) error {
	data, h := seal(buf, j.off, batchHeader{
		count: count, first: j.next.first, term: j.next.term, chain: j.next.chain,
	})
	end := j.off + int64(len(data))
	if _, err := j.cur.WriteAt(data, j.off); err != nil {
		return err
	}
	if err := j.writeAhead(end, int64(len(data))); err != nil {
		return err
	}
	if err := j.cur.Sync(); err != nil {
		return err
	}
	j.off = end
	j.next = j.next.after(h)
	j.mu.Lock()
	j.segs[len(j.segs)-1].size = j.off
	j.mu.Unlock()
	return nil
}

// Stalled is for how long something waits and nothing has become durable: the disk may hang.
func (j *Journal) Stalled() time.Duration { return j.group.Stalled() }

// Size implements journal.Journal. It leaves room ahead out, once the first
// Replay has said where the last segment ends. After a start sinceRoll is the size of the
// batches that the first Replay was asked for: what came since the image.
func (j *Journal) Size() (total, sinceRoll int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.segs {
		total += s.size
	}
	return total, j.group.SinceRoll()
}

// flushAndStop is what Close does. Its error wraps journal.ErrFailed if something that was
// appended did not become durable.
func (j *Journal) flushAndStop() error {
	j.group.Stop()
	j.replayMu.Lock() // a Replay or Purge under way
	defer j.replayMu.Unlock()
	err := j.Err()
	j.mu.Lock()
	known, end := j.positioned && err == nil, reached{j.Durable(), j.term}
	j.mu.Unlock()
	if j.cur != nil {
		if err == nil && !j.needsRoom() {
			j.trimCurrent()
		}
		if cerr := j.cur.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close journal: %w", cerr)
		}
	}
	j.kept.close()
	if known && err == nil && j.cur != nil {
		err = writeReached(j.fs, j.dir, end)
		if vfs.Full(err) { // it costs only what the note would have told
			j.log.Warn("journal: the disk is full, so its end is not noted: a last segment that goes missing would not be noticed", "dir", j.dir)
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("close journal: %w", err)
		}
	}
	if cerr := j.lock.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close journal: %w", cerr)
	}
	return err
}
