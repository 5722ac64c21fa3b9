package fuse_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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
	out, err := inside(m.t.Context(), m.dir, append([]string{command}, args...)...).CombinedOutput()
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

// faclAs is facl as another user of this machine, who need not be able to reach the mount by
// its path.
func (m *mounted) faclAs(id uint32, command string, args ...string) (string, error) {
	m.t.Helper()
	fd, err := unix.Open(m.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(m.t, err)
	dir := os.NewFile(uintptr(fd), m.dir) //nolint:gosec // a descriptor
	defer dir.Close()
	args = slices.Clone(args)
	args[len(args)-1] = "/proc/self/fd/3/" + args[len(args)-1]
	cmd := exec.CommandContext(m.t.Context(), command, args...)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(strings.ReplaceAll(string(out), "\n", " ")), err
}

// On a mount that makes each call for who asks, the namenode decides by the ACL, whatever the
// mode, which the mount has kept, says of the classes; and only the owner changes it.
func TestACLsForEachUser(t *testing.T) {
	g := newGuarded(t, "mnt users=daemon,bin,sys,games,nobody from=*")
	root, ctx := g.Client(t, g.by("root")), t.Context()
	m := g.mount(fuse.Options{AllowOther: true}, g.by("mnt"))
	must(t, root.Mkdir(ctx, "/dir", 0o700))
	must(t, root.SetAttr(ctx, "/dir", client.AttrChange{User: "daemon"}))
	must(t, root.WriteFile(ctx, "/dir/f", []byte("secret"), client.WithMode(0o600), client.WithOwner(client.Owner{User: "daemon"})))
	facl := func(id uint32, command string, args ...string) string {
		t.Helper()
		out, err := m.faclAs(id, command, args...)
		if err != nil {
			t.Fatalf("%s %v as %d: %v, %s", command, args, id, err, out)
		}
		return out
	}
	acts := []struct {
		name string
		do   func(root int, who int) error
	}{
		{"search", func(root, _ int) error {
			err := unix.Fstatat(root, "dir/none", new(unix.Stat_t), 0)
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		}},
		{"create", func(root, who int) error { return createAt(root, fmt.Sprintf("dir/of %d", who), unix.O_WRONLY) }},
		{"remove", func(root, who int) error { return unix.Unlinkat(root, fmt.Sprintf("dir/of %d", who), 0) }},
		{"read", func(root, _ int) error { return readAt(root, "dir/f", "secret") }},
		{"write", func(root, _ int) error { return closeAt(root, "dir/f", unix.O_WRONLY|unix.O_APPEND) }},
		{"access", func(root, _ int) error { return unix.Faccessat2(root, "dir/f", unix.R_OK|unix.W_OK, unix.AT_EACCESS) }},
	}
	check := func(when string, id int, may ...string) {
		t.Helper()
		for _, act := range acts {
			err := m.as(id, "", func(dir int) error {
				_ = unix.Fstatat(dir, "dir", new(unix.Stat_t), 0)   // the mount keeps
				_ = unix.Fstatat(dir, "dir/f", new(unix.Stat_t), 0) // what they are like
				return act.do(dir, id)
			})
			if want := slices.Contains(may, act.name); want != (err == nil) || !want && !errors.Is(err, unix.EACCES) && !(act.name == "remove" && errors.Is(err, unix.ENOENT)) {
				t.Errorf("%s: %d, %s: %v, want leave: %t", when, id, act.name, err, want)
			}
		}
	}
	all := []string{"search", "create", "remove", "read", "write", "access"}
	check("before", daemon, all...)
	check("before", bin)

	facl(daemon, "setfacl", "-m", "u:bin:rwx", "dir")
	facl(daemon, "setfacl", "-m", "u:bin:rw", "dir/f")
	check("named", daemon, all...)
	check("named", bin, all...)
	check("not named", games)
	if got, want := facl(bin, "getfacl", "-c", "-E", "-p", "dir"), "user::rwx user:bin:rwx group::--- mask::rwx other::---"; got != want {
		t.Errorf("dir has %s, want %s", got, want)
	}

	// The mode says all of group and others; the ACL takes it from one.
	facl(daemon, "setfacl", "-m", "u:sys:-,g::rwx,o::rwx,m::rwx", "dir")
	facl(daemon, "setfacl", "-m", "u:sys:-,g::rw,o::rw,m::rw", "dir/f")
	check("others", games, all...)
	check("of all only he is not", sys)
	facl(daemon, "setfacl", "-m", "u:sys:x", "dir")
	check("in the file's way", sys, "search")

	// Who does not own it does not change it, though he may write it.
	before := facl(daemon, "getfacl", "-c", "-E", "-p", "dir/f")
	for _, id := range []uint32{0, bin, games, unnamed} {
		for _, args := range [][]string{{"-m", "u:games:rwx"}, {"-b"}, {"-x", "u:sys"}} {
			if out, err := m.faclAs(id, "setfacl", append(args, "dir/f")...); err == nil || !strings.Contains(out, "not permitted") {
				t.Errorf("setfacl %v as %d: %v, %s", args, id, err, out)
			}
		}
		for _, args := range [][]string{{"-d", "-m", "u:games:rwx"}, {"-b"}, {"-k"}} {
			if out, err := m.faclAs(id, "setfacl", append(args, "dir")...); err == nil && args[0] != "-k" || err != nil && !strings.Contains(out, "not permitted") {
				t.Errorf("setfacl %v as %d: %v, %s", args, id, err, out)
			}
		}
	}
	if got := facl(daemon, "getfacl", "-c", "-E", "-p", "dir/f"); got != before {
		t.Errorf("f has %s, no more %s", got, before)
	}
	if i, err := root.Stat(ctx, "/dir"); err != nil || i.HasDefault || !i.HasACL {
		t.Errorf("%+v, %v", i, err)
	}
}

// In a directory with a default ACL no file is made without the namenode, which says what the
// file inherits.
func TestNoDraftsUnderADefaultACL(t *testing.T) {
	d := newRig(t, longTerm).drafter(fuse.Options{AllowOther: true})
	creates := func(name string) int {
		t.Helper()
		before := d.wire.Count("Create")
		f := d.open("d/"+name, os.O_CREATE|os.O_WRONLY|os.O_EXCL)
		n := d.wire.Count("Create") - before
		must(t, f.Close())
		return n
	}
	d.facl("setfacl", "-d", "-m", "u:daemon:rw,m::rw", "d")
	for i := range 5 { // the first takes the directory, if it can be had
		if n := creates(fmt.Sprint(i)); n == 0 {
			t.Errorf("file %d was a draft", i)
		}
		if got, want := d.getfacl(fmt.Sprint("d/", i)), "user:daemon:rw-"; !strings.Contains(got, want) {
			t.Errorf("file %d has %s, not %s", i, got, want)
		}
	}
	d.facl("setfacl", "-k", "d")
	d.ready("d") // drafts begin again
}
