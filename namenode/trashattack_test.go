package namenode_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// keepTrash has a directory keep what is deleted in it.
func keepTrash(t *testing.T, r *env.Raw, dir string) {
	t.Helper()
	if _, err := r.NN.SetXattr(t.Context(), &pb.SetXattrRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir), Name: trash.Xattr, Value: []byte("1d")}); err != nil {
		t.Fatal(err)
	}
}

// trashed is the inode of what had a path in the trash, 0 if it is not there, or another beside it.
func trashed(t *testing.T, r *env.Raw, path string) (inode uint64) {
	t.Helper()
	out, err := r.NN.ListTrash(t.Context(), &pb.ListTrashRequest{Caller: r.Who, All: true, Below: path})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.GetEntries()) == 1 {
		return out.GetEntries()[0].GetInode()
	}
	return 0
}

// TestTrashTakesTheLease: whoever writes what is deleted or replaced, itself or with a directory
// above it, loses the lease for good: nothing more comes into what is in the trash, nor after a
// restart, nor when it was restored; and what was flushed comes back.
func TestTrashTakesTheLease(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*env.Raw) error{
		"deleted": func(r *env.Raw) error {
			_, err := r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/k/d/f")})
			return err
		},
		"with its directory": func(r *env.Raw) error {
			_, err := r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/k/d"), Recursive: true})
			return err
		},
		"replaced by a rename": func(r *env.Raw) error {
			r.Make("/k/new")
			_, err := r.NN.Rename(t.Context(), &pb.RenameRequest{Call: r.Call(), Caller: r.Who, From: pb.At("/k/new"), To: pb.At("/k/d/f"), Overwrite: true})
			return err
		},
		"replaced by another writer": func(r *env.Raw) error {
			_, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/k/d/f"), Overwrite: true, Steal: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := env.Start(t)
			w, other := n.Raw(t, "w"), n.Raw(t, "other")
			id := w.Create("/k/d/f")
			keepTrash(t, w, "/k")
			b, err := w.PutBlock(id, []byte("a block"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Commit(id, 0, b, ""), w.Flush(id, 7, " and a tail")); err != nil {
				t.Fatal(err)
			}
			late, err := w.PutBlock(id, []byte("late"))
			if err != nil {
				t.Fatal(err)
			}
			if err := lose(other); err != nil {
				t.Fatal(err)
			}
			refused := func(when string) {
				t.Helper()
				for what, err := range map[string]error{"flush": w.Flush(id, 18, "x"), "commit": w.Commit(id, 18, late, ""), "close": w.Close(id, 18)} {
					if !errors.Is(err, fserror.LeaseLost) && !errors.Is(err, fserror.NotFound) {
						t.Errorf("%s %s: %v", what, when, err)
					}
				}
				if _, err := w.PutBlock(id, []byte("later")); err == nil {
					t.Errorf("a block is put %s", when)
				}
			}
			refused("after the deletion")
			n.Restart(t)
			refused("after a restart")
			path, back := "/k/d/f", "/back"
			inode := trashed(t, other, path)
			if name == "with its directory" {
				if inode != 0 {
					t.Error("the file is an entry of its own")
				}
				inode, back = trashed(t, other, "/k/d"), "/back/f"
			}
			if _, err := other.NN.RestoreTrash(t.Context(), &pb.RestoreTrashRequest{Call: other.Call(), Caller: other.Who, Inode: inode, To: pb.At("/back")}); err != nil {
				t.Fatal(err)
			}
			refused("after it was restored")
			got, err := n.Client(t, env.Named("reader")).ReadFile(t.Context(), back)
			if err != nil || string(got) != "a block and a tail" {
				t.Errorf("%q came back, %v", got, err)
			}
			again, err := w.Append(back)
			if err != nil || again.GetWriter().GetEpoch() == id.GetEpoch() {
				t.Fatal(again, err)
			}
			refused("by the old lease beside the new one")
			if err := w.Flush(again.GetWriter(), 18, "!"); err != nil {
				t.Error(err)
			}
			fsckClean(t, other)
		})
	}
}

// TestTrashRestoredAndEmptied: of who restores and who empties at once, each entry obeys one; what
// was restored is whole, what was emptied is gone, and no place is taken twice.
func TestTrashRestoredAndEmptied(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	r := n.Raw(t, "r")
	a, b := n.Client(t, env.Named("a")), n.Client(t, env.Named("b"))
	r.Create("/k/made")
	keepTrash(t, r, "/k")
	const many = 40
	ids := make([]uint64, many)
	for i := range ids {
		dir := fmt.Sprintf("/k/%d", i)
		withBlock(t, r, dir+"/g", dir)
		if err := a.RemoveAll(ctx, dir); err != nil {
			t.Fatal(err)
		}
		ids[i] = trashed(t, r, dir)
	}
	var g errgroup.Group
	restored, emptied := make([]bool, many), 0
	r.Create("/x/made")
	g.Go(func() error {
		for i, id := range ids {
			err := trash.Restore(ctx, a, id, fmt.Sprintf("/x/%d", i))
			if restored[i] = err == nil; err != nil && !errors.Is(err, fserror.NotFound) {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		for i := range ids {
			n, err := trash.Empty(ctx, b, ids[many-1-i])
			if err != nil {
				return err
			}
			emptied += n
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	back := 0
	for i, was := range restored {
		got, err := a.ReadFile(ctx, fmt.Sprintf("/x/%d/g", i))
		if was {
			back++
		}
		if was && (err != nil || string(got) != fmt.Sprintf("/k/%d", i)) || !was && !errors.Is(err, fserror.NotFound) {
			t.Errorf("%d: it was restored: %v; it has %q, %v", i, was, got, err)
		}
	}
	if back+emptied != many {
		t.Errorf("of %d, %d were restored and %d emptied", many, back, emptied)
	}
	n.Restart(t)
	fsckClean(t, r)
}

// TestFsckOfTheTrash: fsck finds that the block of a file in the trash is gone, and says which.
func TestFsckOfTheTrash(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r, fs := n.Raw(t, "r"), n.Client(t)
	b := withBlock(t, r, "/k/d/f", "content")
	keepTrash(t, r, "/k")
	if err := fs.RemoveAll(t.Context(), "/k/d"); err != nil {
		t.Fatal(err)
	}
	fsckClean(t, r)
	for _, file := range blockFiles(t, n.Config().Data) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, blocks := range []bool{true, false} {
		var found []client.FsckProblem
		if _, err := fs.Admin().Fsck(t.Context(), "", blocks, func(p client.FsckProblem) error { found = append(found, p); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Path != "/k/d/f in the trash" {
			t.Errorf("block %d/%d is gone, and fsck finds %+v", b.GetTerm(), b.GetSeq(), found)
		}
	}
}
