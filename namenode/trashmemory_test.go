package namenode

import (
	"context"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestTrashMakesMemory: while memory is used up, the oldest go of who has deleted most inodes,
// which take it, though another has deleted more bytes; no more until it is counted again, and
// whatever garbage waits. What the block store is short of is freed once the garbage is.
func TestTrashMakesMemory(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	seq := uint64(0)
	who := func(user string) (*pb.CallId, *pb.Caller) {
		session := make([]byte, 16)
		copy(session, user)
		seq++
		return &pb.CallId{Session: session, Seq: seq}, &pb.Caller{User: user, Client: user, Session: session, Host: "h", Pid: 1}
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := &pb.SetXattrRequest{At: pb.At("/"), Name: tables.TrashXattr, Value: []byte("1d")}
	keep.Call, keep.Caller = who("root")
	must(s.SetXattr(t.Context(), keep))
	for _, user := range []string{"ann", "bob"} {
		dir := &pb.MkdirRequest{At: pb.At("/" + user), HasMode: true, Mode: 0o777}
		dir.Call, dir.Caller = who("root")
		must(s.Mkdir(t.Context(), dir))
	}
	trash := func(user, name string, data []byte) {
		create := &pb.CreateRequest{At: pb.At("/" + user + "/" + name), Close: true, Data: data, DataCrc32C: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))}
		create.Call, create.Caller = who(user)
		must(s.Create(t.Context(), create))
		remove := &pb.DeleteRequest{At: create.At}
		remove.Call, remove.Caller = who(user)
		must(s.Delete(t.Context(), remove))
	}
	trash("ann", "large", make([]byte, 5000))
	for _, name := range []string{"a", "b", "c"} {
		trash("bob", name, nil)
	}
	must(s.Engine.Do(t.Context(), engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanTombstone(tx.Tree, []tables.StoredBlock{{Key: blockstore.Key{Term: 1, Seq: 1000}, Stored: 5}}), nil)
	}}))
	for _, c := range []struct {
		name  string
		store bool
		heap  int64
		left  []string
	}{
		{"there is room", false, 0, []string{"/ann/large", "/bob/a", "/bob/b", "/bob/c"}},
		{"memory is used up", false, 7, []string{"/ann/large"}},
		{"it is not counted again", false, 7, []string{"/ann/large"}},
		{"the store is short, and has garbage", true, 0, []string{"/ann/large"}},
		{"memory is still used up", false, 8, nil},
	} {
		s.Short = func(context.Context) (bool, int64) { return c.store, c.heap }
		if err := s.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		list := &pb.ListTrashRequest{All: true}
		_, list.Caller = who("root")
		resp, err := s.ListTrash(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, e := range resp.GetEntries() {
			left = append(left, e.GetPath())
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("%s: the trash has %q, not %q", c.name, left, c.left)
		}
	}
}
