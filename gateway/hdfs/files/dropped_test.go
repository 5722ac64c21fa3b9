package files

import (
	"testing"

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
