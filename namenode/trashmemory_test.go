package namenode

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
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
	who := callers()
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
		if c.heap == 7 { // bob hides nothing by calls that are refused
			list := &pb.ListTrashRequest{}
			_, list.Caller = who("bob")
			mine, err := s.ListTrash(t.Context(), list)
			must(mine, err)
			for _, e := range mine.GetEntries() {
				back := &pb.RestoreTrashRequest{Inode: e.GetInode(), To: pb.At("/bob")}
				back.Call, back.Caller = who("bob")
				if _, err := s.RestoreTrash(t.Context(), back); !errors.Is(err, fserror.Exists) {
					t.Fatal(err)
				}
			}
		}
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

// TestTrashOfMany: 100,000 deletions, most under one name, are listed page by page, each once and
// the newest first, though more comes and goes meanwhile; those below a path, too, which are few;
// and they can be emptied.
func TestTrashOfMany(t *testing.T) {
	t.Parallel()
	const many, rare = 100_000, 20_000
	s := startAt(t, new(clock.Fake)).calls
	ctx := t.Context()
	call := &namespace.Call{User: "ann", Super: true}
	do := func(plan func(*engine.Tx) (namespace.Op, error)) {
		t.Helper()
		if _, _, err := s.Engine.Submit(ctx, engine.Request{Call: call, Plan: plan}); err != nil {
			t.Fatal(err)
		}
	}
	trash := func(path string) {
		t.Helper()
		do(func(tx *engine.Tx) (namespace.Op, error) {
			return engine.OrNil(namespace.PlanCreate(tx.Tree, call, namespace.CreateRequest{At: namespace.At(path), Mode: 0o644, Close: true, Parents: true, DirMode: 0o755}))
		})
		do(func(tx *engine.Tx) (namespace.Op, error) {
			return engine.OrNil(namespace.PlanDelete(tx.Tree, call, namespace.At(path), false, 0))
		})
	}
	do(func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanXattr(tx.Tree, call, namespace.At("/"), tables.TrashXattr, []byte("1d"), tables.XattrSet))
	})
	for i := range many {
		if trash("/k/f"); i%rare == 0 {
			trash("/rare/f")
		}
	}
	caller := &pb.Caller{User: "ann", Client: "ann", Session: []byte("0123456789abcdef"), Host: "h", Pid: 1}
	pages := func(below string, meanwhile func()) (ids []uint64) {
		t.Helper()
		r := &pb.ListTrashRequest{Caller: caller, Below: below}
		seen, time := map[uint64]bool{}, int64(1<<62)
		for range many {
			out, err := s.ListTrash(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range out.GetEntries() {
				if seen[e.GetInode()] || e.GetTimeUnixMs() > time {
					t.Fatalf("entry %d comes twice, or late", e.GetInode())
				}
				seen[e.GetInode()], time = true, e.GetTimeUnixMs()
				ids = append(ids, e.GetInode())
			}
			if r.Cursor = out.GetNextCursor(); r.Cursor == "" {
				return ids
			}
			meanwhile()
		}
		t.Fatal("the list does not end")
		return nil
	}
	if ids := pages("/rare", func() {}); len(ids) != many/rare {
		t.Errorf("%d below /rare", len(ids))
	}
	all := pages("", func() {})
	if len(all) != many+many/rare {
		t.Errorf("%d of all", len(all))
	}
	seq := uint64(0)
	empty := func(ids []uint64) {
		t.Helper()
		seq++
		r := &pb.EmptyTrashRequest{Call: &pb.CallId{Session: caller.Session, Seq: seq}, Caller: caller, Inodes: ids}
		if out, err := s.EmptyTrash(ctx, r); err != nil || out.GetAttr().GetLength() != int64(len(ids)) {
			t.Fatal(out, err)
		}
	}
	gone := 0 // of the oldest, and of those under the cursor
	ids := pages("", func() {
		trash("/k/later")
		if gone < 10_000 {
			empty(all[len(all)-gone-1000 : len(all)-gone])
			gone += 1000
		}
	})
	if len(ids) != len(all)-gone {
		t.Errorf("%d are listed while some go, of %d", len(ids), len(all)-gone)
	}
	for left := pages("", func() {}); len(left) > 0; left = left[min(1000, len(left)):] {
		empty(left[:min(1000, len(left))])
	}
	if ids := pages("", func() {}); len(ids) != 0 {
		t.Errorf("%d are left", len(ids))
	}
}

// TestTrashByClocks: what is kept for 20 hours is there for 20 hours, however far ahead the time
// of day leaps meanwhile, and goes an hour later at most.
func TestTrashByClocks(t *testing.T) {
	clk := new(clock.Fake)
	s := startAt(t, clk).calls
	call := &namespace.Call{User: "root", Super: true}
	do := func(op namespace.Op, err error) {
		t.Helper()
		if err == nil {
			_, err = s.Engine.Do(t.Context(), engine.Request{Call: call, Plan: func(*engine.Tx) (namespace.Op, error) { return op, nil }})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do(&namespace.OpXattr{Inode: namespace.RootID, Name: tables.TrashXattr, Value: []byte("20h")}, nil)
	do(&namespace.OpCreate{Parent: namespace.RootID, Name: "f", Mode: 0o644, User: "root", Group: "root", Closed: true}, nil)
	var op *namespace.OpDelete
	s.Engine.Look(func(tree *namespace.Tree) { op, _ = namespace.PlanDelete(tree, call, namespace.At("/f"), false, 0) })
	do(op, nil)
	left := func() (ms []int64) {
		t.Helper()
		if err := s.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		out, err := s.ListTrash(t.Context(), &pb.ListTrashRequest{Caller: &pb.Caller{User: "root", Client: "c", Session: []byte("0123456789abcdef"), Host: "h", Pid: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range out.GetEntries() {
			ms = append(ms, e.GetLeftMs())
			if kept := time.Duration(e.GetKeptMs()) * time.Millisecond; e.KeptMs == nil || kept > 21*time.Hour { // the time of reigns may run fast by a twentieth
				t.Errorf("kept for %v", kept)
			}
		}
		return ms
	}
	if ms := left(); len(ms) != 1 || ms[0] != (20*time.Hour).Milliseconds() {
		t.Fatalf("%v ms are left at first", ms)
	}
	clk.ShiftWall(365 * 24 * time.Hour)
	clk.Advance(20*time.Hour - time.Minute)
	if ms := left(); len(ms) != 1 {
		t.Fatalf("a minute before its time: %v", ms)
	}
	clk.Advance(time.Hour + 2*time.Minute)
	if ms := left(); len(ms) != 0 {
		t.Errorf("%v ms are left an hour later", ms)
	}
}
