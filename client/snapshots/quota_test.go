package snapshots_test

import (
	"bytes"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// held is what each snapshot of a directory holds, by name, and their sum.
func held(t *testing.T, fs *client.FS, dir string) (by map[string]int64, sum int64) {
	t.Helper()
	by = map[string]int64{}
	must(t, snapshots.List(t.Context(), fs, dir, func(s *snapshots.Snapshot) error {
		by[s.Name] = s.Held
		sum += s.Held
		return nil
	}))
	must(t, snapshots.Dirs(t.Context(), fs, func(d snapshots.DirInfo) error {
		if d.Path == dir && (d.Held != sum || d.Snapshots != len(by)) {
			t.Errorf("%s is said to have %d snapshots, which hold %d bytes, not %d", dir, d.Snapshots, d.Held, sum)
		}
		return nil
	}))
	return by, sum
}

// TestQuotasAndSnapshots: a quota counts what a directory has now. What only snapshots have counts in
// none, is shown exactly, follows its directory, and while it is more than a limit of bytes, no
// further snapshot is made.
func TestQuotasAndSnapshots(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("root"))
	const block = 8 << 20
	write := func(path string, blocks int) error {
		_, err := fs.WriteFrom(ctx, path, bytes.NewReader(bytes.Repeat([]byte(path), blocks*block/len(path)+1)[:blocks*block]))
		return err
	}
	uses := func(dir string, bytes, snaps int64) {
		t.Helper()
		q, err := quota.Of(ctx, fs, dir)
		must(t, err)
		if q == nil || q.UsedBytes != bytes || q.SnapshotBytes != snaps {
			t.Errorf("%s: %+v, want %d bytes, and %d only in snapshots", dir, q, bytes, snaps)
		}
		sum, err := fs.Summary(ctx, dir)
		if err != nil || sum.Length != bytes || sum.SnapshotBytes != snaps {
			t.Errorf("%s: %+v, %v, want %d bytes, and %d only in snapshots", dir, sum, err, bytes, snaps)
		}
	}
	status := func() int64 {
		list, err := fs.Status(ctx)
		must(t, err)
		return list[0].SnapshotBytes
	}
	must(t, fs.MkdirAll(ctx, "/q/d", 0o755))
	must(t, fs.MkdirAll(ctx, "/r", 0o755))
	must(t, quota.Set(ctx, fs, "/q", quota.None, 3*block))
	must(t, quota.Set(ctx, fs, "/r", quota.None, block))
	must(t, snapshots.Allow(ctx, fs, "/q/d"))
	must(t, write("/q/d/f", 2))
	must(t, second(snapshots.Make(ctx, fs, "/q/d", "one")))
	uses("/q", 2*block, 0)

	must(t, fs.Remove(ctx, "/q/d/f")) // which gives its quota back
	by, stored := held(t, fs, "/q/d")
	if by["one"] < 2*block || by["one"] > 2*block+block/8 || status() != stored {
		t.Fatalf("%v; %d bytes in all", by, status())
	}
	uses("/q", 0, stored)
	must(t, write("/q/d/g", 2))
	must(t, second(snapshots.Make(ctx, fs, "/q/d", "two"))) // what only snapshots have is within the limit
	restore := func() error { return second(transfer.Restore(ctx, fs, "/q/d", "one", "f", transfer.RestoreOptions{})) }
	if err := restore(); fserror.KindOf(err) != fserror.NoSpace || !fserror.OverQuota(err) { // it takes quota
		t.Errorf("restored beyond the quota: %v", err)
	}
	must(t, fs.Remove(ctx, "/q/d/g"))
	must(t, restore())
	uses("/q", 2*block, 2*stored) // what came back has blocks of its own
	if by, sum := held(t, fs, "/q/d"); by["one"] != stored || by["two"] != stored || sum != status() {
		t.Errorf("%v; %d bytes in all", by, status())
	}

	_, err := snapshots.Make(ctx, fs, "/q/d", "three")
	if fserror.KindOf(err) != fserror.NoSpace || fserror.ReasonOf(err) != fserror.ReasonQuotaBytes {
		t.Errorf("snapshots have more bytes than the quota, and one was made: %v", err)
	}
	if err := fs.Rename(ctx, "/q/d", "/r/d", false); !fserror.OverQuota(err) { // what it has now does not fit
		t.Errorf("moved into a quota that is too small: %v", err)
	}
	must(t, quota.Set(ctx, fs, "/r", quota.None, 3*block)) // what its snapshots have need not fit
	must(t, fs.Rename(ctx, "/q/d", "/r/d", false))
	uses("/q", 0, 0)
	uses("/r", 2*block, 2*stored)
	wantKind(t, "three", second(snapshots.Make(ctx, fs, "/r/d", "three")), fserror.NoSpace)
	n.Restart(t) // of what is in an image, and is replayed, is the same counted
	uses("/r", 2*block, 2*stored)
	must(t, second(fs.Admin().Checkpoint(ctx)))
	n.Restart(t)
	uses("/r", 2*block, 2*stored)

	must(t, snapshots.Delete(ctx, fs, "/r/d", "one"))
	uses("/r", 2*block, stored)
	must(t, second(snapshots.Make(ctx, fs, "/r/d", "three")))
	must(t, quota.Set(ctx, fs, "/r", 100, quota.None)) // names alone bound no snapshots
	must(t, fs.Remove(ctx, "/r/d/f"))
	must(t, second(snapshots.Make(ctx, fs, "/r/d", "four")))
	uses("/r", 0, 2*stored)
	for _, name := range []string{"two", "three", "four"} {
		must(t, snapshots.Delete(ctx, fs, "/r/d", name))
	}
	uses("/r", 0, 0)
	env.Eventually(t, "all was freed", func() bool { return status() == 0 })
}

// TestHeldByTheNewest: what several snapshots have is the newest one's, and an older one's when that
// is deleted.
func TestHeldByTheNewest(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("root"))
	must(t, fs.MkdirAll(ctx, "/d", 0o755))
	must(t, snapshots.Allow(ctx, fs, "/d"))
	data := bytes.Repeat([]byte("x"), 9<<20)
	must(t, second(fs.WriteFrom(ctx, "/d/old", bytes.NewReader(data))))
	must(t, second(snapshots.Make(ctx, fs, "/d", "one")))
	must(t, second(fs.WriteFrom(ctx, "/d/new", bytes.NewReader(data))))
	must(t, second(snapshots.Make(ctx, fs, "/d", "two")))
	must(t, fs.Remove(ctx, "/d/old"))
	must(t, fs.Remove(ctx, "/d/new"))
	by, sum := held(t, fs, "/d")
	if by["one"] != 0 || by["two"] != sum || sum < 2*8<<20 {
		t.Errorf("%v", by)
	}
	must(t, snapshots.Delete(ctx, fs, "/d", "two"))
	env.Eventually(t, "the older one has what it had, too", func() bool {
		by, _ := held(t, fs, "/d")
		return by["one"] == sum/2
	})
	must(t, second(snapshots.Make(ctx, fs, "/d", "three")))
	if by, _ := held(t, fs, "/d"); by["three"] != 0 {
		t.Errorf("%v", by)
	}
}

// TestWhoMayOnlyRead: snapshots are listed for who may read a directory, not for who may only search it.
func TestWhoMayOnlyRead(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, eve := n.Client(t, env.Named("root")), n.Client(t, as("eve"))
	must(t, root.Mkdir(ctx, "/d", 0o755))
	must(t, root.WriteFile(ctx, "/d/f", nil))
	must(t, snapshots.Allow(ctx, root, "/d"))
	must(t, second(snapshots.Make(ctx, root, "/d", "s")))
	must(t, root.Chmod(ctx, "/d", 0o744))
	if got := names(t, eve, "/d"); got != "s" {
		t.Errorf("who may read it is told of %q", got)
	}
	wantKind(t, "what is in it", second(eve.Stat(ctx, "/d/.snapshot/s/f")), fserror.Permission)
	must(t, root.Chmod(ctx, "/d", 0o711))
	wantKind(t, "who may only search it", snapshots.List(ctx, eve, "/d", func(*snapshots.Snapshot) error { return nil }), fserror.Permission)
	if i, err := eve.Stat(ctx, "/d/.snapshot/s/f"); err != nil || i.Name() != "f" {
		t.Errorf("%+v, %v", i, err)
	}
}
