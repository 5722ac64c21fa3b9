package namenode_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// fullDisk says that nothing is free.
type fullDisk struct{ vfs.FS }

func (fullDisk) Usage(string) (free, total int64, err error) { return 0, 1 << 40, nil }

// On a full disk nothing passes but what frees space and what ends writing, so
// that the reserve is there for it; and what happened before is answered.
func TestOnAFullDiskOnlyWhatFreesSpacePasses(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "r")
	for _, path := range []string{"/f", "/g"} {
		w := r.Create(path)
		if err := errors.Join(r.Flush(w, 0, "data"), r.Close(w, 4)); err != nil {
			t.Fatal(err)
		}
	}
	open, other, last := r.Create("/open"), r.Create("/other"), r.Create("/last")
	b, err := r.PutBlock(open, []byte("block"))
	if err != nil {
		t.Fatal(err)
	}
	mkdir := &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")}
	if _, err := r.NN.Mkdir(t.Context(), proto.Clone(mkdir).(*pb.MkdirRequest)); err != nil {
		t.Fatal(err)
	}
	n.Restart(t, func(c *namenode.Config) { c.FS = fullDisk{vfs.OS()} })

	ctx, nn, who := t.Context(), r.NN, r.Who
	for _, tc := range []struct {
		name    string
		refused bool
		call    func() error
	}{
		{"create", true, func() error {
			_, err := nn.Create(ctx, &pb.CreateRequest{Call: r.Call(), Caller: who, At: pb.At("/new")})
			return err
		}},
		{"append", true, func() error { _, err := r.Append("/f"); return err }},
		{"mkdir", true, func() error {
			_, err := nn.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: who, At: pb.At("/new")})
			return err
		}},
		{"symlink", true, func() error {
			_, err := nn.Symlink(ctx, &pb.SymlinkRequest{Call: r.Call(), Caller: who, At: pb.At("/new"), Target: "f"})
			return err
		}},
		{"rename", true, func() error {
			_, err := nn.Rename(ctx, &pb.RenameRequest{Call: r.Call(), Caller: who, From: pb.At("/f"), To: pb.At("/new")})
			return err
		}},
		{"chmod", true, func() error { return setAttr(t, r, &pb.SetAttrRequest{At: pb.At("/f"), SetMode: true, Mode: 0o600}) }},
		{"concat", true, func() error {
			_, err := nn.Concat(ctx, &pb.ConcatRequest{Call: r.Call(), Caller: who, Target: pb.Follow("/f"), Sources: []*pb.Ref{pb.At("/g")}})
			return err
		}},
		{"flush", true, func() error { return r.Flush(open, 0, "more") }},
		{"allocate", true, func() error {
			_, err := nn.AllocateBlock(ctx, &pb.AllocateBlockRequest{Writer: open, Blocks: []*pb.BlockIntent{{StoredLength: blockstore.StoredLength(1)}}})
			return err
		}},
		{"close with more bytes", true, func() error {
			_, err := nn.Close(ctx, &pb.CloseRequest{Call: r.Call(), Writer: other, Data: []byte("more"), Crc32C: blockstore.CRC([]byte("more")), Length: 4})
			return err
		}},
		{"a call that happened before", false, func() error { _, err := nn.Mkdir(ctx, mkdir); return err }},
		{"commit of what is in the store", false, func() error { return r.Commit(open, 0, b, "") }},
		{"close", false, func() error { return r.Close(open, 5) }},
		{"close of an empty file", false, func() error { return r.Close(other, 0) }},
		{"recover", false, func() error {
			_, err := nn.Recover(ctx, &pb.RecoverRequest{Call: r.Call(), Caller: who, At: pb.Follow("/last"), Force: true, Epoch: last.GetEpoch()})
			return err
		}},
		{"truncate", false, func() error {
			_, err := nn.Truncate(ctx, &pb.TruncateRequest{Call: r.Call(), Caller: who, At: pb.Follow("/f"), Length: 1})
			return err
		}},
		{"delete", false, func() error {
			_, err := nn.Delete(ctx, &pb.DeleteRequest{Call: r.Call(), Caller: who, At: pb.At("/f")})
			return err
		}},
	} {
		if err := tc.call(); tc.refused != errors.Is(err, fserror.NoSpace) || !tc.refused && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
