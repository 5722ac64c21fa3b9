package crashfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func create(t *testing.T, f vfs.FS, name string) vfs.File {
	t.Helper()
	h, err := f.Create(name)
	ok(t, err)
	return h
}

func write(t *testing.T, h vfs.File, s string) {
	t.Helper()
	_, err := h.Write([]byte(s))
	ok(t, err)
}

// tree returns all files and what they hold, folders with a slash.
func tree(t *testing.T, f vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		names, err := f.List("/" + dir)
		ok(t, err)
		for _, name := range names {
			name = dir + name
			st, err := f.Stat(name)
			ok(t, err)
			if st.IsDir() {
				all[name+"/"] = ""
				walk(name + "/")
				continue
			}
			h, err := f.Open(name)
			ok(t, err)
			b, err := io.ReadAll(h)
			ok(t, err)
			ok(t, h.Close())
			all[name] = string(b)
		}
	}
	walk("")
	return all
}

func want(t *testing.T, f vfs.FS, files map[string]string) {
	t.Helper()
	if got := tree(t, f); !maps.Equal(got, files) {
		t.Fatalf("got %q, want %q", got, files)
	}
}

func TestStrictKeepsOnlyWhatWasSynced(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	write(t, h, "synced")
	ok(t, h.Sync())
	write(t, h, ", not synced")
	ok(t, create(t, f, "empty").Close())
	ok(t, f.SyncDir("/"))
	nameless := create(t, f, "name not synced")
	write(t, nameless, "x")
	ok(t, nameless.Sync())

	after := f.Crash()
	want(t, after, map[string]string{"a": "synced", "empty": ""})
	_, err := h.Write([]byte("x"))
	is(t, err, crashfs.ErrCrashed)
	is(t, h.Sync(), crashfs.ErrCrashed)
	_, err = f.List("/")
	is(t, err, crashfs.ErrCrashed)
	_, err = h.ReadAt(make([]byte, 1), 0)
	is(t, err, crashfs.ErrCrashed)
	_, err = f.Open("a")
	is(t, err, crashfs.ErrCrashed)

	// What was found is all there is: nothing of it is unsynced.
	want(t, after.Crash(), map[string]string{"a": "synced", "empty": ""})
}

func TestStrictNames(t *testing.T) {
	f := crashfs.New()
	ok(t, f.MkdirAll("d/e"))
	for _, name := range []string{"d/removed", "d/renamed", "d/over", "d/linked", "d/moved"} {
		h := create(t, f, name)
		write(t, h, name)
		ok(t, h.Sync())
		ok(t, h.Close())
	}
	for _, d := range []string{"d", "/"} {
		ok(t, f.SyncDir(d))
	}
	before := tree(t, f)
	ok(t, f.Remove("d/removed"))
	ok(t, f.Rename("d/renamed", "d/over"))
	ok(t, f.Link("d/linked", "d/second"))
	ok(t, f.Rename("d/moved", "d/e/moved"))
	changed := tree(t, f)

	want(t, f.Clone().Crash(), before)
	synced := f.Clone()
	ok(t, synced.SyncDir("d"))
	ok(t, synced.SyncDir("d/e"))
	want(t, synced.Crash(), changed)
	// Only the folder that it left: POSIX lets the file be in neither.
	half := f.Clone()
	ok(t, half.SyncDir("d"))
	if got := tree(t, half.Crash()); got["d/e/moved"] != "" || got["d/moved"] != "" {
		t.Fatalf("%q", got)
	}
	// A folder without its own name is gone with all that was synced in it.
	orphan := crashfs.New()
	ok(t, orphan.MkdirAll("p/q"))
	ok(t, create(t, orphan, "p/q/f").Sync())
	ok(t, orphan.SyncDir("p/q"))
	ok(t, orphan.SyncDir("/"))
	want(t, orphan.Crash(), map[string]string{"p/": ""})
}

func TestKillKeepsTheCache(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	write(t, h, "unsynced")
	lock, err := f.Lock("lock")
	ok(t, err)
	_ = lock
	killed := f.Crash(crashfs.Kill)
	want(t, killed, map[string]string{"a": "unsynced"})
	lock, err = killed.Lock("lock")
	ok(t, err)
	ok(t, lock.Close())
	want(t, killed.Crash(), nil) // it was still not on the disk
}

func TestPointsAreNumbered(t *testing.T) {
	run := func(f *crashfs.FS) error {
		h, err := f.Create("a") // 1
		if err != nil {
			return err
		}
		for _, step := range []func() error{
			func() error { _, err := h.Write([]byte("one")); return err }, // 2
			h.Sync,                                 // 3
			func() error { return f.SyncDir("/") }, // 4
			func() error { return f.Rename("a", "b") }, // 5
			func() error { return f.Link("b", "c") },   // 6
			func() error { return f.Remove("b") },      // 7
			func() error { return h.Truncate(1) },      // 8
			func() error { return f.MkdirAll("d/e") },  // 9, 10
			func() error { return f.SyncDir("/") },     // 11
			func() error { _, err := f.Stat("c"); return err },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	f := crashfs.New()
	ok(t, run(f))
	if f.Ops() != 11 {
		t.Fatalf("%d points, want 11", f.Ops())
	}
	for n := 1; n <= 11; n++ {
		f := crashfs.New()
		f.CrashAt(n)
		is(t, run(f), crashfs.ErrCrashed)
		if f.Ops() != n {
			t.Fatalf("crashed at point %d, want %d", f.Ops(), n)
		}
		got := tree(t, f.Crash())
		switch {
		case n <= 4 && len(got) > 0, n > 4 && n <= 11 && got["a"] != "one":
			t.Fatalf("crash at point %d left %q", n, got)
		}
	}
}

// TestTorn: over many seeds each kind of outcome occurs, and none that a disk
// could not give.
func TestTorn(t *testing.T) {
	old, added := strings.Repeat("o", 700), strings.Repeat("n", 2000)
	kinds := map[string]int{}
	for seed := range uint64(400) {
		f := crashfs.New(seed)
		h := create(t, f, "a")
		write(t, h, old)
		ok(t, h.Sync())
		ok(t, f.SyncDir("/"))
		write(t, h, added[:1000])
		write(t, h, added[1000:])
		ok(t, create(t, f, "b").Close())
		ok(t, f.Rename("b", "c"))
		again := tree(t, f.Clone().Crash(crashfs.Torn))
		got := tree(t, f.Crash(crashfs.Torn))
		if !maps.Equal(got, again) {
			t.Fatalf("seed %d: not the same twice", seed)
		}
		a := got["a"]
		_, b := got["b"]
		_, c := got["c"]
		kinds[fmt.Sprintf("names %t %t", b, c)]++
		if !strings.HasPrefix(a, old) || len(a) > 2700 {
			t.Fatalf("seed %d: synced bytes are gone: %d bytes", seed, len(a))
		}
		rest := a[len(old):]
		switch {
		case rest == "":
			kinds["nothing"]++
		case rest == added:
			kinds["all"]++
		case rest == added[:len(rest)]:
			kinds["prefix"]++
		default:
			kinds["sectors"]++
			for i := 0; i < len(rest); {
				end := min(len(rest), (700+i)/512*512+512-700)
				if p := rest[i:end]; p != added[i:end] && strings.Trim(p, "\x00") != "" {
					t.Fatalf("seed %d: half a sector at %d", seed, 700+i)
				}
				i = end
			}
		}
	}
	for _, kind := range []string{"nothing", "all", "prefix", "sectors", "names false false", "names true false", "names false true"} {
		if kinds[kind] < 10 {
			t.Errorf("%s: only %d of 400", kind, kinds[kind])
		}
	}
	if kinds["names true true"] > 0 {
		t.Errorf("rename was found half done: %v", kinds)
	}
}

// TestTornInPlace: a write over zeros that were synced leaves each sector as it
// was or as it should be, or all up to some byte; what is synced stays, and
// the file is never shorter. Zeros behind it that were not synced may be there,
// or in part.
func TestTornInPlace(t *testing.T) {
	const room, at = 4096, 700
	added := strings.Repeat("n", 2000)
	kinds := map[string]int{}
	for seed := range uint64(400) {
		f := crashfs.New(seed)
		h := create(t, f, "a")
		write(t, h, strings.Repeat("o", at)+strings.Repeat("\x00", room-at))
		ok(t, h.Sync())
		ok(t, f.SyncDir("/"))
		_, err := h.WriteAt([]byte(added), at)
		ok(t, err)
		_, err = h.WriteAt(make([]byte, room), room)
		ok(t, err)
		a := tree(t, f.Crash(crashfs.Torn))["a"]
		if len(a) < room || len(a) > 2*room || a[:at] != strings.Repeat("o", at) || strings.Trim(a[at+len(added):], "\x00") != "" {
			t.Fatalf("seed %d: what nobody wrote to has changed: %q", seed, a)
		}
		switch len(a) {
		case room:
			kinds["as long as before"]++
		case 2 * room:
			kinds["longer"]++
		default:
			kinds["a little longer"]++
		}
		got := a[at : at+len(added)]
		switch prefix := strings.TrimRight(got, "\x00"); {
		case got == added:
			kinds["all"]++
		case prefix == "":
			kinds["nothing"]++
		case prefix == added[:len(prefix)]:
			kinds["prefix"]++
		default:
			kinds["sectors"]++
			for i := 0; i < len(got); {
				end := min(len(got), (at+i)/512*512+512-at)
				if p := got[i:end]; p != added[i:end] && strings.Trim(p, "\x00") != "" {
					t.Fatalf("seed %d: half a sector at %d", seed, at+i)
				}
				i = end
			}
		}
	}
	for _, kind := range []string{"as long as before", "longer", "a little longer", "all", "nothing", "prefix", "sectors"} {
		if kinds[kind] < 10 {
			t.Errorf("%s: only %d of 400", kind, kinds[kind])
		}
	}
}

// TestCrashDuringWrite: the write at which the machine dies may be on the disk.
func TestCrashDuringWrite(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		f := crashfs.New(seed)
		h := create(t, f, "a")
		ok(t, f.SyncDir("/"))
		f.CrashAt(f.Ops() + 1)
		_, err := h.Write([]byte("abc"))
		is(t, err, crashfs.ErrCrashed)
		seen[tree(t, f.Crash(crashfs.Torn))["a"]] = true
	}
	if !seen[""] || !seen["a"] || !seen["abc"] {
		t.Errorf("a write that was under way left only %v", slices.Sorted(maps.Keys(seen)))
	}
}

func TestFailedSyncDropsPages(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	ok(t, f.SyncDir("/"))
	write(t, h, "one ")
	ok(t, h.Sync())
	write(t, h, "two ")
	f.FailSync("a", nil)
	is(t, h.Sync(), syscall.EIO)
	f.Heal()
	ok(t, h.Sync()) // which proves nothing
	want(t, f, map[string]string{"a": "one two "})
	want(t, f.Clone().Crash(), map[string]string{"a": "one "})
	write(t, h, "three")
	ok(t, h.Sync())
	want(t, f.Crash(), map[string]string{"a": "one \x00\x00\x00\x00three"})
}

func TestFailedSyncDir(t *testing.T) {
	f := crashfs.New()
	ok(t, f.MkdirAll("d"))
	ok(t, f.SyncDir("/"))
	ok(t, create(t, f, "d/a").Close())
	f.FailSync("d", syscall.EDQUOT)
	is(t, f.SyncDir("d"), syscall.EDQUOT)
	f.Heal()
	ok(t, f.SyncDir("d"))
	want(t, f.Crash(), map[string]string{"d/": ""})
}

func TestFailWrite(t *testing.T) {
	f := crashfs.New()
	h, other := create(t, f, "d.log"), create(t, f, "other")
	f.FailWrite("*.log", nil)
	n, err := h.Write([]byte("x"))
	is(t, err, syscall.EIO)
	is(t, h.Truncate(0), syscall.EIO)
	if n != 0 {
		t.Fatalf("%d bytes written", n)
	}
	write(t, other, "y")
	f.Heal()
	write(t, h, "x")
	want(t, f, map[string]string{"d.log": "x", "other": "y"})
}

func TestCapacity(t *testing.T) {
	f := crashfs.New()
	f.Capacity(10)
	a := create(t, f, "a")
	write(t, a, "1234567")
	b := create(t, f, "b")
	n, err := b.Write([]byte("abcdef"))
	is(t, err, syscall.ENOSPC)
	if n != 3 {
		t.Fatalf("%d bytes written, 3 fit", n)
	}
	n, err = b.Write([]byte("d"))
	is(t, err, syscall.ENOSPC)
	if n != 0 {
		t.Fatalf("%d bytes written, none fits", n)
	}
	free, total, err := f.Usage("/")
	ok(t, err)
	if free != 0 || total != 10 {
		t.Fatalf("%d bytes free of %d", free, total)
	}
	ok(t, f.Remove("a"))
	_, err = b.Write([]byte("d"))
	is(t, err, syscall.ENOSPC) // it is still open
	ok(t, a.Close())
	write(t, b, "defghij")
	ok(t, b.Truncate(1))
	write(t, create(t, f, "a"), "123456789")
}

func TestReadOnly(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	write(t, h, "x")
	f.ReadOnly(true)
	_, err := h.Write([]byte("y"))
	is(t, err, syscall.EROFS)
	_, err = f.Create("b")
	is(t, err, syscall.EROFS)
	_, err = f.OpenWrite("a")
	is(t, err, syscall.EROFS)
	for _, err := range []error{f.Remove("a"), f.Rename("a", "b"), f.Link("a", "b"), f.MkdirAll("d"), h.Truncate(0)} {
		is(t, err, syscall.EROFS)
	}
	want(t, f, map[string]string{"a": "x"})
	f.ReadOnly(false)
	write(t, h, "y")
}

func TestCorrupt(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	ok(t, f.SyncDir("/"))
	write(t, h, "aa")
	ok(t, h.Sync())
	write(t, h, "a")
	ok(t, f.Corrupt("a", 1))
	ok(t, f.CorruptBit("a", 2, 4))
	want(t, f, map[string]string{"a": "a`q"})
	want(t, f.Clone().Crash(), map[string]string{"a": "a`"})
	ok(t, h.Sync())
	want(t, f.Clone().Crash(), map[string]string{"a": "a`q"})
	is(t, f.Corrupt("none", 0), fs.ErrNotExist)
	if f.Corrupt("a", 3) == nil || f.Corrupt("a", -1) == nil {
		t.Fatal("a byte that is not there was flipped")
	}
}

func TestTruncateIsUnsynced(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	write(t, h, "long content")
	ok(t, h.Sync())
	ok(t, f.SyncDir("/"))
	ok(t, h.Truncate(4))
	want(t, f.Clone().Crash(), map[string]string{"a": "long content"})
	ok(t, h.Sync())
	want(t, f.Clone().Crash(), map[string]string{"a": "long"})
	ok(t, h.Truncate(6))
	ok(t, h.Sync())
	want(t, f.Clone().Crash(), map[string]string{"a": "long\x00\x00"})
	// Create over it is a truncation, too.
	ok(t, create(t, f, "a").Close())
	want(t, f.Clone().Crash(), map[string]string{"a": "long\x00\x00"})
}

func TestLinksShareContent(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	ok(t, f.Link("a", "b"))
	ok(t, f.SyncDir("/"))
	write(t, h, "x")
	ok(t, h.Sync())
	after := f.Crash()
	g, err := after.OpenWrite("b")
	ok(t, err)
	_, err = g.WriteAt([]byte("y"), 1)
	ok(t, err)
	want(t, after, map[string]string{"a": "xy", "b": "xy"})
}

func TestCloneIsApart(t *testing.T) {
	f := crashfs.New()
	h := create(t, f, "a")
	write(t, h, "x")
	c := f.Clone()
	write(t, h, "y")
	ok(t, c.Remove("a"))
	want(t, f, map[string]string{"a": "xy"})
	want(t, c, nil)
	big := bytes.Repeat([]byte("z"), 5000)
	_, err := h.Write(big)
	ok(t, err)
	ok(t, h.Sync())
}
