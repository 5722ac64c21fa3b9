package trash_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func list(t *testing.T, r *env.Raw, all bool) (paths []string, inodes []uint64) {
	t.Helper()
	req := &pb.ListTrashRequest{Caller: r.Who, Limit: 1, All: all}
	for {
		resp, err := r.NN.ListTrash(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.GetEntries() {
			paths, inodes = append(paths, e.GetPath()), append(inodes, e.GetInode())
		}
		if req.Cursor = resp.GetNextCursor(); req.Cursor == "" {
			return paths, inodes
		}
	}
}

func keep(t *testing.T, r *env.Raw, dir, value string) {
	t.Helper()
	if _, err := r.NN.SetXattr(t.Context(), &pb.SetXattrRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir), Name: "user.leasefs.trash", Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
}

// TestTrash: what the library deletes and replaces is seen, over a restart, by who did it and
// by a superuser, and by nobody else; it comes back whole, and in nothing's place.
func TestTrash(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, fs := n.Raw(t, "root"), n.Client(t, env.Named("a"))
	ann := n.Raw(t, "ann")
	ann.Who.User = "ann"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, data string, opts ...client.OpenOption) {
		w, err := fs.Create(ctx, path, append(opts, client.WithParents())...)
		must(err)
		_, err = w.Write([]byte(data))
		must(err)
		must(w.Close())
	}
	write("/k/f", "first")
	write("/k/d/g", "below")
	keep(t, root, "/k", "7d")
	write("/k/f", "second", client.WithOverwrite())
	write("/k/t", "third")
	must(fs.Rename(ctx, "/k/t", "/k/f", true))
	must(fs.RemoveAll(ctx, "/k/d"))
	n.Restart(t)
	paths, inodes := list(t, root, false)
	equal(t, "root's", slices.Sorted(slices.Values(paths)), "/k/d", "/k/f", "/k/f") // those of one millisecond are by inode
	dir, first := inodes[slices.Index(paths, "/k/d")], slices.Min(inodes)
	paths, _ = list(t, root, true)
	equal(t, "all, by inode", paths, "/k/f", "/k/d", "/k/f")
	paths, _ = list(t, ann, false)
	equal(t, "ann's", paths)
	if _, err := ann.NN.ListTrash(ctx, &pb.ListTrashRequest{Caller: ann.Who, All: true}); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("ann lists all: %v", err)
	}
	restore := func(r *env.Raw, inode uint64, to string) error {
		_, err := r.NN.RestoreTrash(ctx, &pb.RestoreTrashRequest{Call: r.Call(), Caller: r.Who, Inode: inode, To: pb.At(to)})
		return err
	}
	if err := restore(ann, dir, "/x"); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("ann restores what is not hers: %v", err)
	}
	if err := restore(root, first, "/k/f"); fserror.KindOf(err) != fserror.Exists {
		t.Errorf("in the place of a file: %v", err)
	}
	if err := restore(root, first, "/none/f"); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if err := restore(root, dir, "/k/"+strings.Repeat("d/", 10)+"d"); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("into a directory that is missing: %v", err)
	}
	must(restore(root, first, "/k/was"))
	must(restore(root, dir, "/k/d"))
	for path, want := range map[string]string{"/k/was": "first", "/k/d/g": "below", "/k/f": "third"} {
		got, err := fs.ReadFile(ctx, path)
		if must(err); string(got) != want {
			t.Errorf("%s has %q, not %q", path, got, want)
		}
	}
	if _, err := root.NN.EmptyTrash(ctx, &pb.EmptyTrashRequest{Call: root.Call(), Caller: root.Who, Inodes: inodes}); err != nil {
		t.Fatal(err)
	}
	paths, _ = list(t, root, true)
	equal(t, "after it was emptied", paths)
	if _, err := root.NN.Delete(ctx, &pb.DeleteRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/k/f"), SkipTrash: true}); err != nil {
		t.Fatal(err)
	}
	paths, _ = list(t, root, true)
	equal(t, "after a delete for good", paths)
}

// inodes is how many the namenode has, in the trash or not.
func inodes(t *testing.T, r *env.Raw) uint64 {
	t.Helper()
	resp, err := r.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.Who})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetInodes()
}

// TestTrashEmptiesItself: what has been kept for its time goes, and its blocks and inodes do.
func TestTrashEmptiesItself(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root := n.Raw(t, "root")
	for _, path := range []string{"/k/d/f", "/k/g"} {
		w := root.Create(path)
		if err := root.Close(w, 0); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, root, "/k", "1s")
	before := inodes(t, root)
	for _, path := range []string{"/k/d", "/k/g"} {
		if _, err := root.NN.Delete(t.Context(), &pb.DeleteRequest{Call: root.Call(), Caller: root.Who, At: pb.At(path), Recursive: true}); err != nil {
			t.Fatal(err)
		}
	}
	env.Until(context.WithoutCancel(t.Context()), t, "the trash empties itself", func() bool {
		paths, _ := list(t, root, true)
		return len(paths) == 0 && inodes(t, root) == before-3
	})
}

// TestTrashUnderAnotherName: what a caller says something is to be called in the trash is a
// name, or is refused.
func TestTrashUnderAnotherName(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root := n.Raw(t, "root")
	if err := root.Close(root.Create("/k/f"), 0); err != nil {
		t.Fatal(err)
	}
	keep(t, root, "/k", "1h")
	remove := func(as string) error {
		_, err := root.NN.Delete(t.Context(), &pb.DeleteRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/k/f"), KeptAs: as})
		return err
	}
	for as, want := range map[string]fserror.Kind{"a/b": fserror.InvalidPath, "..": fserror.InvalidPath, strings.Repeat("n", 256): fserror.NameTooLong} {
		if err := remove(as); fserror.KindOf(err) != want {
			t.Errorf("as %.20q: %v, want %v", as, err, want)
		}
	}
	if err := remove("was"); err != nil {
		t.Fatal(err)
	}
	paths, _ := list(t, root, false)
	equal(t, "the trash", paths, "/k/was")
}

// TestTrashOfOwner: what was somebody's is also in the trash of who did not delete it.
func TestTrashOfOwner(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann, bob := n.Raw(t, "root"), n.Raw(t, "ann"), n.Raw(t, "bob")
	ann.Who.User, bob.Who.User = "ann", "bob"
	ctx := t.Context()
	for _, dir := range []string{"/k", "/home"} {
		if _, err := root.NN.Mkdir(ctx, &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At(dir), HasMode: true, Mode: 0o777}); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, root, "/k", "1h")
	for _, path := range []string{"/k/f", "/k/g"} {
		if err := ann.Close(ann.Create(path), 0); err != nil {
			t.Fatal(err)
		}
		resp, err := bob.NN.Delete(ctx, &pb.DeleteRequest{Call: bob.Call(), Caller: bob.Who, At: pb.At(path)})
		if err != nil || !resp.GetTrashed() {
			t.Fatal(resp, err)
		}
	}
	for _, r := range []*env.Raw{ann, bob} {
		paths, _ := list(t, r, false)
		equal(t, r.Who.User, paths, "/k/g", "/k/f")
	}
	paths, _ := list(t, root, false)
	equal(t, "root, who has nothing to do with it", paths)
	_, inodes := list(t, ann, false)
	if _, err := ann.NN.RestoreTrash(ctx, &pb.RestoreTrashRequest{Call: ann.Call(), Caller: ann.Who, Inode: inodes[1], To: pb.At("/home/f")}); err != nil {
		t.Error(err)
	}
	if _, err := bob.NN.EmptyTrash(ctx, &pb.EmptyTrashRequest{Call: bob.Call(), Caller: bob.Who, Inodes: inodes}); err != nil {
		t.Error(err)
	}
	paths, _ = list(t, root, true)
	equal(t, "at last", paths)

	// A directory of ann's has a file of bob's, which she could not remove.
	if _, err := ann.NN.Mkdir(ctx, &pb.MkdirRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/k/d"), HasMode: true, Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	if err := bob.Close(bob.Create("/k/d/f"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := root.NN.Delete(ctx, &pb.DeleteRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/k/d"), Recursive: true}); err != nil {
		t.Fatal(err)
	}
	if _, inodes = list(t, ann, false); len(inodes) != 1 {
		t.Fatalf("%d entries", len(inodes))
	}
	if _, err := ann.NN.EmptyTrash(ctx, &pb.EmptyTrashRequest{Call: ann.Call(), Caller: ann.Who, Inodes: inodes}); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("ann removes what is bob's for good: %v", err)
	}
	// It does not keep what else is in her trash.
	if err := ann.Close(ann.Create("/k/own"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.NN.Delete(ctx, &pb.DeleteRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/k/own")}); err != nil {
		t.Fatal(err)
	}
	_, both := list(t, ann, false)
	resp, err := ann.NN.EmptyTrash(ctx, &pb.EmptyTrashRequest{Call: ann.Call(), Caller: ann.Who, Inodes: both})
	if err != nil || len(both) != 2 || resp.GetAttr().GetLength() != 1 {
		t.Errorf("of %d entries: %v, %v", len(both), resp, err)
	}
	paths, _ = list(t, ann, false)
	equal(t, "ann's, which she can restore", paths, "/k/d")
	if _, err := ann.NN.RestoreTrash(ctx, &pb.RestoreTrashRequest{Call: ann.Call(), Caller: ann.Who, Inode: inodes[0], To: pb.At("/home/d")}); err != nil {
		t.Error(err)
	}
}

// TestTrashBelow: what was deleted at a path and below it is summed by the paths that it had, and no
// more when it is back, or gone.
func TestTrashBelow(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, fs := n.Raw(t, "root"), n.Client(t, env.Named("root"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep(t, root, "/", "7d")
	for path, size := range map[string]int{"/k/f": 1, "/k/d/g": 20, "/k/d/e/h": 300, "/k-d/f": 4000, "/k/d.x": 50_000} {
		must(fs.MkdirAll(ctx, path[:strings.LastIndex(path, "/")], 0o755))
		w, err := fs.Create(ctx, path)
		must(err)
		_, err = w.Write([]byte(strings.Repeat("x", size)))
		must(err)
		must(w.Close())
	}
	for _, path := range []string{"/k/f", "/k/d/e/h", "/k-d/f", "/k/d.x"} {
		must(fs.Remove(ctx, path))
	}
	must(fs.RemoveAll(ctx, "/k/d"))
	must(fs.MkdirAll(ctx, "/k/d/e", 0o755))
	below := func(want map[string]int64) {
		t.Helper()
		env.Eventually(t, "all is counted", func() bool {
			s, err := fs.Summary(ctx, "/")
			must(err)
			return s.TrashBytes == want["/"]
		})
		for path, bytes := range want {
			if s, err := fs.Summary(ctx, path); err != nil || s.TrashBytes != bytes {
				t.Errorf("%s: %d bytes, %v, not %d", path, s.TrashBytes, err, bytes)
			}
		}
	}
	all := map[string]int64{"/": 54_321, "/k": 50_321, "/k-d": 4000, "/k/d": 320, "/k/d/e": 300}
	below(all)
	n.Restart(t)
	below(all)
	must(fs.Rename(ctx, "/k", "/m", false))
	below(map[string]int64{"/": 54_321, "/m": 0, "/m/d": 0})
	must(fs.Rename(ctx, "/m", "/k", false))
	paths, inodes := list(t, root, true)
	_, err := root.NN.RestoreTrash(ctx, &pb.RestoreTrashRequest{Call: root.Call(), Caller: root.Who, Inode: inodes[slices.Index(paths, "/k/d")], To: pb.At("/k/back")})
	must(err)
	_, err = root.NN.EmptyTrash(ctx, &pb.EmptyTrashRequest{Call: root.Call(), Caller: root.Who, Inodes: []uint64{inodes[slices.Index(paths, "/k-d/f")]}})
	must(err)
	below(map[string]int64{"/": 50_301, "/k": 50_301, "/k-d": 0, "/k/d": 300, "/k/d/e": 300})
}

// TestRestoreIntoALease: nobody gets rid of others' files by restoring them into a directory that
// a lease will delete. As with a rename, it takes the permission to delete all that comes.
func TestRestoreIntoALease(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann, bob := n.Raw(t, "root"), n.Raw(t, "ann"), n.Raw(t, "bob")
	ann.Who.User, bob.Who.User = "ann", "bob"
	ctx := t.Context()
	mkdir := func(r *env.Raw, path string, mode uint32, lease uint64) {
		t.Helper()
		if _, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), HasMode: true, Mode: mode, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(root, "/k", 0o777, 0)
	keep(t, root, "/k", "1h")
	g, err := ann.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: ann.Call(), Caller: ann.Who, TtlMs: 3600_000})
	if err != nil {
		t.Fatal(err)
	}
	mkdir(ann, "/k/leased", 0o755, g.GetId())
	mkdir(ann, "/k/d", 0o777, 0)
	mkdir(bob, "/k/d/bobs", 0o755, 0)
	if err := bob.Close(bob.Create("/k/d/bobs/f"), 0); err != nil {
		t.Fatal(err)
	}
	mkdir(ann, "/k/own", 0o755, 0)
	refused := func(how string, err error) {
		t.Helper()
		if fserror.KindOf(err) != fserror.Permission {
			t.Errorf("%s: %v", how, err)
		}
	}
	_, err = ann.NN.Rename(ctx, &pb.RenameRequest{Call: ann.Call(), Caller: ann.Who, From: pb.At("/k/d"), To: pb.At("/k/leased/d")})
	refused("a rename", err)
	for _, path := range []string{"/k/d", "/k/own"} {
		if _, err := root.NN.Delete(ctx, &pb.DeleteRequest{Call: root.Call(), Caller: root.Who, At: pb.At(path), Recursive: true}); err != nil {
			t.Fatal(err)
		}
	}
	paths, inodes := list(t, ann, false)
	restore := func(path, to string) error {
		_, err := ann.NN.RestoreTrash(ctx, &pb.RestoreTrashRequest{Call: ann.Call(), Caller: ann.Who, Inode: inodes[slices.Index(paths, path)], To: pb.At(to)})
		return err
	}
	refused("a restore", restore("/k/d", "/k/leased/d"))
	if err := errors.Join(restore("/k/own", "/k/leased/own"), restore("/k/d", "/k/back")); err != nil {
		t.Errorf("a restore of her own, and to elsewhere: %v", err)
	}
}
