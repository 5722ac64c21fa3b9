package fuse_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestTrash: what is removed or replaced through a mount comes into the trash, if its directory
// says so, under the name that it had, and out of it with its content. What is open comes with
// its last close, as it is then.
func TestTrash(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	fs := m.FS()
	for _, dir := range []string{"k", "k/d", "k/d/e", "k/off", "n"} {
		must(t, os.Mkdir(m.path(dir), 0o755))
	}
	must(t, unix.Setxattr(m.path("k"), trash.Xattr, []byte("7d"), 0))
	must(t, unix.Setxattr(m.path("k/off"), trash.Xattr, []byte("off"), 0))
	entries := func() map[string]*trash.Entry {
		list := map[string]*trash.Entry{}
		must(t, trash.List(t.Context(), fs, trash.Filter{}, func(e *trash.Entry) error {
			if list[e.Path] != nil {
				t.Errorf("%s is in the trash twice", e.Path)
			}
			list[e.Path] = e
			return nil
		}))
		return list
	}
	remove := func(name string) { must(t, os.Remove(m.path(name))) }
	over := func(name string) {
		m.write("n/new", "new")
		must(t, os.Rename(m.path("n/new"), m.path(name)))
		m.reads(name, "new")
	}
	// opened leaves a file open over what is done with its name.
	opened := func(flags int, text string, do func(string)) func(string) {
		return func(name string) {
			f := m.open(name, flags)
			do(name)
			if e := entries()["/"+name]; e != nil {
				t.Errorf("%s is in the trash while it is open", name)
			}
			if text != "" {
				say(t, f, text)
			}
			must(t, f.Close())
		}
	}
	for i, c := range []struct {
		name, want string
		do         func(name string)
	}{
		{"k/removed", "old", remove},
		{"k/d/removed below", "old", remove},
		{"k/replaced", "old", over},
		{"k/removed while read", "old", opened(os.O_RDONLY, "", remove)},
		{"k/removed while written", "old and more", opened(os.O_WRONLY|os.O_APPEND, " and more", remove)},
		{"k/replaced while read", "old", opened(os.O_RDONLY, "", over)},
		{"k/replaced while written", "old and more", opened(os.O_WRONLY|os.O_APPEND, " and more", over)},
		{"k/off/removed", "", remove},
		{"k/off/removed while read", "", opened(os.O_RDONLY, "", remove)},
		{"n/replaced", "", over},
	} {
		m.write(c.name, "old")
		c.do(c.name)
		if c.want == "" {
			continue
		}
		env.Eventually(t, c.name+" is in the trash", func() bool { return entries()["/"+c.name] != nil })
		e, back := entries()["/"+c.name], fmt.Sprintf("back%d", i)
		if e.Length != int64(len(c.want)) || e.IsDir || e.User != "root" {
			t.Errorf("%s: the entry is %+v", c.name, e)
		}
		must(t, trash.Restore(t.Context(), fs, e.ID, "/"+back))
		m.reads(back, c.want)
	}
	if left := entries(); len(left) != 0 {
		t.Errorf("the trash still has %v", left)
	}

	// A tree goes file by file, and an empty directory is an entry.
	m.write("k/d/e/f", "deep")
	deep, err := fs.Stat(t.Context(), "/k/d/e/f")
	must(t, err)
	env.Eventually(t, "it is not open any more", func() bool { return m.Uses(deep.Inode) == 0 }) // the kernel tells that after the close
	must(t, os.RemoveAll(m.path("k/d")))
	list := entries()
	for _, path := range []string{"/k/d", "/k/d/e", "/k/d/e/f"} {
		e := list[path]
		if e == nil {
			t.Fatalf("%s is not in the trash: %v", path, list)
		}
		if err := trash.Restore(t.Context(), fs, e.ID, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	m.reads("k/d/e/f", "deep")
	if err := trash.Restore(t.Context(), fs, list["/k/d"].ID, "/again"); !errors.Is(err, fserror.NotFound) {
		t.Errorf("restored twice: %v", err)
	}
}
