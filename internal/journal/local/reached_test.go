package local

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

// closed is chain with all the files that a clean stop leaves, and its segments.
// Where the last ones begin depends on which records came into one batch.
func closed(t *testing.T) (files map[string][]byte, segments []string) {
	t.Helper()
	files, names := chain(t)
	fsys := disk(t, files)
	j := begin(t, fsys, 2)
	if err := j.Append(journaltest.Rec(51)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	files = contents(t, fsys)
	if len(files) < len(names)+2 { // a segment at least, and the note of the end
		t.Fatalf("files: %q", slices.Sorted(maps.Keys(files)))
	}
	for name := range files {
		if strings.HasSuffix(name, SegmentSuffix) {
			segments = append(segments, name)
		}
	}
	slices.Sort(segments)
	return files, segments
}

// A last segment that is missing or shorter than when the journal was closed is
// damage, wherever it ends. Without the note of the end it cannot be told.
func TestEndIsMissingAfterACleanStop(t *testing.T) {
	files, segments := closed(t)
	last, before := segments[len(segments)-1], segments[len(segments)-2]
	var ends []int64 // of the batches of the last segment
	err := Read(t.Context(), disk(t, files), dir, 46, func(segment string, off int64, _ uint64, _ journal.Record) error {
		if path.Base(segment) == path.Base(last) {
			ends = append(ends, off)
		}
		return nil
	})
	if err != nil || len(ends) == 0 {
		t.Fatal(ends, err)
	}
	for what, tc := range map[string]struct {
		segment string
		off     int64
		change  func(files map[string][]byte)
	}{
		"last segment missing": {before, int64(len(files[before])), func(f map[string][]byte) { delete(f, last) }},
		"last segment hollow":  {last, 0, func(f map[string][]byte) { f[last] = nil }},
		"last batch missing":   {last, ends[len(ends)-1], func(f map[string][]byte) { f[last] = f[last][:ends[len(ends)-1]] }},
		"last byte missing":    {last, ends[len(ends)-1], func(f map[string][]byte) { f[last] = f[last][:len(f[last])-1] }},
		"all segments missing": {dir, 0, func(f map[string][]byte) {
			maps.DeleteFunc(f, func(name string, _ []byte) bool { return strings.HasSuffix(name, SegmentSuffix) })
		}},
	} {
		t.Run(what, func(t *testing.T) {
			left := maps.Clone(files)
			tc.change(left)
			refused(t, what, left, tc.segment, tc.off)
			delete(left, path.Join(dir, reachedName)) // as the remedy says
			if txid, err := replay(t, disk(t, left)); err != nil || txid >= 51 {
				t.Fatalf("without the note of the end: %d, %v", txid, err)
			}
		})
	}
}

func TestDamagedNoteOfTheEnd(t *testing.T) {
	files, _ := closed(t)
	name := path.Join(dir, reachedName)
	good := files[name]
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 4
		files[name] = bad
		refused(t, "flipped", files, name, 0)
	}
	for _, bad := range [][]byte{nil, good[:5], good[:len(good)-1], append(slices.Clone(good), 0)} {
		files[name] = bad
		refused(t, "another length", files, name, 0)
	}
}

// The note of an earlier stop says nothing against what was written since, also
// when that life ended by a crash and its last batch is torn.
func TestNoteOfAnEarlierStop(t *testing.T) {
	files, _ := closed(t)
	fsys := disk(t, files)
	j := begin(t, fsys, 3)
	for txid := uint64(52); txid <= 54; txid++ {
		if err := j.Append(journaltest.Rec(txid)); err != nil {
			t.Fatal(err)
		}
		if err := j.WaitDurable(t.Context(), txid); err != nil {
			t.Fatal(err)
		}
	}
	crashed := fsys.Crash()
	if txid, err := replay(t, crashed); err != nil || txid != 54 {
		t.Fatal(txid, err)
	}
}

// A last segment that a crash left without a header is cut by a start from any
// record, that of an image included, as Verify says.
func TestHollowLastSegment(t *testing.T) {
	files, names := chain(t)
	last := names[len(names)-1]
	for _, left := range [][]byte{nil, []byte(segMagic)[:3], make([]byte, 12), make([]byte, sectorSize)} {
		files[last] = left
		for _, from := range []uint64{1, 35, 40, 41} {
			fsys := disk(t, files)
			rep, err := Verify(t.Context(), fsys, dir)
			if err != nil || rep.Torn == nil || rep.Torn.Segment != last || rep.Last != 40 {
				t.Fatalf("%d bytes: Verify says %+v, %v", len(left), rep, err)
			}
			j, err := open(fsys, 0)
			if err != nil {
				t.Fatal(err)
			}
			txid, err := j.Replay(t.Context(), from, func(r journal.Record) error {
				if r.TxID < from {
					return errors.New("a record before that")
				}
				return nil
			})
			if err != nil || txid != 40 {
				t.Errorf("%d bytes: a start from record %d: %d, %v", len(left), from, txid, err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
