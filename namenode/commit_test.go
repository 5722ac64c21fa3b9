package namenode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A client that allocates and never commits is told to wait, and continues when
// its oldest keys are old.
func TestAllocationsAreBounded(t *testing.T) {
	clk, fake := env.FakeClock()
	n := env.Start(t, fake)
	r := n.Raw(t, "a")
	w := r.Create("/f")
	req := &pb.AllocateBlockRequest{Writer: w}
	for range 16 {
		req.Blocks = append(req.Blocks, &pb.BlockIntent{StoredLength: blockstore.StoredLength(10)})
	}
	for range 16 {
		if _, err := r.NN.AllocateBlock(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.NN.AllocateBlock(t.Context(), req); !errors.Is(err, fserror.Retry) {
		t.Fatalf("%v, want RETRY", err)
	}
	if _, err := n.Raw(t, "b").PutBlock(w, []byte("x")); !errors.Is(err, fserror.Retry) {
		t.Fatalf("the same writer by another connection: %v, want RETRY", err)
	}
	other := n.Raw(t, "c")
	if _, err := other.PutBlock(other.Create("/g"), []byte("x")); err != nil {
		t.Fatalf("another client: %v", err)
	}
	clk.Advance(2 * time.Minute)
	if _, err := r.NN.AllocateBlock(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// A block put before a restart is committed after it only with the checksum of
// the bytes that are there.
func TestCommitAfterARestartIsVerified(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	w := r.Create("/f")
	b, err := r.PutBlock(w, []byte("the very bytes"))
	if err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	wrong := &pb.Block{Term: b.GetTerm(), Seq: b.GetSeq(), StoredLength: b.GetStoredLength(), UsedLength: b.GetUsedLength(), Crc32C: b.GetCrc32C() ^ 1}
	if err := r.Commit(w, 0, wrong, ""); !errors.Is(err, fserror.InvalidArgument) {
		t.Fatalf("with another checksum: %v, want INVALID_ARGUMENT", err)
	}
	if f := r.File("/f"); f.GetAttr().GetLength() != 0 {
		t.Fatalf("%d bytes were committed", f.GetAttr().GetLength())
	}
	for range 2 { // and again, as after a lost reply
		if err := r.Commit(w, 0, b, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(w, 14); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Client(t).ReadFile(t.Context(), "/f"); err != nil || string(got) != "the very bytes" {
		t.Fatalf("%q, %v", got, err)
	}
}
