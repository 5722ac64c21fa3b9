package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a namenode, and what a gateway has open.
type rig struct {
	*Table
	t   testing.TB
	nn  *env.Namenode
	u   *users.User
	end func() // as a gateway ends
}

const name = "client"

func start(t testing.TB, mods ...func(*namenode.Config)) *rig {
	t.Helper()
	return gateway(t, env.Start(t, mods...))
}

// gateway is another one of the namenode.
func gateway(t testing.TB, nn *env.Namenode, mods ...func(*client.Config)) *rig {
	t.Helper()
	life, kill := context.WithCancel(context.Background()) //nolint:usetesting // it ends after the test
	cfg := client.Config{Namenodes: []string{nn.Addr()}, Timeout: time.Minute}
	for _, mod := range mods {
		mod(&cfg)
	}
	all := users.New(life, cfg, 100, nil)
	r := &rig{New(Config{Users: all}), t, nn, nil, nil}
	var err error
	if r.u, err = all.Get(t.Context(), users.Key{User: "root"}); err != nil {
		t.Fatal(err)
	}
	r.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's own may be over
		defer cancel()
		r.Close(ctx)
		all.Release(r.u)
		all.Close()
		kill()
	})
	t.Cleanup(r.end)
	return r
}

// tenBytes makes a directory that has room for ten bytes.
func (r *rig) tenBytes(dir string) {
	r.t.Helper()
	if err := r.u.FS.Mkdir(r.t.Context(), dir, 0o777); err != nil {
		r.t.Fatal(err)
	}
	if err := quota.Set(r.t.Context(), r.u.FS.FS, dir, quota.None, 10); err != nil {
		r.t.Fatal(err)
	}
}

// create makes a file, and begins its first block.
func (r *rig) create(path string, blockSize int64) (inode uint64, b Block, p *Pipe) {
	r.t.Helper()
	o, err := r.Create(r.t.Context(), r.u, name, path, Create{Mode: 0o644, Create: true, Attr: hadoop.Attr{Replication: 1, BlockSize: blockSize}})
	if err != nil {
		r.t.Fatal(err)
	}
	if b, err = r.AddBlock(r.t.Context(), r.u, name, path, o.Info.Inode, nil); err != nil {
		r.t.Fatal(err)
	}
	return o.Info.Inode, b, r.pipe(b)
}

func (r *rig) pipe(b Block) *Pipe {
	r.t.Helper()
	g, err := r.granted(b)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.Pipe(r.t.Context(), g, Setup{Block: b, Empty: true})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// granted is what a client may do who was given a block to write.
func (r *rig) granted(b Block) (Grant, error) {
	id, password := r.Token(r.u, b, true)
	return r.Check(id, password, b.ID, true)
}

func (r *rig) kind(what string, err error, want fserror.Kind) {
	r.t.Helper()
	if err == nil || fserror.KindOf(err) != want {
		r.t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// TestCompleteIsAskedAgain: while no namenode answers, complete says no, and drops nothing of
// what it was given. Once one answers, all of it is in the file. Others that ask meanwhile take
// nothing away.
func TestCompleteIsAskedAgain(t *testing.T) {
	r := start(t)
	r.closeTime = 300 * time.Millisecond
	ctx := t.Context()
	for path, size := range map[string]int{"/small": 5, "/large": 3 << 20} {
		inode, b, p := r.create(path, 64<<20)
		all := bytes.Repeat([]byte("bytes"), size/5)
		if _, err := p.Write(0, all); err != nil {
			t.Fatal(err)
		}
		b.Length = int64(len(all))
		r.nn.Stop(t)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if ok, err := r.Complete(ctx, r.u, name, path, inode, &b); ok || err != nil {
					t.Errorf("%s: without a namenode: %v, %v", path, ok, err)
				}
			})
		}
		both.Wait()
		if n := r.InUse(); n != 1 {
			t.Errorf("%s: %d files are open, want the one", path, n)
		}
		r.nn.Start(t)
		env.Eventually(t, "it is completed", func() bool {
			ok, err := r.Complete(ctx, r.u, name, path, inode, &b)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return ok
		})
		if got, err := r.u.FS.ReadFile(ctx, path); err != nil || !bytes.Equal(got, all) {
			t.Errorf("%s: it has %d bytes, or others, want %d: %v", path, len(got), len(all), err)
		}
	}
}

// TestCompleteRepeated: asked again after it succeeded, complete succeeds, also of a file without
// bytes, and of one whose last block began at an odd place. Another end is not taken for it.
func TestCompleteRepeated(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	twice := func(what string, inode uint64, last *Block) {
		t.Helper()
		for n := range 2 {
			if ok, err := r.Complete(ctx, r.u, name, "/"+what, inode, last); !ok || err != nil {
				t.Errorf("%s, call %d: %v, %v", what, n+1, ok, err)
			}
		}
	}
	o, err := r.Create(ctx, r.u, name, "/empty", Create{Mode: 0o644, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	twice("empty", o.Info.Inode, nil)
	remembers := func(what string, want int) {
		t.Helper()
		if n := len(r.endings.order); n != want {
			t.Errorf("%s: %d ends are remembered, want %d", what, n, want)
		}
	}

	inode, b, p := r.create("/odd", 1024)
	if _, err := p.Write(0, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	b.Length = 100
	twice("odd", inode, &b)
	remembers("the last block tells where the file ends", 0)
	o, err = r.Append(ctx, r.u, name, "/odd", true, false)
	if err != nil {
		t.Fatal(err)
	}
	next, err := r.AddBlock(ctx, r.u, name, "/odd", inode, &b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.pipe(next).Write(0, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	next.Length = 50
	twice("odd", inode, &next)
	remembers("it does not", 1)
	next.Length = 49
	_, err = r.Complete(ctx, r.u, name, "/odd", inode, &next)
	r.kind("another end", err, fserror.LeaseLost)
	_, err = r.Complete(ctx, r.u, name, "/odd", inode, nil)
	r.kind("no end", err, fserror.LeaseLost)
}

// TestRenewAtAnotherGateway: a client that renews, and does nothing else, keeps its files by
// a gateway that has not opened them, once the one that had is gone. While that lives, the
// client is told to ask again, not that another writes.
func TestRenewAtAnotherGateway(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	second := gateway(t, r.nn)
	inode, b, p := r.create("/f", 1<<20)
	if _, err := p.Write(0, []byte("durable")); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := second.AddBlock(ctx, second.u, name, "/f", inode, &b)
	r.kind("while the other gateway lives", err, fserror.Retry)
	if e := new(fserror.Error); !errors.As(err, &e) || e.RetryAfter <= 0 {
		t.Errorf("%v does not say when", err)
	}
	r.end()
	other := *second.u
	other.User = "ann"
	second.Renew(ctx, &other, name)
	second.Renew(ctx, second.u, "another")
	if n := second.InUse(); n != 0 {
		t.Errorf("%d files were opened for others", n)
	}
	second.Renew(ctx, second.u, name)
	if n := second.InUse(); n != 1 {
		t.Fatalf("%d files are open by the second gateway, want the one", n)
	}
	b.Length = 7
	if ok, err := second.Complete(ctx, second.u, name, "/f", inode, &b); !ok || err != nil {
		t.Errorf("complete: %v, %v", ok, err)
	}
	second.Renew(ctx, second.u, name) // and nothing is there
}

// TestPipeIsTakenAway: a pipe takes nothing from the moment on when its file has none, and says so:
// what it takes is acknowledged.
func TestPipeIsTakenAway(t *testing.T) {
	r := start(t)
	inode, _, p := r.create("/f", 1<<20)
	r.open(inode).pipe.Store(nil) // its context ends a moment later
	end, err := p.Write(0, []byte("bytes"))
	r.kind(fmt.Sprintf("a write, which ends at %d", end), err, fserror.LeaseLost)
}

// TestTroubleIsTold: what has no room fails on the connection for bytes, which cannot say why. The
// client's next call does, once.
func TestTroubleIsTold(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.tenBytes("/q")
	inode, b, p := r.create("/q/f", 1<<20)
	fails := func() {
		t.Helper()
		if _, err := p.Write(0, make([]byte, 11)); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(); err == nil {
			t.Fatal("more was made durable than the quota has room for")
		}
	}
	over := func(what string, err error) {
		t.Helper()
		if class := hadoop.ClassOf(err); class != hadoop.BytesOverQuota {
			t.Errorf("%s: %v (%s)", what, err, class)
		}
	}
	fails()
	_, err := r.UpdateBlockForPipeline(ctx, r.u, name, b)
	over("update of the block", err)
	next, err := r.UpdateBlockForPipeline(ctx, r.u, name, b)
	if err != nil {
		t.Errorf("the second update: %v", err)
	}
	g, err := r.granted(next)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = r.Pipe(ctx, g, Setup{Block: b, Stamp: next.Stamp, Max: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	fails()
	b.Length = 11
	_, err = r.AddBlock(ctx, r.u, name, "/q/f", inode, &b)
	over("another block", err)
	fails()
	b.Length = 20
	_, err = r.Complete(ctx, r.u, name, "/q/f", inode, &b)
	over("complete, with bytes that did not arrive", err)
	fails()
	if err := quota.Set(ctx, r.u.FS.FS, "/q", quota.None, 100); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	b.Length = 11
	if ok, err := r.Complete(ctx, r.u, name, "/q/f", inode, &b); !ok || err != nil {
		t.Errorf("with room: %v, %v", ok, err)
	}
}

// TestSilentGiveTheirPlaces: where no place is free, the file of a client that was heard of last
// before the soft limit gives its own, and not that of one who renews. What it had is kept, and the
// client can come back.
func TestSilentGiveTheirPlaces(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	now := atomic.Int64{}
	now.Store(r.began.UnixMilli())
	r.cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	r.places = share.New(4) // three of which one user may have
	inode, b, p := r.create("/silent", 1<<20)
	if _, err := p.Write(0, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	open := func(client string) error {
		_, err := r.Create(ctx, r.u, client, "/"+client, Create{Mode: 0o644, Create: true})
		return err
	}
	for n := range 10 {
		if err := open(fmt.Sprint("lives", n)); err != nil {
			r.kind("while all were heard of", err, fserror.Retry)
			break
		}
		if n == 9 {
			t.Fatal("there is no bound")
		}
	}
	held := r.InUse()
	now.Add(r.u.FS.Info().SoftLimit.Milliseconds() + 1)
	for n := range held {
		r.Renew(ctx, r.u, fmt.Sprint("lives", n))
	}
	if err := open("next"); err != nil {
		t.Errorf("with a silent one: %v", err)
	}
	r.kind("with none", open("more"), fserror.Retry)
	if r.InUse() != held || r.open(inode) != nil {
		t.Errorf("%d files are open, want %d and not the silent one", r.InUse(), held)
	}
	if got, err := r.u.FS.ReadFile(ctx, "/silent"); err != nil || string(got) != "kept" {
		t.Errorf("it has %q, %v", got, err)
	}
	now.Add(r.u.FS.Info().SoftLimit.Milliseconds() + 1)
	b.Length = 4
	if ok, err := r.Complete(ctx, r.u, name, "/silent", inode, &b); !ok || err != nil {
		t.Errorf("its client comes back: %v, %v", ok, err)
	}
}
