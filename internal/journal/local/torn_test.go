package local

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/size"
)

// sample is a journal of one segment, as bytes and as what it holds.
type sample struct {
	version uint32
	name    string
	data    []byte // room ahead is not among it
	room    []byte
	batches []storedBatch
}

// samples runs test for a sample in each version, and with room ahead.
func samples(t *testing.T, test func(*testing.T, sample)) {
	for _, c := range []struct {
		name    string
		version uint32
		room    int
	}{{"version 1", 1, 0}, {"version 2", 2, 0}, {"room ahead", 2, 1500}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSample(t, c.version)
			s.room = make([]byte, c.room)
			test(t, s)
		})
	}
}

// newSample writes three batches; the last one spans several sectors, of which
// some hold only zeros and one holds a single bit.
func newSample(t testing.TB, version uint32) sample {
	t.Helper()
	var at expectation
	at.first, at.term = 1, 3
	s := sample{version: version, name: path.Join(dir, segmentName(1))}
	s.data = segmentHeader{version: version, first: 1}.encode()
	sparse := make([]byte, 4000)
	sparse[2100] = 0x10
	for i, bodies := range [][][]byte{
		{[]byte("one"), []byte("two"), make([]byte, 700)},
		{bytes.Repeat([]byte("middle"), 150), []byte("x")},
		{[]byte("last"), sparse, bytes.Repeat([]byte{7, 0, 0}, 100), {}},
	} {
		buf := make([]byte, batchHeaderSize)
		for _, body := range bodies {
			buf = group.AppendRecord(buf, &journal.Record{Type: byte(i + 1), Time: 5, Body: body}, 0)
		}
		off := int64(len(s.data))
		out, h := seal(buf, off, batchHeader{count: uint32(len(bodies)), first: at.first, term: at.term, chain: at.chain})
		at = at.after(h)
		s.data = append(s.data, out...)
		s.batches = append(s.batches, storedBatch{off: off, header: h})
	}
	return s
}

// file is data with the room ahead.
func (s sample) file(data []byte) []byte { return slices.Concat(data, s.room) }

func (s sample) last() *storedBatch { return &s.batches[len(s.batches)-1] }

// disk returns a file system that holds files, durably.
func disk(t testing.TB, files map[string][]byte) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := fsys.Create(name)
		if err == nil {
			_, err = f.Write(files[name])
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	for _, d := range []string{dir, path.Dir(dir), "/"} {
		if err := fsys.SyncDir(d); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// contents returns all segments of a file system, and other files but the lock.
func contents(t testing.TB, fsys vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		name = path.Join(dir, name)
		f, err := fsys.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return all
}

// replay opens the journal and returns the last txid that Replay found.
func replay(t testing.TB, fsys vfs.FS) (uint64, error) {
	t.Helper()
	j, err := open(fsys, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	return j.Replay(t.Context(), 1, nothing)
}

// refused checks that the start is refused at the offset and nothing changed.
func refused(t testing.TB, what string, files map[string][]byte, segment string, off int64) {
	t.Helper()
	fsys := disk(t, files)
	_, err := replay(t, fsys)
	var damage *journal.DamageError
	if !errors.As(err, &damage) {
		t.Fatalf("%s: Replay returned %v, want a DamageError", what, err)
	}
	if damage.Segment != segment || damage.Offset != off || damage.Detail == "" || damage.Remedy == "" {
		t.Fatalf("%s: got %+v, want segment %s offset %d", what, damage, segment, off)
	}
	if after := contents(t, fsys); !maps.EqualFunc(after, files, bytes.Equal) {
		t.Fatalf("%s: refused, but the disk has changed", what)
	}
	if _, verr := Verify(t.Context(), fsys, dir); verr == nil || verr.Error() != err.Error() {
		t.Fatalf("%s: Verify says %v, Replay %v", what, verr, err)
	}
}

// cut checks that the last batch is cut and the rest is whole, also with room
// ahead behind data.
func cut(t testing.TB, what string, s sample, data []byte) {
	t.Helper()
	fsys := disk(t, map[string][]byte{s.name: s.file(data)})
	used := int64(len(data))
	if s.version > 1 { // nobody can tell what is missing from room ahead
		used = max(s.last().off, int64(len(bytes.TrimRight(data, "\x00"))))
	}
	rep, err := Verify(t.Context(), fsys, dir)
	if err == nil && rep.Segments[0].Bytes != used {
		t.Fatalf("%s: Verify counts %d bytes, want %d", what, rep.Segments[0].Bytes, used)
	}
	if err != nil || rep.Last != s.last().header.first-1 || used > s.last().off && (rep.Torn == nil || rep.Torn.Offset != s.last().off) ||
		used == s.last().off && rep.Torn != nil {
		t.Fatalf("%s: Verify says %+v, %v", what, rep, err)
	}
	last, err := replay(t, fsys)
	if err != nil || last != s.last().header.first-1 {
		t.Fatalf("%s: Replay returned %d, %v", what, last, err)
	}
	// The last good batch is in a segment of its own now.
	want := s.batches[1].off
	if got := contents(t, fsys)[s.name]; !bytes.Equal(got, s.data[:want]) {
		t.Fatalf("%s: the segment has %d bytes after the cut, want %d", what, len(got), want)
	}
	rep, err = Verify(t.Context(), fsys, dir)
	if err != nil || rep.Torn != nil || rep.Last != s.last().header.first-1 {
		t.Fatalf("%s: after the cut Verify says %+v, %v", what, rep, err)
	}
}

func TestScenario46aShortLastBatchIsCut(t *testing.T) { samples(t, shortLastBatchIsCut) }

func shortLastBatchIsCut(t *testing.T, s sample) {
	for n := s.last().off; n < int64(len(s.data)); n++ {
		cut(t, "cut at "+itoa(n), s, s.data[:n])
	}
}

func TestScenario46aZeroSectorsInLastBatchAreCut(t *testing.T) {
	samples(t, zeroSectorsInLastBatchAreCut)
}

func zeroSectorsInLastBatchAreCut(t *testing.T, s sample) {
	var dirty [][]byte // sectors of the last batch that hold anything
	data := bytes.Clone(s.data)
	for piece := range sectors(data[s.last().off:], s.last().off) {
		if !isZero(piece) {
			dirty = append(dirty, piece)
		}
	}
	if legit := zeroSectors(data[s.last().off:], s.last().off); legit == 0 || s.last().header.zeros != legit {
		t.Fatalf("the sample has %d sectors of zeros, its header says %d", legit, s.last().header.zeros)
	}
	for choice := 1; choice < 1<<len(dirty); choice++ {
		copy(data, s.data)
		set, bits := 0, 0
		for i, piece := range dirty {
			if choice>>i&1 == 1 {
				for _, b := range piece {
					for ; b != 0; b &= b - 1 {
						bits++
					}
				}
				clear(piece)
				set++
			}
		}
		if bits == 1 {
			continue // one bit flipped: see below
		}
		cut(t, "sectors "+itoa(int64(choice)), s, data)
		cut(t, "sectors "+itoa(int64(choice))+", short", s, data[:len(data)-9])
	}
	cut(t, "zeros behind the last batch but one", s, append(bytes.Clone(s.data[:s.last().off]), make([]byte, 3000)...))
}

func TestScenario46aFlippedBitIsRefused(t *testing.T) { samples(t, flippedBitIsRefused) }

func flippedBitIsRefused(t *testing.T, s sample) {
	for i, b := range s.batches {
		for at := b.off; at < b.off+b.size(); at++ {
			for bit := range 8 {
				if (!size.Full || len(s.room) == 0) && bit != int(at%8) {
					continue
				}
				data := bytes.Clone(s.data)
				data[at] ^= 1 << bit
				refused(t, "batch "+itoa(int64(i))+" byte "+itoa(at)+" bit "+itoa(int64(bit)),
					map[string][]byte{s.name: s.file(data)}, s.name, b.off)
			}
		}
	}
	for at := range segHeaderSize {
		data := bytes.Clone(s.data)
		data[at] ^= 4
		refused(t, "header byte "+itoa(int64(at)), map[string][]byte{s.name: s.file(data)}, s.name, 0)
	}
}

func TestDamageBeforeTheLastBatch(t *testing.T) { samples(t, damageBeforeTheLastBatch) }

func damageBeforeTheLastBatch(t *testing.T, s sample) {
	for i, b := range s.batches[:2] {
		for at, data := int64(0), bytes.Clone(s.data); at < int64(len(data)); at += sectorSize {
			copy(data, s.data)
			from, to := max(at, b.off), min(at+sectorSize, b.off+b.size())
			if from >= to || isZero(data[from:to]) {
				continue
			}
			clear(data[from:to])
			refused(t, "batch "+itoa(int64(i))+" without sector at "+itoa(at), map[string][]byte{s.name: s.file(data)}, s.name, b.off)
		}
		data := slices.Delete(bytes.Clone(s.data), int(b.off), int(b.off+b.size()))
		refused(t, "batch "+itoa(int64(i))+" missing", map[string][]byte{s.name: s.file(data)}, s.name, b.off)
	}
	end := int64(len(s.data))
	much := make([]byte, maxBatch+1)
	if s.version > 1 { // zeros alone are room ahead
		much = append(much, 1)
	}
	for what, junk := range map[string][]byte{
		"junk":        bytes.Repeat([]byte{0xff}, 100),
		"short junk":  {1},
		"old batch":   s.data[s.batches[0].off:s.batches[1].off],
		"much":        much,
		"junk, zeros": append([]byte{9, 9, 9}, make([]byte, 1000)...),
	} {
		refused(t, what, map[string][]byte{s.name: s.file(append(bytes.Clone(s.data), junk...))}, s.name, end)
	}
	// A damaged last batch with something behind it was not the last write.
	data := bytes.Clone(s.data)
	clear(data[end-600:])
	refused(t, "zeros, then a byte", map[string][]byte{s.name: s.file(append(data, 1))}, s.name, s.last().off)
	// A header that never reached the disk, with a whole batch behind it.
	data = bytes.Clone(s.data)
	clear(data[s.batches[1].off:min(s.batches[1].off+sectorSize-s.batches[1].off%sectorSize, s.last().off)])
	refused(t, "zeroed header", map[string][]byte{s.name: s.file(data)}, s.name, s.batches[1].off)
}

// TestBatchesThatDoNotFit: whole batches, each with good checksums, that do not
// continue the journal, and records whose framing is unknown.
func TestBatchesThatDoNotFit(t *testing.T) { samples(t, batchesThatDoNotFit) }

func batchesThatDoNotFit(t *testing.T, s sample) {
	good := s.last().header
	payload := s.data[s.last().off+batchHeaderSize : len(s.data)-1]
	for what, change := range map[string]func(h *batchHeader, p []byte) []byte{
		"gap":         func(h *batchHeader, p []byte) []byte { h.first++; return p },
		"repeated":    func(h *batchHeader, p []byte) []byte { h.first--; return p },
		"term back":   func(h *batchHeader, p []byte) []byte { h.term--; return p },
		"other chain": func(h *batchHeader, p []byte) []byte { h.chain++; return p },
		"fewer":       func(h *batchHeader, p []byte) []byte { h.count++; return p },
		"more":        func(h *batchHeader, p []byte) []byte { h.count--; return p },
		"count":       func(h *batchHeader, p []byte) []byte { h.count = 1 << 31; return p },
		"time":        func(_ *batchHeader, p []byte) []byte { return append(p[:1], bytes.Repeat([]byte{0xff}, 4000)...) },
		"length":      func(_ *batchHeader, p []byte) []byte { p[2] = 0x7f; p[3] = 0xff; p[4] = 0xff; return p },
		"none":        func(_ *batchHeader, _ []byte) []byte { return nil },
	} {
		h := batchHeader{count: good.count, first: good.first, term: good.term, chain: good.chain}
		p := change(&h, bytes.Clone(payload))
		out, _ := seal(append(make([]byte, batchHeaderSize), p...), s.last().off, h)
		refused(t, what, map[string][]byte{s.name: s.file(append(bytes.Clone(s.data[:s.last().off]), out...))}, s.name, s.last().off)
	}
}

// TestBadTailIsCutOrRefused: whatever one write left, the outcome is the rule's,
// and what is before the last batch survives.
func TestBadTailIsCutOrRefused(t *testing.T) { samples(t, badTailIsCutOrRefused) }

func badTailIsCutOrRefused(t *testing.T, s sample) {
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Clone(s.data)
		data = data[:rapid.Int64Range(s.last().off+1, int64(len(data))).Draw(rt, "length")]
		for piece := range sectors(data[s.last().off:], s.last().off) {
			if rapid.Bool().Draw(rt, "lost") {
				clear(piece)
			}
		}
		if bytes.Equal(data, s.data) {
			return
		}
		diff := 0
		if len(data) == len(s.data) {
			for i, b := range data {
				for x := b ^ s.data[i]; x != 0; x &= x - 1 {
					diff++
				}
			}
		}
		if diff == 1 {
			return
		}
		cut(t, "torn", s, data)
	})
}

// TestRoomAhead: room ahead of any length is no damage, and is given back; a
// byte in it that no torn batch can have left is.
func TestRoomAhead(t *testing.T) {
	s := newSample(t, 2)
	end := int64(len(s.data))
	for _, room := range []int{1, sectorSize, readChunk + maxBatch} {
		s.room = make([]byte, room)
		fsys := disk(t, map[string][]byte{s.name: s.file(s.data)})
		rep, err := Verify(t.Context(), fsys, dir)
		if err != nil || rep.Torn != nil || rep.Records != 9 || rep.Segments[0].Bytes != end {
			t.Fatalf("room of %d: Verify says %+v, %v", room, rep, err)
		}
		n := 0
		if err := Read(t.Context(), fsys, dir, 0, func(string, int64, uint64, journal.Record) error { n++; return nil }); err != nil || n != 9 {
			t.Fatalf("room of %d: Read found %d records, %v", room, n, err)
		}
		j := begin(t, fsys, 4)
		if total, _ := j.Size(); total > end+2*segHeaderSize+batchHeaderSize+1 {
			t.Fatalf("room of %d: %d bytes are used, and Size says %d", room, end, total)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, fsys)[s.name]; !bytes.Equal(got, s.data[:s.last().off]) {
			t.Fatalf("room of %d: the segment has %d bytes after a start, want %d", room, len(got), s.last().off)
		}
	}
	for _, at := range []int{0, 17, maxBatch, len(s.room) - 1} {
		data := s.file(s.data)
		data[len(s.data)+at] = 8
		refused(t, "room with a byte at "+strconv.Itoa(at), map[string][]byte{s.name: data}, s.name, end)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
