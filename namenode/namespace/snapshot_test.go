package namespace

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// allow lets a directory have snapshots.
func (r *rig) allow(t tb, path string) {
	t.Helper()
	r.raise(t)
	op, err := PlanAllowSnapshots(r.tree, nil, At(path), true)
	if err != nil || op == nil {
		t.Fatalf("%+v, %v", op, err)
	}
	r.must(t, op)
}

// snapshot makes one.
func (r *rig) snapshot(t tb, path, name string) *snapshots.Snapshot {
	t.Helper()
	op, err := PlanSnapshot(r.tree, nil, At(path), name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	id, _ := snapshots.Split(r.must(t, op).Inode)
	return r.tree.snaps.Get(id)
}

// forget deletes a snapshot, and frees what only it had.
func (r *rig) forget(t tb, path, name string) {
	t.Helper()
	op, err := PlanDeleteSnapshot(r.tree, nil, At(path), name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
	for r.tree.snaps.Dying() {
		r.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: 2}})
	}
}

// below is all that a walk of a path shows, with the contents of files.
func (r *rig) below(t tb, path string) map[string]string {
	t.Helper()
	a, err := r.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	all := make(map[string]string)
	if err := r.tree.Walk(a.ID, func(p []byte, a Attr) error {
		got, err := r.tree.Stat(nil, Inode(a.ID))
		if err != nil {
			return err
		}
		by, err := r.tree.Stat(nil, At(string(p)))
		by.Open, got.Open, a.Open = nil, nil, nil // pointers
		if err != nil || fmt.Sprint(by) != fmt.Sprint(got) || fmt.Sprint(a) != fmt.Sprint(got) {
			t.Fatalf("%s: by number %+v, by path %+v, walked %+v, %v", p, got, by, a, err)
		}
		if where, ok := r.tree.Path(a.ID); !ok || where != string(p) {
			t.Fatalf("%s has the path %s", p, where)
		}
		s := fmt.Sprintf("%d %o %s %s %d %d", a.Type, a.Mode, a.User, a.Group, a.MTime, a.Entries)
		if a.Type == TypeFile {
			s += " " + r.content(t, r.tree, a.ID)
		}
		all[strings.TrimPrefix(string(p), path)] = s
		return nil
	}); err != nil {
		t.Fatalf("%v", err)
	}
	return all
}

// TestSnapshot: what a snapshot shows stays, whatever becomes of the directory, by path and by
// number, and nothing in it can be changed.
func TestSnapshot(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d/sub")
	r.create(t, "/d/sub/small", "few bytes")
	w := r.open(t, "/d/file", "client")
	r.commit(t, w, "0123")
	r.write(t, w, 4, "tail")
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s1")
	want := r.below(t, "/d")
	if got := r.below(t, "/d/.snapshot/s1"); !maps.Equal(got, want) {
		t.Fatalf("%v\nnot %v", got, want)
	}
	if a, err := r.tree.Stat(nil, At("/d/.snapshot/s1/file")); err != nil || a.Open != nil {
		t.Fatalf("%+v %v", a, err)
	}
	number := r.id(t, "/d/.snapshot/s1/sub/small")
	// Everything goes.
	r.write(t, w, 8, "more")
	r.close(t, w)
	for _, p := range []string{"/d/file", "/d/sub"} {
		op, err := PlanDelete(r.tree, nil, At(p), true, 0)
		if err != nil {
			t.Fatalf("%v", err)
		}
		r.must(t, op)
	}
	r.must(t, &OpReclaim{Limit: 100})
	r.create(t, "/d/later", "x")
	if got := r.below(t, "/d/.snapshot/s1"); !maps.Equal(got, want) {
		t.Fatalf("%v\nnot %v", got, want)
	}
	if c := r.tree.Counts(); c.Held != 1 || c.HeldBytes == 0 || c.Garbage != 0 || c.Snapshots != 1 || c.Blocks != 0 {
		t.Fatalf("%+v", c)
	}
	sound(t, r.tree)
	r.tree = roundTrip(t, r.tree)
	if got := r.below(t, "/d/.snapshot/s1"); !maps.Equal(got, want) {
		t.Fatalf("%v\nnot %v", got, want)
	}
	// The directory moves, and the snapshot is renamed: a number stays.
	ren, err := PlanRename(r.tree, nil, At("/d"), At("/e"), false, false)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, ren)
	op, err := PlanRenameSnapshot(r.tree, nil, At("/e"), "s1", "old")
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	if got := r.below(t, "/e/.snapshot/old"); !maps.Equal(got, want) {
		t.Fatalf("%v\nnot %v", got, want)
	}
	if p, ok := r.tree.Path(number); !ok || p != "/e/.snapshot/old/sub/small" {
		t.Fatalf("%q", p)
	}
	if _, entries, _, err := r.tree.List(nil, At("/e"), "", 0); err != nil || len(entries) != 1 || entries[0].Name != "later" {
		t.Fatalf("%+v %v", entries, err)
	}
	dir, entries, _, err := r.tree.List(nil, At("/e/.snapshot"), "", 0)
	if err != nil || len(entries) != 1 || entries[0].Name != "old" || entries[0].Parent != dir.ID || dir.Name != ".snapshot" || dir.Mode&0o222 != 0 {
		t.Fatalf("%+v %+v %v", dir, entries, err)
	}
	if _, err := PlanDelete(r.tree, nil, At("/e"), true, 0); fserror.KindOf(err) != fserror.NotEmpty {
		t.Fatalf("%v", err)
	}
	r.readOnly(t, "/e/.snapshot/old/sub/small", "/e/.snapshot/old/sub", "/e/.snapshot/old", "/e/.snapshot")
	r.forget(t, "/e", "old")
	if c := r.tree.Counts(); c.Held != 0 || c.HeldBytes != 0 || c.Garbage != 1 || c.Snapshots != 0 {
		t.Fatalf("%+v", c)
	}
	if _, err := r.tree.Stat(nil, Inode(number)); fserror.ReasonOf(err) != Gone {
		t.Fatalf("%v", err)
	}
	sound(t, r.tree)
}

// readOnly tries all changes of what is in a snapshot.
func (r *rig) readOnly(t *testing.T, paths ...string) {
	t.Helper()
	c := &Call{Super: true, User: "root"}
	for _, p := range paths {
		a, err := r.tree.Stat(c, At(p))
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []Ref{At(p), Inode(a.ID)} {
			for name, plan := range map[string]func() error{
				"delete":   func() error { _, err := PlanDelete(r.tree, c, ref, true, 0); return err },
				"rename":   func() error { _, err := PlanRename(r.tree, c, ref, At("/x"), true, false); return err },
				"into":     func() error { _, err := PlanRename(r.tree, c, At("/e/later"), ref, true, false); return err },
				"truncate": func() error { _, err := PlanTruncate(r.tree, c, ref, 0); return err },
				"open":     func() error { _, err := PlanOpen(r.tree, c, ref, false); return err },
				"create":   func() error { _, err := PlanCreate(r.tree, c, CreateRequest{At: ref, Overwrite: true}); return err },
				"mkdir":    func() error { _, err := PlanMkdir(r.tree, c, At(p+"/new"), 0o755, true); return err },
				"symlink":  func() error { _, err := PlanSymlink(r.tree, c, At(p+"/new"), "x", true); return err },
				"mode":     func() error { _, err := PlanSetAttr(r.tree, c, ref, OpSetAttr{}); return err },
				"xattr":    func() error { _, err := PlanXattr(r.tree, c, ref, "user.a", nil, 0); return err },
				"allow":    func() error { _, err := PlanAllowSnapshots(r.tree, c, ref, true); return err },
				"snapshot": func() error { _, err := PlanSnapshot(r.tree, c, ref, "x"); return err },
			} {
				if err := plan(); fserror.KindOf(err) != fserror.ReadOnly && (name != "mkdir" && name != "symlink" || a.Type == TypeDir) {
					t.Errorf("%s %s: %v", name, p, err)
				}
			}
		}
	}
}

// TestSnapshotRules: who may make snapshots where, and what is refused as long as there are some.
func TestSnapshotRules(t *testing.T) {
	r := newRig(t)
	ann, root := &Call{User: "ann"}, &Call{User: "root", Super: true}
	dir := r.mkdir(t, "/d/in/er")
	r.create(t, "/d/f", "x")
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d"), User: "ann"})
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/in"), User: "ann"})
	allow, err := PlanAllowSnapshots(r.tree, root, At("/d"), true)
	if err != nil || fserror.ReasonOf(Permit(r.tree, allow)) != fserror.ReasonLevel {
		t.Fatalf("at level 1: %v", err)
	}
	fails := func(what string, err error, kind fserror.Kind) {
		t.Helper()
		if err == nil || fserror.KindOf(err) != kind {
			t.Errorf("%s: %v, not %v", what, err, kind)
		}
	}
	snapshot := func(c *Call, path, name string) error {
		_, err := PlanSnapshot(r.tree, c, At(path), name)
		return err
	}
	fails("not allowed", snapshot(ann, "/d", "s"), fserror.Unsupported)
	_, err = PlanAllowSnapshots(r.tree, ann, At("/d"), true)
	fails("no superuser", err, fserror.Permission)
	r.must(t, &OpMkdir{Parent: RootID, Names: []string{"old", snapshots.DirName}, Mode: 0o755})
	_, err = PlanAllowSnapshots(r.tree, root, At("/old"), true)
	fails("an entry "+snapshots.DirName, err, fserror.Exists)
	if a, err := r.tree.Stat(nil, At("/old/.snapshot")); err != nil || a.ID>>snapshots.Bits != 0 {
		t.Errorf("what has the name from before is not found: %+v, %v", a, err)
	}
	r.allow(t, "/d")
	r.allow(t, "/d/in") // one in another
	fails("a name", snapshot(ann, "/d", "a/b"), fserror.InvalidPath)
	fails("another's", snapshot(&Call{User: "bob"}, "/d", "s"), fserror.Permission)
	fails("a file", snapshot(root, "/d/f", "s"), fserror.NotDirectory)
	if err := snapshot(ann, "/d", "s"); err != nil {
		t.Fatal(err)
	}
	r.snapshot(t, "/d", "s")
	r.snapshot(t, "/d/in", "s")
	fails("a name that is taken", snapshot(ann, "/d", "s"), fserror.Exists)
	_, err = PlanRenameSnapshot(r.tree, ann, At("/d"), "none", "x")
	fails("none to rename", err, fserror.NotFound)
	_, err = PlanDeleteSnapshot(r.tree, &Call{User: "bob"}, At("/d"), "s")
	fails("another's to delete", err, fserror.Permission)
	_, err = PlanAllowSnapshots(r.tree, root, At("/d"), false)
	fails("disallowed with snapshots", err, fserror.NotEmpty)
	for _, p := range []string{"/d", "/d/in"} {
		_, err = PlanDelete(r.tree, root, At(p), true, 0)
		if fails("deleted with snapshots", err, fserror.NotEmpty); fserror.ReasonOf(err) != fserror.ReasonHasSnapshots {
			t.Error(err)
		}
	}
	r.grant(t, 1, 60_000)
	_, err = PlanAttach(r.tree, root, 1, At("/d/in"))
	fails("attached with snapshots", err, fserror.NotEmpty)
	r.mkdir(t, "/leased/q")
	r.attach(t, 1, "/leased")
	_, err = PlanRename(r.tree, root, At("/d/in"), At("/leased/in"), false, false)
	fails("moved with snapshots to where a lease ends", err, fserror.NotEmpty)
	r.allow(t, "/leased/q")
	fails("below what is attached", snapshot(root, "/leased/q", "s"), fserror.InvalidArgument)
	// An empty directory that has snapshots is not replaced.
	r.mkdir(t, "/empty")
	r.allow(t, "/empty")
	r.snapshot(t, "/empty", "s")
	r.mkdir(t, "/other")
	_, err = PlanRename(r.tree, root, At("/other"), At("/empty"), true, false)
	fails("replaced with snapshots", err, fserror.NotEmpty)
	// Nothing else gets the name.
	_, err = PlanMkdir(r.tree, root, At("/other/.snapshot/x"), 0o755, true)
	fails("a directory "+snapshots.DirName, err, fserror.InvalidArgument)
	_, err = PlanRename(r.tree, root, At("/d/f"), At("/other/.snapshot"), false, false)
	fails("a rename to "+snapshots.DirName, err, fserror.InvalidArgument)
	// A record that was not planned is refused, too.
	for _, op := range []Op{
		&OpDelete{Parent: RootID, Name: "d", Inode: r.id(t, "/d")}, &OpAttach{ID: 1, Inode: r.id(t, "/d")},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Make, Dir: dir, Name: "s"}},
		&OpTxn{Parts: []Op{&OpSnapshot{Change: snapshots.Change{Do: snapshots.Delete, ID: 1}}}},
	} {
		if _, err := r.apply(CallID{}, op); err == nil {
			t.Errorf("%s %+v was applied", opName(op), op)
		}
	}
	r.forget(t, "/d", "s")
	r.forget(t, "/d/in", "s")
	if _, err = PlanDelete(r.tree, root, At("/d"), true, 0); err != nil {
		t.Error(err)
	}
	sound(t, r.tree)
	roundTrip(t, r.tree)
}

// TestSnapshotPermissions: modes, owners and ACLs in a snapshot are as they were; of the way to it
// those are asked that are.
func TestSnapshotPermissions(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d/shut")
	r.create(t, "/d/shut/f", "x")
	r.create(t, "/d/mine", "x")
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/mine"), SetMode: true, Mode: 0o600, User: "ann"})
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/shut"), SetMode: true, Mode: 0o700})
	r.setACL(t, "/d/shut", "user::rwx,user:carol:rx,group::---,mask::rx,other::---")
	r.must(t, &OpXattr{Inode: r.id(t, "/d/mine"), Name: "user.was", Value: []byte("then")})
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s")
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/mine"), SetMode: true, Mode: 0o644, User: "bob"})
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/shut"), SetMode: true, Mode: 0o755})
	r.setACL(t, "/d/shut", "user::rwx,group::rx,other::rx")
	r.must(t, &OpXattr{Inode: r.id(t, "/d/mine"), Name: "user.was", Remove: true})
	file, mine := r.id(t, "/d/.snapshot/s/shut/f"), r.id(t, "/d/.snapshot/s/mine")
	for range 2 {
		for user, may := range map[string][2]bool{"ann": {false, true}, "bob": {false, false}, "carol": {true, false}} {
			for _, way := range [][2]Ref{{At("/d/.snapshot/s/shut/f"), At("/d/.snapshot/s/mine")}, {Inode(file), Inode(mine)}} {
				for i, r2 := range way {
					_, err := r.tree.File(&Call{User: user}, r2)
					if (err == nil) != may[i] || err != nil && fserror.KindOf(err) != fserror.Permission {
						t.Errorf("%s reads %+v: %v", user, r2, err)
					}
				}
			}
		}
		if x, err := r.tree.Xattrs(&Call{User: "ann"}, Inode(mine)); err != nil || len(x) != 1 || string(x[0].Value) != "then" {
			t.Errorf("%+v %v", x, err)
		}
		r.tree = roundTrip(t, r.tree)
	}
	c := &Call{User: "ann", Collect: true}
	if _, err := r.tree.File(c, At("/d/.snapshot/s/mine")); err != nil || c.Collect || len(c.Looks) > 0 {
		t.Errorf("it may be cached: %+v %v", c, err)
	}
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d"), SetMode: true, Mode: 0o700})
	for _, ref := range []Ref{At("/d/.snapshot/s/mine"), Inode(mine), At("/d/.snapshot")} {
		if _, err := r.tree.Stat(&Call{User: "ann"}, ref); fserror.KindOf(err) != fserror.Permission {
			t.Errorf("past a directory that is shut now: %v", err)
		}
	}
}

// TestSnapshotConcat: the blocks of a file that a snapshot has become no other file's.
func TestSnapshotConcat(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	for _, p := range []string{"/d/a", "/d/b", "/c"} {
		w := r.open(t, p, "client")
		r.commit(t, w, "block of "+p)
		r.close(t, w)
	}
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s")
	_, err := PlanConcat(r.tree, nil, At("/c"), []Ref{At("/d/a")})
	if fserror.KindOf(err) != fserror.Unsupported || !strings.Contains(err.Error(), "/d/.snapshot/s") {
		t.Fatalf("%v", err)
	}
	if _, err := r.apply(CallID{}, &OpConcat{Target: r.id(t, "/c"), Sources: []InodeID{r.id(t, "/d/a")}}); err == nil {
		t.Fatal("it was applied")
	}
	op, err := PlanConcat(r.tree, nil, At("/d/b"), []Ref{At("/c")}) // the target may be in one
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	sound(t, r.tree)
	r.forget(t, "/d", "s")
	if op, err = PlanConcat(r.tree, nil, At("/d/b"), []Ref{At("/d/a")}); err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	sound(t, r.tree)
	if c := r.tree.Counts(); c.Garbage != 0 || c.Blocks != 3 {
		t.Fatalf("%+v", c)
	}
}

// TestEachIsTheOthersParent: two directories may be each other's parent, each in another snapshot.
// Blocks of files in them are held and freed all the same.
func TestEachIsTheOthersParent(t *testing.T) {
	r := newRig(t)
	file := func(path string) {
		w := r.open(t, path, "client")
		r.commit(t, w, "block of "+path)
		r.close(t, w)
	}
	held := func(want int) {
		t.Helper()
		sound(t, r.tree)
		if n, _ := r.tree.snaps.Held(); n != want {
			t.Fatalf("%d blocks are held, want %d", n, want)
		}
	}
	r.mkdir(t, "/apart")
	r.mkdir(t, "/x")
	r.mkdir(t, "/x/y")
	file("/x/old")
	r.allow(t, "/apart")
	r.snapshot(t, "/apart", "first")
	r.rename(t, "/x/y", "/y", false)
	r.rename(t, "/x", "/y/x", false)
	for _, p := range []string{"/y/new", "/y/x/new", "/y/more", "/y/into"} {
		file(p)
	}
	r.snapshot(t, "/apart", "second")
	op, err := PlanConcat(r.tree, nil, At("/y/into"), []Ref{At("/y/more")})
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	r.remove(t, "/y/into")
	held(0)
	r.allow(t, "/y")
	r.snapshot(t, "/y", "third")
	for _, p := range []string{"/y/new", "/y/x/new", "/y/x/old"} {
		r.remove(t, p)
	}
	held(3)
	r.snapshot(t, "/apart", "fourth")
	r.forget(t, "/y", "third")
	held(0)
}

// TestSnapshotsTellNoHiddenNames: an error tells no path of a directory with snapshots that the
// caller may not reach.
func TestSnapshotsTellNoHiddenNames(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"/all", "/all/ann", "/all/ann/shut", "/all/ann/shut/secret"} {
		r.mkdir(t, p)
	}
	for _, p := range []string{"/all/ann/shut/secret/f", "/all/ann/g"} {
		w := r.open(t, p, "client")
		r.commit(t, w, "block of "+p)
		r.close(t, w)
	}
	r.allow(t, "/all/ann/shut/secret")
	r.snapshot(t, "/all/ann/shut/secret", "s")
	r.must(t, &OpRename{FromParent: r.id(t, "/all/ann/shut/secret"), FromName: "f", ToParent: r.id(t, "/all/ann"), ToName: "f"})
	for _, p := range []string{"/all/ann", "/all/ann/f", "/all/ann/g"} {
		r.must(t, &OpSetAttr{Inode: r.id(t, p), SetMode: true, Mode: 0o700, User: "ann"})
	}
	r.must(t, &OpSetAttr{Inode: r.id(t, "/all"), SetMode: true, Mode: 0o777})
	r.must(t, &OpSetAttr{Inode: r.id(t, "/all/ann/shut"), SetMode: true, Mode: 0o700, User: "root"})
	for user, told := range map[string]bool{"ann": false, "root": true} {
		c := &Call{User: user, Super: user == "root"}
		_, rm := PlanDelete(r.tree, c, At("/all/ann"), true, 0)
		_, concat := PlanConcat(r.tree, c, At("/all/ann/g"), []Ref{At("/all/ann/f")})
		for _, err := range []error{rm, concat} {
			if err == nil || !strings.Contains(err.Error(), "snapshot") || strings.Contains(err.Error(), "/shut/secret") != told {
				t.Errorf("%s: %v", user, err)
			}
		}
	}
}

// TestSnapshotLooks: what is found in a snapshot, or that it is gone, depends on the rights of the
// directory, and on the snapshots that there are.
func TestSnapshotLooks(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.create(t, "/d/f", "")
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s")
	inode := r.id(t, "/d/.snapshot/s/f")
	r.tree.Track(true)
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d"), SetMode: true, Mode: 0o755})
	last, _ := r.tree.Last()
	c := &Call{User: "ann"}
	if _, err := r.tree.Stat(c, Inode(inode)); err != nil || c.AsOf() != last {
		t.Errorf("%v as of %d, want %d", err, c.AsOf(), last)
	}
	r.tree.SetDurable(last)
	r.forget(t, "/d", "s")
	c = &Call{User: "ann"}
	if _, err := r.tree.Stat(c, Inode(inode)); fserror.KindOf(err) != fserror.NotFound || c.AsOf() <= last {
		t.Errorf("%v as of %d, want more than %d", err, c.AsOf(), last)
	}
}

// TestSnapshotMemory: old tails, extended attributes and ACLs count in the memory of snapshots.
func TestSnapshotMemory(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.create(t, "/d/f", "")
	r.allow(t, "/d")
	r.must(t, &OpXattr{Inode: r.id(t, "/d/f"), Name: "user.a", Value: make([]byte, 8_000)})
	r.setACL(t, "/d/f", "user::rwx,user:ann:r,group::r,mask::r,other::r")
	r.snapshot(t, "/d", "s")
	before := r.tree.SnapshotMemory()
	r.must(t, &OpSetAttr{Inode: r.id(t, "/d/f"), SetMode: true, Mode: 0o640})
	page := r.tree.SnapshotMemory() - before
	r.must(t, &OpXattr{Inode: r.id(t, "/d/f"), Name: "user.a", Remove: true})
	xattr := r.tree.SnapshotMemory() - before - page
	r.setACL(t, "/d/f", "user:ann:rw")
	acl := r.tree.SnapshotMemory() - before - page - xattr
	if before != 0 || page <= 0 || page > 10_000 || xattr < 8_000 || xattr > 9_000 || acl < 200 || acl > 1000 {
		t.Errorf("%d, a page %d, an attribute %d, an ACL %d bytes", before, page, xattr, acl)
	}
}

// TestSnapshotIsMadeAtOnce: making a snapshot of a hundred thousand files takes as much memory as
// one of a thousand.
func TestSnapshotIsMadeAtOnce(t *testing.T) {
	const many = 50
	made := func(files int) (bytes uint64) {
		r := fill(t, files)
		r.raise(t)
		r.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Allow, Dir: RootID}})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range many {
			r.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Make, Dir: RootID, Name: fmt.Sprint(i)}})
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / many
	}
	if few, all := made(1_000), made(100_000); all > 2*few {
		t.Errorf("a snapshot of 1,000 files allocates %d bytes, one of 100,000 files %d", few, all)
	} else {
		t.Logf("%d and %d bytes", few, all)
	}
}

// TestSnapshotsShare: a hundred snapshots with a change each take memory, and room in an image,
// for the changes, also after they were read from one.
func TestSnapshotsShare(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	const files, many = 10_000, 100
	for i := range files {
		r.create(t, fmt.Sprintf("/d/%05d", i), "")
	}
	r.allow(t, "/d")
	plain := len(imageOf(t, r.tree))
	for i := range many {
		r.snapshot(t, "/d", fmt.Sprint("s", i))
		r.must(t, &OpSetAttr{Inode: r.id(t, fmt.Sprintf("/d/%05d", i*files/many)), SetMode: true, Mode: 0o600})
	}
	image := imageOf(t, r.tree)
	if more := len(image) - plain; more > many*100 {
		t.Errorf("%d snapshots make an image of %d bytes %d bytes longer", many, plain, more)
	}
	back := roundTrip(t, r.tree)
	for name, tree := range map[string]*Tree{"made": r.tree, "read": back} {
		if b := tree.SnapshotMemory(); b < many*48 || b > many*16<<10 {
			t.Errorf("%s: %d bytes for a change each of %d snapshots of %d files", name, b, many, files)
		}
	}
	for i, want := range []uint16{0o644, 0o644, 0o600, 0o600} {
		if a, err := back.Stat(nil, At(fmt.Sprintf("/d/.snapshot/s%d/%05d", i, files/many))); err != nil || a.Mode != want {
			t.Errorf("s%d: %o, %v", i, a.Mode, err)
		}
	}
}

// TestSnapshotReclaim: an image in the middle of what a deleted snapshot held, then the rest.
func TestSnapshotReclaim(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.allow(t, "/d")
	const files = 7
	for i := range files {
		w := r.open(t, fmt.Sprint("/d/", i), "client")
		r.commit(t, w, "block")
		r.close(t, w)
	}
	r.snapshot(t, "/d", "a")
	r.snapshot(t, "/d", "b")
	for i := range files {
		if i == 2 {
			r.snapshot(t, "/d", "c") // without two of them
		}
		op, err := PlanDelete(r.tree, nil, At(fmt.Sprint("/d/", i)), false, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
	}
	for i, name := range []string{"c", "b", "a"} {
		op, err := PlanDeleteSnapshot(r.tree, nil, At("/d"), name)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
		for n := 0; r.tree.snaps.Dying(); n++ {
			if n == 1 {
				r.tree = roundTrip(t, r.tree)
			}
			r.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: 2}})
			sound(t, r.tree)
		}
		want := 0
		if i == 2 {
			want = files
		}
		if c := r.tree.Counts(); c.Garbage != want || c.Held != files-want {
			t.Fatalf("after %s: %+v", name, c)
		}
	}
}

// TestSnapshotNumbers: numbers of snapshots are used again, but not as long as one is, or holds
// something; which is newer does not depend on them.
func TestSnapshotNumbers(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	w := r.open(t, "/d/f", "client")
	r.commit(t, w, "block")
	r.close(t, w)
	r.allow(t, "/d")
	r.snapshot(t, "/d", "one")
	r.snapshot(t, "/d", "two")
	for range snapshots.MaxID - 4 {
		s := r.tree.snaps.Make(r.id(t, "/d"), "x", 0, r.tree.nextInode, snapshots.In{})
		r.tree.snaps.Delete(s)
	}
	remove := func(name string) {
		t.Helper()
		op, err := PlanDeleteSnapshot(r.tree, nil, At("/d"), name)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
	}
	r.snapshot(t, "/d", "three")
	op, err := PlanDelete(r.tree, nil, At("/d/f"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	r.snapshot(t, "/d", "four")
	remove("one")   // holds nothing
	remove("three") // holds the block
	r.snapshot(t, "/d", "five")
	r.snapshot(t, "/d", "six")
	for range 2 {
		for name, want := range map[string]snapshots.ID{"two": 2, "four": snapshots.MaxID, "five": 1, "six": 3} {
			if s := r.tree.snaps.Named(r.id(t, "/d"), name); s == nil || s.ID != want {
				t.Errorf("%s is %+v, not %d", name, s, want)
			}
		}
		var newest []string
		r.tree.snaps.Newest(func(s *snapshots.Snapshot) bool { newest = append(newest, s.Name); return true })
		if want := []string{"six", "five", "four", "two"}; !slices.Equal(newest, want) {
			t.Errorf("%q, not %q", newest, want)
		}
		sound(t, r.tree)
		r.tree = roundTrip(t, r.tree)
	}
	r.forget(t, "/d", "six")
	if c := r.tree.Counts(); c.Held != 1 || c.Garbage != 0 {
		t.Errorf("%+v", c)
	}
	r.tree.snaps.EachHeld(0, func(h snapshots.Held) bool {
		if h.By != 2 {
			t.Errorf("it is held by %d", h.By)
		}
		return true
	})
	sound(t, r.tree)
}

// TestHeldBlocksAreAllListed: who goes through all blocks, a few at a time, sees also those that
// meanwhile become another snapshot's.
func TestHeldBlocksAreAllListed(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.allow(t, "/d")
	const files = 8
	for i := range files {
		w := r.open(t, fmt.Sprint("/d/", i), "client")
		r.commit(t, w, "block")
		r.close(t, w)
	}
	r.snapshot(t, "/d", "a")
	for i := range files {
		if i == files/2 {
			r.snapshot(t, "/d", "b")
		}
		op, err := PlanDelete(r.tree, nil, At(fmt.Sprint("/d/", i)), false, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
	}
	seen := make(map[blockstore.Key]bool)
	for from, more := InodeID(0), true; more; {
		more = false
		r.tree.Referenced(from, func(id InodeID, b Block) bool {
			if seen[b.Key] {
				return true
			}
			seen[b.Key], from, more = true, id, true
			return false
		})
		if len(seen) == files/2+1 {
			r.forget(t, "/d", "b")
		}
	}
	if len(seen) != files {
		t.Errorf("%d of %d blocks were seen", len(seen), files)
	}
	sound(t, r.tree)
}

// TestSnapshotLimitsOfImages: an image with more than there can be is refused.
func TestSnapshotLimitsOfImages(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s")
	for name, change := range map[string]func(*Tree){
		"inode numbers": func(tree *Tree) { tree.nextInode = 1<<snapshots.Bits + 1 },
		"snapshots of a directory": func(tree *Tree) {
			in := tree.in()
			for i := range snapshots.MaxOfDir {
				tree.snaps.Make(r.id(t, "/d"), fmt.Sprint(i), 0, tree.nextInode, in.Clone())
			}
			tree.slots = in.Inodes
		},
	} {
		tree := r.tree.Clone()
		tree.frozen = false
		change(tree)
		if _, err := ReadImage(bytes.NewReader(imageOf(t, tree))); err == nil {
			t.Errorf("%s: an image beyond the limit is read", name)
		}
	}
}

// differ is all that changed from one snapshot of a directory to another, or to how it is.
func differ(t *testing.T, tree *Tree, dir, from, to string) (all []snapshots.Diff) {
	t.Helper()
	for start := InodeID(0); ; {
		list, next, err := tree.SnapshotDiff(nil, At(dir), from, to, start, 100)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, list...); next == 0 {
			return all
		}
		start = next
	}
}

// TestDiffBack: from a newer snapshot to an older one the same is told as in the other direction,
// also of snapshots that were read from an image, in which the older one hides what came later.
func TestDiffBack(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.create(t, "/d/f", "")
	r.allow(t, "/d")
	r.snapshot(t, "/d", "s1")
	const files = 200 // pages that only later inodes are on, too
	for i := range files {
		r.create(t, fmt.Sprintf("/d/%03d", i), "")
	}
	r.snapshot(t, "/d", "s2")
	for name, tree := range map[string]*Tree{"made": r.tree, "read": roundTrip(t, r.tree)} {
		for _, newer := range []string{"s2", ""} {
			there, back := differ(t, tree, "/d", "s1", newer), differ(t, tree, "/d", newer, "s1")
			if len(there) != files+1 || len(back) != files+1 {
				t.Fatalf("%s: %d changes from s1 to %q, and %d back, not %d", name, len(there), newer, len(back), files+1)
			}
			for i, c := range there {
				want := c
				if c.Kind == snapshots.Created {
					want = snapshots.Diff{Kind: snapshots.Deleted, Inode: c.Inode, Type: c.Type, From: c.To}
				}
				if back[i] != want {
					t.Errorf("%s: from %q to s1 %+v, not %+v", name, newer, back[i], want)
				}
			}
		}
	}
}

// TestDiffTellsTheDead: what the end of a lease took from the tree is told as deleted from then on,
// also before it is removed, when nothing of it has changed; in pages, each once, and in order.
func TestDiffTellsTheDead(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.create(t, "/d/f", "")
	r.allow(t, "/d")
	const files = 10_000 // more than are looked at in a page
	for id := range LeaseID(2) {
		r.grant(t, id+1, 60_000)
	}
	for i := range files {
		r.attachNew(t, LeaseID(1+i%2), fmt.Sprintf("/d/%05d", i))
	}
	r.snapshot(t, "/d", "s1")
	for id := range LeaseID(2) {
		r.must(t, &OpEnd{ID: id + 1, Reason: LeaseRevoked})
	}
	r.snapshot(t, "/d", "s2")
	r.must(t, &OpReap{ID: 1, Limit: 10})
	r.create(t, "/d/new", "")
	for name, tree := range map[string]*Tree{"made": r.tree, "read": roundTrip(t, r.tree)} {
		for newer, more := range map[string]int{"s2": 1, "": 2} {
			for _, back := range []bool{false, true} {
				from, to, gone := "s1", newer, snapshots.Deleted
				if back {
					from, to, gone = newer, "s1", snapshots.Created
				}
				all, n, last := differ(t, tree, "/d", from, to), 0, InodeID(0)
				for _, c := range all {
					if c.Inode <= last {
						t.Fatalf("%s, from %q to %q: inode %d comes after %d", name, from, to, c.Inode, last)
					}
					if last = c.Inode; c.Kind == gone {
						n++
					}
				}
				if n != files || len(all) != files+more {
					t.Errorf("%s, from %q to %q: %d of %d changes, not %d of %d", name, from, to, n, len(all), files, files+more)
				}
			}
		}
	}
}

// TestHeldIsDurable: how much snapshots hold is seen as of the record that changed it last.
func TestHeldIsDurable(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.allow(t, "/d")
	w := r.open(t, "/d/f", "client")
	r.commit(t, w, "block")
	r.close(t, w)
	r.snapshot(t, "/d", "a")
	r.snapshot(t, "/d", "b")
	r.tree.Track(true)
	seen := func(what string) {
		t.Helper()
		last, _ := r.tree.Last()
		c := &Call{User: "ann"}
		if SnapshotsOf(r.tree, c); c.AsOf() != last {
			t.Errorf("%s: as of %d, not %d", what, c.AsOf(), last)
		}
		r.tree.SetDurable(last)
	}
	op, err := PlanDelete(r.tree, nil, At("/d/f"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	seen("a block is held")
	r.forget(t, "/d", "b")
	seen("another one has it")
	if held := r.tree.SnapshotTable().HeldOf(r.id(t, "/d")); held == 0 {
		t.Error("nothing is held")
	}
}

// TestBlocksKeepTheirPlaces: a block at another place of a file in a snapshot than in the tree is
// found, and an image with it refused: what is freed relies on it.
func TestBlocksKeepTheirPlaces(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.allow(t, "/d")
	w := r.open(t, "/d/f", "client")
	r.commit(t, w, "one")
	r.commit(t, w, "other")
	r.close(t, w)
	s := r.snapshot(t, "/d", "s")
	if _, err := ReadImage(bytes.NewReader(imageOf(t, r.tree))); err != nil || len(r.tree.Check()) > 0 {
		t.Fatalf("%v, %v", err, r.tree.Check())
	}
	n := s.In.Inodes.Inode(r.id(t, "/d/f")).Edit()
	b := slices.Clone(n.Blocks())
	slices.Reverse(b)
	n.OwnExt().Blocks = b
	s.In.Inodes.PutInode(n)
	if found := r.tree.Check(); len(found) == 0 {
		t.Error("nothing is found")
	}
	if _, err := ReadImage(bytes.NewReader(imageOf(t, r.tree))); err == nil {
		t.Error("the image is read")
	}
}
