package fuse_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/fuse"
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
				look := through(t, a.open("f", os.O_RDONLY), size)
				pr, pw, err := os.Pipe()
				must(t, err)
				defer pr.Close()
				defer pw.Close()
				is := func(want string) {
					t.Helper()
					n, err := look(pw)
					must(t, err)
					got := make([]byte, n)
					_, err = io.ReadFull(pr, got)
					must(t, err)
					if string(got) != strings.Repeat(want, size) {
						t.Errorf("it has %d bytes that begin with %q, want %q", n, got[:min(n, 1)], want)
					}
				}
				is("a")
				for _, c := range []string{"b", "c", "d"} {
					b.write("f", strings.Repeat(c, size))
					is(c)
				}
			})
		}
	}
}
