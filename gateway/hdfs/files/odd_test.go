package files

import (
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// odd makes a file of which 1,000 bytes are one block, and begins a block behind them that has room for more.
func (r *rig) odd(path string) (inode uint64, b Block, p *Pipe) {
	r.t.Helper()
	inode, b, p = r.create(path, 1024)
	r.write(p, 0, make([]byte, 1000))
	b.Length = 1000
	if ok, err := r.Complete(r.t.Context(), r.u, name, path, inode, &b); !ok || err != nil {
		r.t.Fatal(ok, err)
	}
	if _, err := r.Append(r.t.Context(), r.u, name, path, true, false); err != nil {
		r.t.Fatal(err)
	}
	b, err := r.AddBlock(r.t.Context(), r.u, name, path, inode, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return inode, b, r.pipe(b)
}

// write brings bytes of a block, and makes them durable.
func (r *rig) write(p *Pipe, offset int64, b []byte) {
	r.t.Helper()
	if _, err := p.Write(offset, b); err != nil {
		r.t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// TestOddBlockAtAnotherGateway: where a block began, another gateway tells by its number. It refuses to
// continue one that began elsewhere, and those behind it: it would take bytes for missing that are there.
func TestOddBlockAtAnotherGateway(t *testing.T) {
	first := start(t)
	second := gateway(t, first.nn)
	ctx := t.Context()
	inode, b, p := first.odd("/f")
	first.write(p, 0, make([]byte, 50)) // is acknowledged
	first.write(p, 50, make([]byte, 50))
	full, fb, fp := first.odd("/full")
	first.write(fp, 0, make([]byte, 1024))
	fb.Length = 1024
	next, err := first.AddBlock(ctx, first.u, name, "/full", full, &fb)
	if err != nil {
		t.Fatal(err)
	}
	first.end()

	b.Length = 50
	_, err = second.UpdateBlockForPipeline(ctx, second.u, name, b)
	second.kind("update of the block", err, fserror.InvalidArgument)
	_, err = second.AddBlock(ctx, second.u, name, "/f", inode, &b)
	second.kind("a block behind it", err, fserror.InvalidArgument)
	_, err = second.Complete(ctx, second.u, name, "/f", inode, &b)
	second.kind("complete", err, fserror.InvalidArgument)
	_, err = second.UpdateBlockForPipeline(ctx, second.u, name, next)
	second.kind("update of the block behind it", err, fserror.InvalidArgument)
	if i, err := second.u.FS.Stat(ctx, "/f"); err != nil || i.Length != 1100 {
		t.Errorf("it has %d bytes, want 1100: %v", i.Length, err)
	}
}

// TestOddBlockWasCompleted: a gateway that has not closed a file does not tell by the number of an odd
// block whether it has all bytes.
func TestOddBlockWasCompleted(t *testing.T) {
	first := start(t)
	second := gateway(t, first.nn)
	ctx := t.Context()
	inode, b, p := first.odd("/f")
	first.write(p, 0, make([]byte, 74))
	b.Length = 74
	if ok, err := first.Complete(ctx, first.u, name, "/f", inode, &b); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b.Length = 50 // and 1,024 bytes before it, as if it were not odd
	if ok, err := second.Complete(ctx, second.u, name, "/f", inode, &b); ok || fserror.KindOf(err) != fserror.LeaseLost {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestAbandonAtAnotherGateway: a block that has bytes is given up by no gateway, and an empty one by each.
func TestAbandonAtAnotherGateway(t *testing.T) {
	first := start(t)
	second := gateway(t, first.nn)
	ctx := t.Context()
	begun, b, p := first.create("/begun", 1024)
	first.write(p, 0, make([]byte, 10))
	empty, eb, _ := first.create("/empty", 1024)
	first.end()
	second.kind("one that has bytes", second.AbandonBlock(ctx, second.u, name, "/begun", begun, b), fserror.InvalidArgument)
	for range 2 { // the first answer was lost
		if err := second.AbandonBlock(ctx, second.u, name, "/empty", empty, eb); err != nil {
			t.Error(err)
		}
	}
}

// TestPipelinesOfAnOpening: the number of pipelines does not run into what else a stamp says.
func TestPipelinesOfAnOpening(t *testing.T) {
	r := start(t)
	_, b, _ := r.odd("/f")
	for range maxPipelines {
		next, err := r.UpdateBlockForPipeline(t.Context(), r.u, name, b)
		if err != nil || next.Stamp != b.Stamp+1 || next.epoch() != b.epoch() || !next.isOdd() {
			t.Fatalf("%+v after %+v: %v", next, b, err)
		}
		b = next
	}
	_, err := r.UpdateBlockForPipeline(t.Context(), r.u, name, b)
	r.kind("one more", err, fserror.TooLarge)
}
