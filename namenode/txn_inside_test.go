package namenode

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/engine"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// requests are transactions of all kinds of compares and operations.
func requests() []*pb.TransactRequest {
	op := func(path string, op *pb.TxOp, xattrs ...*pb.TxXattr) *pb.TxOp {
		op.Path, op.Xattrs = path, xattrs
		return op
	}
	x := &pb.TxXattr{Name: "user.a", Value: []byte("v")}
	return []*pb.TransactRequest{
		{},
		{Ops: []*pb.TxOp{{}}},
		{Compares: []*pb.TxCompare{{}}, Ops: []*pb.TxOp{op("/a", &pb.TxOp{Op: &pb.TxOp_Delete{Delete: &pb.TxDelete{}}})}},
		{Ops: []*pb.TxOp{op("/a", &pb.TxOp{Op: &pb.TxOp_Delete{Delete: &pb.TxDelete{}}}, x)}},
		{Ops: []*pb.TxOp{
			op("/a", &pb.TxOp{Op: &pb.TxOp_Create{Create: &pb.TxFile{Lease: 0, HasMode: true, Mode: 0o640}}}, x),
			op("/d/e", &pb.TxOp{Op: &pb.TxOp_Write{Write: &pb.TxFile{Parents: true}}}),
			op("/m", &pb.TxOp{Op: &pb.TxOp_Mkdir{Mkdir: &pb.TxDir{Parents: true}}}, x),
		}},
		{
			Compares: []*pb.TxCompare{
				{Path: "/a", What: &pb.TxCompare_Exists{Exists: true}},
				{Path: "/a", What: &pb.TxCompare_Length{}},
				{Path: "/a", What: &pb.TxCompare_Xattr{Xattr: x}},
				{Path: "/none", What: &pb.TxCompare_Exists{}},
			},
			Ops: []*pb.TxOp{
				op("/a", &pb.TxOp{Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: "/b", Overwrite: true}}}),
				op("/d/e", &pb.TxOp{Op: &pb.TxOp_SetXattr{SetXattr: x}}),
				op("/m", &pb.TxOp{Op: &pb.TxOp_RemoveXattr{RemoveXattr: "user.a"}}),
			},
		},
		{Compares: []*pb.TxCompare{{Path: "/b", What: &pb.TxCompare_Inode{Inode: 9}}}, Ops: []*pb.TxOp{op("/b", &pb.TxOp{Op: &pb.TxOp_Attach{Attach: 5}})}},
		{Compares: []*pb.TxCompare{{Path: "/b", What: &pb.TxCompare_Epoch{Epoch: 9}}, {What: &pb.TxCompare_Lease{Lease: 5}}}, Ops: []*pb.TxOp{op("/", &pb.TxOp{Op: &pb.TxOp_Delete{Delete: &pb.TxDelete{}}})}},
	}
}

// FuzzTransact: whatever a request contains, it is carried out or refused, and the tree
// stays sound.
func FuzzTransact(f *testing.F) {
	for _, r := range requests() {
		raw, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r pb.TransactRequest
		if proto.Unmarshal(raw, &r) != nil {
			return
		}
		s := startAt(t, new(clock.Fake))
		session := slices.Repeat([]byte{1}, 16)
		r.Caller = &pb.Caller{User: "root", Client: "c", Session: session, Host: "h", Pid: 1}
		for i := range uint64(2) { // the second finds what the first has made
			r.Call = &pb.CallId{Session: session, Seq: i + 1}
			first, err := s.calls.Transact(t.Context(), &r)
			again, err2 := s.calls.Transact(t.Context(), &r)
			if (err == nil) != (err2 == nil) || !proto.Equal(first, again) && first.GetTxid() != 0 {
				t.Fatalf("%v, %v; again: %v, %v", first, err, again, err2)
			}
		}
		if err := s.engine.Update(func(tx *engine.Tx) error {
			if p := tx.Tree.Clone().Check(); len(p) > 0 {
				t.Error(p)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTransactInTurn carries the requests out one after the other on one namenode, as
// often as it can be.
func TestTransactInTurn(t *testing.T) {
	s := startAt(t, new(clock.Fake))
	session := slices.Repeat([]byte{1}, 16)
	done := 0
	for i, r := range requests() {
		r.Caller = &pb.Caller{User: "root", Client: "c", Session: session, Host: "h", Pid: 1}
		r.Call = &pb.CallId{Session: session, Seq: uint64(i + 1)} //nolint:gosec // a few
		if _, err := s.calls.Transact(t.Context(), r); err == nil {
			done++
		} else {
			t.Log(err)
		}
	}
	if done != 2 {
		t.Fatalf("%d were carried out, should be the two that can be", done)
	}
}
