package local

import (
	"errors"
	"math"
	"path/filepath"

	"github.com/leasefs/leasefs/internal/vfs"
)

// zeros is what is written ahead. Nothing writes to it.
var zeros [1 << 20]byte

// writeAhead writes zeros behind a batch of so many bytes that ends beyond those
// there are, and that the same sync makes durable. Behind a large batch, for
// which writing twice costs more than a longer file, there are none; nor are
// there more in this segment once there was no room: the disk's last bytes are
// for batches.
func (j *Journal) writeAhead(end, size int64) error {
	if end <= j.ahead {
		return nil
	}
	j.ahead = end
	if j.step == 0 || size > j.step/4 {
		return nil
	}
	to := min((end/j.step+1)*j.step, j.segBytes)
	if to <= end {
		return nil
	}
	_, err := j.cur.WriteAt(zeros[:to-end], end)
	switch {
	case vfs.Full(err):
		j.ahead = math.MaxInt64
		return nil
	case err != nil:
		return err
	}
	j.ahead = to
	return nil
}

// trimOlder gives back what segments before the current one have behind their
// ends: room ahead, and a batch that the next segment repeats. Nobody reads
// that again, so that a failure costs only disk, until the next start.
func (j *Journal) trimOlder(found walked) {
	for i := found.start; i < len(j.segs)-1; i++ {
		end := int64(j.seg.prevEnd) //nolint:gosec // checked, or an offset of ours
		if i < len(j.segs)-2 {
			end = found.ends[i-found.start]
		}
		if end >= j.segs[i].size {
			continue
		}
		name := filepath.Join(j.dir, j.segs[i].name())
		f, err := j.fs.OpenWrite(name)
		if err == nil {
			err = errors.Join(f.Truncate(end), f.Close())
		}
		if err != nil {
			j.log.Warn("journal: room behind a segment is not given back", "segment", name, "error", err)
		}
		j.mu.Lock()
		j.segs[i].size = end
		j.mu.Unlock()
	}
}

// trimCurrent gives back the room behind the end of the current segment, which
// gets no further batch.
func (j *Journal) trimCurrent() {
	if j.ahead <= j.off {
		return
	}
	if err := j.cur.Truncate(j.off); err != nil {
		j.log.Warn("journal: room behind a segment is not given back", "segment", j.cur.Name(), "error", err)
	}
}
