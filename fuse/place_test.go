package fuse_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// What the kernel has allowed a local user to do in a directory is done in that
// directory or not at all, though another host puts a link, or a directory of
// root's, where it was before the call arrives.
func TestCallsStayInTheirDirectory(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	wire := &env.Wire{}
	m := r.mount(fuse.Options{AllowOther: true}, func(c *client.Config) { c.DialOptions = wire.DialOptions() })
	m.openDir("out")
	out, err := os.Open(m.path("out"))
	must(t, err)
	defer func() { _ = out.Close() }() // only a name
	mine := client.WithOwner(client.Owner{User: "daemon"})
	ways := map[string]func(dir int) error{
		"unlink": func(dir int) error { return unix.Unlinkat(dir, "f", 0) },
		"rmdir":  func(dir int) error { return unix.Unlinkat(dir, "empty", unix.AT_REMOVEDIR) },
		"move out": func(dir int) error {
			return unix.Renameat(dir, "f", int(out.Fd()), "got") //nolint:gosec // a small number
		},
		"move in": func(dir int) error {
			must(t, other.WriteFile(t.Context(), "/out/mine", []byte("daemon's"), mine, client.WithOverwrite()))
			return unix.Renameat(int(out.Fd()), "mine", dir, "f") //nolint:gosec // a small number
		},
		"replace what is open": func(dir int) error {
			fd, err := unix.Openat(dir, "f", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			return unix.Renameat(dir, "g", dir, "f")
		},
		"look": func(dir int) error {
			var st unix.Stat_t
			if err := unix.Fstatat(dir, "secret", &st, 0); err != nil {
				return err
			}
			return errors.New("it sees root's file")
		},
		"list": func(dir int) error {
			fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			d := os.NewFile(uintptr(fd), "d")
			defer func() { _ = d.Close() }() // only read
			names, err := d.Readdirnames(-1)
			if slices.Contains(names, "secret") {
				return errors.New("it sees root's file")
			}
			return err
		},
	}
	for how, makeIt := range makers {
		ways[how] = func(dir int) error { return makeIt(dir, "new") }
	}
	// tree makes a directory with a directory d in it.
	tree := func(at string, opts ...client.OpenOption) {
		for _, d := range []string{"", "/d", "/d/empty"} {
			must(t, other.Mkdir(t.Context(), at+d, 0o777))
			must(t, other.Chmod(t.Context(), at+d, 0o777))
		}
		for _, f := range []string{"f", "g"} {
			must(t, other.WriteFile(t.Context(), at+"/d/"+f, []byte(at), opts...))
		}
	}
	look := func(at string) (list []string) {
		all, err := other.ReadDir(t.Context(), at)
		must(t, err)
		for _, i := range all {
			list = append(list, fmt.Sprint(i.Name(), " ", i.Inode, " ", i.User))
		}
		return list
	}
	n := 0
	for how, do := range ways {
		for _, link := range []bool{true, false} {
			n++
			top := fmt.Sprintf("/top%d", n)
			must(t, other.Mkdir(t.Context(), top, 0o777))
			tree(top+"/mine", mine)
			tree(top + "/roots")
			must(t, other.WriteFile(t.Context(), top+"/roots/d/secret", []byte("root's"), client.WithMode(0o644)))
			before := look(top + "/roots/d")
			var begun, moved atomic.Bool
			roots := top + "/roots"
			wire.Set(func(method string, req any, send func() error) error {
				switch method {
				case "Stat":
					if stat, ok := req.(*pb.StatRequest); !ok || stat.GetAt().GetPath() != "secret" {
						break
					}
					fallthrough
				case "Create", "Mkdir", "Symlink", "Delete", "Rename", "List":
					if !begun.Load() || moved.Swap(true) {
						break
					}
					must(t, other.Rename(t.Context(), top+"/mine", top+"/away", false))
					if link {
						must(t, other.Symlink(t.Context(), "roots", top+"/mine"))
					} else {
						must(t, other.Rename(t.Context(), roots, top+"/mine", false))
						roots = top + "/mine"
					}
				}
				return send()
			})
			err := m.as(daemon, top+"/mine/d", func(dir int) error {
				begun.Store(true)
				return do(dir)
			})
			wire.Set(nil)
			if after := look(roots + "/d"); !moved.Load() || !slices.Equal(before, after) {
				t.Errorf("%s, link %v: root's directory has %v, want %v (%v; put there: %v)", how, link, after, before, err, moved.Load())
			}
			if err != nil && !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s, link %v: %v", how, link, err)
			}
		}
	}
}
