package local

import (
	"context"
	"path/filepath"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Report is what Verify found.
type Report struct {
	Segments []SegmentReport // oldest first
	First    uint64          // oldest txid kept; 0 if there is no record
	Last     uint64          // newest txid; 0 if there is no record
	Records  uint64
	Batches  uint64
	Term     uint64 // the last one
	// Torn is a last batch that was cut short and never acknowledged, or nil.
	// It is no damage: the next start cuts it.
	Torn *journal.DamageError
}

// SegmentReport is one segment of a Report.
type SegmentReport struct {
	Name    string // the file's, without the folder
	First   uint64 // txid
	Bytes   int64  // in use: the file, but for room ahead of the last segment
	Batches uint64
	Records uint64
	// Superseded is how many bytes at the end of the file count no more: the
	// last batch before a restart, which the next segment repeats, or room
	// ahead. There are any only if a crash came before they were cut off.
	Superseded int64
}

// Verify reads all of the journal in dir and checks each rule of its format. It
// changes nothing and takes no lock, so that it is meant for a journal that no
// process has open. The error is a *journal.DamageError at the first damage,
// and the report then says what is good before it.
func Verify(ctx context.Context, fsys vfs.FS, dir string) (Report, error) {
	var rep Report
	index := map[uint64]int{}
	segs, err := listSegments(fsys, dir)
	if err != nil {
		return rep, err
	}
	ends := make([]int64, len(segs))
	for i, s := range segs {
		index[s.first] = i
		rep.Segments = append(rep.Segments, SegmentReport{Name: s.name(), First: s.first, Bytes: s.size})
		ends[i] = segHeaderSize
	}
	w := walk{fs: fsys, dir: dir, segs: segs, fresh: 1}
	found, err := w.run(ctx, 0, func(b *storedBatch) error {
		if err := decodeRecords(b.header, b.payload, 0, func(journal.Record) error { return nil }); err != nil {
			return err
		}
		i := index[b.segment.first]
		s := &rep.Segments[i]
		s.Batches++
		s.Records += uint64(b.header.count)
		ends[i] = b.off + b.size()
		rep.Batches++
		rep.Records += uint64(b.header.count)
		rep.Term = b.header.term
		if b.header.count > 0 {
			if rep.First == 0 {
				rep.First = b.header.first
			}
			rep.Last = b.header.first + uint64(b.header.count) - 1
		}
		return nil
	})
	rep.Torn = found.torn
	if err != nil {
		return rep, err
	}
	if err := w.checkReached(found); err != nil {
		return rep, err
	}
	if n := len(segs); n > 0 && !found.hollow {
		rep.Segments[n-1].Bytes = found.used
	}
	for i := range rep.Segments[:max(0, len(segs)-1)] {
		rep.Segments[i].Superseded = max(0, segs[i].size-ends[i])
	}
	return rep, nil
}

// Read calls fn for each record in dir with a txid of at least from, in order,
// with the segment and the offset of the batch that it is in, and the term. It
// changes nothing, takes no lock, and stops before a torn last batch. Damage is
// a *journal.DamageError; journal.ErrPurged if from, unless 0, is older than
// what is kept.
func Read(ctx context.Context, fsys vfs.FS, dir string, from uint64,
	fn func(segment string, offset int64, term uint64, rec journal.Record) error,
) error {
	segs, err := listSegments(fsys, dir)
	if err != nil {
		return err
	}
	if len(segs) > 0 && from > 0 && from < segs[0].first {
		return journal.Purged(from, segs[0].first)
	}
	w := walk{fs: fsys, dir: dir, segs: segs, fresh: 1}
	_, err = w.run(ctx, startOf(segs, from), func(b *storedBatch) error {
		name := filepath.Join(dir, b.segment.name())
		return decodeRecords(b.header, b.payload, from, func(rec journal.Record) error {
			return fn(name, b.off, b.header.term, rec)
		})
	})
	return err
}
