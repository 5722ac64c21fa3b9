package local

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/leasefs/leasefs/internal/vfs"
)

const spareName = "journal.spare"

// makeSpare writes the spare file unless it is there, or the disk has no room for
// it twice. Zeros that are on the disk already can be written over when nothing
// else can be written: so a start, which needs a new segment, works on a full
// disk, and files can be deleted there.
func (j *Journal) makeSpare() {
	name := filepath.Join(j.dir, spareName)
	_, err := j.fs.Stat(name)
	if j.spareSize == 0 || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if free, _, err := j.fs.Usage(j.dir); err != nil || free < 2*j.spareSize {
		return // again with the next segment
	}
	_, err = vfs.WriteAtomic(j.fs, name, func(w io.Writer) (err error) {
		for left := j.spareSize; left > 0 && err == nil; left -= int64(len(zeros)) {
			_, err = w.Write(zeros[:min(left, int64(len(zeros)))])
		}
		return err
	})
	if err != nil {
		j.log.Warn("journal: no spare file, without which a start on a full disk fails", "file", name, "error", err)
	}
}

// needsRoom reports whether the next start may need the room behind the current
// segment, since there is no spare file.
func (j *Journal) needsRoom() bool {
	if j.spareSize == 0 {
		return false
	}
	_, err := j.fs.Stat(filepath.Join(j.dir, spareName))
	return err != nil
}

// writeSegment writes a segment under a temporary name and returns where the
// zeros in it end. If the disk is full, or nearly, it writes it into the spare
// file, which is one no more before anything is written to it.
func (j *Journal) writeSegment(tmp string, data []byte) (ahead int64, err error) {
	free, _, uerr := j.fs.Usage(j.dir)
	if uerr != nil {
		free = math.MaxInt64
	}
	if free >= j.spareSize {
		if ahead, err = j.createFile(tmp, data, 0); !vfs.Full(err) {
			return ahead, err
		}
	}
	spare := filepath.Join(j.dir, spareName)
	if st, serr := j.fs.Stat(spare); serr != nil || st.Size() < int64(len(data)) {
		if free < j.spareSize { // what room there is, before others take it
			ahead, err = j.createFile(tmp, data, j.spareSize)
		}
		return ahead, err
	}
	if err := j.fs.Rename(spare, tmp); err != nil {
		return 0, err
	}
	// A crash must not bring the old name back for what is written now: the next segment
	// in it would have leftovers of this one behind its records.
	if err := j.kept.do(func() error { return j.fs.SyncDir(j.dir) }); err != nil {
		return 0, err
	}
	var f vfs.File
	if err := j.kept.do(func() (err error) { f, err = j.fs.OpenWrite(tmp); return err }); err != nil {
		return 0, err
	}
	err = vfs.Durably(f, func() (err error) {
		if ahead, err = f.Size(); err == nil {
			_, err = f.WriteAt(data, 0)
		}
		return err
	})
	j.log.Warn("journal: the disk is full: continuing in the spare file; delete files or add space", "dir", j.dir, "bytes", ahead)
	return ahead, err
}

// createFile makes a file with data, durable but for its name, and with zeros
// behind up to a length of size, as far as there is room. end is where they end.
func (j *Journal) createFile(name string, data []byte, size int64) (end int64, err error) {
	var f vfs.File
	if err := j.kept.do(func() (err error) { f, err = j.fs.Create(name); return err }); err != nil {
		return 0, err
	}
	err = vfs.Durably(f, func() error {
		_, err := f.Write(data)
		end = int64(len(data))
		for err == nil && end < size {
			var n int
			n, err = f.Write(zeros[:min(size-end, int64(len(zeros)))])
			end += int64(n)
		}
		if vfs.Full(err) && end > int64(len(data)) {
			err = nil
		}
		return err
	})
	return end, err
}
