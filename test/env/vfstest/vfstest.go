// Package vfstest is the suite that every implementation of vfs.FS passes.
package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/vfs"
)

// Run runs the suite in dir, an empty folder of fsys.
func Run(t *testing.T, fsys vfs.FS, dir string) {
	for _, c := range []struct {
		name string
		test func(suite, *testing.T)
	}{
		{"Content", suite.content},
		{"InPlace", suite.inPlace},
		{"Ahead", suite.ahead},
		{"Create", suite.create},
		{"Names", suite.names},
		{"Folders", suite.folders},
		{"OpenFileOutlivesItsName", suite.unlinked},
		{"Missing", suite.missing},
		{"Lock", suite.lock},
		{"Usage", suite.usage},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := path.Join(dir, c.name)
			if err := fsys.MkdirAll(sub); err != nil {
				t.Fatal(err)
			}
			c.test(suite{fsys, sub}, t)
		})
	}
}

type suite struct {
	fs  vfs.FS
	dir string
}

func (s suite) path(name string) string { return path.Join(s.dir, name) }

func (s suite) write(t *testing.T, name, content string) {
	t.Helper()
	f, err := s.fs.Create(s.path(name))
	ok(t, err)
	_, err = f.Write([]byte(content))
	ok(t, err)
	ok(t, f.Sync())
	ok(t, f.Close())
}

func (s suite) read(t *testing.T, name string) string {
	t.Helper()
	f, err := s.fs.Open(s.path(name))
	ok(t, err)
	b, err := io.ReadAll(f)
	ok(t, err)
	ok(t, f.Close())
	return string(b)
}

func (s suite) list(t *testing.T, want ...string) {
	t.Helper()
	got, err := s.fs.List(s.dir)
	ok(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("names are %q, want %q", got, want)
	}
}

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

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func (s suite) content(t *testing.T) {
	f, err := s.fs.Create(s.path("f"))
	ok(t, err)
	n, err := f.Write([]byte("hello, "))
	ok(t, err)
	equal(t, n, 7)
	_, err = f.Write([]byte("world"))
	ok(t, err)
	size, err := f.Size()
	ok(t, err)
	equal(t, size, 12)
	equal(t, f.Name(), s.path("f"))

	b := make([]byte, 5)
	_, err = f.ReadAt(b, 7)
	ok(t, err)
	equal(t, string(b), "world")
	n, err = f.ReadAt(b, 10)
	is(t, err, io.EOF)
	equal(t, string(b[:n]), "ld")
	n, err = f.ReadAt(b, 100)
	is(t, err, io.EOF)
	equal(t, n, 0)

	ok(t, f.Truncate(5))
	ok(t, f.Truncate(8))
	ok(t, f.Sync())
	ok(t, f.Close())
	equal(t, s.read(t, "f"), "hello\x00\x00\x00")
	is(t, f.Close(), fs.ErrClosed)
	is(t, f.Sync(), fs.ErrClosed)
	_, err = f.Write(b)
	is(t, err, fs.ErrClosed)
}

func (s suite) inPlace(t *testing.T) {
	s.write(t, "f", "abcdef")
	f, err := s.fs.OpenWrite(s.path("f"))
	ok(t, err)
	g, err := s.fs.OpenWrite(s.path("f"))
	ok(t, err)
	n, err := f.WriteAt([]byte("XY"), 2)
	ok(t, err)
	equal(t, n, 2)
	_, err = f.Write([]byte("1")) // WriteAt has moved nothing
	ok(t, err)
	_, err = g.WriteAt([]byte("!"), 5)
	ok(t, err)
	ok(t, f.Sync())
	equal(t, s.read(t, "f"), "1bXYe!")
	// Over the end, and beyond it.
	_, err = g.WriteAt([]byte("gh"), 5)
	ok(t, err)
	_, err = g.WriteAt([]byte("z"), 9)
	ok(t, err)
	size, err := f.Size()
	ok(t, err)
	equal(t, size, 10)
	equal(t, s.read(t, "f"), "1bXYegh\x00\x00z")
	ok(t, f.Truncate(3))
	_, err = g.WriteAt([]byte("."), 4)
	ok(t, err)
	equal(t, s.read(t, "f"), "1bX\x00.")
	if _, err := f.WriteAt([]byte("x"), -1); err == nil {
		t.Fatal("written before the beginning")
	}
	ok(t, f.Close())
	_, err = f.WriteAt([]byte("x"), 0)
	is(t, err, fs.ErrClosed)
	ok(t, g.Close())
	r, err := s.fs.Open(s.path("f"))
	ok(t, err)
	if _, err := r.Write([]byte("x")); err == nil {
		t.Fatal("a file opened for reading was written")
	}
	if _, err := r.WriteAt([]byte("x"), 0); err == nil {
		t.Fatal("a file opened for reading was written")
	}
	ok(t, r.Close())
	equal(t, s.read(t, "f"), "1bX\x00.")
}

// ahead: zeros are written over in part, as the journal does.
func (s suite) ahead(t *testing.T) {
	f, err := s.fs.Create(s.path("f"))
	ok(t, err)
	_, err = f.WriteAt(make([]byte, 5000), 0)
	ok(t, err)
	_, err = f.WriteAt([]byte("one"), 0)
	ok(t, err)
	ok(t, f.Sync())
	_, err = f.WriteAt([]byte("two"), 3)
	ok(t, err)
	ok(t, f.Sync())
	size, err := f.Size()
	ok(t, err)
	equal(t, size, 5000)
	equal(t, s.read(t, "f"), "onetwo"+string(make([]byte, 4994)))
	ok(t, f.Truncate(6))
	ok(t, f.Close())
	equal(t, s.read(t, "f"), "onetwo")
}

func (s suite) create(t *testing.T) {
	s.write(t, "f", "long content")
	s.write(t, "f", "short")
	equal(t, s.read(t, "f"), "short")
	_, err := s.fs.CreateExclusive(s.path("f"))
	is(t, err, fs.ErrExist)
	equal(t, s.read(t, "f"), "short")
	f, err := s.fs.CreateExclusive(s.path("g"))
	ok(t, err)
	ok(t, f.Close())
	s.list(t, "f", "g")
	_, err = s.fs.Create(s.dir)
	is(t, err, syscall.EISDIR)
}

func (s suite) names(t *testing.T) {
	s.write(t, "a", "A")
	s.write(t, "b", "B")
	ok(t, s.fs.Rename(s.path("a"), s.path("b")))
	s.list(t, "b")
	equal(t, s.read(t, "b"), "A")
	ok(t, s.fs.Link(s.path("b"), s.path("c")))
	is(t, s.fs.Link(s.path("b"), s.path("c")), fs.ErrExist)
	s.list(t, "b", "c")
	f, err := s.fs.OpenWrite(s.path("b"))
	ok(t, err)
	_, err = f.WriteAt([]byte("+"), 1)
	ok(t, err)
	ok(t, f.Close())
	equal(t, s.read(t, "c"), "A+")
	// Two names of one file: rename does nothing (POSIX).
	ok(t, s.fs.Rename(s.path("b"), s.path("c")))
	s.list(t, "b", "c")
	ok(t, s.fs.Remove(s.path("b")))
	equal(t, s.read(t, "c"), "A+")
	ok(t, s.fs.Rename(s.path("c"), s.path("c")))
	s.list(t, "c")
	ok(t, s.fs.SyncDir(s.dir))
}

func (s suite) folders(t *testing.T) {
	ok(t, s.fs.MkdirAll(s.path("x/y/z")))
	ok(t, s.fs.MkdirAll(s.path("x/y")))
	s.write(t, "x/y/f", "1")
	st, err := s.fs.Stat(s.path("x/y"))
	ok(t, err)
	equal(t, st.IsDir(), true)
	st, err = s.fs.Stat(s.path("x/y/f"))
	ok(t, err)
	equal(t, st.Size(), 1)
	equal(t, st.Name(), "f")
	equal(t, st.IsDir(), false)
	is(t, s.fs.Remove(s.path("x")), syscall.ENOTEMPTY)
	ok(t, s.fs.Rename(s.path("x/y"), s.path("moved")))
	equal(t, s.read(t, "moved/f"), "1")
	ok(t, s.fs.Remove(s.path("x")))
	s.list(t, "moved")
	is(t, s.fs.MkdirAll(s.path("moved/f/g")), syscall.ENOTDIR)
	_, err = s.fs.Create(s.path("moved/f/g"))
	is(t, err, syscall.ENOTDIR)
}

func (s suite) unlinked(t *testing.T) {
	s.write(t, "f", "still here")
	f, err := s.fs.Open(s.path("f"))
	ok(t, err)
	ok(t, s.fs.Remove(s.path("f")))
	s.write(t, "f", "another")
	b, err := io.ReadAll(f)
	ok(t, err)
	if !bytes.Equal(b, []byte("still here")) {
		t.Fatalf("read %q", b)
	}
	ok(t, f.Close())
}

func (s suite) missing(t *testing.T) {
	_, err := s.fs.Open(s.path("none"))
	is(t, err, fs.ErrNotExist)
	_, err = s.fs.OpenWrite(s.path("none"))
	is(t, err, fs.ErrNotExist)
	_, err = s.fs.Create(s.path("none/f"))
	is(t, err, fs.ErrNotExist)
	_, err = s.fs.Stat(s.path("none"))
	is(t, err, fs.ErrNotExist)
	_, err = s.fs.List(s.path("none"))
	is(t, err, fs.ErrNotExist)
	is(t, s.fs.Remove(s.path("none")), fs.ErrNotExist)
	is(t, s.fs.Rename(s.path("none"), s.path("f")), fs.ErrNotExist)
	is(t, s.fs.Link(s.path("none"), s.path("f")), fs.ErrNotExist)
	is(t, s.fs.SyncDir(s.path("none")), fs.ErrNotExist)
	s.list(t)
}

func (s suite) lock(t *testing.T) {
	l, err := s.fs.Lock(s.path("lock"))
	ok(t, err)
	_, err = s.fs.Lock(s.path("lock"))
	is(t, err, vfs.ErrLocked)
	other, err := s.fs.Lock(s.path("lock2"))
	ok(t, err)
	ok(t, other.Close())
	ok(t, l.Close())
	l, err = s.fs.Lock(s.path("lock"))
	ok(t, err)
	ok(t, l.Close())
	_, err = s.fs.Lock(s.path("none/lock"))
	is(t, err, fs.ErrNotExist)
}

func (s suite) usage(t *testing.T) {
	free, total, err := s.fs.Usage(s.dir)
	ok(t, err)
	if free <= 0 || total < free {
		t.Fatalf("%d bytes free of %d", free, total)
	}
}
