package fuse_test

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// daemon is the number of a user and of a group that each machine has.
const daemon = 1

// as runs do as another user of this machine, with the descriptor of a directory
// of the mount, which that user need not be able to reach by its path.
func (m *mounted) as(id int, dir string, do func(dir int) error) error {
	m.t.Helper()
	d, err := unix.Open(m.path(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(m.t, err)
	defer func() { _ = unix.Close(d) }() // only a name
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		for _, set := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
			_, _, _ = unix.RawSyscall(set, uintptr(id), 0, 0) // says what was before
			if now, _, _ := unix.RawSyscall(set, ^uintptr(0), 0, 0); int(now) != id {
				result <- fmt.Errorf("this test must be able to act as user %d, not %d", id, now)
				return
			}
		}
		result <- do(d)
	}()
	return <-result
}

// makers are the ways to make something in a directory.
var makers = map[string]func(dir int, name string) error{
	"mkdir":   func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o755) },
	"mknod":   func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0) },
	"symlink": func(dir int, name string) error { return unix.Symlinkat("to", dir, name) },
	"create": func(dir int, name string) error {
		return createAt(dir, name, unix.O_WRONLY)
	},
	"create for reading": func(dir int, name string) error {
		return createAt(dir, name, unix.O_RDONLY)
	},
}

func createAt(dir int, name string, flags int) error {
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|flags, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openDir makes a directory that all may write to.
func (m *mounted) openDir(name string) {
	m.t.Helper()
	must(m.t, os.Mkdir(m.path(name), 0o755)) //nolint:gosec // a usual mode
	must(m.t, os.Chmod(m.path(name), 0o777)) //nolint:gosec // that is the point
}

// What a local user makes on a mount is his, and nothing else is: not
// what another client puts in its place right after it was made.
func TestNothingIsGivenAwayByPath(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	wire := &env.Wire{}
	m := r.mount(fuse.Options{AllowOther: true}, func(c *client.Config) { c.DialOptions = wire.DialOptions() })
	m.loses = client.ErrLeaseLost
	m.openDir("d")
	n := 0
	for how, makeIt := range makers {
		for range 2 { // the second file is a draft
			n++
			name, secret := fmt.Sprintf("new%d", n), fmt.Sprintf("/d/secret%d", n)
			if how == "mkdir" {
				must(t, other.Mkdir(t.Context(), secret, 0o700))
			} else {
				must(t, other.WriteFile(t.Context(), secret, []byte("root's"), client.WithMode(0o600)))
			}
			var once sync.Once
			var moved atomic.Bool
			wire.Set(func(method string, _ any, send func() error) error {
				err := send()
				switch method {
				case "Create", "Mkdir", "Symlink":
					once.Do(func() {
						moved.Store(true)
						must(t, other.Rename(t.Context(), secret, "/d/"+name, true))
					})
				}
				return err
			})
			_ = m.as(daemon, "d", func(dir int) error { return makeIt(dir, name) }) // it may have lost what it made
			wire.Set(nil)
			i, err := other.Lstat(t.Context(), "/d/"+name)
			must(t, err)
			if !moved.Load() || i.User != "root" {
				t.Errorf("%s: what root put there is %s's (put there: %v)", how, i.User, moved.Load())
			}
		}
	}
}

// What local users make belongs to them, drafts included, whoever the mount's user is, and
// to the group that a disk would give it, if the namenode takes the mount's word for that.
func TestOwnersOfWhatOthersMake(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	roots, bins := r.mount(fuse.Options{AllowOther: true, ProcessGroups: true}), r.mount(fuse.Options{AllowOther: true}, func(c *client.Config) { c.User = "bin" })
	roots.openDir("d")
	for _, test := range []struct {
		m           *mounted
		user, group string
	}{{roots, "daemon", "daemon"}, {bins, "daemon", "supergroup"}} {
		for how, makeIt := range makers {
			for _, name := range []string{"one", "two"} {
				name = path.Join("/d", test.group+" "+how+" "+name)
				if err := test.m.as(daemon, "d", func(dir int) error { return makeIt(dir, path.Base(name)) }); err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				i, err := other.Lstat(t.Context(), name)
				must(t, err)
				if i.User != test.user || i.Group != test.group {
					t.Errorf("%s is of %s:%s, want %s:%s", name, i.User, i.Group, test.user, test.group)
				}
			}
		}
	}
}

// Who is nobody here, or has by chance the number that is somebody's name, is not
// the owner, nor of the group, of what belongs to users that this machine does not
// know.
func TestUnknownOwnersAreNobodyHere(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	m := r.mount(fuse.Options{AllowOther: true})
	nobody := 65534
	if u, err := user.Lookup("nobody"); err == nil {
		nobody, err = strconv.Atoi(u.Uid)
		must(t, err)
	}
	can := func(id int, name string) map[string]error {
		got := make(map[string]error)
		must(t, m.as(id, "", func(dir int) error {
			for how, flags := range map[string]int{"read": unix.O_RDONLY, "write": unix.O_WRONLY | unix.O_APPEND} {
				fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
				if err == nil {
					err = unix.Close(fd)
				}
				got[how] = err
			}
			got["chmod"] = unix.Fchmodat(dir, name, 0o606, 0)
			return nil
		}))
		return got
	}
	for i, test := range []struct {
		user, group string
		by          int
		owner       bool
	}{
		{"no-such-user-here", "root", nobody, false},
		{"no-such-user-here", "no-such-group-here", nobody, false},
		{strconv.Itoa(daemon), strconv.Itoa(daemon), daemon, false}, // another host's, where it has no name
		{"0" + strconv.Itoa(daemon), "root", daemon, false},
		{"4294967295", "root", nobody, false},
		{"654321", "root", 654321, false}, // of a number without a name here, which another host may give to another user
		{"daemon", "root", daemon, true},
	} {
		name := fmt.Sprint("f", i)
		must(t, other.WriteFile(t.Context(), "/"+name, []byte("secret"), client.WithMode(0o660), client.WithOwner(client.Owner{User: test.user, Group: test.group})))
		for how, err := range can(test.by, name) {
			if test.owner != (err == nil) {
				t.Errorf("user %d may %s what belongs to %s:%s: %v", test.by, how, test.user, test.group, err)
			}
		}
	}
	must(t, other.WriteFile(t.Context(), "/g", []byte("secret"), client.WithMode(0o060), client.WithOwner(client.Owner{Group: "no-such-group-here"})))
	for how, err := range can(nobody, "g") {
		if err == nil {
			t.Errorf("nobody may %s what belongs to an unknown group", how)
		}
	}
}

// Only who may write a file may lock it: a lock keeps all other hosts out.
func TestLockingTakesPermissionToWrite(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	m := r.mount(fuse.Options{AllowOther: true, ProcessGroups: true})
	const bin = 2 // a group
	for i, test := range []struct {
		user, group string
		mode        os.FileMode
		flags       int
		groups      []uint32
		want        error
	}{
		{"root", "root", 0o644, unix.O_RDONLY, nil, unix.EACCES},
		{"root", "bin", 0o664, unix.O_RDONLY, nil, unix.EACCES},
		{"root", "bin", 0o664, unix.O_RDONLY, []uint32{bin}, nil},
		{"root", "daemon", 0o646, unix.O_RDONLY, nil, unix.EACCES},
		{"root", "daemon", 0o664, unix.O_RDONLY, nil, nil},
		{"daemon", "root", 0o466, unix.O_RDONLY, nil, unix.EACCES},
		{"daemon", "root", 0o644, unix.O_RDONLY, nil, nil},
		{"root", "root", 0o646, unix.O_RDONLY, nil, nil},
		{"root", "root", 0o646, unix.O_WRONLY, nil, nil},
	} {
		name := fmt.Sprint("f", i)
		must(t, other.WriteFile(t.Context(), "/"+name, nil, client.WithMode(test.mode), client.WithOwner(client.Owner{User: test.user, Group: test.group})))
		for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
			must(t, m.as(daemon, "", func(dir int) error {
				var list *uint32
				if test.groups != nil {
					list = &test.groups[0]
				}
				if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(test.groups)), uintptr(unsafe.Pointer(list)), 0); e != 0 { //nolint:gosec // of this thread alone
					return e
				}
				fd, err := unix.Openat(dir, name, test.flags|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer func() { _ = unix.Close(fd) }()
				if err := unix.Flock(fd, how|unix.LOCK_NB); !errors.Is(err, test.want) {
					t.Errorf("%s:%s %o, opened with %x, lock %d: %v, want %v", test.user, test.group, test.mode, test.flags, how, err, test.want)
				}
				if i, err := other.Stat(t.Context(), "/"+name); err != nil || (i.Open != nil) != (test.want == nil) {
					t.Errorf("%s:%s %o, opened with %x, lock %d: the lease is taken %v (%v)", test.user, test.group, test.mode, test.flags, how, i.Open != nil, err)
				}
				if test.want == nil {
					return unix.Flock(fd, unix.LOCK_UN)
				}
				return nil
			}))
		}
	}
}
