package scenarios_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// A reader that opens during a write sees all that was flushed before, as tail
// or as blocks, and nothing that was not.
func TestScenario54OpenDuringAWrite(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	data := pattern(4 * smallBlock)
	w := create(t, a, "/f")
	at := 0
	for _, n := range []int{1, 10, 1000, 60_000, 70_000, smallBlock, 2*smallBlock - 5, 7} {
		flush(t, w, data[at:at+n])
		at += n
		wantContent(t, b, "/f", data[:at])
		if i := stat(t, b, "/f"); i.Length != int64(at) || i.Open == nil {
			t.Fatalf("%d bytes are flushed; the file has %d and is open: %v", at, i.Length, i.Open != nil)
		}
	}
	old, err := b.Open(t.Context(), "/f")
	must(t, err)
	defer old.Close()
	write(t, w, "unflushed")
	wantContent(t, b, "/f", data[:at])
	must(t, w.Close())
	wantContent(t, b, "/f", data[:at]+"unflushed")
	// Who opened before sees the file of then, until he asks again.
	got, err := io.ReadAll(old)
	must(t, err)
	if string(got) != data[:at] {
		t.Fatalf("a reader from before has %s", brief(string(got)))
	}
	must(t, old.Refresh(t.Context()))
	rest, err := io.ReadAll(old)
	must(t, err)
	if string(rest) != "unflushed" {
		t.Fatalf("after a refresh it continues with %s", brief(string(rest)))
	}
}

// A reader that follows gets each flushed byte, in order, through renames, and
// the end: also when another takes the file over in the middle. What the fenced
// writer had not flushed never shows, nor does his block.
func TestScenario54Follow(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t, smallBlocks)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	reader := n.Client(t, env.Named("R"))
	w := a.Create("/f")
	follow, err := reader.Open(t.Context(), "/f")
	must(t, err)
	defer follow.Close()
	got, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		defer close(got)
		var at int64
		for {
			length, open, err := follow.WaitBeyond(t.Context(), at)
			if err != nil {
				ended <- err
				return
			}
			if length > at {
				p := make([]byte, length-at)
				if _, err := follow.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
					ended <- err
					return
				}
				got <- string(p)
				at = length
			}
			if !open {
				ended <- nil
				return
			}
		}
	}()
	want := ""
	expect := func(more string) {
		t.Helper()
		want += more
		for more != "" {
			piece, ok := <-got
			if !ok || !strings.HasPrefix(more, piece) {
				t.Fatalf("the follower got %s (%v), want %s", brief(piece), ok, brief(more))
			}
			more = more[len(piece):]
		}
	}
	must(t, a.Flush(w, 0, "one "))
	expect("one ")
	must(t, b.Rename(t.Context(), "/f", "/g", false))
	must(t, a.Flush(w, 4, "two "))
	expect("two ")

	evil := "one two FENCED"
	blk, err := a.PutBlock(w, []byte(evil))
	must(t, err)
	clk.Advance(pastSoft)
	wb := appendTo(t, b, "/g")
	for what, err := range map[string]error{
		"commit": a.Commit(w, 0, blk, "one two "), "flush": a.Flush(w, 8, "FENCED"), "close": a.Close(w, 8),
	} {
		if !errors.Is(err, fserror.LeaseLost) {
			t.Errorf("%s of a fenced writer: %v", what, err)
		}
	}
	wantContent(t, reader, "/g", "one two ")
	data := pattern(2*smallBlock + 99)
	flush(t, wb, data)
	expect(data)
	wantKind(t, a.Commit(w, 0, blk, "one two "), fserror.LeaseLost)
	write(t, wb, "the end")
	must(t, wb.Close())
	expect("the end")
	must(t, <-ended)
	wantContent(t, reader, "/g", want)
	n.Restart(t)
	wantKind(t, a.Commit(w, 0, blk, "one two "), fserror.LeaseLost)
	wantContent(t, reader, "/g", want)
	wantSound(t, b)
}

// A writer that is fenced while its blocks are on their way to the store: none
// of them shows.
func TestScenario54FencedWhileBlocksAreUnderWay(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, wire := n.Wired(t, env.Named("A"))
	b := n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "flushed")
	stored, fenced := make(chan struct{}), make(chan struct{})
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Commit" { // the block is in the store
			select {
			case <-stored:
			default:
				close(stored)
			}
			<-fenced
		}
		return send()
	})
	write(t, w, pattern(2*smallBlock))
	<-stored
	wb := create(t, b, "/f", client.WithOverwrite(), client.WithSteal())
	flush(t, wb, "B's")
	close(fenced)
	wantLost(t, waitLost(t, w), "", "")
	wantKind(t, w.Close(), fserror.LeaseLost)
	wantContent(t, b, "/f", "B's")
	must(t, wb.Close())
	if i := stat(t, b, "/f"); i.Blocks != 0 || i.Length != 3 {
		t.Fatalf("the file has %d blocks and %d bytes", i.Blocks, i.Length)
	}
}

// A block with a flipped bit, a truncated block, a missing block: each read
// that meets it fails with an error that names file, block and offset; other
// places are read as before, and no wrong byte is ever given out. The check of
// an operator finds it too.
func TestScenario58DamagedBlock(t *testing.T) {
	t.Parallel()
	const chunk = blockstore.ChunkSize
	damages := map[string]struct {
		damage func(t *testing.T, path string)
		// good is a part of the block that can still be read; offset is what
		// the error names when the other part is.
		good   int
		offset int
	}{
		"a flipped bit in the second chunk": {flip(chunk + 100), chunk, smallBlock + chunk},
		"a flipped bit in the first chunk":  {flip(3), 0, smallBlock},
		"a flipped bit in the table":        {flip(smallBlock + 1), 0, 0},
		"truncated": {func(t *testing.T, path string) {
			must(t, os.Truncate(path, chunk+10))
		}, 0, 0},
		"empty": {func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, 0, 0},
		"missing": {func(t *testing.T, path string) {
			removeFile(t, path)
		}, 0, smallBlock},
	}
	for name, d := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := frozen(t, smallBlocks)
			a, raw := n.Client(t), n.Raw(t, "R")
			data := pattern(3 * smallBlock)
			w := create(t, a, "/dir/f")
			write(t, w, data)
			must(t, w.Close())
			must(t, a.WriteFile(t.Context(), "/other", []byte("other")))
			second := raw.File("/dir/f").GetBlocks()[1]
			path := n.BlockFile(t, second.GetTerm(), second.GetSeq())
			must(t, os.Chmod(path, 0o600))
			d.damage(t, path)

			fs := n.Client(t) // nothing is cached in it
			check := func(what string, got []byte, off int, err error) {
				t.Helper()
				if data[off:off+len(got)] != string(got) {
					t.Fatalf("%s: wrong bytes were given out", what)
				}
				e := asKind(t, err, fserror.Damaged)
				key := blockstore.Key{Term: second.GetTerm(), Seq: second.GetSeq()}.String()
				for _, part := range []string{"/dir/f", key, "offset"} {
					if !strings.Contains(e.Error(), part) {
						t.Errorf("%s: the error %q does not name %s", what, e, part)
					}
				}
				if d.offset != 0 && !strings.Contains(e.Error(), fmt.Sprintf("offset %d of the file", d.offset)) {
					t.Errorf("%s: the error %q does not name the offset %d", what, e, d.offset)
				}
			}
			got, err := fs.ReadFile(t.Context(), "/dir/f")
			check("the whole file", got, 0, err)

			r, err := fs.Open(t.Context(), "/dir/f")
			must(t, err)
			defer r.Close()
			got, err = io.ReadAll(r)
			check("reading along", got, 0, err)
			if len(got) != smallBlock {
				t.Errorf("reading along gave %d bytes before the error, want the %d of the first block", len(got), smallBlock)
			}
			p := make([]byte, 100)
			at := smallBlock + chunk + 50 // within the second chunk of the second block
			if d.good == 0 {
				at = smallBlock
			}
			k, err := r.ReadAt(p, int64(at))
			check("a read in the damaged place", p[:k], at, err)
			for _, at := range []int{0, smallBlock - 100, 2 * smallBlock, 3*smallBlock - 100} {
				if k, err := r.ReadAt(p, int64(at)); err != nil || string(p[:k]) != data[at:at+100] {
					t.Errorf("a read of an undamaged block at %d: %d bytes, %v", at, k, err)
				}
			}
			if d.good > 0 {
				if k, err := r.ReadAt(p, smallBlock+10); err != nil || string(p[:k]) != data[smallBlock+10:smallBlock+110] {
					t.Errorf("a read of an undamaged chunk of the block: %d bytes, %v", k, err)
				}
			}
			wantContent(t, fs, "/other", "other")
			found := 0
			sum, err := fs.Admin().Fsck(t.Context(), "", true, func(p client.FsckProblem) error {
				if p.Path == "/dir/f" {
					found++
				}
				return nil
			})
			if err != nil || found != 1 || sum.Problems != 1 {
				t.Errorf("fsck found %d problems (%+v), %v; want this one", found, sum, err)
			}
		})
	}
}

func flip(at int64) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		must(t, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b, at)
		must(t, err)
	}
}

// A damaged block is not built upon: joining files that have it says so, or
// leaves it as it is; the damage stays visible.
func TestScenario58DamageIsNotHidden(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, raw := n.Client(t), n.Raw(t, "R")
	w := create(t, a, "/f")
	flush(t, w, pattern(70_000)) // over the tail's limit: a short block
	write(t, w, "a tail")
	must(t, w.Close())
	must(t, a.WriteFile(t.Context(), "/g", []byte("more")))
	blk := raw.File("/f").GetBlocks()[0]
	path := n.BlockFile(t, blk.GetTerm(), blk.GetSeq())
	must(t, os.Chmod(path, 0o600))
	flip(5)(t, path)
	_ = a.Concat(t.Context(), "/f", "/g") // seals the tail, may want to merge it with the block
	if f := raw.File("/f"); f.GetAttr().GetLength() < 70_006 {
		t.Fatalf("the file has %d bytes now", f.GetAttr().GetLength())
	}
	_, err := n.Client(t).ReadFile(t.Context(), "/f")
	wantKind(t, err, fserror.Damaged)
}
