package namenode_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
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

// Who names the block of another in a commit learns nothing about it, before and
// after a restart: not whether it is stored, how long it is, or its checksum.
func TestCommitsTellNothingOfOthersBlocks(t *testing.T) {
	n := env.Start(t)
	owner, other := n.Raw(t, "owner"), n.Raw(t, "other")
	b, err := owner.PutBlock(owner.Create("/hers"), []byte("the very bytes"))
	if err != nil {
		t.Fatal(err)
	}
	w := other.Create("/his")
	ask := func(w *pb.WriterId, seq uint64, stored int64, crc uint32) string {
		t.Helper()
		err := other.Commit(w, 0, &pb.Block{Term: b.GetTerm(), Seq: seq, StoredLength: stored, UsedLength: int64(len("the very bytes")), Crc32C: crc}, "")
		if err == nil {
			t.Fatal("the block of another was committed")
		}
		text := err.Error()
		for _, secret := range []string{fmt.Sprintf("%08x", b.GetCrc32C()), fmt.Sprintf(" %d stored", b.GetStoredLength())} {
			if strings.Contains(text, secret) {
				t.Errorf("%q tells %q", text, secret)
			}
		}
		return strings.ReplaceAll(text, fmt.Sprintf("/%d ", seq), "/N ")
	}
	missing, length, crc := b.GetSeq()+1000, b.GetStoredLength(), b.GetCrc32C()
	for _, restarted := range []bool{false, true} {
		if restarted {
			n.Restart(t)
		}
		none := ask(w, missing, length, crc^1)
		for what, got := range map[string]string{
			"another length":   ask(w, b.GetSeq(), length+blockstore.ChecksumSize, crc^1),
			"another checksum": ask(w, b.GetSeq(), length, crc^1),
		} {
			if got != none {
				t.Errorf("restarted %v, %s: %q, of a block that is not there %q", restarted, what, got, none)
			}
		}
		forged := &pb.WriterId{Inode: w.GetInode(), Epoch: w.GetEpoch(), Token: make([]byte, 16), Session: w.GetSession()}
		if a, z := ask(forged, b.GetSeq(), length+1, crc), ask(forged, missing, length, crc); a != z {
			t.Errorf("restarted %v, without a writer: %q and %q", restarted, a, z)
		}
	}
}

// heldRead is a disk on which a file of one name is read only when it is let.
type heldRead struct {
	vfs.FS
	name *atomic.Pointer[string]
	let  chan struct{}
}

func (h heldRead) Open(name string) (vfs.File, error) {
	if held := h.name.Load(); held != nil && *held == name {
		<-h.let
	}
	return h.FS.Open(name)
}

// After a restart blocks are read before they are committed, a few at a time: who has the
// namenode read one again and again, with checksums that are wrong, waits for that himself.
func TestCommitsAfterARestartTakeTurns(t *testing.T) {
	t.Parallel()
	const turns, many = 4, 8
	disk := heldRead{vfs.OS(), new(atomic.Pointer[string]), make(chan struct{})}
	n := env.Start(t, func(c *namenode.Config) { c.FS = disk })
	root, ann, bob := n.Raw(t, "root"), n.RawFrom(t, "ann", "127.0.0.2"), n.RawFrom(t, "bob", "127.0.0.3")
	if _, err := root.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/pub"), HasMode: true, Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	anns, bobs := ann.Create("/pub/a"), bob.Create("/pub/b")
	right, err := ann.PutBlock(anns, []byte("hers"))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := bob.PutBlock(bobs, []byte("his"))
	if err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	held := n.BlockFile(t, wrong.GetTerm(), wrong.GetSeq())
	disk.name.Store(&held)
	wrong.Crc32C ^= 1
	his, hers := make(chan error, many), make(chan error, 1)
	for range many {
		go func() { his <- bob.Commit(bobs, 0, wrong, "") }()
	}
	env.Eventually(t, "the others wait", func() bool { return n.Parked() == many-turns })
	go func() { hers <- ann.Commit(anns, 0, right, "") }()
	env.Eventually(t, "she waits, too", func() bool { return n.Parked() == many-turns+1 })
	disk.let <- struct{}{}
	env.Eventually(t, "the next turn is hers", func() bool { return len(hers) == 1 })
	if err := <-hers; err != nil {
		t.Error(err)
	}
	close(disk.let)
	for range many {
		if err := <-his; !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("with another checksum: %v", err)
		}
	}
}
