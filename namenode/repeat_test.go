package namenode_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A call whose reply was lost gets its answer when it is sent again, though
// nothing new is taken on by then.
func TestRepetitionsPassWhereNothingNewDoes(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "a")
	req := &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/f")}
	create := func() *pb.WriterId {
		t.Helper()
		out, err := r.NN.Create(t.Context(), proto.Clone(req).(*pb.CreateRequest))
		if err != nil {
			t.Fatal(err)
		}
		return out.GetWriter()
	}
	w := create()
	if err := r.Flush(w, 0, "abc"); err != nil {
		t.Fatal(err)
	}
	b, err := r.PutBlock(w, []byte("abcde"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(w, 0, b, "abc"); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(w, 5, "fg"); err != nil {
		t.Fatal(err)
	}
	again := func(refused fserror.Kind) {
		t.Helper()
		if got := create(); got.GetEpoch() != w.GetEpoch() {
			t.Errorf("a repeated create: epoch %d, not %d", got.GetEpoch(), w.GetEpoch())
		}
		if err := r.Flush(w, 5, "fg"); err != nil {
			t.Errorf("a repeated flush: %v", err)
		}
		if err := r.Commit(w, 0, b, "abc"); err != nil {
			t.Errorf("a repeated commit: %v", err)
		}
		if err := r.Flush(w, 7, "h"); !errors.Is(err, refused) {
			t.Errorf("a new flush: %v, want %v", err, refused)
		}
	}
	n.Restart(t, func(c *namenode.Config) { c.FS = fullDisk{vfs.OS()} })
	again(fserror.NoSpace)
	n.Restart(t, func(c *namenode.Config) { c.FS = vfs.OS() })
	if _, err := r.Admin.SafeMode(t.Context(), &pb.SafeModeRequest{Caller: r.Who, Action: pb.SafeModeRequest_ACTION_ENTER}); err != nil {
		t.Fatal(err)
	}
	again(fserror.Retry)
}

// A writer gets the tail of its file to make a block of it, whether or not it
// may read; nobody else does, and nothing but the tail.
func TestAWriterGetsItsTail(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann := n.Raw(t, "root"), as(n.Raw(t, "ann"), "ann")
	w := root.Create("/f")
	b, err := root.PutBlock(w, []byte("block"))
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Commit(w, 0, b, ""); err != nil {
		t.Fatal(err)
	}
	if err := root.Flush(w, 5, "tail"); err != nil {
		t.Fatal(err)
	}
	if err := root.Close(w, 9); err != nil {
		t.Fatal(err)
	}
	if err := setAttr(t, root, &pb.SetAttrRequest{At: pb.At("/f"), SetMode: true, Mode: 0o622}); err != nil {
		t.Fatal(err)
	}
	out, err := ann.Append("/f")
	if err != nil {
		t.Fatal(err)
	}
	get := func(w *pb.WriterId) (*pb.GetFileResponse, error) {
		return ann.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: ann.Who, At: pb.Inode(out.GetWriter().GetInode()), Writer: w})
	}
	if _, err := get(nil); !errors.Is(err, fserror.Permission) {
		t.Errorf("a reader: %v", err)
	}
	got, err := get(out.GetWriter())
	if err != nil || string(got.GetTail()) != "tail" || got.GetTailOffset() != 5 || len(got.GetBlocks()) != 0 {
		t.Errorf("the writer: %v, %v", got, err)
	}
	forged := proto.Clone(out.GetWriter()).(*pb.WriterId)
	forged.Token[0]++
	if _, err := get(forged); !errors.Is(err, fserror.LeaseLost) {
		t.Errorf("a writer with another token: %v", err)
	}
	if _, err := get(w); !errors.Is(err, fserror.LeaseLost) {
		t.Errorf("a writer of before: %v", err)
	}
}

// A follower that has seen more than there is does not wait for the rest.
func TestWaitOrBelow(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "a")
	w := r.Create("/f")
	if err := r.Flush(w, 0, "abc"); err != nil {
		t.Fatal(err)
	}
	out, err := r.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Follow("/f"), WaitBeyond: 5, WaitMs: 60_000, OrBelow: true})
	if err != nil || out.GetAttr().GetLength() != 3 {
		t.Fatalf("%v, %v", out, err)
	}
}
