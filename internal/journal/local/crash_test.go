package local

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/journaltest"
	"github.com/leasefs/leasefs/test/env/size"
)

const dir = "/nn/journal"

// run is one scripted life of a journal and what it acknowledged.
type run struct {
	appended uint64   // the last txid given to Append
	acked    uint64   // the last txid whose WaitDurable returned nil
	purged   uint64   // the last before given to Purge
	term     uint64   // the last term that BeginTerm acknowledged
	batches  []uint64 // the last txid of each
	ahead    int64    // Config.Ahead
	spare    int64    // Config.Spare
}

func open(fsys vfs.FS, segBytes int64) (*Journal, error) {
	return Open(Config{FS: fsys, Dir: dir, SegmentBytes: segBytes, Spare: -1, Logger: quiet})
}

// open is a start in that life.
func (r *run) open(fsys vfs.FS) (*Journal, error) {
	return Open(Config{FS: fsys, Dir: dir, SegmentBytes: 3000, Ahead: r.ahead, Spare: r.spare, Logger: quiet})
}

// noRoom is a disk that has room for batches, and for nothing ahead of them: of
// a write of zeros it takes half.
type noRoom struct{ vfs.FS }

type noRoomFile struct{ vfs.File }

func (d noRoom) OpenWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenWrite(name)
	return noRoomFile{f}, err
}

func (f noRoomFile) WriteAt(p []byte, off int64) (int, error) {
	if !isZero(p) {
		return f.File.WriteAt(p, off)
	}
	n, err := f.File.WriteAt(p[:len(p)/2], off)
	if err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

func nothing(journal.Record) error { return nil }

// script appends, rolls, purges and restarts until something fails. One batch
// is under way at a time, so that the points are the same in each run.
func script(fsys vfs.FS, r *run) error {
	for life := uint64(1); life <= 3; life++ {
		j, err := r.open(fsys)
		if err != nil {
			return err
		}
		err = live(j, r, life)
		if cerr := j.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func live(j *Journal, r *run, life uint64) error {
	last, err := j.Replay(background, r.purged, nothing)
	if err != nil {
		return err
	}
	if last < r.acked {
		return fmt.Errorf("replayed up to %d, %d was acknowledged", last, r.acked)
	}
	r.appended = last
	if err := j.BeginTerm(background, life*10); err != nil {
		return err
	}
	r.term = life * 10
	gate := make(chan struct{})
	release := func() {
		select {
		case gate <- struct{}{}:
		case <-j.Failed():
		}
	}
	j.Notify(func(uint64) { <-gate }) // the writer waits after each batch
	defer close(gate)
	waiting := false
	for step := range 12 {
		// Two batches: one record, and then all the others together.
		for _, n := range []int{1, 1 + step*3%7} {
			for range n {
				r.appended++
				if err := j.Append(journaltest.Rec(r.appended)); err != nil {
					return err
				}
			}
			r.batches = append(r.batches, r.appended)
			if waiting {
				release()
			}
			waiting = true
			if err := j.WaitDurable(background, r.appended); err != nil {
				return err
			}
			r.acked = r.appended
		}
		switch step {
		case 4:
			err = j.Roll()
		case 8:
			r.purged = r.acked - 10
			err = j.Purge(background, r.purged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inspect opens what a crash left and checks it against what was promised. It
// continues from there for one record, and notes that in r.
func inspect(t *testing.T, fsys vfs.FS, r *run) {
	t.Helper()
	j, err := r.open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	from := max(r.purged, 1)
	next := from
	last, err := j.Replay(background, from, func(rec journal.Record) error {
		if rec.TxID != next {
			return fmt.Errorf("record %d after %d", rec.TxID, next-1)
		}
		journaltest.Same(t, rec, journaltest.Rec(rec.TxID))
		next++
		return nil
	})
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	if last < r.acked || last > r.appended || next != last+1 {
		t.Fatalf("records up to %d (replayed to %d), acknowledged %d, appended %d", last, next-1, r.acked, r.appended)
	}
	if last > 0 && !slices.Contains(r.batches, last) {
		t.Fatalf("the last record %d is within a batch; they end at %d", last, r.batches)
	}
	if r.term > 0 {
		if err := j.BeginTerm(background, r.term); !errors.Is(err, journal.ErrFenced) {
			t.Fatalf("BeginTerm %d after %d: %v", r.term, r.term, err)
		}
	}
	if err := j.BeginTerm(background, r.term+1000); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(journaltest.Rec(last + 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.WaitDurable(background, last+1); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(background, fsys, dir); err != nil {
		t.Fatal(err)
	}
	r.batches = append(r.batches, last+1)
	r.acked, r.appended, r.term = last+1, last+1, r.term+1000
}

// TestScenario46CrashAtEveryPoint: the namenode dies at every point at which it
// touches the disk, and the disk keeps the least or some of what was not synced.
//
// It does so with segments that grow by each batch, that have room ahead for
// all of them, for a few batches, and where there is no room for that.
func TestScenario46CrashAtEveryPoint(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead int64
		disk  func(*crashfs.FS) vfs.FS
	}{
		{"growing", -1, func(f *crashfs.FS) vfs.FS { return f }},
		{"ahead", 0, func(f *crashfs.FS) vfs.FS { return f }},
		{"little ahead", 1500, func(f *crashfs.FS) vfs.FS { return f }},
		{"no room ahead", 1500, func(f *crashfs.FS) vfs.FS { return noRoom{f} }},
	} {
		t.Run(c.name, func(t *testing.T) { crashEverywhere(t, c.ahead, c.disk) })
	}
}

func crashEverywhere(t *testing.T, ahead int64, medium func(*crashfs.FS) vfs.FS) {
	whole := crashfs.New()
	r := run{ahead: ahead, spare: 6000}
	if err := script(medium(whole), &r); err != nil {
		t.Fatal(err)
	}
	points := whole.Ops()
	acked := r.acked
	inspect(t, whole, &r)
	seeds := size.Of[uint64](3, 12)
	t.Logf("%d points, %d records", points, acked)
	for n := 1; n <= points; n++ {
		for seed := range seeds {
			mode := crashfs.Torn
			switch seed {
			case 0:
				mode = crashfs.Strict
			case 1:
				mode = crashfs.Kill
			}
			fsys := crashfs.New(seed)
			fsys.CrashAt(n)
			r := run{ahead: ahead, spare: 6000}
			// Of what comes last, room given back, nobody hears that it failed.
			if err := script(medium(fsys), &r); err == nil && n < points {
				t.Fatalf("nothing failed at point %d", n)
			}
			after := fsys.Crash(mode)
			inspect(t, medium(after), &r)
			// And once more, after the machine dies with nothing else done.
			inspect(t, medium(after.Crash(crashfs.Strict)), &r)
			if t.Failed() {
				t.Fatalf("crash at point %d, seed %d, mode %d", n, seed, mode)
			}
		}
	}
}

// TestScenario46CrashInRecovery: the machine dies again at every point of the
// recovery from a torn batch.
func TestScenario46CrashInRecovery(t *testing.T) {
	fsys := crashfs.New(3)
	r := run{spare: 6000}
	if err := script(fsys, &r); err != nil {
		t.Fatal(err)
	}
	tear(t, fsys, 30)
	r.acked = r.batches[len(r.batches)-2] // all but the torn batch
	for n := 1; ; n++ {
		for seed := range uint64(8) {
			f := fsys.Clone()
			f.Reseed(seed)
			f.CrashAt(n)
			j, err := open(f, 0)
			if err == nil {
				_, err = j.Replay(background, r.purged, nothing)
				if err == nil {
					err = j.BeginTerm(background, 99)
				}
				_ = j.Close()
			}
			if err == nil {
				return
			}
			mode := crashfs.Torn
			if seed == 0 {
				mode = crashfs.Strict
			}
			after := r
			inspect(t, f.Crash(mode), &after)
		}
	}
}

// tear cuts bytes off the end of the last segment, durably, as if it had been
// torn before the journal was ever closed.
func tear(t *testing.T, fsys vfs.FS, bytes int64) {
	t.Helper()
	name := lastSegment(t, fsys)
	f, err := fsys.OpenWrite(name)
	if err == nil {
		err = fsys.Remove(path.Join(dir, reachedName))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err == nil {
		err = f.Truncate(size - bytes)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func lastSegment(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	segs, err := listSegments(fsys, dir)
	if err != nil || len(segs) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	return path.Join(dir, segs[len(segs)-1].name())
}

// TestScenario47Failures: disk full, failing sync, failing write, read-only
// disk. The journal confirms nothing more, says why, and after repair nothing
// that was acknowledged is missing, also if the machine then dies.
func TestScenario47Failures(t *testing.T) {
	for _, c := range []struct {
		name   string
		inject func(*crashfs.FS)
		cause  error
	}{
		{"disk full", func(f *crashfs.FS) { f.Capacity(900) }, syscall.ENOSPC}, // less than is used
		{"fsync", func(f *crashfs.FS) { f.FailSync("*.log", nil) }, syscall.EIO},
		{"fsync of a new segment", func(f *crashfs.FS) { f.FailSync("*.tmp", nil) }, syscall.EIO},
		{"fsync of the folder", func(f *crashfs.FS) { f.FailSync("journal", nil) }, syscall.EIO},
		{"write", func(f *crashfs.FS) { f.FailWrite("*.log", nil) }, syscall.EIO},
		{"read-only", func(f *crashfs.FS) { f.ReadOnly(true) }, syscall.EROFS},
	} {
		for _, mode := range []crashfs.Mode{crashfs.Strict, crashfs.Torn, crashfs.Kill} {
			t.Run(fmt.Sprintf("%s/%d", c.name, mode), func(t *testing.T) {
				fsys := crashfs.New(7)
				j := begin(t, fsys, 1)
				r := run{spare: 6000}
				r.term = 1
				step := func() error {
					r.appended++
					r.batches = append(r.batches, r.appended)
					if err := j.Append(journaltest.Rec(r.appended)); err != nil {
						r.appended--
						return err
					}
					err := j.WaitDurable(background, r.appended)
					if err == nil {
						r.acked = r.appended
					}
					return err
				}
				for range 5 {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				c.inject(fsys)
				if strings.Contains(c.name, "segment") || strings.Contains(c.name, "folder") {
					if err := j.Roll(); err != nil {
						t.Fatal(err)
					}
				}
				var err error
				for err == nil && r.appended < 50_000 {
					err = step()
				}
				if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, c.cause) {
					t.Fatalf("got %v, want ErrFailed for %v", err, c.cause)
				}
				<-j.Failed()
				fsys.Heal() // comes back, but nobody knows what it lost
				if err := j.Append(journaltest.Rec(r.appended + 1)); !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("Append after the failure: %v", err)
				}
				if err := j.WaitDurable(background, r.acked+1); !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("WaitDurable after the failure: %v", err)
				}
				if err := j.WaitDurable(background, r.acked); err != nil {
					t.Fatalf("WaitDurable of what is durable: %v", err)
				}
				if err := j.Roll(); !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("Roll after the failure: %v", err)
				}
				if err := j.Close(); !errors.Is(err, journal.ErrFailed) || !errors.Is(j.Err(), c.cause) {
					t.Fatalf("Close: %v, Err: %v", err, j.Err())
				}
				after := fsys.Crash(mode)
				inspect(t, after, &r)
				inspect(t, after.Crash(crashfs.Strict), &r)
			})
		}
	}
}

// begin opens a journal, replays it and begins a term.
func begin(t *testing.T, fsys vfs.FS, term uint64) *Journal {
	t.Helper()
	j, err := open(fsys, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if _, err := j.Replay(background, 1, nothing); err != nil {
		t.Fatal(err)
	}
	if err := j.BeginTerm(background, term); err != nil {
		t.Fatal(err)
	}
	return j
}

// TestSyncThatFailedAndWasReadBack: fsync fails, only the process restarts and
// reads the batch from the page cache, which never reaches the disk by itself.
// What the new process then confirms survives a crash of the machine.
func TestSyncThatFailedAndWasReadBack(t *testing.T) {
	fsys := crashfs.New()
	j := begin(t, fsys, 1)
	for txid := uint64(1); txid <= 3; txid++ {
		if err := j.Append(journaltest.Rec(txid)); err != nil {
			t.Fatal(err)
		}
		if err := j.WaitDurable(background, txid); err != nil {
			t.Fatal(err)
		}
	}
	fsys.FailSync("*.log", nil)
	if err := j.Append(journaltest.Rec(4)); err != nil {
		t.Fatal(err)
	}
	if err := j.WaitDurable(background, 4); !errors.Is(err, journal.ErrFailed) {
		t.Fatal(err)
	}
	_ = j.Close()
	fsys = fsys.Crash(crashfs.Kill)
	j = begin(t, fsys, 2)
	if j.Durable() != 4 {
		t.Fatalf("the page cache held record 4, Durable is %d", j.Durable())
	}
	if err := j.Append(journaltest.Rec(5)); err != nil {
		t.Fatal(err)
	}
	if err := j.WaitDurable(background, 5); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	fsys = fsys.Crash(crashfs.Strict)
	j, err := open(fsys, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	journaltest.Check(t, j, 1, 5)
}
