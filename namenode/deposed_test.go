package namenode_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
	"github.com/leasefs/leasefs/test/env/textlog"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// The tests in this file hold a request of the active namenode to an S3 server
// until it was deposed and another reigns, and then let it through.

// rival is a namenode with ways of its own to ZooKeeper and to the S3 server.
type rival struct {
	*namenode.Server
	cfg   namenode.Config
	zk    *zkproxy.Proxy
	s3    *s3env.Proxy
	clock *env.LeapingClock
	raw   *env.Raw
	ended <-chan struct{} // the test is over, or has failed
}

// rivals are the namenodes of one namespace whose blocks and images are in an S3
// server.
type rivals struct {
	*pair
	server *s3env.Server
}

// onRivals runs a test against each S3 server.
func onRivals(t *testing.T, test func(*rivals)) {
	for _, name := range s3env.ServersUnder() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := s3env.Start(t, name)
			server.SetEnv(t)
			test(&rivals{newPair(t), server})
		})
	}
}

// start starts one more.
func (p *rivals) start(mods ...func(*namenode.Config)) *rival {
	p.t.Helper()
	r := &rival{s3: p.server.Proxy(p.t), clock: &env.LeapingClock{}, ended: p.t.Context().Done()}
	usual := []func(*namenode.Config){session(lossSession), func(c *namenode.Config) {
		c.Blocks, c.Clock = r.s3.URL("here"), r.clock
		c.BlockSize, c.MaxTail = 128<<10, 64<<10
		c.CollectEvery, c.SweepEvery, c.AgesEvery = time.Hour, time.Hour, time.Hour // by hand
	}}
	r.cfg, r.zk = p.config(append(usual, mods...)...)
	r.Server = p.pair.start(r.cfg)
	return r
}

// reigns waits until it does, and connects to it.
func (p *rivals) reigns(r *rival) {
	p.t.Helper()
	p.becomes(r.Server, "active")
	r.raw = env.RawAt(p.t, r.cfg.Listen, "tester")
}

// depose cuts a namenode from ZooKeeper until another reigns. What it is doing
// continues, as far as it knows.
func (p *rivals) depose(r, successor *rival) {
	p.t.Helper()
	p.lose(r.zk)
	p.reigns(successor)
}

// end ends a namenode that was deposed.
func (p *rivals) end(r *rival) {
	p.t.Helper()
	r.zk.Up()
	<-r.Done()
	if err := r.Err(); !reign.Restartable(err) {
		p.t.Errorf("it ended with %v", err)
	}
	if err := r.Close(); err != nil {
		p.t.Error(err)
	}
}

// stored are the names in the store that have that part.
func (p *rivals) stored(part string) (names []string) {
	p.t.Helper()
	for _, piece := range strings.Split(p.server.List(p.t, "here/"), "<Key>")[1:] {
		if name, _, _ := strings.Cut(piece, "<"); strings.Contains(name, part) {
			names = append(names, name)
		}
	}
	return names
}

// checkpoint publishes an image and returns its txid.
func (r *rival) checkpoint(t *testing.T) uint64 {
	t.Helper()
	out, err := r.raw.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.raw.Who})
	if err != nil {
		t.Fatal(err)
	}
	return out.GetTxid()
}

// holds are requests that wait.
type holds struct {
	reached, gate chan struct{}
	passed        sync.WaitGroup
	once          sync.Once
}

// hold makes the line hold every request that is one of those. They are
// delivered after release, also when nobody waits for the answer any more.
func (r *rival) hold(is func(*http.Request, []byte) bool) *holds {
	h := &holds{reached: make(chan struct{}), gate: make(chan struct{})}
	r.s3.Set(func(req *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if is(req, body) {
			h.passed.Add(1)
			defer h.passed.Done()
			h.once.Do(func() { close(h.reached) })
			select {
			case <-h.gate:
			case <-r.ended: // the proxy waits for this request before it closes
			}
		}
		return send(body)
	})
	return h
}

// release lets the requests through and waits until they are carried out.
func (h *holds) release() {
	close(h.gate)
	h.passed.Wait()
}

func isImagePut(r *http.Request, _ []byte) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/named/image-")
}

func isImageDelete(r *http.Request, body []byte) bool {
	return r.Method == http.MethodPost && bytes.Contains(body, []byte("/named/image-"))
}

func isImageList(r *http.Request, _ []byte) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "image-")
}

func isBlockDelete(r *http.Request, body []byte) bool {
	return r.Method == http.MethodPost && bytes.Contains(body, []byte("/blocks/"))
}

func isBlockList(r *http.Request, _ []byte) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "list-type=2") && strings.Contains(r.URL.RawQuery, "blocks")
}

// during begins a call and waits until the line holds a request of it.
func (h *holds) during(t *testing.T, call func() error) (said chan error) {
	t.Helper()
	said = make(chan error, 1)
	go func() { said <- call() }()
	select {
	case <-h.reached:
	case err := <-said:
		t.Fatalf("it ended before the request came: %v", err)
	}
	return said
}

// lines is a log that can be searched.
type lines struct{ textlog.Log }

func (l *lines) has(part string) bool { return l.Count(part) > 0 }

// TestDeposedImageArrivesLate: the image of a deposed namenode comes into the
// store when it is the newest of all there. No record names it: nobody uses it.
func TestDeposedImageArrivesLate(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		a := p.start()
		p.reigns(a)
		b := p.start()
		a.raw.Create("/first")
		first := a.checkpoint(p.t)
		a.raw.Create("/second")
		put := a.hold(isImagePut)
		said := put.during(p.t, func() error {
			_, err := a.raw.Admin.Checkpoint(p.t.Context(), &pb.CheckpointRequest{Caller: a.raw.Who})
			return err
		})
		p.depose(a, b)
		put.release()
		a.zk.Up()
		if err := <-said; err == nil {
			p.t.Error("the deposed namenode has published an image")
		}
		late := p.stored("/image-")
		if len(late) != 2 {
			p.t.Fatalf("images %v: the late one is not there", late)
		}
		p.end(a)
		b.raw.Create("/third")
		if err := b.Close(); err != nil {
			p.t.Error(err)
		}
		// The next one starts from the image before.
		var log lines
		c := p.start(func(c *namenode.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		p.reigns(c)
		for _, path := range []string{"/first", "/second", "/third"} {
			c.raw.File(path)
		}
		if !log.has("no record names an image") {
			p.t.Error("it used the image of the deposed one")
		}
		st, err := c.raw.Admin.Status(p.t.Context(), &pb.StatusRequest{Caller: c.raw.Who})
		if err != nil || st.GetImageTxid() != first {
			p.t.Errorf("the published image is %d, want %d; %v", st.GetImageTxid(), first, err)
		}
		for i := range 2 {
			c.raw.Create(fmt.Sprint("/more", i))
			c.checkpoint(p.t)
		}
		now := p.stored("/image-")
		for _, name := range late {
			if strings.Contains(strings.Join(now, " "), name) {
				p.t.Errorf("%s is still there", name)
			}
		}
		if len(now) != 2 {
			p.t.Errorf("images %v", now)
		}
		if err := c.Close(); err != nil {
			p.t.Error(err)
		}
	})
}

// TestDeposedPurgesImages: the deposed namenode had published an image and was
// about to delete older ones: the request was on its way, or it had yet to find
// out which. All that its successor published stays.
func TestDeposedPurgesImages(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]func(*http.Request, []byte) bool{"delete on its way": isImageDelete, "yet to decide": isImageList} {
		t.Run(name, func(t *testing.T) {
			onRivals(t, func(p *rivals) {
				a := p.start()
				p.reigns(a)
				b := p.start()
				for i := range 2 {
					a.raw.Create(fmt.Sprint("/a", i))
					a.checkpoint(p.t)
				}
				held := a.hold(is)
				a.raw.Create("/a2")
				said := held.during(p.t, func() error {
					_, err := a.raw.Admin.Checkpoint(p.t.Context(), &pb.CheckpointRequest{Caller: a.raw.Who})
					return err
				})
				p.depose(a, b)
				b.raw = a.raw.At(b.cfg.Listen) // of a lease that it hears of it writes no ages
				for i := range 3 {
					b.raw.Create(fmt.Sprint("/b", i))
					b.checkpoint(p.t)
				}
				want := p.stored("/image-")
				before := b.raw.TxID()
				held.release()
				a.zk.Up()
				p.t.Logf("the deposed one's checkpoint: %v", <-said) // an error or none: it was published in time
				p.end(a)
				if got := p.stored("/image-"); len(want) != 2 || strings.Join(got, " ") != strings.Join(want, " ") {
					p.t.Errorf("images %v, before %v", got, want)
				}
				if now := b.raw.TxID(); now != before {
					p.t.Errorf("record %d, before %d", now, before)
				}
				if err := b.Close(); err != nil {
					p.t.Error(err)
				}
				c := p.start()
				p.reigns(c)
				for _, path := range []string{"/a0", "/a1", "/a2", "/b0", "/b1", "/b2"} {
					c.raw.File(path)
				}
				if err := c.Close(); err != nil {
					p.t.Error(err)
				}
			})
		})
	}
}

const fileSize = 300 << 10 // bytes: two blocks and a tail

// library is a client that knows this namenode, and others.
func (r *rival) library(t *testing.T, others ...*rival) *client.FS {
	t.Helper()
	addrs := []string{r.cfg.Listen}
	for _, o := range others {
		addrs = append(addrs, o.cfg.Listen)
	}
	f, err := client.New(t.Context(), client.Config{Namenodes: addrs, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// intact wants all files' blocks to be there.
func intact(t *testing.T, f *client.FS, files int) {
	t.Helper()
	sum, err := f.Admin().Fsck(t.Context(), "", true, func(p client.FsckProblem) error {
		t.Errorf("fsck: %s: %s", p.Path, p.Problem)
		return nil
	})
	if err != nil || sum.Problems != 0 {
		t.Errorf("fsck: %+v, %v", sum, err)
	}
	for i := range files {
		if data, err := f.ReadFile(t.Context(), fmt.Sprintf("/f%d", i)); err != nil || len(data) != fileSize {
			t.Errorf("/f%d: %d bytes, %v", i, len(data), err)
		}
	}
}

// TestDeposedDeletesBlocks: the deposed namenode was about to delete blocks of
// files that were removed. No block of a file goes, whatever was written since.
func TestDeposedDeletesBlocks(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		a := p.start()
		p.reigns(a)
		b := p.start()
		f := a.library(p.t, b)
		write := func(i int) {
			if err := f.WriteFile(p.t.Context(), fmt.Sprintf("/f%d", i), make([]byte, fileSize)); err != nil {
				p.t.Fatal(err)
			}
		}
		for i := range 6 {
			write(i)
		}
		for i := range 3 {
			if err := f.Remove(p.t.Context(), fmt.Sprintf("/f%d", i)); err != nil {
				p.t.Fatal(err)
			}
		}
		a.clock.BeyondURLs()
		p.becomes(a.Server, "active") // its window opens again
		held := a.hold(isBlockDelete)
		said := held.during(p.t, func() error {
			_, err := a.raw.Admin.Collect(p.t.Context(), &pb.CollectRequest{Caller: a.raw.Who})
			return err
		})
		p.depose(a, b)
		for i := range 3 { // again, under new keys
			// When the clock was set, the lease of the client's temporary files ended,
			// of which it hears.
			env.Eventually(p.t, "it is written again", func() bool {
				return f.WriteFile(p.t.Context(), fmt.Sprintf("/f%d", i), make([]byte, fileSize)) == nil
			})
		}
		had := len(p.stored("/blocks/"))
		garbage := func() uint64 {
			out, err := b.raw.Admin.Status(p.t.Context(), &pb.StatusRequest{Caller: b.raw.Who})
			if err != nil {
				p.t.Fatal(err)
			}
			return out.GetGarbageBlocks()
		}
		before := garbage()
		held.release()
		a.zk.Up()
		if err := <-said; err == nil {
			p.t.Error("the deposed namenode has collected")
		}
		if now := garbage(); before == 0 || now != before {
			p.t.Errorf("%d blocks to be collected by the journal, before %d", now, before)
		}
		if got := len(p.stored("/blocks/")); got >= had {
			p.t.Errorf("%d blocks, before %d: the deletion did not arrive", got, had)
		}
		intact(p.t, f, 6)
		// The successor's own collection finds them gone already.
		b.clock.BeyondURLs()
		p.becomes(b.Server, "active")
		if _, err := f.Admin().Collect(p.t.Context()); err != nil {
			p.t.Error(err)
		}
		intact(p.t, f, 6)
		p.end(a)
		if err := b.Close(); err != nil {
			p.t.Error(err)
		}
	})
}

// TestDeposedTakesBlocksForOrphans: the deposed namenode was looking for orphans
// when the writer of a block, which it knew nothing of, committed it to its
// successor.
func TestDeposedTakesBlocksForOrphans(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		a := p.start()
		p.reigns(a)
		b := p.start()
		w := a.raw.Create("/f")
		data := bytes.Repeat([]byte("block"), 20_000)
		block, err := a.raw.PutBlock(w, data)
		if err != nil {
			p.t.Fatal(err)
		}
		a.clock.BeyondURLs()
		p.becomes(a.Server, "active")
		held := a.hold(isBlockList)
		said := held.during(p.t, func() error {
			_, err := a.raw.Admin.Collect(p.t.Context(), &pb.CollectRequest{Caller: a.raw.Who})
			return err
		})
		p.depose(a, b)
		if err := a.raw.At(b.cfg.Listen).Commit(w, 0, block, ""); err != nil {
			p.t.Fatal(err)
		}
		held.release()
		if err := <-said; err == nil {
			p.t.Error("the deposed namenode has collected")
		}
		p.end(a)
		f := b.library(p.t)
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
		defer cancel()
		if got, err := f.ReadFile(ctx, "/f"); err != nil || !bytes.Equal(got, data) {
			p.t.Errorf("%d bytes, %v", len(got), err)
		}
		intact(p.t, f, 0)
		if err := b.Close(); err != nil {
			p.t.Error(err)
		}
	})
}
