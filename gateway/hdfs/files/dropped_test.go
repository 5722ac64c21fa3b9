package files

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/test/env"
)

// TestCompleteOfAnothersBytes: a writer whose last bytes were dropped is not told that its file is
// complete, though another has made it as long. One of whose bytes none is missing is, and so is the same
// client when it has written the file again.
func TestCompleteOfAnothersBytes(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	other := r.nn.Client(t)
	const mine, others = "from a    \n", "from b    \n"
	for path, c := range map[string]struct{ flushed, knows bool }{
		"/at once":  {},
		"/later":    {knows: true},
		"/flushed":  {flushed: true},
		"/flushed2": {flushed: true, knows: true},
	} {
		inode, b, p := r.create(path, 1<<20)
		r.write(p, 0, []byte("first line\n"))
		if _, err := p.Write(11, []byte(mine)); err != nil { // acknowledged with the end of the block
			t.Fatal(err)
		}
		if c.flushed {
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.Recover(ctx, path, true); err != nil {
			t.Fatal(err)
		}
		if !c.flushed {
			w, err := other.Append(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(others)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if c.knows {
			env.Eventually(t, "the gateway knows", func() bool { return r.open(inode) == nil })
		}
		b.Length = 22
		for range 2 {
			ok, err := r.Complete(ctx, r.u, name, path, inode, &b)
			if ok != c.flushed || !ok && fserror.KindOf(err) != fserror.LeaseLost {
				t.Errorf("%s: %v, %v", path, ok, err)
			}
		}
		if c.flushed {
			continue
		}
		o, err := r.Append(ctx, r.u, name, path, false, false)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if ok, err := r.Complete(ctx, r.u, name, path, inode, o.Last); !ok || err != nil {
				t.Errorf("%s, opened again: %v, %v", path, ok, err)
			}
		}
	}
}

// closeUnanswered has a file's close be carried out, or not, without an answer.
func (r *rig) closeUnanswered(wire *env.Wire, path string, happens bool) (inode uint64, b Block) {
	r.t.Helper()
	inode, b, p := r.create(path, 1<<20)
	r.write(p, 0, []byte("first line\n"))
	if _, err := p.Write(11, []byte("from a    \n")); err != nil {
		r.t.Fatal(err)
	}
	b.Length = 22
	var sent atomic.Bool
	wire.Set(func(method string, _ any, send func() error) error {
		if method != "Close" {
			return send()
		}
		if happens {
			switch status.Code(send()) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
				return env.ErrLost // it was perhaps not carried out
			}
		}
		sent.Store(true)
		return env.ErrLost
	})
	defer wire.Set(nil)
	r.closeTime = 300 * time.Millisecond
	defer func() { r.closeTime = closeTime }()
	env.Eventually(r.t, path+": a close was sent", func() bool {
		ok, err := r.Complete(r.t.Context(), r.u, name, path, inode, &b)
		if ok && !happens || err != nil {
			r.t.Fatalf("%s: nobody answers: %v, %v", path, ok, err)
		}
		return sent.Load()
	})
	return inode, b
}

// wired is a gateway with a line to its namenode.
func wired(t *testing.T, mods ...func(*namenode.Config)) (*rig, *env.Wire) {
	t.Helper()
	wire := new(env.Wire)
	r := gateway(t, env.Start(t, mods...), func(c *client.Config) { c.DialOptions = wire.DialOptions() })
	t.Cleanup(func() { wire.Set(nil) })
	return r, wire
}

// replace has another write bytes in the place of those of a file that are not durable.
func (r *rig) replace(path string) {
	r.t.Helper()
	ctx, other := r.t.Context(), r.nn.Client(r.t)
	if _, err := other.Recover(ctx, path, true); err != nil {
		r.t.Fatal(err)
	}
	w, err := other.Append(ctx, path)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := w.Write([]byte("from b    \n")); err != nil {
		r.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// TestCompleteAfterAFailedClose: a close that nobody answers may have been carried out. If it was, the
// client who asks again is told that his file is complete; if another has written bytes in its place, he
// is not, though the file is as long. While nobody says which, he is to ask again.
func TestCompleteAfterAFailedClose(t *testing.T) {
	r, wire := wired(t)
	ctx := t.Context()
	for path, c := range map[string]struct{ happens, knows, silent bool }{
		"/lost":     {},
		"/lost2":    {knows: true},
		"/lost3":    {silent: true},
		"/happens":  {happens: true},
		"/happens2": {happens: true, knows: true},
		"/happens3": {happens: true, silent: true},
		"/happens4": {happens: true, knows: true, silent: true},
	} {
		inode, b := r.closeUnanswered(wire, path, c.happens)
		if !c.happens {
			r.replace(path)
		}
		if f := r.open(inode); c.knows && f != nil {
			r.dropLost(f) // as when it renews, in some seconds
		}
		if c.silent {
			wire.Lose("LeaseHistory")
			r.askTime = 300 * time.Millisecond
			if ok, err := r.Complete(ctx, r.u, name, path, inode, &b); ok || err != nil {
				t.Errorf("%s: nobody tells the history: %v, %v", path, ok, err)
			}
			wire.Set(nil)
			r.askTime = askTime
		}
		for range 2 {
			ok, err := r.Complete(ctx, r.u, name, path, inode, &b)
			if ok != c.happens || !ok && fserror.KindOf(err) != fserror.LeaseLost {
				t.Errorf("%s: %v, %v", path, ok, err)
			}
		}
	}
}

// TestCompleteWithoutAHistory: where the namenode keeps no history of leases, a file whose close was carried
// out, and not answered, is known by its length. One that was lost before its close was tried is not complete.
func TestCompleteWithoutAHistory(t *testing.T) {
	r, wire := wired(t, func(c *namenode.Config) { c.LeaseHistory = -1 })
	inode, b := r.closeUnanswered(wire, "/f", true)
	for range 2 {
		if ok, err := r.Complete(t.Context(), r.u, name, "/f", inode, &b); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
	b.Length--
	_, err := r.Complete(t.Context(), r.u, name, "/f", inode, &b)
	r.kind("of another length", err, fserror.LeaseLost)

	inode, b, p := r.create("/lost", 1<<20)
	r.write(p, 0, []byte("first line\n"))
	if _, err := p.Write(11, []byte("from a    \n")); err != nil {
		t.Fatal(err)
	}
	b.Length = 22
	r.replace("/lost")
	for range 2 {
		_, err = r.Complete(t.Context(), r.u, name, "/lost", inode, &b)
		r.kind("with another's bytes", err, fserror.LeaseLost)
	}
}

// TestCompleteBesideAnother: of two calls that find out together that an earlier close was carried out, both
// say that the file is complete.
func TestCompleteBesideAnother(t *testing.T) {
	r, wire := wired(t)
	for k := range 8 {
		path := fmt.Sprint("/f", k)
		inode, b := r.closeUnanswered(wire, path, true)
		arrived, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		wire.Set(func(method string, _ any, send func() error) error {
			if method == "Close" {
				once.Do(func() { close(arrived) })
				<-goOn
			}
			return send()
		})
		var both sync.WaitGroup
		complete := func() {
			if ok, err := r.Complete(t.Context(), r.u, name, path, inode, &b); !ok || err != nil {
				t.Errorf("%s: %v, %v", path, ok, err)
			}
		}
		both.Go(complete)
		<-arrived
		both.Go(complete)
		close(goOn)
		both.Wait()
		wire.Set(nil)
	}
}

// TestCompleteAfterSilence: bytes that could not be kept when the gateway let go of a silent client's file
// are missed when the client is back, though another has made the file as long.
func TestCompleteAfterSilence(t *testing.T) {
	r, wire := wired(t)
	silence := r.later()
	inode, b, p := r.create("/f", 1<<20)
	r.write(p, 0, []byte("first line\n"))
	if _, err := p.Write(11, []byte("from a    \n")); err != nil {
		t.Fatal(err)
	}
	b.Length = 22
	silence()
	wire.Lose("AppendTail", "Commit")
	r.endSilent(t.Context(), "root", share.User("root"))
	wire.Set(nil)
	if r.open(inode) != nil {
		t.Fatal("its file is open")
	}
	r.replace("/f")
	if i, err := r.u.FS.Stat(t.Context(), "/f"); err != nil || i.Length != b.Length {
		t.Fatalf("it is %+v, %v", i, err)
	}
	_, err := r.Complete(t.Context(), r.u, name, "/f", inode, &b)
	r.kind("with another's bytes", err, fserror.LeaseLost)
}

// TestCompleteOfACutFile: a file whose last bytes had no room is closed without them. Its client is not told
// that it is complete when another has made it as long.
func TestCompleteOfACutFile(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.tenBytes("/q")
	inode, b, p := r.create("/q/f", 1<<20)
	if _, err := p.Write(0, []byte("from a    \n")); err != nil {
		t.Fatal(err)
	}
	b.Length = 11
	if ok, err := r.Complete(ctx, r.u, name, "/q/f", inode, &b); ok || err == nil {
		t.Fatalf("without room: %v, %v", ok, err)
	}
	if err := quota.Set(ctx, r.u.FS.FS, "/q", quota.None, 100); err != nil {
		t.Fatal(err)
	}
	w, err := r.nn.Client(t).Append(ctx, "/q/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("from b    \n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = r.Complete(ctx, r.u, name, "/q/f", inode, &b)
	r.kind("with another's bytes", err, fserror.LeaseLost)
}
