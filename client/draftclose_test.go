package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// closing is a client that makes drafts, whose closes the test can hold up.
type closing struct {
	lowlevel.FS
	t    *testing.T
	nn   *env.Namenode
	wire *env.Wire

	own     map[*client.Draft]context.Context // of the closes of some
	waiting func([]chan error)                // called by gather while all wait
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
		w, err := f.Create(t.Context(), dir+"/first") // and so the right is this client's
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
func (c *closing) begin(dir string, n int) (list []*client.Draft) {
	c.t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s/%d", dir, i)
		c.absent(name)
		d, ok := c.Draft(lowlevel.At(name), "", client.WithMode(0o640))
		if !ok || !d.Write([][]byte{[]byte(name)}) {
			c.t.Fatalf("no draft of %s", name)
		}
		list = append(list, d)
	}
	return list
}

// mayLeave has the close of a draft wait until leave is called, at most.
func (c *closing) mayLeave(d *client.Draft) (leave context.CancelFunc) {
	ctx, leave := context.WithCancel(c.t.Context())
	c.t.Cleanup(leave)
	c.own = map[*client.Draft]context.Context{d: ctx}
	return leave
}

// end closes them all at once.
func (c *closing) end(ctx context.Context, list []*client.Draft) []chan error {
	out := make([]chan error, len(list))
	for i, d := range list {
		out[i] = make(chan error, 1)
		ctx := ctx
		if own := c.own[d]; own != nil {
			ctx = own
		}
		go func() { out[i] <- d.Close(ctx, 1234567) }()
	}
	return out
}

// gather has the drafts closed in one message: two calls, which take as long as
// the test wants, are under way before. The next message has around it.
func (c *closing) gather(ctx context.Context, list []*client.Draft, around env.Around) []chan error {
	c.t.Helper()
	c.WithSlowCloses(time.Hour)
	at, goOn := make(chan struct{}, 2), make(chan struct{})
	first := c.begin("/before", 2)
	c.wire.Set(func(method string, req any, send func() error) error {
		if r, ok := req.(*pb.CreateRequest); ok && r.GetAt().GetBase() == first[0].Dir() {
			at <- struct{}{}
			<-goOn
		}
		if around != nil {
			return around(method, req, send)
		}
		return send()
	})
	before := c.end(ctx, first)
	<-at
	<-at
	out := c.end(ctx, list)
	env.Eventually(c.t, "the closes wait", func() bool { return c.ClosesWaiting() == len(list) })
	if c.waiting != nil {
		c.waiting(out)
	}
	close(goOn)
	for _, err := range before {
		must(c.t, <-err)
	}
	return out
}

// made checks what another client sees of a draft that was closed.
func (c *closing) made(g *client.FS, d *client.Draft) {
	c.t.Helper()
	i, err := g.Stat(c.t.Context(), d.Path())
	must(c.t, err)
	got, err := g.ReadFile(c.t.Context(), d.Path())
	if err != nil || string(got) != d.Path() || i.Inode != d.Inode() || i.Mode() != 0o640 || i.Open != nil || i.ModTime().UnixMilli() != 1234567 {
		c.t.Fatalf("%s: %q, %v, %+v", d.Path(), got, err, i)
	}
}

// Closes that come while two calls are under way go in one message; its answer
// brings what the cache keeps, and keeps as long as nobody changes it.
func TestClosesTogether(t *testing.T) {
	c := newClosing(t, "/before", "/d/e", "/d")
	g, ctx := c.nn.Client(t), t.Context()
	list := append(c.begin("/d", 20), c.begin("/d/e", 20)...)
	creates, many := c.wire.Count("Create"), c.wire.Count("CreateMany")
	for _, err := range c.gather(ctx, list, nil) {
		must(t, <-err)
	}
	if a, b := c.wire.Count("Create")-creates, c.wire.Count("CreateMany")-many; a != 2 || b != 1 {
		t.Errorf("%d calls for one file, %d for many", a, b)
	}
	misses := c.Stats().Cache.Misses
	for _, d := range list {
		i, _, err := c.LstatKept(ctx, lowlevel.Ref{Base: d.Dir(), Path: d.Name()})
		if err != nil || i.Inode != d.Inode() || i.Length != int64(len(d.Path())) {
			t.Fatalf("%s: %+v, %v", d.Path(), i, err)
		}
	}
	for dir, n := range map[uint64]uint64{list[0].Dir(): 22, list[20].Dir(): 21} {
		if i, _, err := c.LstatKept(ctx, lowlevel.Inode(dir)); err != nil || i.Entries != n {
			t.Fatalf("%d: %+v, %v", dir, i, err)
		}
	}
	if n := c.Stats().Cache.Misses - misses; n != 0 {
		t.Errorf("%d reads for what the answer said", n)
	}
	for _, d := range list {
		c.made(g, d)
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

// More closes than a message takes go in several.
func TestClosesFitAMessage(t *testing.T) {
	c := newClosing(t, "/before", "/d")
	g := c.nn.Client(t)
	list := c.begin("/d", 150)
	for _, d := range list[:30] { // these alone are more bytes than it has
		if !d.Write([][]byte{make([]byte, 60<<10)}) {
			t.Fatal("not written")
		}
	}
	for _, err := range c.gather(t.Context(), list, func(_ string, req any, send func() error) error {
		if r, ok := req.(*pb.CreateManyRequest); ok && len(r.GetFiles()) > 64 {
			t.Errorf("%d in a message", len(r.GetFiles()))
		}
		return send()
	}) {
		must(t, <-err)
	}
	if many := c.wire.Count("CreateMany"); many < 3 || many > 6 {
		t.Errorf("%d messages", many)
	}
	for _, d := range list[30:] {
		c.made(g, d)
	}
}

// One that cannot be made any more says so, and the others are made.
func TestClosesFailAlone(t *testing.T) {
	c := newClosing(t, "/before", "/d", "/p/d")
	g := c.nn.Client(t)
	list := append(c.begin("/d", 5), c.begin("/p/d", 1)...)
	must(t, g.RemoveAll(t.Context(), "/p"))
	for i, ended := range c.gather(t.Context(), list, nil) {
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
	if n := c.wire.Count("CreateMany"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// Whatever becomes of the message, each file is made once.
func TestClosesWhoseMessageFails(t *testing.T) {
	for name, fail := range map[string]func(send func() error) error{
		"the reply is lost":     func(send func() error) error { _ = send(); return env.ErrLost },
		"it does not arrive":    func(func() error) error { return env.ErrLost },
		"a namenode refuses it": func(func() error) error { return fserror.New(fserror.Unsupported, "", "", "unknown") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClosing(t, "/before", "/d")
			g := c.nn.Client(t)
			list := c.begin("/d", 10)
			creates := c.wire.Count("Create")
			for _, err := range c.gather(t.Context(), list, func(method string, _ any, send func() error) error {
				if method == "CreateMany" {
					return fail(send)
				}
				return send()
			}) {
				must(t, <-err)
			}
			if n := c.wire.Count("Create") - creates; n != 12 {
				t.Errorf("%d calls for one file", n)
			}
			for _, d := range list {
				c.made(g, d)
			}
			if s, err := g.Summary(t.Context(), "/"); err != nil || s.Files != 14 {
				t.Errorf("%d files, %v", s.Files, err)
			}
		})
	}
}

// A file for which another session must be asked holds up none that went with it,
// and none that comes later.
func TestClosesDoNotWaitForOthers(t *testing.T) {
	c := newClosing(t, "/before", "/d", "/seen")
	g, wire := c.nn.Wired(t, func(c *client.Config) { c.Cache = true })
	list, slow := append(c.begin("/d", 5), c.begin("/seen", 4)...), 5
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(g).CacheRemaining() > 0 })
	if _, held, err := lowlevel.Of(g).LstatKept(t.Context(), lowlevel.At("/seen")); err != nil || !held {
		t.Fatal(held, err)
	}
	wire.Hold(env.ToNamenode) // it is asked, and says nothing
	ended := c.gather(t.Context(), list[:slow+1], nil)
	for _, err := range ended[:slow] {
		must(t, <-err)
	}
	c.WithSlowCloses(time.Millisecond)
	ended = append(ended, c.end(t.Context(), list[slow+1:])...)
	env.Eventually(t, "they are under way", func() bool { return c.ClosesWaiting() == 0 })
	for i := range 3 {
		name := fmt.Sprintf("/d/later%d", i)
		c.absent(name)
		d, ok := c.Draft(lowlevel.At(name), "")
		if !ok {
			t.Fatal("no draft")
		}
		must(t, d.Close(t.Context(), 0))
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

// Who waits no longer leaves; the message has the file nevertheless, and the call
// is over with it.
func TestCloseLeavesOthers(t *testing.T) {
	t.Parallel()
	c := newClosing(t, "/before", "/d")
	g := c.nn.Client(t)
	list := c.begin("/d", 5)
	leave := c.mayLeave(list[2])
	at, goOn := make(chan struct{}), make(chan struct{})
	ended := c.gather(t.Context(), list, func(method string, _ any, send func() error) error {
		if method == "CreateMany" {
			close(at)
			<-goOn
		}
		return send()
	})
	<-at
	leave()
	if err := <-ended[2]; !errors.Is(err, fserror.Canceled) {
		t.Error(err)
	}
	if c.FS.FS.Calls() == 0 {
		t.Error("the call id is not in use, though the call is under way")
	}
	if _, ok := c.Draft(lowlevel.At(list[2].Path()), ""); ok {
		t.Error("another draft of that name")
	}
	close(goOn)
	for i, err := range ended {
		if i != 2 {
			must(t, <-err)
		}
		c.made(g, list[i])
	}
	env.Eventually(t, "no call is under way", func() bool { return c.FS.FS.Calls() == 0 })
}

// Who leaves before anything was sent makes nothing.
func TestCloseLeavesTheQueue(t *testing.T) {
	t.Parallel()
	c := newClosing(t, "/before", "/d")
	g := c.nn.Client(t)
	list := c.begin("/d", 2)
	leave := c.mayLeave(list[0])
	c.waiting = func(ended []chan error) {
		leave()
		if err := <-ended[0]; !errors.Is(err, fserror.Canceled) {
			t.Error(err)
		}
	}
	must(t, <-c.gather(t.Context(), list, nil)[1])
	c.made(g, list[1])
	if _, err := g.Stat(t.Context(), list[0].Path()); !errors.Is(err, fserror.NotFound) {
		t.Error(err)
	}
	if n := c.FS.FS.Calls(); n != 0 {
		t.Errorf("%d call ids are in use", n)
	}
}

// A client that is closed ends what waits.
func TestClosesOfAClosedClient(t *testing.T) {
	c := newClosing(t, "/before", "/d")
	list := append(c.begin("/before", 2), c.begin("/d", 20)...)
	c.wire.Hold(env.ToClient)
	ended := c.end(t.Context(), list)
	env.Eventually(t, "the closes are under way", func() bool { return c.FS.FS.Calls() == 22 && c.ClosesWaiting() == 0 })
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
