package fuse_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// facl runs getfacl or setfacl, and returns what it prints without comments.
func (m *mounted) facl(command string, args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), command, args...)
	cmd.Dir = m.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(out), "\n", " "))
}

func (m *mounted) getfacl(path string) string {
	m.t.Helper()
	return m.facl("getfacl", "-c", "-E", path)
}

// getfacl and setfacl work on a mount, and the kernel lets in whom an ACL lets in.
func TestACLTools(t *testing.T) {
	r := newRig(t)
	m, fs := r.mount(fuse.Options{AllowOther: true}), r.Client(t)
	old := unix.Umask(0o027)
	t.Cleanup(func() { unix.Umask(old) })
	must(t, os.Mkdir(m.path("d"), 0o777)) //nolint:gosec // less the umask
	if i, err := fs.Stat(t.Context(), "/d"); err != nil || i.Mode().Perm() != 0o750 {
		t.Fatalf("without a default ACL the umask counts: %v, %v", i, err)
	}
	search := func() error {
		return m.as(daemon, "d", func(dir int) error { return unix.Fstatat(dir, "none", new(unix.Stat_t), 0) })
	}
	if err := search(); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("before there is an ACL: %v", err)
	}
	m.facl("setfacl", "-m", "u:daemon:rwx,d:u:daemon:rwx,d:g::rx,d:o::-", "d")
	if err := search(); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("whom the ACL names may search: %v", err)
	}
	if got, want := m.getfacl("d"), "user::rwx user:daemon:rwx group::r-x mask::rwx other::--- default:user::rwx default:user:daemon:rwx default:group::r-x default:mask::rwx default:other::---"; got != want {
		t.Fatalf("d has\n%s, not\n%s", got, want)
	}
	if list, err := fs.Xattrs("/d").ACL(t.Context()); err != nil || strings.ReplaceAll(list.String(), ",", " ") != m.getfacl("d") {
		t.Fatalf("the namespace has %s, %v", list, err)
	}

	// What is made in it inherits, and no umask counts: also a draft's successor.
	must(t, os.Mkdir(m.path("d/sub"), 0o777)) //nolint:gosec // what the ACL says
	for _, name := range []string{"one", "two"} {
		m.write("d/"+name, "text")
		if got, want := m.getfacl("d/"+name), "user::rw- user:daemon:rwx group::r-x mask::r-- other::---"; got != want { // of 0644
			t.Fatalf("%s has\n%s, not\n%s", name, got, want)
		}
	}
	if got := m.getfacl("d/sub"); got != m.getfacl("d") {
		t.Fatalf("sub has %s", got)
	}
	write := func() error {
		return m.as(daemon, "d", func(dir int) error {
			fd, err := unix.Openat(dir, "one", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})
	}
	if err := write(); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("under a mask without writing: %v", err)
	}
	must(t, os.Chmod(m.path("d/one"), 0o660)) //nolint:gosec // the mask
	must(t, write())

	// chmod changes the mask, another client's change is seen, and the ACL goes.
	must(t, os.Chmod(m.path("d/one"), 0o640))
	if err := write(); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("after chmod: %v", err)
	}
	list, err := client.ParseACL("u::rw,u:daemon:rw,g::-,m::rw,o::-")
	must(t, err)
	must(t, fs.Xattrs("/d/one").SetACL(t.Context(), list))
	env.Eventually(t, "another client's ACL counts", func() bool { return write() == nil })
	m.facl("setfacl", "-x", "u:daemon", "d/one")
	if err := write(); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("after the entry was removed: %v", err)
	}
	m.facl("setfacl", "-R", "-b", "d")
	if i, err := fs.Stat(t.Context(), "/d/sub"); err != nil || i.HasACL || i.HasDefault {
		t.Fatalf("%+v, %v", i, err)
	}
	m.facl("setfacl", "-d", "-m", "u:daemon:r", "d")
	m.facl("setfacl", "-k", "d")
	if got := m.getfacl("d"); got != "user::rwx group::r-x other::---" {
		t.Fatalf("d has %s", got)
	}
}

// Users that this machine does not know are in nobody's way, and are not lost.
func TestACLOfUnknownUsers(t *testing.T) {
	r := newRig(t)
	m, fs := r.mount(fuse.Options{AllowOther: true}), r.Client(t)
	m.write("f", "text")
	list, err := client.ParseACL("u::rw,u:daemon:r,u:far-away:rw,g::-,g:far-group:r,m::rw,o::-")
	must(t, err)
	must(t, fs.Xattrs("/f").SetACL(t.Context(), list))
	env.Eventually(t, "the mount shows whom it knows", func() bool {
		return m.getfacl("f") == "user::rw- user:daemon:r-- group::--- mask::rw- other::---"
	})
	out, err := exec.CommandContext(t.Context(), "setfacl", "-m", "u:daemon:rw", m.path("f")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Operation not supported") {
		t.Fatalf("setfacl would lose users: %v, %s", err, out)
	}
	if now, err := fs.Xattrs("/f").ACL(t.Context()); err != nil || now.String() != list.String() {
		t.Fatalf("%s, %v", now, err)
	}
	must(t, os.Chmod(m.path("f"), 0o600)) // a mode can be set all the same
	// A default ACL of a file, and what is none.
	var file [28]byte
	if err := unix.Setxattr(m.path("f"), "system.posix_acl_access", file[:], 0); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatalf("bytes that are no ACL: %v", err)
	}
	m.write("g", "text")
	if out, err := exec.CommandContext(t.Context(), "setfacl", "-d", "-m", "u:daemon:r", m.path("g")).CombinedOutput(); err == nil {
		t.Fatalf("a file has a default ACL: %s", out)
	}
}
