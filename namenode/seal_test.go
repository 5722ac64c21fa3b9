package namenode_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/testenv"
)

// A block that cannot be read keeps neither its own file's tail nor any other
// from being sealed.
func TestBadBlockHoldsUpNoSealing(t *testing.T) {
	n := testenv.Start(t, func(c *namenode.Config) { c.SealAfter = time.Hour })
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
