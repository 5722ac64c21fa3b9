package namenode_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// A block that cannot be read keeps neither its own file's tail nor any other
// from being sealed.
func TestBadBlockHoldsUpNoSealing(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.SealAfter = time.Hour })
	r := n.Raw(t, "a")
	short := strings.Repeat("x", 1000)
	for _, path := range []string{"/bad", "/good"} {
		b := withBlock(t, r, path, short)
		tail := strings.Repeat("tail", 1000)
		if path == "/bad" { // the bigger tail, so the first to be sealed
			tail += tail
			file := n.BlockFile(t, b.GetTerm(), b.GetSeq())
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			raw[7] ^= 1
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := r.Append(path)
		if err == nil {
			err = r.Flush(out.GetWriter(), int64(len(short)), tail)
		}
		if err == nil {
			err = r.Close(out.GetWriter(), int64(len(short)+len(tail)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := n.SealAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, blocks := range map[string]int{"/bad": 2, "/good": 1} {
		if f := r.File(path); len(f.GetTail()) != 0 || len(f.GetBlocks()) != blocks {
			t.Errorf("%s: a tail of %d bytes and %d blocks, want 0 and %d", path, len(f.GetTail()), len(f.GetBlocks()), blocks)
		}
	}
}

// closed makes a closed file with a tail.
func closed(t *testing.T, r *env.Raw, path, tail string) {
	t.Helper()
	w := r.Create(path)
	err := r.Flush(w, 0, tail)
	if err == nil {
		err = r.Close(w, int64(len(tail)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holdPut is a disk on which a block that was put is not answered for until it
// is let.
type holdPut struct {
	vfs.FS
	reached, release chan struct{}
	armed            *atomic.Bool // for the next one
}

func (h holdPut) Remove(name string) error {
	if strings.Contains(name, "/tmp/") && h.armed.CompareAndSwap(true, false) {
		close(h.reached)
		<-h.release
	}
	return h.FS.Remove(name)
}

// A tail whose block took so long that its key was given up, and the block
// deleted as an orphan, stays a tail.
func TestSealingOutlivesItsKey(t *testing.T) {
	clk, fake := env.FakeClock()
	hold := holdPut{vfs.OS(), make(chan struct{}), make(chan struct{}), new(atomic.Bool)}
	n := env.Start(t, fake, func(c *namenode.Config) { c.FS = hold })
	r := n.Raw(t, "a")
	closed(t, r, "/f", "the only copy of these bytes")
	hold.armed.Store(true)
	sealed := make(chan error, 1)
	go func() { sealed <- n.SealAll(t.Context()) }()
	<-hold.reached
	clk.Advance(2 * namenode.DefaultURLLife)
	if err := n.SweepPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	clk.Advance(2 * namenode.DefaultURLLife)
	if _, _, err := n.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := blockFiles(t, n.Config().Data); len(left) != 0 {
		t.Fatalf("the block is not deleted: %v", left)
	}
	close(hold.release)
	if err := <-sealed; err != nil {
		t.Fatal(err)
	}
	got, err := n.Client(t).ReadFile(t.Context(), "/f")
	if err != nil || string(got) != "the only copy of these bytes" {
		t.Fatalf("the file has %q, %v", got, err)
	}
	if err := n.SealAll(t.Context()); err != nil { // under a key of its own
		t.Fatal(err)
	}
	if f := r.File("/f"); len(f.GetTail()) != 0 || len(f.GetBlocks()) != 1 {
		t.Errorf("sealed again: a tail of %d bytes and %d blocks", len(f.GetTail()), len(f.GetBlocks()))
	}
}

// looks is a context that counts how often it is asked whether it has ended: the
// walk for cold tails asks for each file that has one.
type looks struct {
	context.Context
	asked atomic.Int64
}

func (l *looks) Err() error {
	l.asked.Add(1)
	return l.Context.Err()
}

// While open files hold the tails' budget, the tree is not walked each second
// for the little that could be sealed: that is left to the walk of each minute.
// What is worth it is sealed at once.
func TestOpenTailsCauseNoWalks(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake, func(c *namenode.Config) { c.TailBudget = 40 << 10 })
	r := n.Raw(t, "a")
	const files = 30
	for i := range files {
		if err := r.Flush(r.Create(fmt.Sprint("/open", i)), 0, strings.Repeat("x", 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, r, "/little", "little")
	pass := n.SealPasses()
	second := func() int64 {
		clk.Advance(time.Second)
		l := &looks{Context: t.Context()}
		if err := pass(l); err != nil {
			t.Fatal(err)
		}
		return l.asked.Load()
	}
	for range 3 {
		if asked := second(); asked >= files {
			t.Fatalf("a pass looked at %d files", asked)
		}
	}
	clk.Advance(time.Minute)
	if asked := second(); asked < files {
		t.Fatalf("no walk after a minute: %d files were looked at", asked)
	}
	if f := r.File("/little"); len(f.GetTail()) != 0 {
		t.Error("what is left to each minute is not sealed")
	}
	closed(t, r, "/much", strings.Repeat("x", 8<<10))
	second()
	if f := r.File("/much"); len(f.GetTail()) != 0 {
		t.Error("a tail that is worth it was not sealed within a second")
	}
}
