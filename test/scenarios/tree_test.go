package scenarios_test

import (
	"bytes"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A file being written is renamed, or a directory above it, under a new name,
// into another directory, or over what was there: the writer continues, he has
// one lease entry, close works. So too with a restart in between.
func TestScenario31RenameUnderAWriter(t *testing.T) {
	t.Parallel()
	moves := map[string]struct {
		from, to  string
		overwrite bool
		now       string
	}{
		"the file":                      {"/d/p/f", "/d/p/g", false, "/d/p/g"},
		"the file, over another":        {"/d/p/f", "/d/p/old", true, "/d/p/old"},
		"its parent":                    {"/d/p", "/d/q", false, "/d/q/f"},
		"its parent, into a directory":  {"/d/p", "/other/p", false, "/other/p/f"},
		"its parent, over an empty one": {"/d/p", "/empty", true, "/empty/f"},
		"its grandparent":               {"/d", "/e", false, "/e/p/f"},
	}
	for name, m := range moves {
		for _, restart := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", restart"}[restart], func(t *testing.T) {
				t.Parallel()
				n, _ := frozen(t)
				a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
				w := create(t, a, "/d/p/f")
				flush(t, w, "before")
				must(t, b.WriteFile(t.Context(), "/d/p/old", []byte("old")))
				must(t, b.Mkdir(t.Context(), "/other", 0o755))
				must(t, b.Mkdir(t.Context(), "/empty", 0o755))
				write(t, w, ", unflushed")
				must(t, b.Rename(t.Context(), m.from, m.to, m.overwrite))
				if restart {
					n.Restart(t)
				}
				wantLeased(t, b, "A", m.now)
				flush(t, w, ", after")
				wantContent(t, b, m.now, "before, unflushed, after")
				_, err := b.Append(t.Context(), m.now)
				wantHeld(t, err, "A")
				if restart {
					n.Restart(t)
				}
				write(t, w, ", last")
				must(t, w.Close())
				wantLeased(t, b, "A")
				wantContent(t, b, m.now, "before, unflushed, after, last")
				_, err = b.Stat(t.Context(), "/d/p/f")
				wantKind(t, err, fserror.NotFound)
				n.Restart(t)
				wantContent(t, b, m.now, "before, unflushed, after, last")
				wantSound(t, b)
			})
		}
	}
}

// A file that another's open file is renamed over is gone for its writer.
func TestScenario31RenameOverAnOpenFile(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	wa, wb := create(t, a, "/a"), create(t, b, "/b")
	flush(t, wa, "A's")
	flush(t, wb, "B's")
	must(t, b.Rename(t.Context(), "/b", "/a", true))
	wantKind(t, late(t, wa), fserror.LeaseLostGone)
	flush(t, wb, " too")
	wantLeased(t, a, "A")
	wantLeased(t, a, "B", "/a")
	must(t, wb.Close())
	wantContent(t, a, "/a", "B's too")
}

// A parent is renamed between allocation and commit of a block: the commit
// works, and so does a replay of the journal.
func TestScenario32RenameBetweenAllocationAndCommit(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	w := a.Create("/d/f")
	data := pattern(smallBlock)
	must(t, a.Flush(w, 0, data[:100]))
	blk, err := a.PutBlock(w, []byte(data))
	must(t, err)
	must(t, b.Rename(t.Context(), "/d", "/e", false))
	must(t, a.Commit(w, 0, blk, data[:100]))
	wantContent(t, b, "/e/f", data)
	n.Restart(t)
	wantContent(t, b, "/e/f", data)
	wantOpen(t, b, "/e/f", "A")
	must(t, a.Close(w, smallBlock))
	n.Restart(t)
	wantContent(t, b, "/e/f", data)
	wantSound(t, b)
}

// A file is deleted between allocation and commit: its writer is told so, his
// commit and close leave no record, and a restart works.
func TestScenario33DeleteBetweenAllocationAndCommit(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]string{"the file": "/d/f", "its directory": "/d"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := frozen(t, smallBlocks)
			a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
			w := a.Create("/d/f")
			must(t, a.Flush(w, 0, "x"))
			blk, err := a.PutBlock(w, []byte("xyz"))
			must(t, err)
			before := a.TxID()
			must(t, b.RemoveAll(t.Context(), remove))
			for what, err := range map[string]error{
				"commit": a.Commit(w, 0, blk, "x"), "flush": a.Flush(w, 1, "y"), "close": a.Close(w, 1),
			} {
				if e := asKind(t, err, fserror.LeaseLostGone); e.Reason != "deleted" {
					t.Errorf("%s: %v has reason %q, want deleted", what, err, e.Reason)
				}
			}
			// One record that deletes; one that frees what was below a directory.
			if records := a.TxID() - before; records > 2 {
				t.Errorf("%d records since before the delete", records)
			}
			wantLeased(t, b, "A")
			n.Restart(t)
			_, err = b.Stat(t.Context(), "/d/f")
			wantKind(t, err, fserror.NotFound)
			wantKind(t, a.Commit(w, 0, blk, "x"), fserror.LeaseLostGone)
			wantSound(t, b)
			must(t, b.WriteFile(t.Context(), "/d/f", []byte("new"), client.WithParents()))
			wantKind(t, a.Close(w, 1), fserror.LeaseLostGone)
			wantContent(t, b, "/d/f", "new")
		})
	}
}

// The parent of an open file is deleted: its lease is gone, another open file of
// the same holder is not touched, and two restarts change nothing.
func TestScenario34DeleteAParent(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	gone, stays := create(t, a, "/d/p/f"), create(t, a, "/other")
	flush(t, gone, "gone")
	flush(t, stays, "one")
	must(t, b.RemoveAll(t.Context(), "/d"))
	wantLeased(t, b, "A", "/other")
	wantKind(t, late(t, gone), fserror.LeaseLostGone)
	for _, s := range []string{", two", ", three"} {
		n.Restart(t)
		wantLeased(t, b, "A", "/other")
		flush(t, stays, s)
		wantKind(t, gone.Flush(t.Context()), fserror.LeaseLostGone)
		wantSound(t, b)
	}
	wantKind(t, gone.Close(), fserror.LeaseLostGone)
	must(t, stays.Close())
	wantContent(t, b, "/other", "one, two, three")
}

// Two files are open, their parent is renamed, one more block is written, the
// namenode is restarted twice: the names are right and the leases are there.
func TestScenario35RenameBlockTwoRestarts(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	data := pattern(2*smallBlock + 10)
	w1, w2 := create(t, a, "/d/1"), create(t, a, "/d/2")
	flush(t, w1, data[:smallBlock])
	flush(t, w2, "two")
	must(t, b.Rename(t.Context(), "/d", "/e", false))
	flush(t, w1, data[smallBlock:2*smallBlock])
	for range 2 {
		n.Restart(t)
		wantLeased(t, b, "A", "/e/1", "/e/2")
		wantContent(t, b, "/e/1", data[:2*smallBlock])
		wantContent(t, b, "/e/2", "two")
	}
	write(t, w1, data[2*smallBlock:])
	write(t, w2, " and more")
	must(t, w1.Close())
	must(t, w2.Close())
	wantContent(t, b, "/e/1", data)
	wantContent(t, b, "/e/2", "two and more")
	wantSound(t, b)
}

// Close, flush and commit with an inode, epoch or token that is not the
// writer's: refused, nothing changed.
func TestScenario36WrongWriter(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, c := n.Raw(t, "A"), n.Raw(t, "C")
	w, other := a.Create("/f"), c.Create("/g")
	must(t, a.Flush(w, 0, "A's"))
	must(t, c.Flush(other, 0, "C's"))
	must(t, c.Close(other, 3))
	blk, err := a.PutBlock(w, []byte("A's block"))
	must(t, err)
	forged := func(change func(*pb.WriterId)) *pb.WriterId {
		f := &pb.WriterId{Inode: w.GetInode(), Epoch: w.GetEpoch(), Token: bytes.Clone(w.GetToken()), Session: w.GetSession()}
		change(f)
		return f
	}
	cases := map[string]struct {
		w    *pb.WriterId
		kind fserror.Kind
	}{
		"one bit of the token": {forged(func(f *pb.WriterId) { f.Token[7] ^= 1 }), fserror.LeaseLost},
		"another's token":      {forged(func(f *pb.WriterId) { f.Token = other.GetToken() }), fserror.LeaseLost},
		"a short token":        {forged(func(f *pb.WriterId) { f.Token = f.Token[:8] }), fserror.InvalidArgument},
		"no token":             {forged(func(f *pb.WriterId) { f.Token = nil }), fserror.InvalidArgument},
		"an epoch too late":    {forged(func(f *pb.WriterId) { f.Epoch++ }), fserror.LeaseLost},
		"an epoch too early":   {forged(func(f *pb.WriterId) { f.Epoch-- }), fserror.LeaseLost},
		"another file":         {forged(func(f *pb.WriterId) { f.Inode = other.GetInode() }), fserror.LeaseLost},
		"a directory":          {forged(func(f *pb.WriterId) { f.Inode = 1 }), fserror.LeaseLost},
		"no file":              {forged(func(f *pb.WriterId) { f.Inode = 1 << 40 }), fserror.LeaseLost},
		"no inode":             {forged(func(f *pb.WriterId) { f.Inode = 0 }), fserror.InvalidArgument},
	}
	before := a.TxID()
	for name, k := range cases {
		errs := map[string]error{
			"close": a.Close(k.w, 3), "flush": a.Flush(k.w, 3, "x"), "commit": a.Commit(k.w, 0, blk, "A's"),
		}
		_, errs["allocate"] = a.PutBlock(k.w, []byte("x"))
		for call, err := range errs {
			if fserror.KindOf(err) != k.kind && !(k.kind == fserror.LeaseLost && fserror.KindOf(err) == fserror.LeaseLostGone) {
				t.Errorf("%s with %s: %v, want kind %v", call, name, err, k.kind)
			}
		}
	}
	if after := a.TxID(); after != before {
		t.Errorf("%d records were written", after-before)
	}
	if f := a.File("/f"); string(f.GetTail()) != "A's" || f.GetAttr().GetOpen().GetEpoch() != w.GetEpoch() {
		t.Errorf("the file is %v now", f)
	}
	must(t, a.Commit(w, 0, blk, "A's"))
	must(t, a.Close(w, 9))
}

// Concat with an open target or source: refused with the holder's name,
// nothing changed.
func TestScenario37ConcatOfOpenFiles(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b, raw := n.Client(t, env.Named("A")), n.Client(t, env.Named("B")), n.Raw(t, "C")
	for _, p := range []string{"/1", "/2", "/3"} {
		must(t, b.WriteFile(t.Context(), p, []byte(p)))
	}
	for _, open := range []string{"/1", "/2", "/3"} {
		w := appendTo(t, a, open)
		before := raw.TxID()
		wantHeld(t, b.Concat(t.Context(), "/1", "/2", "/3"), "A")
		if after := raw.TxID(); after != before {
			t.Fatalf("%d records were written", after-before)
		}
		for _, p := range []string{"/1", "/2", "/3"} {
			wantContent(t, b, p, p)
		}
		must(t, w.Close())
	}
	must(t, b.Concat(t.Context(), "/1", "/2", "/3"))
	wantContent(t, b, "/1", "/1/2/3")
	_, err := b.Stat(t.Context(), "/2")
	wantKind(t, err, fserror.NotFound)
}
