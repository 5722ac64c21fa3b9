package fuse_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

type openedFile struct {
	*os.File
	err error
}

// opens begins to open a file for reading.
func (m *mounted) opens(name string) <-chan openedFile {
	result := make(chan openedFile, 1)
	go func() {
		f, err := os.Open(m.path(name))
		result <- openedFile{f, err}
	}()
	return result
}

// has checks what an opened file has, and that it can be described.
func (f openedFile) has(t testing.TB, want string) {
	t.Helper()
	must(t, f.err)
	defer func() { _ = f.Close() }() // only read
	i, err := f.Stat()
	must(t, err)
	got := make([]byte, i.Size())
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
		t.Fatalf("it has %q (%v), want %q", got, err, want)
	}
}

// TestOpenWhileTheLastCloses: a file that was replaced while it was open goes with
// its last descriptor. Who looked its name up before it was replaced, and opens it
// while it goes, gets the file of that name, not one that is no more.
func TestOpenWhileTheLastCloses(t *testing.T) {
	r := newRig(t, func(c *namenode.Config) { c.CacheTerm = time.Hour })
	m, k := r.through(fuse.Options{})
	asked, answer := make(chan struct{}), make(chan struct{})
	var old atomic.Uint64
	ask := sync.OnceFunc(func() { close(asked) })
	other := r.Client(t, func(c *client.Config) {
		c.Cache = true
		c.OnRevoke = func(v client.Revocation) {
			for _, ino := range v.Inodes {
				if ino == old.Load() {
					ask()
					<-answer
				}
			}
		}
	})
	m.write("f", "old")
	m.write("new", "new")
	first := m.open("f", os.O_RDONLY)
	i, err := other.Stat(t.Context(), "/f")
	must(t, err)

	held, let := k.holdBack("LOOKUP f")
	second := m.opens("f")
	<-held
	must(t, os.Rename(m.path("new"), m.path("f")))
	old.Store(i.Inode)
	env.Eventually(t, "another has the old file in its cache", func() bool {
		_, kept, err := lowlevel.Of(other).LstatKept(t.Context(), lowlevel.Inode(i.Inode))
		must(t, err)
		return kept
	})
	must(t, first.Close())
	<-asked // the old file is being removed, which waits for the other
	let()
	env.Eventually(t, "the second opens it", func() bool { return m.Uses(i.Inode) == 2 || len(second) > 0 })
	close(answer)
	env.Eventually(t, "it is gone", func() bool {
		_, _, err := lowlevel.Of(other).LstatKept(context.WithoutCancel(t.Context()), lowlevel.Inode(i.Inode))
		return errors.Is(err, fserror.NotFound)
	})
	(<-second).has(t, "new")
}

// TestOpenWhileReplaced: a file that is replaced by this mount between the look-up
// of its name and its opening, and the next one of that name too, can be opened.
func TestOpenWhileReplaced(t *testing.T) {
	r := newRig(t)
	m, k := r.through(fuse.Options{})
	for _, name := range []string{"f", "second", "third"} {
		m.write(name, name)
	}
	held, let := k.holdBack("LOOKUP f")
	opened := m.opens("f")
	<-held
	must(t, os.Rename(m.path("second"), m.path("f")))
	held, let2 := k.holdBack("LOOKUP f")
	let() // what it opens is gone; the kernel looks again
	<-held
	must(t, os.Rename(m.path("third"), m.path("f")))
	let2()
	(<-opened).has(t, "second")
	m.reads("f", "third")
	m.nothingHidden()
}

// nothingHidden waits until one file is left: hidden ones go after their last close.
func (m *mounted) nothingHidden() {
	m.t.Helper()
	env.Eventually(m.t, "one file is left", func() bool {
		entries, _, err := m.FS().List(m.t.Context(), "/", "", 10)
		must(m.t, err)
		return len(entries) == 1
	})
}

// TestReadlinkWhileReplaced: a link that is replaced between the look-up of its name
// and the reading of what it points to can be read.
func TestReadlinkWhileReplaced(t *testing.T) {
	r := newRig(t)
	m, k := r.through(fuse.Options{})
	for _, name := range []string{"l", "second", "third"} {
		must(t, os.Symlink("to "+name, m.path(name)))
	}
	_, err := os.Lstat(m.path("l")) // the kernel knows it, and keeps the directory unlocked while it asks again
	must(t, err)
	held, let := k.holdBack("LOOKUP l")
	result := make(chan string, 1)
	go func() {
		target, err := os.Readlink(m.path("l"))
		if err != nil {
			target = err.Error()
		}
		result <- target
	}()
	<-held
	must(t, os.Rename(m.path("second"), m.path("l")))
	held, let2 := k.holdBack("LOOKUP l")
	let()
	select {
	case got := <-result:
		let2()
		if got != "to l" {
			t.Fatal(got)
		}
	case <-held: // the kernel looks again
		must(t, os.Rename(m.path("third"), m.path("l")))
		let2()
		if got := <-result; got != "to second" {
			t.Fatal(got)
		}
	}
}

// TestLateLookup: an answer to a look-up that comes late, when the name leads to
// another file, does not make this mount remove that one while it is open.
func TestLateLookup(t *testing.T) {
	for what, change := range map[string]func(m *mounted) error{
		"RENAME": func(m *mounted) error { return os.Rename(m.path("third"), m.path("f")) },
		"UNLINK": func(m *mounted) error { return os.Remove(m.path("f")) },
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			var late atomic.Bool
			found, let := make(chan struct{}), make(chan struct{})
			m, k := r.through(fuse.Options{}.WithLooked(func(name string) {
				if name == "f" && late.CompareAndSwap(true, false) {
					close(found)
					<-let
				}
			}))
			for _, name := range []string{"f", "second", "third"} {
				m.write(name, name)
			}
			late.Store(true)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = os.Stat(m.path("f")) }) // whatever it finds
			<-found
			must(t, os.Rename(m.path("second"), m.path("f")))
			open := <-m.opens("f")
			must(t, open.err)

			held, letChange := k.holdBack("before " + what + " f")
			changed := make(chan error, 1)
			go func() { changed <- change(m) }()
			<-held
			answered, letAnswer := k.holdBack("LOOKUP f")
			close(let)
			<-answered // go-fuse takes the first file for the one of the name
			letChange()
			err := <-changed
			letAnswer() // the kernel asks again, and so corrects it
			wg.Wait()
			must(t, err)
			open.has(t, "second")
			m.nothingHidden()
		})
	}
}
