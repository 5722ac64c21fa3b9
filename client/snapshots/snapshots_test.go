package snapshots_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, kind fserror.Kind) {
	t.Helper()
	if err == nil || fserror.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

func holds(t *testing.T, fs *client.FS, path string, want []byte) {
	t.Helper()
	if data, err := fs.ReadFile(t.Context(), path); err != nil || !bytes.Equal(data, want) {
		t.Errorf("%s: %d bytes, %v, want %d", path, len(data), err, len(want))
	}
}

// diff is what Diff tells, in lines.
func diff(t *testing.T, fs *client.FS, dir, from, to string) string {
	t.Helper()
	var lines []string
	must(t, snapshots.Diff(t.Context(), fs, dir, from, to, func(c *snapshots.Change) error {
		line := c.Type.String() + " " + c.Path
		if c.NewPath != "" {
			line += " " + c.NewPath
		}
		if c.Content {
			line += " content"
		}
		lines = append(lines, line)
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func names(t *testing.T, fs *client.FS, dir string) (list string) {
	t.Helper()
	last := uint64(0)
	must(t, snapshots.List(t.Context(), fs, dir, func(s *snapshots.Snapshot) error {
		if s.ID == last || s.Info.Path != snapshots.Path(dir, s.Name, "") || !s.Info.IsDir() || s.Made.IsZero() {
			t.Errorf("%+v", s)
		}
		last = s.ID
		list += s.Name + " "
		return nil
	}))
	return strings.TrimSpace(list)
}

// TestLifeOfASnapshot: what a snapshot has is what was there, block for block, whatever becomes of the
// files, over restarts; and when it is deleted, what only it had goes from the block store.
func TestLifeOfASnapshot(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("root"))
	big, small := bytes.Repeat([]byte("0123456789abcdef"), 3<<19), []byte("small") // three blocks
	must(t, fs.MkdirAll(ctx, "/d/sub/deep", 0o755))
	write := func(path string, data []byte) {
		t.Helper()
		_, err := fs.WriteFrom(ctx, path, bytes.NewReader(data), client.WithOverwrite())
		must(t, err)
	}
	old := map[string][]byte{"deleted": big, "cut": big[5:], "longer": small, "replaced": small, "sub/deep/f": big[:9<<20], "moved": small, "out": big[1:]}
	for name, data := range old {
		write("/d/"+name, data)
	}
	must(t, fs.Symlink(ctx, "sub/deep/f", "/d/l"))
	w, err := fs.Create(ctx, "/d/open")
	must(t, err)
	_, err = w.Write(small)
	must(t, err)
	must(t, w.Flush(ctx))
	old["open"] = small

	must(t, snapshots.Allow(ctx, fs, "/d"))
	if name, err := snapshots.Make(ctx, fs, "/d", "s"); err != nil || name != "s" {
		t.Fatal(name, err)
	}
	_, err = w.Write([]byte("more"))
	must(t, errors.Join(err, w.Close()))
	must(t, fs.Remove(ctx, "/d/deleted"))
	must(t, fs.Truncate(ctx, "/d/cut", 9<<20))
	a, err := fs.Append(ctx, "/d/longer")
	must(t, err)
	_, err = a.Write(big)
	must(t, errors.Join(err, a.Close()))
	write("/d/replaced", []byte("other"))
	must(t, fs.RemoveAll(ctx, "/d/sub"))
	must(t, fs.Rename(ctx, "/d/moved", "/d/there", false))
	must(t, fs.Rename(ctx, "/d/out", "/out", false))
	if got, want := diff(t, fs, "/d", "s", ""), "created replaced, deleted deleted, deleted out, deleted replaced, deleted sub, modified , modified cut content, modified longer content, modified open content, renamed moved there"; got != want {
		t.Errorf("%s\n%s", got, want)
	}
	for restart := range 2 {
		for name, data := range old {
			holds(t, fs, "/d/.snapshot/s/"+name, data)
		}
		holds(t, fs, "/d/.snapshot/s/l", old["sub/deep/f"])
		if restart == 0 {
			_, err := fs.Admin().Checkpoint(ctx)
			must(t, err)
			n.Restart(t)
		}
	}
	if i, err := fs.Stat(ctx, "/d/.snapshot/s/open"); err != nil || i.Open != nil || i.Length != 5 {
		t.Errorf("%+v, %v", i, err)
	}
	if list, err := fs.ReadDir(ctx, "/d"); err != nil || slices.ContainsFunc(list, func(i *client.FileInfo) bool { return i.Name() == snapshots.Dir }) {
		t.Errorf("%v, %v", list, err)
	}
	sum, err := fs.Summary(ctx, "/d/.snapshot/s")
	if err != nil || sum.Files != uint64(len(old)) || sum.Directories != 3 {
		t.Errorf("%+v, %v", sum, err)
	}

	status := func() *client.NamenodeStatus {
		list, err := fs.Status(ctx)
		must(t, err)
		return &list[0]
	}
	with := status()
	if least := int64(len(big) + 8<<20); with.SnapshotBytes < least { // of deleted, cut and sub/deep/f
		t.Errorf("%d bytes are in snapshots only, not %d", with.SnapshotBytes, least)
	}
	must(t, snapshots.Delete(ctx, fs, "/d", "s"))
	_, err = fs.Stat(ctx, "/d/.snapshot/s/cut")
	wantKind(t, "a deleted one", err, fserror.NotFound)
	env.Eventually(t, "what only the snapshot had is garbage", func() bool {
		s := status()
		return s.SnapshotBytes == 0 && s.Snapshots == 0 && s.GarbageBytes >= with.GarbageBytes+with.SnapshotBytes
	})
	holds(t, fs, "/out", old["out"])
	holds(t, fs, "/d/cut", old["cut"][:9<<20])
	must(t, snapshots.Disallow(ctx, fs, "/d"))
	must(t, fs.RemoveAll(ctx, "/d"))
}

// TestNames: a snapshot can be given a name, has one by the time, and another later; what is wrong is
// told apart.
func TestNames(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, ann, eve := n.Client(t, env.Named("root")), n.Client(t, as("ann")), n.Client(t, as("eve"))
	must(t, root.MkdirAll(ctx, "/p/d", 0o755))
	must(t, root.Chown(ctx, "/p/d", "ann", ""))
	must(t, ann.WriteFile(ctx, "/p/d/f", []byte("text")))
	_, err := snapshots.Make(ctx, ann, "/p/d", "")
	wantKind(t, "not allowed", err, fserror.Unsupported)
	if fserror.ReasonOf(err) != fserror.ReasonNoSnapshots {
		t.Error(err)
	}
	wantKind(t, "list", snapshots.List(ctx, ann, "/p/d", nil), fserror.Unsupported)
	wantKind(t, "no superuser", snapshots.Allow(ctx, ann, "/p/d"), fserror.Permission)
	must(t, snapshots.Allow(ctx, root, "/p/d"))
	must(t, snapshots.Allow(ctx, root, "/p/d"))
	for range 3 { // in one millisecond, perhaps
		name, err := snapshots.Make(ctx, ann, "/p/d", "")
		must(t, err)
		if !regexp.MustCompile(`^s\d{8}-\d{6}\.\d{3}$`).MatchString(name) {
			t.Error(name)
		}
		must(t, snapshots.Rename(ctx, ann, "/p/d", name, "x"))
		must(t, snapshots.Rename(ctx, ann, "/p/d", "x", name))
		if i, err := eve.Stat(ctx, snapshots.Path("/p/d", name, "f")); err != nil || i.Length != 4 {
			t.Errorf("%+v, %v", i, err)
		} else if id, live := snapshots.Split(i.Inode); id == 0 || snapshots.Inode(id, live) != i.Inode {
			t.Error(i.Inode)
		}
	}
	if got := strings.Fields(names(t, eve, "/p/d")); len(got) != 3 || !slices.IsSorted(got) {
		t.Error(got)
	}
	_, err = snapshots.Make(ctx, ann, "/p/d", "a")
	must(t, err)
	_, err = snapshots.Make(ctx, ann, "/p/d", "a")
	wantKind(t, "again", err, fserror.Exists)
	_, err = snapshots.Make(ctx, eve, "/p/d", "b")
	wantKind(t, "another's", err, fserror.Permission)
	_, err = snapshots.Make(ctx, ann, "/p/d", "a/b")
	wantKind(t, "a bad name", err, fserror.InvalidPath)
	_, err = snapshots.Make(ctx, ann, "/p/d/f", "b")
	wantKind(t, "a file", err, fserror.NotDirectory)
	_, err = snapshots.Make(ctx, ann, "/p/x", "b")
	wantKind(t, "nothing", err, fserror.NotFound)
	wantKind(t, "renamed by another", snapshots.Rename(ctx, eve, "/p/d", "a", "c"), fserror.Permission)
	wantKind(t, "renamed to one that is", snapshots.Rename(ctx, ann, "/p/d", "a", strings.Fields(names(t, ann, "/p/d"))[1]), fserror.Exists)
	wantKind(t, "renamed, and is not", snapshots.Rename(ctx, ann, "/p/d", "none", "c"), fserror.NotFound)
	wantKind(t, "deleted, and is not", snapshots.Delete(ctx, ann, "/p/d", "none"), fserror.NotFound)
	wantKind(t, "deleted by another", snapshots.Delete(ctx, eve, "/p/d", "a"), fserror.Permission)
	wantKind(t, "the directory", root.RemoveAll(ctx, "/p"), fserror.NotEmpty)
	wantKind(t, "disallow", snapshots.Disallow(ctx, root, "/p/d"), fserror.NotEmpty)
	wantKind(t, "diff of none", snapshots.Diff(ctx, ann, "/p/d", "none", "", nil), fserror.NotFound)
	must(t, root.Rename(ctx, "/p", "/q", false))
	if got := len(strings.Fields(names(t, ann, "/q/d"))); got != 4 {
		t.Errorf("%d snapshots after a rename", got)
	}

	must(t, root.Mkdir(ctx, "/hidden", 0o700))
	must(t, root.Mkdir(ctx, "/hidden/d", 0o755))
	must(t, snapshots.Allow(ctx, root, "/hidden/d"))
	dirs := func(fs *client.FS) (list string) {
		must(t, snapshots.Dirs(ctx, fs, func(dir snapshots.DirInfo) error {
			list += fmt.Sprintf("%s %s %d ", dir.Path, dir.User, dir.Snapshots)
			return nil
		}))
		return list
	}
	if got := dirs(ann); got != "/q/d ann 4 " {
		t.Error(got)
	}
	if got := dirs(root); !strings.HasPrefix(got, "/q/d ann 4 /hidden/d ") {
		t.Error(got)
	}
	boom := errors.New("boom")
	if err := snapshots.List(ctx, ann, "/q/d", func(*snapshots.Snapshot) error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	if err := snapshots.Dirs(ctx, ann, func(snapshots.DirInfo) error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
}

func as(user string) func(*client.Config) {
	return func(c *client.Config) { c.User, c.Client = user, user }
}

// TestNothingChangesInASnapshot: each way to change something is refused there, by one kind of error.
func TestNothingChangesInASnapshot(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("root"), func(c *client.Config) { c.Cache, c.Drafts = true, true })
	must(t, fs.MkdirAll(ctx, "/d/sub", 0o755))
	must(t, fs.WriteFile(ctx, "/d/f", []byte("text")))
	must(t, fs.WriteFile(ctx, "/f", []byte("text")))
	wantKind(t, "no snapshots yet", second(fs.Stat(ctx, "/d/.snapshot")), fserror.NotFound)
	must(t, snapshots.Allow(ctx, fs, "/d"))
	must(t, second(snapshots.Make(ctx, fs, "/d", "s")))
	low, lease := lowlevel.Of(fs), must1(fs.Leases().Grant(ctx, 3_600_000_000_000, 0))
	inode := must1(fs.Stat(ctx, "/d/.snapshot/s/f")).Inode
	for _, in := range []string{"/d/.snapshot/s", "/d/.snapshot"} {
		for what, err := range map[string]error{
			"create":    second(fs.Create(ctx, in+"/new")),
			"whole":     fs.WriteFile(ctx, in+"/new", []byte("x")),
			"mkdir":     fs.Mkdir(ctx, in+"/new", 0o755),
			"mkdir all": fs.MkdirAll(ctx, in+"/new/er", 0o755),
			"symlink":   fs.Symlink(ctx, "x", in+"/new"),
			"into":      fs.Rename(ctx, "/f", in+"/new", false),
			"chmod":     fs.Chmod(ctx, in, 0o700),
			"chown":     fs.Chown(ctx, in, "ann", ""),
			"xattr":     fs.Xattrs(in).Set(ctx, "user.a", []byte("x"), client.XattrAny),
			"acl":       fs.Xattrs(in).ChangeACL(ctx, client.ACLChange{Action: client.ACLRemoveAll}),
			"remove":    fs.RemoveAll(ctx, in),
			"attach":    fs.Leases().Attach(ctx, lease.ID, in),
			"allow":     snapshots.Allow(ctx, fs, in),
		} {
			wantKind(t, what+" "+in, err, fserror.ReadOnly)
		}
	}
	for what, err := range map[string]error{
		"create":   second(fs.Create(ctx, "/d/.snapshot/s/f", client.WithOverwrite())),
		"append":   second(fs.Append(ctx, "/d/.snapshot/s/f")),
		"by inode": second(low.AppendInode(ctx, inode, "f", false)),
		"truncate": fs.Truncate(ctx, "/d/.snapshot/s/f", 1),
		"cut":      low.TruncateInode(ctx, inode, "f", 1),
		"mtime":    low.SetAttrInode(ctx, inode, "f", client.AttrChange{SetMTime: true}),
		"concat":   fs.Concat(ctx, "/d/.snapshot/s/f", "/f"),
		"source":   fs.Concat(ctx, "/f", "/d/.snapshot/s/f"),
		"rename":   fs.Rename(ctx, "/d/.snapshot/s/f", "/g", false),
		"within":   fs.Rename(ctx, "/d/.snapshot/s/f", "/d/.snapshot/s/g", false),
		"over":     fs.Rename(ctx, "/f", "/d/.snapshot/s/f", true),
		"remove":   fs.Remove(ctx, "/d/.snapshot/s/f"),
		"recover":  second(fs.Recover(ctx, "/d/.snapshot/s/f", true)),
	} {
		wantKind(t, what, err, fserror.ReadOnly)
	}
	holds(t, fs, "/d/.snapshot/s/f", []byte("text"))
	holds(t, fs, "/f", []byte("text"))
	for _, path := range []string{"/.snapshot", "/d/sub/.snapshot", "/new/.snapshot/x"} {
		wantKind(t, path, fs.MkdirAll(ctx, path, 0o755), fserror.InvalidArgument)
		wantKind(t, path, fs.Rename(ctx, "/f", path, false), kindOfRename(path))
	}
}

// kindOfRename: the directory of one of the paths is missing.
func kindOfRename(path string) fserror.Kind {
	if strings.HasPrefix(path, "/new") {
		return fserror.NotFound
	}
	return fserror.InvalidArgument
}

func third[T, U any](_ T, _ U, err error) error { return err }

func second[T any](_ T, err error) error { return err }

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestPages: many changes and snapshots come in pages, whole and once, also while others change the
// directory, and to callers who may not see all only what they may.
func TestPages(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs, ann := n.Client(t, env.Named("root")), n.Client(t, as("ann"))
	must(t, fs.MkdirAll(ctx, "/d/secret", 0o700))
	must(t, fs.Chmod(ctx, "/d", 0o755))
	must(t, fs.Chown(ctx, "/d", "ann", ""))
	must(t, snapshots.Allow(ctx, fs, "/d"))
	const many = 1003
	for i := range many {
		must(t, fs.WriteFile(ctx, fmt.Sprintf("/d/%d", i), nil))
	}
	must(t, second(snapshots.Make(ctx, fs, "/d", "0")))
	for i := range many {
		must(t, fs.Chmod(ctx, fmt.Sprintf("/d/%d", i), 0o600))
	}
	must(t, fs.WriteFile(ctx, "/d/secret/f", nil))
	must(t, second(snapshots.Make(ctx, fs, "/d", "1")))
	count := func(fs *client.FS, from, to string) (n int) {
		seen := map[string]bool{}
		must(t, snapshots.Diff(ctx, fs, "/d", from, to, func(c *snapshots.Change) error {
			if seen[c.Path] {
				t.Errorf("%s twice", c.Path)
			}
			seen[c.Path] = true
			if c.Path == "secret/f" && fs == ann {
				t.Errorf("ann is told of %s", c.Path)
			}
			n++
			return nil
		}))
		return n
	}
	for _, to := range []string{"1", ""} {
		if got := count(fs, "0", to); got != many+2 {
			t.Errorf("%d changes", got)
		}
		if got := count(fs, to, "0"); got != many+2 {
			t.Errorf("%d changes back", got)
		}
		if got := count(ann, "0", to); got != many+1 {
			t.Errorf("ann is told of %d changes", got)
		}
	}
	if got := diff(t, fs, "/d", "1", ""); got != "" {
		t.Error(got)
	}
	wantKind(t, "a bad cursor", third(snapshots.DiffPage(ctx, fs, "/d", "0", "", "nonsense", 0)), fserror.InvalidArgument)
	wantKind(t, "no snapshot", third(snapshots.DiffPage(ctx, fs, "/d", "", "", "", 0)), fserror.InvalidArgument)
	wantKind(t, "another's", third(snapshots.DiffPage(ctx, n.Client(t, as("eve")), "/d", "0", "", "", 0)), fserror.Permission)
}

// TestWhoCachesSeesSnapshots: a client that keeps what it has read sees each snapshot as long as it is,
// and not longer, also by names that it knew to be missing.
func TestWhoCachesSeesSnapshots(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	caches := n.Client(t, env.Named("caches"), func(c *client.Config) { c.Cache, c.Drafts = true, true })
	plain := n.Client(t, env.Named("plain"))
	must(t, caches.Mkdir(ctx, "/d", 0o755)) // and knows that it is empty
	if list, err := caches.ReadDir(ctx, "/d"); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	gone := func(path string) {
		t.Helper()
		wantKind(t, path, second(caches.Stat(ctx, path)), fserror.NotFound)
	}
	gone("/d/.snapshot")
	gone("/d/.snapshot/s")
	must(t, caches.WriteFile(ctx, "/d/f", []byte("one")))
	must(t, snapshots.Allow(ctx, plain, "/d"))
	for round := range 3 {
		if list, err := caches.ReadDir(ctx, "/d/.snapshot"); err != nil || len(list) != 0 {
			t.Fatal(round, list, err)
		}
		gone("/d/.snapshot/s")
		text := fmt.Append(nil, "text ", round)
		must(t, caches.WriteFile(ctx, "/d/f", text, client.WithOverwrite()))
		must(t, second(snapshots.Make(ctx, plain, "/d", "s")))
		must(t, plain.WriteFile(ctx, "/d/f", []byte("later"), client.WithOverwrite()))
		for range 2 {
			holds(t, caches, "/d/.snapshot/s/f", text)
			holds(t, caches, "/d/f", []byte("later"))
		}
		must(t, snapshots.Rename(ctx, plain, "/d", "s", "t"))
		gone("/d/.snapshot/s/f")
		holds(t, caches, "/d/.snapshot/t/f", text)
		must(t, snapshots.Delete(ctx, plain, "/d", "t"))
		gone("/d/.snapshot/t/f")
		gone("/d/.snapshot/t")
	}
	must(t, snapshots.Disallow(ctx, plain, "/d"))
	gone("/d/.snapshot")
}

// TestDiffTellsNoHiddenNames: who owns a directory is told of what changed where he may list all
// directories on the way, as it was and as it is, and of nothing else.
func TestDiffTellsNoHiddenNames(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs, ann := n.Client(t, env.Named("root")), n.Client(t, as("ann"))
	for _, dir := range []string{"/d/secret", "/d/through/open", "/d/open", "/d/dir/sub"} {
		must(t, fs.MkdirAll(ctx, dir, 0o755))
	}
	must(t, fs.Chmod(ctx, "/d/secret", 0o700))
	must(t, fs.Chmod(ctx, "/d/through", 0o711))
	must(t, fs.Chown(ctx, "/d", "ann", ""))
	for _, path := range []string{"/d/secret/out", "/d/secret/stays", "/d/open/in", "/d/open/seen", "/d/through/open/f", "/d/dir/sub/changes", "/d/dir/sub/goes", "/d/dir/sub/leaves"} {
		must(t, fs.WriteFile(ctx, path, nil))
	}
	must(t, snapshots.Allow(ctx, fs, "/d"))
	must(t, second(snapshots.Make(ctx, fs, "/d", "s")))
	must(t, fs.Rename(ctx, "/d/secret/out", "/d/open/out", false))
	must(t, fs.Rename(ctx, "/d/open/in", "/d/secret/in", false))
	must(t, fs.Rename(ctx, "/d/dir/sub/leaves", "/d/open/left", false)) // of a directory that is moved as a whole
	must(t, fs.Remove(ctx, "/d/dir/sub/goes"))
	must(t, fs.WriteFile(ctx, "/d/dir/sub/changes", []byte("more"), client.WithOverwrite()))
	must(t, fs.WriteFile(ctx, "/d/dir/sub/comes", nil))
	must(t, fs.Rename(ctx, "/d/dir", "/d/secret/dir", false))
	must(t, fs.Chmod(ctx, "/d/secret/stays", 0o600))
	must(t, fs.Chmod(ctx, "/d/open/seen", 0o600))
	must(t, fs.Chmod(ctx, "/d/through/open/f", 0o600))
	must(t, second(snapshots.Make(ctx, fs, "/d", "t")))
	// As for what was in dir: all that is told of it is that it went, or, backwards, that it came.
	const (
		same = "modified , modified open, modified open/seen, modified secret"
		seen = "created open/out, deleted dir, deleted open/in, " + same + ", renamed dir/sub/leaves open/left"
		back = "created dir, created open/in, deleted open/out, " + same + ", renamed open/left dir/sub/leaves"
	)
	for _, to := range []string{"t", ""} {
		if got := diff(t, ann, "/d", "s", to); got != seen {
			t.Errorf("ann is told of %s", got)
		}
		if got := diff(t, ann, "/d", to, "s"); got != back {
			t.Errorf("ann is told, backwards, of %s", got)
		}
		if got := diff(t, fs, "/d", "s", to); !strings.Contains(got, "renamed secret/out open/out") || !strings.Contains(got, "through/open/f") {
			t.Errorf("root is told of %s", got)
		}
	}
}
