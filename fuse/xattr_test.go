package fuse_test

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/fuse"
)

// getXattr is the value of an extended attribute, "" if there is none.
func getXattr(t testing.TB, path, name string) string {
	t.Helper()
	buf := make([]byte, 8192)
	n, err := unix.Lgetxattr(path, name, buf)
	if err == unix.ENODATA { //nolint:errorlint // a bare errno
		return ""
	}
	must(t, err)
	return string(buf[:n])
}

func TestXattrErrnos(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	m.write("f", "text")
	p := m.path("f")
	set := func(name, value string, flags int) error { return unix.Setxattr(p, name, []byte(value), flags) }
	is(t, set("user.a", "x", unix.XATTR_REPLACE), syscall.ENODATA)
	must(t, set("user.a", "x", unix.XATTR_CREATE))
	is(t, set("user.a", "y", unix.XATTR_CREATE), syscall.EEXIST)
	must(t, set("user.a", "value", unix.XATTR_REPLACE))
	must(t, set("user.empty", "", 0))
	if got := getXattr(t, p, "user.a"); got != "value" {
		t.Fatalf("%q", got)
	}
	_, err := unix.Getxattr(p, "user.a", make([]byte, 2))
	is(t, err, syscall.ERANGE)
	_, err = unix.Listxattr(p, make([]byte, 2))
	is(t, err, syscall.ERANGE)
	names := make([]byte, 100)
	n, err := unix.Listxattr(p, names)
	must(t, err)
	if string(names[:n]) != "user.a\x00user.empty\x00" {
		t.Fatalf("%q", names[:n])
	}
	is(t, set("user.large", strings.Repeat("v", 12<<10+1), 0), syscall.E2BIG)
	must(t, set("user.3", strings.Repeat("v", 12<<10), 0))
	is(t, set("user.4", strings.Repeat("v", 4096), 0), syscall.ENOSPC)
	is(t, unix.Removexattr(p, "user.4"), syscall.ENODATA)
	must(t, unix.Removexattr(p, "user.a"))
	is(t, set("trusted.a", "x", 0), syscall.ENOTSUP)
	is(t, set("leasefs.holder", "x", 0), syscall.EPERM)
	if got := getXattr(t, p, "user.a"); got != "" {
		t.Fatalf("%q", got)
	}
}

// TestXattrsElsewhere: a change by one mount is seen by another at once, also
// through a descriptor, and while the file is open for write.
func TestXattrsElsewhere(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	a.write("f", "text")
	for _, flags := range []int{os.O_RDONLY, os.O_WRONLY} {
		f := a.open("f", flags)
		for i := range 20 {
			want := strings.Repeat("v", i+1)
			must(t, unix.Fsetxattr(int(f.Fd()), "user.n", []byte(want), 0))
			if got := getXattr(t, b.path("f"), "user.n"); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		must(t, unix.Fremovexattr(int(f.Fd()), "user.n"))
		if got := getXattr(t, b.path("f"), "user.n"); got != "" {
			t.Fatalf("%q", got)
		}
		must(t, f.Close())
	}
}

// TestXattrsAreCopied: cp -a, rsync -X and tar --xattrs keep them.
func TestXattrsAreCopied(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	must(t, os.MkdirAll(m.path("from/dir"), 0o755))
	m.write("from/dir/f", "text")
	must(t, unix.Setxattr(m.path("from/dir/f"), "user.f", []byte("of the file"), 0))
	must(t, unix.Setxattr(m.path("from/dir"), "user.d", []byte("of the directory"), 0))
	must(t, os.Mkdir(m.path("tar"), 0o755))
	for to, argv := range map[string][]string{
		"cp":    {"cp", "-a", "from", "cp"},
		"rsync": {"rsync", "-aX", "from/", "rsync"},
		"tar":   {"sh", "-c", "tar --xattrs -cf - -C from . | tar --xattrs -xf - -C tar"},
	} {
		c := inside(t.Context(), m.dir, argv...)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out.String())
		}
		m.reads(to+"/dir/f", "text")
		if f, d := getXattr(t, m.path(to+"/dir/f"), "user.f"), getXattr(t, m.path(to+"/dir"), "user.d"); f != "of the file" || d != "of the directory" {
			t.Errorf("%s: %q, %q", to, f, d)
		}
	}
}
