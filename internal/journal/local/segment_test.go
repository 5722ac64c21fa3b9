package local

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

// chain writes a journal of several segments, ten records each, and returns the
// files, and the segments' names in order.
func chain(t *testing.T) (map[string][]byte, []string) {
	t.Helper()
	fsys := crashfs.New()
	j := begin(t, fsys, 1)
	for txid := uint64(1); txid <= 50; txid++ {
		if err := j.Append(journaltest.Rec(txid)); err != nil {
			t.Fatal(err)
		}
		if txid%5 == 0 {
			if err := j.WaitDurable(t.Context(), txid); err != nil {
				t.Fatal(err)
			}
		}
		if txid%10 == 0 {
			if err := j.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	files := contents(t, fsys)
	delete(files, path.Join(dir, reachedName))
	names := slices.Sorted(maps.Keys(files))
	if len(names) != 5 {
		t.Fatalf("segments: %q", names)
	}
	return files, names
}

func TestMissingSegment(t *testing.T) {
	files, names := chain(t)
	for i := 1; i < len(names)-1; i++ {
		left := maps.Clone(files)
		delete(left, names[i])
		refused(t, names[i], left, names[i+1], 0)
	}
	delete(files, names[0]) // as after Purge
	if _, err := replay(t, disk(t, files)); !errors.Is(err, journal.ErrPurged) {
		t.Fatalf("Replay: %v, want ErrPurged", err)
	}
}

func TestExchangedSegments(t *testing.T) {
	files, names := chain(t)
	swapped := maps.Clone(files)
	swapped[names[1]], swapped[names[2]] = files[names[2]], files[names[1]]
	refused(t, "exchanged", swapped, names[1], 0)

	// A segment of the same numbers and another content, as from an old copy.
	other := newSample(t, 2)
	h := segmentHeader{version: 2, first: 11, prevFirst: 1, prevEnd: uint64(len(files[names[0]])), chain: 99}
	mixed := maps.Clone(files)
	mixed[names[1]] = append(h.encode(), other.data[segHeaderSize:]...)
	refused(t, "other history", mixed, names[1], 0)
}

func TestDamagedOlderSegment(t *testing.T) {
	files, names := chain(t)
	for i, name := range names[:len(names)-1] {
		short := maps.Clone(files)
		short[name] = files[name][:len(files[name])-1]
		refused(t, "short", short, name, int64(len(files[name])-1))
		empty := maps.Clone(files)
		empty[name] = nil
		refused(t, "empty", empty, name, 0)
		flipped := maps.Clone(files)
		flipped[name] = bytes.Clone(files[name])
		flipped[name][segHeaderSize+batchHeaderSize*(1+i)/2] ^= 1
		refused(t, "flipped", flipped, name, segHeaderSize)
	}
}

// TestLeftoversOfARoll: what a crash during a roll, or a kind restorer, leaves
// behind the last segment is no damage.
func TestLeftoversOfARoll(t *testing.T) {
	files, names := chain(t)
	next := path.Join(dir, segmentName(51))
	last := files[names[4]]
	end := &storedBatch{}
	if _, err := (&walk{fs: disk(t, files), dir: dir, segs: mustList(t, disk(t, files))}).run(t.Context(), 0, func(b *storedBatch) error {
		end = b
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	header := segmentHeader{version: 2, first: 51, prevFirst: 41, prevEnd: uint64(len(last)), chain: end.header.crc}.encode()
	for what, data := range map[string][]byte{
		"header only":   header,
		"empty":         {},
		"half a header": header[:20],
		"zeros":         make([]byte, 48),
		"many zeros":    make([]byte, 512),
		"":              nil,
	} {
		more := maps.Clone(files)
		more[next] = data
		if what == "" {
			what = "nothing, behind room ahead"
			more[next] = header[:20]
			more[names[4]] = append(bytes.Clone(last), make([]byte, 3000)...)
		}
		more[next+tmpSuffix] = []byte("left over")
		more[path.Join(dir, "README")] = []byte("not ours")
		fsys := disk(t, more)
		if rep, err := Verify(t.Context(), fsys, dir); err != nil || rep.Last != 50 {
			t.Fatalf("%s: Verify: %+v, %v", what, rep, err)
		}
		j := begin(t, fsys, 2)
		if err := j.Append(journaltest.Rec(51)); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		left := contents(t, fsys)
		if left[next+tmpSuffix] != nil || left[path.Join(dir, "README")] == nil {
			t.Fatalf("%s: files are %q", what, slices.Sorted(maps.Keys(left)))
		}
		again, err := open(fsys.Crash(), 0)
		if err != nil {
			t.Fatal(err)
		}
		journaltest.Check(t, again, 1, 51)
		_ = again.Close()
	}
	// With the rest of the journal gone, a header with a hole is not nothing.
	fsys := disk(t, map[string][]byte{next: header[:20]})
	if _, err := Verify(t.Context(), fsys, dir); err == nil {
		t.Fatal("a journal of half a header, far from its beginning, was taken")
	}
	j, err := open(fsys, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var damage *journal.DamageError
	if _, err := j.Replay(t.Context(), 51, nothing); !errors.As(err, &damage) {
		t.Fatalf("Replay from 51: %v", err)
	}
}

func mustList(t *testing.T, fsys vfs.FS) []segment {
	t.Helper()
	segs, err := listSegments(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return segs
}

func TestNewerFormatIsRefused(t *testing.T) {
	s := newSample(t, 2)
	for _, version := range []uint32{formatVersion + 1, 0} {
		data := bytes.Clone(s.data)
		le.PutUint32(data[8:], version)
		le.PutUint32(data[40:], group.Checksum(data[:40]))
		refused(t, "version "+itoa(int64(version)), map[string][]byte{s.name: data}, s.name, 0)
	}
}

// TestRestartsLeaveNoHeap: many restarts with nothing written keep the folder
// as small as it is.
func TestRestartsLeaveNoHeap(t *testing.T) {
	fsys := crashfs.New()
	for life := uint64(1); life <= 50; life++ {
		if err := begin(t, fsys, life).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(mustList(t, fsys)); n != 1 {
		t.Fatalf("%d segments after 50 empty lives", n)
	}
	for life := uint64(51); life <= 60; life++ {
		j := begin(t, fsys, life)
		if err := j.Append(journaltest.Rec(life - 50)); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := Verify(t.Context(), fsys, dir)
	if err != nil || rep.Records != 10 || rep.First != 1 || rep.Last != 10 || rep.Term != 60 {
		t.Fatalf("%+v, %v", rep, err)
	}
}

// TestRestartsLeaveNoRoom: a process that is killed leaves the room that was
// ahead. The next one gives it back; and Size has never counted it.
func TestRestartsLeaveNoRoom(t *testing.T) {
	fsys := crashfs.New()
	lengths := func() (n int64) {
		for _, s := range mustList(t, fsys) {
			n += s.size
		}
		return n
	}
	for life := uint64(1); life <= 20; life++ {
		j := begin(t, fsys, life)
		for i := range uint64(3) {
			txid := 3*(life-1) + i + 1
			if err := j.Append(journaltest.Rec(txid)); err != nil {
				t.Fatal(err)
			}
			if err := j.WaitDurable(t.Context(), txid); err != nil {
				t.Fatal(err)
			}
			if err := j.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		total, _ := j.Size()
		if all := lengths(); all-total < DefaultAhead/2 || all-total > DefaultAhead {
			t.Fatalf("life %d: the files have %d bytes, of which %d are used", life, all, total)
		}
		fsys = fsys.Crash(crashfs.Kill)
	}
	j := begin(t, fsys, 100)
	total, _ := j.Size()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if all := lengths(); all != total || total > 64<<10 {
		t.Fatalf("after an end in order the files have %d bytes, of which %d are used", all, total)
	}
}

// TestRoom: how long a segment is after batches of several sizes.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		ahead, segBytes int64
		bodies          []int
		want            []int64 // the length after each; -1: just as long as is used
	}{
		{0, 0, []int{100, 200_000, 100, 400_000, 100}, []int64{512 << 10, 512 << 10, 512 << 10, -1, 1 << 20}},
		{-1, 0, []int{100, 100}, []int64{-1, -1}},
		{10_000, 0, []int{100, 2400, 9000, 100}, []int64{10_000, 10_000, -1, 20_000}},
		{10_000, 8000, []int{100}, []int64{8000}},
		{5 << 20, 0, []int{100}, []int64{1 << 20}},
	} {
		fsys := crashfs.New()
		j, err := Open(Config{FS: fsys, Dir: dir, Ahead: c.ahead, SegmentBytes: c.segBytes, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Replay(t.Context(), 1, nothing); err != nil {
			t.Fatal(err)
		}
		if err := j.BeginTerm(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for i, size := range c.bodies {
			txid := uint64(i + 1)
			if err := j.Append(journal.Record{TxID: txid, Type: 1, Body: bytes.Repeat([]byte{7}, size)}); err != nil {
				t.Fatal(err)
			}
			if err := j.WaitDurable(t.Context(), txid); err != nil {
				t.Fatal(err)
			}
			used, _ := j.Size()
			want := c.want[i]
			if want < 0 {
				want = used
			}
			if got := mustList(t, fsys)[0].size; got != want || used > got {
				t.Errorf("ahead %d, bodies %d: after %d of them %d bytes, of which %d are used; want %d", c.ahead, c.bodies, i+1, got, used, want)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecondOpenIsLockedOut(t *testing.T) {
	for _, c := range []struct {
		fs  vfs.FS
		dir string
	}{{crashfs.New(), dir}, {vfs.OS(), t.TempDir()}} {
		j, err := Open(Config{FS: c.fs, Dir: c.dir, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{FS: c.fs, Dir: c.dir, Logger: quiet}); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("second Open: %v", err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j, err = Open(Config{FS: c.fs, Dir: c.dir, Logger: quiet}); err != nil {
			t.Fatal(err)
		}
		_ = j.Close()
	}
}

func TestFirst(t *testing.T) {
	fsys := crashfs.New()
	for life := uint64(1); life < 4; life++ {
		j, err := Open(Config{FS: fsys, Dir: dir, First: 1001, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		last := 1000 + life - 1
		if got, err := j.Replay(t.Context(), 1001, nothing); err != nil || got != last {
			t.Fatalf("Replay: %d, %v", got, err)
		}
		if err := j.BeginTerm(t.Context(), life); err != nil {
			t.Fatal(err)
		}
		if err := j.Append(journaltest.Rec(last + 1)); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadNamesBatches(t *testing.T) {
	files, names := chain(t)
	fsys := disk(t, files)
	next := uint64(23)
	err := Read(t.Context(), fsys, dir, next, func(segment string, offset int64, term uint64, rec journal.Record) error {
		journaltest.Same(t, rec, journaltest.Rec(next))
		if want := names[(next-1)/10]; segment != want || term != 1 {
			t.Errorf("record %d in %s, term %d", next, segment, term)
		}
		if h, ok := decodeBatchHeader(files[segment][offset:]); !ok || h.first > next || h.first+uint64(h.count) <= next {
			t.Errorf("record %d is not in the batch at %d", next, offset)
		}
		next++
		return nil
	})
	if err != nil || next != 51 {
		t.Fatalf("Read stopped at %d: %v", next, err)
	}
	if !maps.EqualFunc(contents(t, fsys), files, bytes.Equal) {
		t.Fatal("Read changed the disk")
	}
	stop := errors.New("stop")
	if err := Read(t.Context(), fsys, dir, 0, func(string, int64, uint64, journal.Record) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

// deniesOpen is a disk that fails to open one file, the nth from now on.
type deniesOpen struct {
	vfs.FS
	in int // 0: none
}

func (d *deniesOpen) Open(name string) (vfs.File, error) {
	if d.in--; d.in == 0 {
		return nil, syscall.EMFILE
	}
	return d.FS.Open(name)
}

// TestReadingContinuesAfterAnError: whoever follows a journal reads every record once, whatever
// file could not be opened meanwhile.
func TestReadingContinuesAfterAnError(t *testing.T) {
	const records = 12
	for in, failed := 1, true; failed; in++ {
		fsys := &deniesOpen{FS: crashfs.New()}
		j := begin(t, fsys, 1)
		for txid := uint64(1); txid <= records; txid++ {
			if err := j.Append(journaltest.Rec(txid)); err != nil {
				t.Fatal(err)
			}
			if err := j.WaitDurable(t.Context(), txid); err != nil {
				t.Fatal(err)
			}
			if txid%4 == 0 {
				if err := j.Roll(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var got []uint64
		read := func() error {
			_, err := j.Replay(t.Context(), uint64(len(got))+1, func(r journal.Record) error {
				got = append(got, r.TxID)
				return nil
			})
			return err
		}
		fsys.in = in
		err := read()
		if failed = err != nil; failed && !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
		fsys.in = 0
		if err := read(); err != nil {
			t.Fatalf("file %d could not be opened: %v", in, err)
		}
		for i, txid := range got {
			if txid != uint64(i)+1 {
				t.Fatalf("file %d cannot be opened: records %d were read", in, got)
			}
		}
		if len(got) != records {
			t.Errorf("file %d cannot be opened: %d records were read, of %d", in, len(got), records)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
