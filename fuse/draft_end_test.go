package fuse_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/textlog"
)

// TestDraftElsewhere: a draft whose directory another host renames is where that
// is, and nowhere else.
func TestDraftElsewhere(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(long()), r.Client(t)
	must(t, os.MkdirAll(a.path("up/deep"), 0o755))
	a.ready("up/deep")
	for _, how := range []string{"close", "settle"} {
		f := a.begin("up/deep/f", os.O_WRONLY)
		say(t, f, "text")
		must(t, b.Rename(t.Context(), "/up", "/"+how, false))
		must(t, b.MkdirAll(t.Context(), "/up/deep", 0o755))
		if how == "settle" {
			must(t, f.Sync())
		} else {
			must(t, f.Close())
		}
		_, err := os.Stat(a.path("up/deep/f"))
		is(t, err, syscall.ENOENT)
		a.write("up/deep/f", "another")
		a.reads("up/deep/f", "another")
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			must(t, err)
		}
		a.reads(how+"/deep/f", "text")
		must(t, os.RemoveAll(a.path("up")))
		must(t, os.MkdirAll(a.path("up/deep"), 0o755))
		a.ready("up/deep")
	}
}

// TestDraftSettles: a draft that stays open is a file after a while.
func TestDraftSettles(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(fuse.Options{}), r.Client(t)
	f := a.open("d/f", os.O_CREATE|os.O_WRONLY)
	say(t, f, "one ")
	env.Eventually(t, "it is seen", func() bool {
		i, err := b.Stat(t.Context(), "/d/f")
		return err == nil && i.Open != nil
	})
	say(t, f, "two")
	must(t, f.Close())
	if got, err := b.ReadFile(t.Context(), "/d/f"); err != nil || string(got) != "one two" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestDraftAndTheEnd: what a draft has outlives the mount.
func TestDraftAndTheEnd(t *testing.T) {
	for _, how := range []string{"unmounted", "taken away", "connection ended"} {
		r := newRig(t, longTerm)
		b := r.Client(t)
		dir := strings.ReplaceAll(how, " ", "-")
		a := r.drafter(long(), dir)
		name := dir + "/f"
		f := a.begin(name, os.O_WRONLY)
		say(t, f, "text")
		switch how {
		case "unmounted":
			done := make(chan error, 1)
			go func() { done <- a.Unmount(t.Context()) }()
			env.Eventually(t, "it is made", func() bool {
				_, err := b.Stat(t.Context(), "/"+name)
				return err == nil
			})
			must(t, f.Close())
			must(t, <-done)
		case "taken away":
			must(t, unix.Unmount(a.dir, unix.MNT_DETACH))
			say(t, f, ", more")
			must(t, f.Close())
			must(t, a.Wait())
		case "connection ended":
			must(t, unix.Unmount(a.dir, unix.MNT_DETACH|unix.MNT_FORCE))
			must(t, a.Wait())
			_ = f.Close()
		}
		want := "text"
		if how == "taken away" {
			want += ", more"
		}
		if got, err := b.ReadFile(t.Context(), "/"+name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", how, got, err)
		}
	}
}

// TestUnmountTellsOfALostDraft: a file that cannot be made any more, since another
// host has removed all above it, is named by whoever ends the mount, and logged.
func TestUnmountTellsOfALostDraft(t *testing.T) {
	for _, how := range []string{"unmounted", "connection ended"} {
		t.Run(how, func(t *testing.T) {
			r, dir := newRig(t, longTerm), t.TempDir()
			b, wire, log := r.Client(t), new(env.Wire), new(textlog.Log)
			m, err := fuse.Mount(t.Context(), client.Config{
				Namenodes: []string{r.Addr()}, User: "root", DialOptions: wire.DialOptions(), Logger: slog.New(slog.NewTextHandler(log, nil)),
			}, dir, long())
			must(t, err)
			a := &drafter{mounted: &mounted{Mounted: m, dir: dir, t: t}, wire: wire}
			must(t, os.Mkdir(a.path("p"), 0o755))
			a.ready("p/d")
			f := a.begin("p/d/f", os.O_WRONLY)
			say(t, f, "text")
			must(t, b.RemoveAll(t.Context(), "/p"))
			if how == "unmounted" {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // it is in use, and that is not waited for
				err = m.Unmount(ctx)
			} else {
				must(t, unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE))
				err = m.Wait()
			}
			if !errors.Is(err, syscall.ESTALE) || !strings.Contains(err.Error(), "unmount") {
				t.Errorf("the mount ended with %v", err)
			}
			if got := log.String(); strings.Count(got, "could not be made") != 1 || !strings.Contains(got, "path=/p/d/f") {
				t.Errorf("logged: %s", got)
			}
			_ = f.Close() // the mount is gone
		})
	}
}

// TestDraftAndRestart: drafts outlive the namenode, whether it is back before they
// are closed or after.
func TestDraftAndRestart(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(long(), "d", "e", "c"), r.Client(t)
	// Each in a directory of its own: the way to a name looks at its directory.
	f, g, h := a.begin("d/f", os.O_WRONLY), a.begin("e/g", os.O_WRONLY), a.begin("c/h", os.O_WRONLY)
	for _, w := range []*os.File{f, g, h} {
		say(t, w, "text")
	}
	r.Restart(t)
	must(t, f.Close())
	tried := map[string]chan struct{}{"g": make(chan struct{}, 1), "h": make(chan struct{}, 1)}
	a.wire.Set(func(_ string, req any, send func() error) error {
		r, ok := req.(*pb.CreateRequest)
		if !ok {
			return send()
		}
		select {
		case tried[r.GetAt().GetPath()] <- struct{}{}:
		default:
		}
		return env.ErrLost
	})
	done, stats := make(chan error, 1), make(chan error, 1)
	go func() { done <- g.Close() }()
	<-tried["g"]
	go func() {
		_, err := os.Stat(a.path("c/h"))
		stats <- err
	}()
	<-tried["h"]
	a.wire.Cut()
	select {
	case err := <-done:
		t.Fatal("closed without a namenode:", err)
	case err := <-stats:
		t.Fatal("seen without a namenode:", err)
	default:
	}
	a.wire.Set(nil)
	a.wire.Mend()
	must(t, <-done)
	must(t, <-stats)
	must(t, h.Close())
	for _, name := range []string{"d/f", "e/g", "c/h"} {
		if got, err := b.ReadFile(t.Context(), "/"+name); err != nil || string(got) != "text" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestDraftsOfTwoMounts: each name has one winner, and what that wrote.
func TestDraftsOfTwoMounts(t *testing.T) {
	r := newRig(t, longTerm)
	mounts := []*mounted{r.mount(fuse.Options{}), r.mount(fuse.Options{})}
	const dirs, names, turns = 4, 60, 3
	for d := range dirs {
		must(t, os.Mkdir(mounts[0].path(strconv.Itoa(d)), 0o755))
	}
	var winner [dirs * names]atomic.Pointer[string]
	var wg sync.WaitGroup
	for k, m := range mounts {
		for turn := range turns {
			wg.Go(func() {
				for i := range winner {
					i = (i + (k*turns+turn)*names) % len(winner)
					name := fmt.Sprintf("%d/%d", i/names, i%names)
					data := bytes.Repeat([]byte{byte('A' + k*turns + turn)}, 10+i)
					f, err := os.OpenFile(m.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
					if errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.EBUSY) {
						continue
					}
					if err == nil {
						_, err = f.Write(data)
						if cerr := f.Close(); err == nil {
							err = cerr
						}
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					s := string(data)
					if !winner[i].CompareAndSwap(nil, &s) {
						t.Errorf("%s has two makers", name)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range winner {
		name := fmt.Sprintf("%d/%d", i/names, i%names)
		if w := winner[i].Load(); w == nil {
			t.Errorf("%s has no maker", name)
		} else {
			mounts[i%2].reads(name, *w)
		}
	}
}

// TestDraftIsWaitedFor: a mount that waits gets a file that another makes.
func TestDraftIsWaitedFor(t *testing.T) {
	r := newRig(t, longTerm)
	a, wire := r.drafter(long()), new(env.Wire)
	b := r.mount(fuse.Options{Wait: true}, func(c *client.Config) { c.DialOptions = wire.DialOptions() })
	f := a.begin("d/f", os.O_WRONLY)
	say(t, f, "first ")
	got := make(chan error, 1)
	go func() {
		g, err := os.OpenFile(b.path("d/f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			_, err = io.WriteString(g, "second")
			err = errors.Join(err, g.Close())
		}
		got <- err
	}()
	env.Eventually(t, "it was tried twice", func() bool { return wire.Count("Create") > 1 })
	must(t, f.Close())
	must(t, <-got)
	a.reads("d/f", "first second")
}

// TestDraftOfAProcess: a draft outlives the process that began it, killed or not,
// and is whole when the last one that has it has ended.
func TestDraftOfAProcess(t *testing.T) {
	r := newRig(t, longTerm)
	a, b := r.drafter(long()), r.Client(t)
	for script, want := range map[string]string{
		"printf a; kill -9 $$":                              "a",
		"printf a; (printf b); printf c":                    "abc",
		"printf a; (printf b; kill -9 $BASHPID); printf c":  "abc",
		"printf a; { read -r x <&3; printf d; } & printf b": "abd",
	} {
		a.ready("d")
		before := a.wire.Count("Create")
		in, out, err := os.Pipe()
		must(t, err)
		cmd := exec.Command("bash", "-c", "exec >"+a.path("d/f")+"; "+script) //nolint:gosec // the test's own
		cmd.ExtraFiles = []*os.File{in}
		must(t, cmd.Start())
		_ = cmd.Wait() // it may have been killed
		must(t, in.Close())
		must(t, out.Close())
		env.Eventually(t, "it is closed with "+want, func() bool {
			i, err := b.Stat(t.Context(), "/d/f")
			return err == nil && i.Open == nil && i.Length == int64(len(want))
		})
		a.reads("d/f", want)
		if n := a.wire.Count("Create") - before; n != 1 {
			t.Errorf("%s: %d Create", script, n)
		}
		must(t, b.Remove(t.Context(), "/d/f"))
	}
}

// TestDraftIsInterrupted: a close that no namenode answers ends with a signal.
func TestDraftIsInterrupted(t *testing.T) {
	a := newRig(t, longTerm).drafter(long())
	cmd := exec.Command("tee", a.path("d/f")) //nolint:gosec // the test's own
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	say(t, in, "text")
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	tried := make(chan struct{}, 1)
	a.wire.Set(func(method string, _ any, send func() error) error {
		if method != "Create" {
			return send()
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return env.ErrLost
	})
	must(t, in.Close())
	<-tried
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
}

// TestDraftOfAnotherUser: who may give files away makes them for who asks.
func TestDraftOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		return // nobody else can be
	}
	r := newRig(t, longTerm)
	uid := uint32(1)
	a := r.drafter(fuse.Options{AllowOther: true}.WithDraftTime(time.Hour))
	must(t, os.Chmod(a.path("d"), 0o777))
	must(t, os.Chmod(path.Dir(a.dir), 0o755)) //nolint:gosec // another user has to get there
	in := func(cred *syscall.Credential, name string) {
		t.Helper()
		cmd := inside(t.Context(), a.path("d"), "bash", "-c", "umask 022; printf text > "+name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var st unix.Stat_t
		must(t, unix.Stat(a.path("d/"+name), &st))
		if st.Uid != cred.Uid || st.Mode&0o777 != 0o644 || st.Size != 4 {
			t.Fatalf("%+v", st)
		}
	}
	in(&syscall.Credential{Uid: uid, Gid: uid}, "theirs")
	in(&syscall.Credential{}, "mine")
}
