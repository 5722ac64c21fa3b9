package local

import (
	"bytes"
	"path"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

// used is how many bytes all files of the journal have.
func used(t *testing.T, fsys *crashfs.FS) (n int64) {
	t.Helper()
	for _, content := range contents(t, fsys) {
		n += int64(len(content))
	}
	return n
}

// With nothing free a journal starts all the same, again and again, however the
// start before ended, and takes records.
func TestStartOnAFullDisk(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fsys := crashfs.New()
		start := func(term uint64) *Journal {
			t.Helper()
			j, err := Open(Config{FS: fsys, Dir: dir, Ahead: 4 << 10, Spare: 256 << 10, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
			if _, err := j.Replay(t.Context(), 1, nothing); err != nil {
				t.Fatal(err)
			}
			if err := j.BeginTerm(t.Context(), term); err != nil {
				t.Fatal(err)
			}
			return j
		}
		last := uint64(0)
		for term := uint64(1); term <= 4; term++ {
			j := start(term)
			for range 20 {
				last++
				if err := j.Append(journaltest.Rec(last)); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.WaitDurable(t.Context(), last); err != nil {
				t.Fatalf("clean %t, start %d: %v", clean, term, err)
			}
			if clean {
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
			}
			fsys = fsys.Crash()
			fsys.Capacity(used(t, fsys))
		}
		// With room again there is a spare file again.
		fsys.Heal()
		start(5)
		if _, err := fsys.Stat(path.Join(dir, spareName)); err != nil {
			t.Error(err)
		}
	}
}

// A crash in a start on a full disk leaves no spare file with bytes of a segment in it: those
// would be behind the records of a later segment that is written into it.
func TestCrashInTheSpareFile(t *testing.T) {
	start := func(fsys *crashfs.FS, term uint64) (j *Journal, last uint64, err error) {
		j, err = Open(Config{FS: fsys, Dir: dir, Ahead: 4 << 10, Spare: 64 << 10, Logger: quiet})
		if err != nil {
			return nil, 0, err
		}
		t.Cleanup(func() { _ = j.Close() })
		last, err = j.Replay(background, 1, nothing)
		if err == nil {
			err = j.BeginTerm(background, term)
		}
		return j, last, err
	}
	add := func(j *Journal, rec journal.Record) {
		t.Helper()
		if err := j.Append(rec); err != nil {
			t.Fatal(err)
		}
		if err := j.WaitDurable(background, rec.TxID); err != nil {
			t.Fatal(err)
		}
	}
	base := crashfs.New()
	j, _, err := start(base, 1)
	if err != nil {
		t.Fatal(err)
	}
	add(j, journal.Record{TxID: 1, Time: 1_700_000_000_000, Type: 1, Body: bytes.Repeat([]byte{0xab}, 20_000)}) // the next start copies it
	crashed := base.Crash(crashfs.Strict)
	points := 0
	for n := 1; ; n++ {
		fsys := crashed.Clone()
		fsys.Capacity(used(t, fsys))
		fsys.CrashAt(n)
		_, _, err := start(fsys, 2)
		if err == nil {
			break
		}
		points = n
		fsys = fsys.Crash(crashfs.Strict) // and there is room again
		j, last, err := start(fsys, 2)
		if err != nil {
			t.Fatalf("after a crash at point %d: %v", n, err)
		}
		add(j, journaltest.Rec(last+1))
		fsys.Capacity(used(t, fsys)) // and none once more
		if err := j.Roll(); err != nil {
			t.Fatal(err)
		}
		add(j, journaltest.Rec(last+2))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if _, found, err := start(fsys.Crash(crashfs.Strict), 3); err != nil || found != last+2 {
			t.Errorf("after a crash at point %d the last record is %d, not %d: %v", n, found, last+2, err)
		}
	}
	if points < 5 {
		t.Errorf("a start on a full disk has %d points", points)
	}
}
