package files

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/internal/fserror"
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

// TestCompleteAfterAFailedClose: a close that nobody answers may have been carried out. If it was, the
// client who asks again is told that his file is complete; if another has written bytes in its place, he
// is not, though the file is as long.
func TestCompleteAfterAFailedClose(t *testing.T) {
	wire := new(env.Wire)
	r := gateway(t, env.Start(t), func(c *client.Config) { c.DialOptions = wire.DialOptions() })
	t.Cleanup(func() { wire.Set(nil) })
	r.closeTime = 300 * time.Millisecond
	ctx := t.Context()
	other := r.nn.Client(t)
	for path, c := range map[string]struct{ happens, knows bool }{
		"/lost":     {},
		"/lost2":    {knows: true},
		"/happens":  {happens: true},
		"/happens2": {happens: true, knows: true},
	} {
		inode, b, p := r.create(path, 1<<20)
		r.write(p, 0, []byte("first line\n"))
		if _, err := p.Write(11, []byte("from a    \n")); err != nil {
			t.Fatal(err)
		}
		b.Length = 22
		wire.Set(func(method string, _ any, send func() error) error {
			if method != "Close" || c.happens {
				if err := send(); method != "Close" {
					return err
				}
			}
			return env.ErrLost
		})
		if ok, err := r.Complete(ctx, r.u, name, path, inode, &b); ok || err != nil {
			t.Fatalf("%s: nobody answers: %v, %v", path, ok, err)
		}
		if !c.happens {
			if _, err := other.Recover(ctx, path, true); err != nil {
				t.Fatal(err)
			}
			w, err := other.Append(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("from b    \n")); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		wire.Set(nil)
		if f := r.open(inode); c.knows && f != nil {
			r.dropLost(f) // as when it renews, in some seconds
		}
		r.closeTime = closeTime
		for range 2 {
			ok, err := r.Complete(ctx, r.u, name, path, inode, &b)
			if ok != c.happens || !ok && fserror.KindOf(err) != fserror.LeaseLost {
				t.Errorf("%s: %v, %v", path, ok, err)
			}
		}
		r.closeTime = 300 * time.Millisecond
	}
}

// TestCompleteOfACutFile: a file whose last bytes had no room is closed without them. Its client is not told
// that it is complete when another has made it as long.
func TestCompleteOfACutFile(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	if err := r.u.FS.Mkdir(ctx, "/q", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := quota.Set(ctx, r.u.FS.FS, "/q", quota.None, 10); err != nil {
		t.Fatal(err)
	}
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
