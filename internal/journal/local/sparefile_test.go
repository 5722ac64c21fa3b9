package local

import (
	"path"
	"testing"

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
