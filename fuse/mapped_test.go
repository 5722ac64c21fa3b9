package fuse_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// pages are ways to get at a file through the kernel's pages, which asks for no attributes.
// Each is a call, since a goroutine that touches a mapping itself keeps the others, which
// answer for the mount, from running.
var pages = map[string]func(t *testing.T, f *os.File, size int) func(w *os.File) (int, error){
	"mmap": func(t *testing.T, f *os.File, size int) func(w *os.File) (int, error) {
		mapping, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		must(t, err)
		t.Cleanup(func() { must(t, unix.Munmap(mapping)) })
		return func(w *os.File) (int, error) { return unix.Write(int(w.Fd()), mapping) }
	},
	"sendfile": func(_ *testing.T, f *os.File, size int) func(w *os.File) (int, error) {
		return func(w *os.File) (int, error) {
			var off int64
			return unix.Sendfile(int(w.Fd()), int(f.Fd()), &off, size)
		}
	},
}

// paged looks at a file through pages.
type paged struct {
	t    *testing.T
	look func(w *os.File) (int, error)
	r, w *os.File
}

func newPaged(t *testing.T, through func(t *testing.T, f *os.File, size int) func(w *os.File) (int, error), f *os.File, size int) *paged {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return &paged{t, through(t, f, size), r, w}
}

// shows is what of the file is there.
func (p *paged) shows() string {
	p.t.Helper()
	n, err := p.look(p.w)
	must(p.t, err)
	got := make([]byte, n)
	_, err = io.ReadFull(p.r, got)
	must(p.t, err)
	return string(got)
}

// Whoever has a file mapped, or sends it, sees each change of it, not only the first one
// after it was opened.
func TestPagesFollowTheFile(t *testing.T) {
	const size = 8192
	for how, through := range pages {
		for _, who := range []string{"another mount", "the same mount"} {
			t.Run(how+" of what changes on "+who, func(t *testing.T) {
				r := newRig(t)
				a := r.mount(fuse.Options{})
				b := a
				if who == "another mount" {
					b = r.mount(fuse.Options{})
				}
				b.write("f", strings.Repeat("a", size))
				p := newPaged(t, through, a.open("f", os.O_RDONLY), size)
				for _, c := range []string{"a", "b", "c", "d"} {
					if c != "a" {
						b.write("f", strings.Repeat(c, size))
					}
					if got := p.shows(); got != strings.Repeat(c, size) {
						t.Errorf("it has %d bytes that begin with %q, want %q", len(got), got[:min(len(got), 1)], c)
					}
				}
			})
		}
	}
}

// What is read of a file that another host writes is lent to nobody, so nobody revokes it:
// pages of it are dropped all the same.
func TestPagesOfWhatIsWritten(t *testing.T) {
	const size = 8192
	for how, through := range pages {
		for _, early := range []bool{true, false} {
			if how == "mmap" && !early {
				continue // ENODEV
			}
			t.Run(fmt.Sprintf("%s, opened before: %t", how, early), func(t *testing.T) {
				r := newRig(t)
				a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
				b.write("f", strings.Repeat("a", size))
				var f *os.File
				if early {
					f = a.open("f", os.O_RDONLY)
				}
				w := b.open("f", os.O_WRONLY|os.O_APPEND)
				if !early {
					f = a.open("f", os.O_RDONLY)
				}
				p := newPaged(t, through, f, size)
				for _, c := range []string{"b", "c", "d"} {
					must(t, w.Truncate(0))
					say(t, w, strings.Repeat(c, size))
					must(t, w.Sync())
					env.Eventually(t, "the new bytes, "+c, func() bool { return p.shows() == strings.Repeat(c, size) })
				}
				must(t, w.Close())
				for _, c := range []string{"e", "f"} {
					b.write("f", strings.Repeat(c, size))
					env.Eventually(t, "the new bytes, "+c, func() bool { return p.shows() == strings.Repeat(c, size) })
				}
			})
		}
	}
}
