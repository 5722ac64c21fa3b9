package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// closing is a client that makes drafts.
type closing struct {
	lowlevel.FS
	t    *testing.T
	nn   *env.Namenode
	wire *env.Wire
}

func newClosing(t *testing.T, dirs ...string) *closing {
	t.Helper()
	nn := env.Start(t, func(c *namenode.Config) { c.CacheTerm = 2 * time.Minute }) // none ends within a test
	f, wire := nn.Wired(t, func(c *client.Config) {
		c.Cache, c.Drafts = true, true
		c.Timeout = 20 * time.Minute // no attempt ends by itself
	})
	c := &closing{FS: lowlevel.Of(f), t: t, nn: nn, wire: wire}
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(f).CacheRemaining() > 0 })
	for _, dir := range dirs {
		must(t, f.MkdirAll(t.Context(), dir, 0o755))
		c.absent(dir + "/first")
		w, err := f.Create(t.Context(), dir+"/first") // and so it is delegated to this client
		must(t, err)
		must(t, w.Close())
	}
	return c
}

// absent looks for what is not there, and for all above.
func (c *closing) absent(name string) {
	c.t.Helper()
	for p := path.Dir(name); p != "/"; p = path.Dir(p) {
		_, _, err := c.LstatKept(c.t.Context(), lowlevel.At(p))
		must(c.t, err)
	}
	if _, _, err := c.LstatKept(c.t.Context(), lowlevel.At(name)); !errors.Is(err, fserror.NotFound) {
		c.t.Fatalf("%s: %v", name, err)
	}
}

// begin begins n drafts in a directory, whose bytes are their paths.
func (c *closing) begin(dir string, n int) (list []*lowlevel.Draft) {
	c.t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s/%d", dir, i)
		c.absent(name)
		d, ok := c.Draft(c.t.Context(), lowlevel.At(name), "", client.WithMode(0o640))
		if !ok || !d.Write([][]byte{[]byte(name)}) {
			c.t.Fatalf("no draft of %s", name)
		}
		list = append(list, d)
	}
	return list
}

// end closes them all at once.
func (c *closing) end(ctx context.Context, list []*lowlevel.Draft) []chan error {
	out := make([]chan error, len(list))
	for i, d := range list {
		out[i] = make(chan error, 1)
		go func() { out[i] <- d.Close(ctx, 1234567) }()
	}
	return out
}

// made checks what another client sees of a draft that was closed.
func (c *closing) made(g *client.FS, d *lowlevel.Draft) {
	c.t.Helper()
	i, err := g.Stat(c.t.Context(), d.Path())
	must(c.t, err)
	got, err := g.ReadFile(c.t.Context(), d.Path())
	if err != nil || string(got) != d.Path() || i.Inode != d.Inode() || i.Mode() != 0o640 || i.Open != nil || i.ModTime().UnixMilli() != 1234567 {
		c.t.Fatalf("%s: %q, %v, %+v", d.Path(), got, err, i)
	}
}

// TestClosesAtOnce: a draft is made by one call; its answer brings what the cache
// keeps, and keeps as long as nobody changes it.
func TestClosesAtOnce(t *testing.T) {
	c := newClosing(t, "/d/e", "/d")
	g, ctx := c.nn.Client(t), t.Context()
	list := append(c.begin("/d", 20), c.begin("/d/e", 20)...)
	creates := c.wire.Count("Create")
	for _, err := range c.end(ctx, list) {
		must(t, <-err)
	}
	if n := c.wire.Count("Create") - creates; n != len(list) {
		t.Errorf("%d calls for %d files", n, len(list))
	}
	for _, d := range list {
		i, _, err := c.LstatKept(ctx, lowlevel.Ref{Base: d.Dir(), Path: d.Name()})
		if err != nil || i.Inode != d.Inode() || i.Length != int64(len(d.Path())) {
			t.Fatalf("%s: %+v, %v", d.Path(), i, err)
		}
		c.made(g, d)
	}
	for dir, n := range map[uint64]uint64{list[0].Dir(): 22, list[20].Dir(): 21} {
		if i, _, err := c.LstatKept(ctx, lowlevel.Inode(dir)); err != nil || i.Entries != n {
			t.Fatalf("%d: %+v, %v", dir, i, err)
		}
	}
	must(t, g.Chmod(ctx, list[3].Path(), fs.FileMode(0o600)))
	must(t, g.WriteFile(ctx, "/d/e/theirs", nil))
	if i, _, err := c.LstatKept(ctx, lowlevel.At(list[3].Path())); err != nil || i.Mode() != 0o600 {
		t.Error(i, err)
	}
	if i, _, err := c.LstatKept(ctx, lowlevel.At("/d/e")); err != nil || i.Entries != 22 {
		t.Error(i, err)
	}
	if n := c.FS.FS.Calls(); n != 0 {
		t.Errorf("%d call ids are in use", n)
	}
}

// One that cannot be made any more says so, and the others are made.
func TestClosesFailAlone(t *testing.T) {
	c := newClosing(t, "/d", "/p/d")
	g := c.nn.Client(t)
	list := append(c.begin("/d", 5), c.begin("/p/d", 1)...)
	must(t, g.RemoveAll(t.Context(), "/p"))
	for i, ended := range c.end(t.Context(), list) {
		err := <-ended
		if i == 5 {
			if !errors.Is(err, fserror.LeaseLost) {
				t.Errorf("in a directory that was removed: %v", err)
			}
			continue
		}
		must(t, err)
		c.made(g, list[i])
	}
}

// Whatever becomes of a message, each file is made once.
func TestClosesWhoseMessageFails(t *testing.T) {
	for name, fail := range map[string]func(send func() error) error{
		"the reply is lost":  func(send func() error) error { _ = send(); return env.ErrLost },
		"it does not arrive": func(func() error) error { return env.ErrLost },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClosing(t, "/d")
			g := c.nn.Client(t)
			list := c.begin("/d", 10)
			var failed atomic.Int64
			c.wire.Set(func(method string, _ any, send func() error) error {
				if method == "Create" && failed.Add(1) <= 10 {
					return fail(send)
				}
				return send()
			})
			for _, err := range c.end(t.Context(), list) {
				must(t, <-err)
			}
			if failed.Load() != 20 {
				t.Errorf("%d calls", failed.Load())
			}
			for _, d := range list {
				c.made(g, d)
			}
			if s, err := g.Summary(t.Context(), "/"); err != nil || s.Files != 11 {
				t.Errorf("%d files, %v", s.Files, err)
			}
		})
	}
}

// A file for which another session must be asked holds up no other.
func TestClosesDoNotWaitForOthers(t *testing.T) {
	c := newClosing(t, "/d", "/seen")
	g, wire := c.nn.Wired(t, func(c *client.Config) { c.Cache = true })
	list, slow := append(c.begin("/d", 5), c.begin("/seen", 4)...), 5
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(g).CacheRemaining() > 0 })
	if _, held, err := lowlevel.Of(g).LstatKept(t.Context(), lowlevel.At("/seen")); err != nil || !held {
		t.Fatal(held, err)
	}
	wire.Hold(env.ToNamenode) // it is asked, and says nothing
	ended := c.end(t.Context(), list)
	for _, err := range ended[:slow] {
		must(t, <-err)
	}
	for _, err := range ended[slow:] {
		select {
		case err := <-err:
			t.Fatalf("closed while another has the directory cached: %v", err)
		default:
		}
	}
	wire.Release()
	for _, err := range ended[slow:] {
		must(t, <-err)
	}
	for _, d := range list {
		c.made(g, d)
	}
}

// A client that is closed ends what waits.
func TestClosesOfAClosedClient(t *testing.T) {
	c := newClosing(t, "/before", "/d")
	list := append(c.begin("/before", 2), c.begin("/d", 20)...)
	c.wire.Hold(env.ToClient)
	ended := c.end(t.Context(), list)
	env.Eventually(t, "the closes are under way", func() bool { return c.FS.FS.Calls() == 22 })
	must(t, c.Close())
	for _, err := range ended {
		if err := <-err; !errors.Is(err, fserror.Closed) {
			t.Error(err)
		}
	}
	if n := c.FS.FS.Calls(); n != 0 {
		t.Errorf("%d call ids are in use", n)
	}
}
