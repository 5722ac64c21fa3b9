package fuse_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// Users that each machine has, and one that none has.
const (
	bin     = 2
	sys     = 3
	games   = 5
	unnamed = 654321
)

// guarded is a rig whose namenode has clients prove who they are, by tokens.
type guarded struct {
	*rig
	t       *testing.T
	proxies string
	tokens  map[string]string // the files of clients
}

func newGuarded(t *testing.T, rules ...string) *guarded {
	t.Helper()
	g := &guarded{t: t, proxies: filepath.Join(t.TempDir(), "proxies"), tokens: map[string]string{}}
	var lines []string
	for _, user := range []string{"root", "mnt", "far", "bin"} {
		token := proof.NewToken()
		line, err := proof.Line(token, user)
		must(t, err)
		lines = append(lines, line)
		g.tokens[user] = filepath.Join(t.TempDir(), user)
		must(t, os.WriteFile(g.tokens[user], []byte(user+" "+token), 0o600))
	}
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	g.rules(rules...)
	tokens, err := proof.OpenTokens(clock.System{}, file)
	must(t, err)
	proxies, err := proof.OpenProxies(clock.System{}, g.proxies)
	must(t, err)
	g.rig = newRig(t, func(c *namenode.Config) {
		c.Identity.Tokens, c.Identity.Proxies = tokens, proxies
		c.Groups = func(user string) []string {
			if user == "bin" {
				return []string{"crew"}
			}
			return nil
		}
	})
	return g
}

// rules replaces the namenode's file of who may act for others.
func (g *guarded) rules(lines ...string) {
	g.t.Helper()
	must(g.t, os.WriteFile(g.proxies+".new", []byte(strings.Join(lines, "\n")), 0o600))
	must(g.t, os.Rename(g.proxies+".new", g.proxies))
}

func (g *guarded) by(user string) func(*client.Config) {
	return func(c *client.Config) { c.User, c.TokenFile = "", g.tokens[user] }
}

func yes() *bool { v := true; return &v }

// doings are what may be done with /dir, which is daemon's and of group crew, 0750, and its
// file, 0640, and with /pub, where all may make files (1777), and its file, 0644, root's.
var doings = []struct {
	name string
	do   func(root int, who string) error
}{
	{"look", func(root int, _ string) error { return unix.Fstatat(root, "dir/f", new(unix.Stat_t), 0) }},
	{"list", func(root int, _ string) error {
		fd, err := unix.Openat(root, "dir", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_, err = unix.ReadDirent(fd, make([]byte, 4096))
		return errors.Join(err, unix.Close(fd))
	}},
	{"read", func(root int, _ string) error { return readAt(root, "dir/f", "secret") }},
	{"write", func(root int, _ string) error { return closeAt(root, "dir/f", unix.O_WRONLY|unix.O_APPEND) }},
	{"create", func(root int, who string) error { return createAt(root, "dir/by "+who, unix.O_WRONLY) }},
	{"again", func(root int, who string) error { return createAt(root, "dir/again by "+who, unix.O_WRONLY) }}, // a draft
	{"mkdir", func(root int, who string) error { return unix.Mkdirat(root, "dir/d by "+who, 0o755) }},
	{"rename", func(root int, _ string) error {
		return errors.Join(unix.Renameat(root, "dir/f", root, "dir/g"), unix.Renameat(root, "dir/g", root, "dir/f"))
	}},
	{"remove", func(root int, who string) error { return unix.Unlinkat(root, "dir/of "+who, 0) }},
	{"chmod", func(root int, _ string) error { return unix.Fchmodat(root, "dir/f", 0o640, 0) }},
	{"touch", func(root int, _ string) error {
		now := unix.Timespec{Nsec: unix.UTIME_NOW}
		return unix.UtimesNanoAt(root, "dir/f", []unix.Timespec{now, now}, 0)
	}},
	{"link", func(root int, who string) error { return unix.Symlinkat("f", root, "dir/l by "+who) }},
	{"public read", func(root int, _ string) error { return readAt(root, "pub/f", "public") }},
	{"public write", func(root int, _ string) error { return closeAt(root, "pub/f", unix.O_WRONLY|unix.O_APPEND) }},
	{"public create", func(root int, who string) error { return createAt(root, "pub/by "+who, unix.O_WRONLY) }},
	{"public remove of another's", func(root int, who string) error { return unix.Unlinkat(root, "pub/of "+who, 0) }},
}

func closeAt(root int, name string, flags int) error {
	fd, err := unix.Openat(root, name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func readAt(root int, name, want string) error {
	fd, err := unix.Openat(root, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 100)
	n, err := unix.Read(fd, buf)
	if err == nil && string(buf[:n]) != want {
		err = fmt.Errorf("it has %q", buf[:n])
	}
	return errors.Join(err, unix.Close(fd))
}

// TestWhoMayWhatThroughAMount: whoever is served first, what the mount and the kernel keep of
// that is nothing that another may not see.
func TestWhoMayWhatThroughAMount(t *testing.T) {
	g := newGuarded(t,
		"mnt users=daemon,bin,sys,nobody from=127.0.0.0/8",
		"far users=* from=10.0.0.0/8",
	)
	root := g.Client(t, g.by("root"))
	ctx := t.Context()
	mounts := map[string]*mounted{
		"mnt":        g.mount(fuse.Options{AllowOther: true}, g.by("mnt")),
		"far":        g.mount(fuse.Options{AllowOther: true}, g.by("far")),
		"root":       g.mount(fuse.Options{AllowOther: true}, g.by("root")),
		"root, tame": g.mount(fuse.Options{AllowOther: true, RootSquash: yes()}, g.by("root")),
	}
	all, reads := []string{"look", "list", "read", "write", "create", "again", "mkdir", "rename", "remove", "chmod", "touch", "link", "public read", "public create"},
		[]string{"look", "list", "read", "public read", "public create"}
	others := []string{"public read", "public create"}
	rows := []struct {
		mount string
		id    int
		what  string
		may   []string
		owner string // of what he makes
	}{
		{"mnt", daemon, "owner", all, "daemon"},
		{"mnt", bin, "group", reads, "bin"},
		{"mnt", sys, "other", others, "sys"},
		{"mnt", 0, "root, squashed since the mount is not root's", others, "nobody"},
		{"mnt", unnamed, "unknown number", others, "nobody"},
		{"mnt", games, "no rule for him", nil, ""},
		{"far", daemon, "owner, from a wrong address", nil, ""},
		{"far", 0, "root, from a wrong address", nil, ""},
		{"root", 0, "superuser", append([]string{"public write", "public remove of another's"}, all...), "root"},
		{"root", daemon, "owner, on a superuser's mount", all, "daemon"},
		{"root", games, "other, on a superuser's mount", others, "games"},
		{"root, tame", 0, "superuser, squashed", others, "nobody"},
		{"root, tame", daemon, "owner, beside him", all, "daemon"},
		{"mnt", daemon, "owner, after all", all, "daemon"},
	}
	must(t, root.Mkdir(ctx, "/pub", 0o777|os.ModeSticky))
	must(t, root.Mkdir(ctx, "/dir", 0o750))
	must(t, root.SetAttr(ctx, "/pub", client.AttrChange{SetMode: true, Mode: 0o777 | os.ModeSticky}))
	must(t, root.SetAttr(ctx, "/dir", client.AttrChange{User: "daemon", Group: "crew"}))
	plant := func(path, text string, mode os.FileMode, o client.Owner) {
		must(t, root.WriteFile(ctx, path, []byte(text), client.WithMode(mode), client.WithOwner(o)))
	}
	plant("/dir/f", "secret", 0o640, client.Owner{User: "daemon", Group: "crew"})
	plant("/pub/f", "public", 0o644, client.Owner{})
	for i, row := range rows {
		t.Run(row.what, func(t *testing.T) {
			who := fmt.Sprint(i)
			plant("/dir/of "+who, "", 0o600, client.Owner{})
			plant("/pub/of "+who, "", 0o666, client.Owner{})
			for _, d := range doings {
				err := mounts[row.mount].as(row.id, "", func(dir int) error { return d.do(dir, who) })
				if may := slices.Contains(row.may, d.name); may != (err == nil) || !may && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
					t.Errorf("%s: %v, want leave: %t", d.name, err, may)
				}
			}
			for _, made := range []string{"/dir/by " + who, "/dir/again by " + who, "/dir/d by " + who, "/dir/l by " + who, "/pub/by " + who} {
				if a, err := root.Lstat(ctx, made); err == nil && a.User != row.owner {
					t.Errorf("%s is %s's, want %s's", made, a.User, row.owner)
				}
			}
		})
	}
}

// TestAMountIsTakenItsRule: whom the mount may not serve any more is refused at once, what
// others have open continues, and a file that one had open is as long as it was flushed.
func TestAMountIsTakenItsRule(t *testing.T) {
	g := newGuarded(t, "mnt users=daemon,bin from=*")
	root := g.Client(t, g.by("root"))
	must(t, root.SetAttr(t.Context(), "/", client.AttrChange{SetMode: true, Mode: 0o777}))
	m := g.mount(fuse.Options{AllowOther: true}, g.by("mnt"))
	fds := map[int]int{}
	for _, id := range []int{daemon, bin} {
		must(t, m.as(id, "", func(dir int) error {
			fd, err := unix.Openat(dir, fmt.Sprint(id), unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return err
			}
			fds[id] = fd
			if _, err = unix.Write(fd, []byte("one")); err != nil {
				return err
			}
			return unix.Fsync(fd)
		}))
	}
	look := func(id int) error {
		return m.as(id, "", func(dir int) error { return unix.Fstatat(dir, fmt.Sprint(id), new(unix.Stat_t), 0) })
	}
	g.rules("mnt users=bin from=*")
	env.Eventually(t, "it is taken", func() bool { return errors.Is(look(daemon), unix.EACCES) })
	must(t, look(bin))
	for _, id := range []int{daemon, bin} { // the mount's session is its own
		_, err := unix.Write(fds[id], []byte("two"))
		must(t, err)
		must(t, unix.Close(fds[id]))
		got, err := root.ReadFile(t.Context(), fmt.Sprint("/", id))
		if err != nil || string(got) != "onetwo" {
			t.Errorf("%d: %q, %v", id, got, err)
		}
	}
}

// TestOpenFilesOfOthers: what one has opened he may use, and what another on the same mount may
// not open he does not get, though the mount has it open; what is removed while another has
// it open lives until that one closes it, whoever removes it.
func TestOpenFilesOfOthers(t *testing.T) {
	g := newGuarded(t, "mnt users=daemon,bin,sys from=*")
	root := g.Client(t, g.by("root"))
	ctx := t.Context()
	must(t, root.SetAttr(ctx, "/", client.AttrChange{SetMode: true, Mode: 0o777}))
	m := g.mount(fuse.Options{AllowOther: true}, g.by("mnt"))
	var fd int
	must(t, m.as(daemon, "", func(dir int) (err error) {
		if fd, err = unix.Openat(dir, "f", unix.O_CREAT|unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0o640); err == nil {
			_, err = unix.Write(fd, []byte("text"))
		}
		return errors.Join(err, unix.Fsync(fd))
	}))
	i, err := root.Stat(ctx, "/f")
	must(t, err)
	if i.User != "daemon" || i.Open == nil || i.Open.Holder.User != "mnt" {
		t.Errorf("it is %s's, held by %+v", i.User, i.Open)
	}
	for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDONLY | unix.O_TRUNC} {
		if err := m.as(sys, "", func(dir int) error { return closeAt(dir, "f", flags) }); !errors.Is(err, unix.EACCES) {
			t.Errorf("another opens it, %x: %v", flags, err)
		}
	}
	if err := m.as(sys, "", func(int) error { return unix.Fchmod(fd, 0o777) }); !errors.Is(err, unix.EPERM) {
		t.Errorf("another changes its mode: %v", err)
	}
	if err := m.as(sys, "", func(int) error { // as a child to which it was passed on
		_, err := unix.Pwrite(fd, []byte(" more"), 4)
		return errors.Join(err, unix.Fstat(fd, new(unix.Stat_t)))
	}); err != nil {
		t.Errorf("through the descriptor: %v", err)
	}
	must(t, m.as(sys, "", func(dir int) error { return unix.Unlinkat(dir, "f", 0) })) // the directory is everybody's
	buf := make([]byte, 20)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil || string(buf[:n]) != "text more" {
		t.Errorf("after it was removed: %q, %v", buf[:n], err)
	}
	must(t, unix.Close(fd))
	env.Eventually(t, "it is gone with the last descriptor", func() bool {
		entries, _, err := root.List(ctx, "/", "", 0)
		return err == nil && len(entries) == 0
	})
}

// TestNamesAreNobodyElses: the kernel, which checks nothing, keeps no name of a directory for
// one that another could go by.
func TestNamesAreNobodyElses(t *testing.T) {
	g := newGuarded(t, "mnt users=daemon,sys from=*")
	root := g.Client(t, g.by("root"))
	ctx := t.Context()
	must(t, root.Mkdir(ctx, "/dir", 0o700))
	must(t, root.SetAttr(ctx, "/dir", client.AttrChange{User: "daemon"}))
	must(t, root.Mkdir(ctx, "/dir/sub", 0o755))
	m := g.mount(fuse.Options{AllowOther: true}.WithQuiet(0), g.by("mnt"))
	look := func(dir int) error { return unix.Fstatat(dir, "dir/sub", new(unix.Stat_t), 0) }
	for range 20 {
		must(t, m.as(daemon, "", func(dir int) error { return errors.Join(look(dir), look(dir)) }))
		if err := m.as(sys, "", look); !errors.Is(err, unix.EACCES) {
			t.Fatalf("another: %v", err)
		}
	}
}

// TestAbsentNamesAndDraftsAreChecked: what the mount knows of a directory by what others do there
// lets nobody in: not who the ACL keeps out, whatever the mode, and not the mount's own user,
// for whom the kernel checks nothing either.
func TestAbsentNamesAndDraftsAreChecked(t *testing.T) {
	for _, row := range []struct {
		what, mount string
		mode        os.FileMode
		acl         string
		who         int
	}{
		{"the mount's own user", "bin", 0o744, "", bin},
		{"by the ACL", "mnt", 0o777, "u::rwx,u:sys:-,g::rwx,m::rwx,o::rwx", sys},
	} {
		t.Run(row.what, func(t *testing.T) {
			g := newGuarded(t, row.mount+" users=daemon,sys from=*")
			root := g.Client(t, g.by("root"))
			ctx := t.Context()
			must(t, root.Mkdir(ctx, "/dir", 0o700))
			must(t, root.SetAttr(ctx, "/dir", client.AttrChange{SetMode: true, Mode: row.mode, User: "daemon"}))
			if row.acl != "" {
				list, err := client.ParseACL(row.acl)
				must(t, err)
				must(t, root.Xattrs("/dir").SetACL(ctx, list))
			}
			m := g.mount(fuse.Options{AllowOther: true}, g.by(row.mount))
			for i := range 5 {
				must(t, m.as(daemon, "", func(dir int) error {
					err := unix.Fstatat(dir, "dir/none", new(unix.Stat_t), 0)
					if errors.Is(err, unix.ENOENT) {
						err = createAt(dir, fmt.Sprintf("dir/%d", i), unix.O_WRONLY)
					}
					return err
				}))
				err := m.as(row.who, "", func(dir int) error {
					_ = unix.Fstatat(dir, "dir", new(unix.Stat_t), 0) // the mount keeps what it is like
					if err := unix.Fstatat(dir, "dir/none", new(unix.Stat_t), 0); !errors.Is(err, unix.EACCES) {
						t.Errorf("he searches: %v", err)
					}
					fd, err := unix.Openat(dir, fmt.Sprintf("dir/of another %d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
					if err == nil {
						err = errors.Join(errors.New("opened"), unix.Close(fd))
					}
					return err
				})
				if err != unix.EACCES { //nolint:errorlint // that and no more
					t.Errorf("he makes a file: %v", err)
				}
			}
		})
	}
}
