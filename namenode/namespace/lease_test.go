package namespace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// leaseRig is a rig with the leases 1 and 2, and checks it all at the end.
func leaseRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.watch = newObserver(r.tree)
	r.grant(t, 1, 60_000)
	r.grant(t, 2, 60_000)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		sound(t, r.tree)
		r.watch.check(t)
		roundTrip(t, r.tree)
		same(t, r.tree, replay(t, r.journal))
	})
	return r
}

// lease returns the lease that a path is attached to, and how many files the
// lease has.
func (r *rig) lease(t tb, path string) (id LeaseID, files int) {
	t.Helper()
	a, err := r.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	l, _ := r.tree.Lease(nil, a.Lease)
	return a.Lease, l.Files
}

func (r *rig) files(id LeaseID) int {
	l, _ := r.tree.Lease(nil, id)
	return l.Files
}

func (r *rig) absent(t tb, path string) {
	t.Helper()
	if _, err := r.tree.Stat(nil, At(path)); fserror.KindOf(err) != fserror.NotFound {
		t.Fatalf("%s is there: %v", path, err)
	}
}

func (r *rig) remove(t tb, path string) Result {
	t.Helper()
	op, err := PlanDelete(r.tree, nil, At(path), true, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op)
}

func (r *rig) rename(t tb, from, to string, detach bool) {
	t.Helper()
	op, err := PlanRename(r.tree, nil, At(from), At(to), true, detach)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

// refused applies a record that must not fit.
func (r *rig) refused(t tb, op Op) {
	t.Helper()
	if _, err := r.apply(CallID{}, op); fserror.KindOf(err) != fserror.Internal || err == nil {
		t.Fatalf("%s %+v was not refused: %v", opName(op), op, err)
	}
}

func TestEndOfALeaseDeletesItsFiles(t *testing.T) {
	r := leaseRig(t)
	r.create(t, "/d/f", "data")
	r.create(t, "/d/g", "data")
	id := r.attach(t, 1, "/d/f")
	r.attachNew(t, 1, "/d/new")
	w := r.open(t, "/d/open", "client")
	r.attach(t, 1, "/d/open")
	if got, files := r.lease(t, "/d/f"); got != 1 || files != 3 {
		t.Fatal(got, files)
	}
	if got := r.tree.LeaseFiles(1, 0, 1); !slices.Equal(got, []InodeID{id}) {
		t.Fatal(got)
	}
	res := r.end(t, 1)
	want := ClosedFile{Inode: w.Inode, Epoch: w.Epoch, Session: SessionID{'c'}, Reason: ReasonDeleted}
	if len(res.Closed) == 1 { // who had it, and since when, is for the history
		want.Holder, want.Since = res.Closed[0].Holder, res.Closed[0].Since
	}
	if !res.LeaseEnded || res.Lease != 1 || !slices.Equal(res.Closed, []ClosedFile{want}) {
		t.Fatalf("%+v", res)
	}
	for _, path := range []string{"/d/f", "/d/new", "/d/open"} {
		r.absent(t, path)
	}
	wantKind(t, r.tree.CheckWriter(nil, w), fserror.LeaseLostGone)
	if a, err := r.tree.Stat(nil, At("/d")); err != nil || a.Entries != 1 || a.MTime != r.now {
		t.Fatal(a, err)
	}
	if _, ok := r.tree.Lease(nil, 1); ok || r.tree.EndedLeases() != 1 {
		t.Fatal("the lease is there")
	}
	if c := r.tree.CountReachable(); c.Files != 1 || c.Dirs != 2 || r.tree.Counts().Files != 4 {
		t.Fatalf("%+v", c)
	}
	// Its id is free again.
	r.grant(t, 1, 5)
	if l, ok := r.tree.Lease(nil, 1); !ok || l.TTL != 5 || l.Files != 0 || l.Ended != 0 {
		t.Fatalf("%+v", l)
	}
}

// However a file goes, its lease lets go of it.
func TestAttachedFileGoes(t *testing.T) {
	for name, do := range map[string]func(r *rig){
		"delete": func(r *rig) { r.remove(t, "/d/f") },
		"create over it": func(r *rig) {
			op, err := PlanCreate(r.tree, nil, CreateRequest{At: Follow("/d/f"), Overwrite: true, Close: true})
			if err != nil {
				t.Fatal(err)
			}
			r.must(t, op)
		},
		"rename over it": func(r *rig) { r.rename(t, "/d/other", "/d/f", false) },
		"concat": func(r *rig) {
			op, err := PlanConcat(r.tree, nil, Follow("/d/other"), []Ref{At("/d/f")})
			if err != nil {
				t.Fatal(err)
			}
			r.must(t, op)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := leaseRig(t)
			r.create(t, "/d/f", "data")
			r.create(t, "/d/other", "")
			r.attach(t, 1, "/d/f")
			do(r)
			if r.files(1) != 0 || r.tree.Counts().Attached != 0 {
				t.Fatal("the lease has a file that is gone")
			}
			before := r.tree.Counts().Files
			if res := r.end(t, 1); res.Deleted != 0 || len(res.Closed) != 0 || r.tree.Counts().Files != before {
				t.Fatalf("%+v", res)
			}
		})
	}
}

// What stays attached: the file that a concat makes longer, one that is renamed
// or replaces another.
func TestAttachedFileStays(t *testing.T) {
	r := leaseRig(t)
	r.create(t, "/f", "")
	r.create(t, "/src", "data")
	r.create(t, "/there", "data")
	id := r.attach(t, 1, "/f")
	op, err := PlanConcat(r.tree, nil, Follow("/f"), []Ref{At("/src")})
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	r.attach(t, 2, "/there")
	r.rename(t, "/f", "/there", false)
	if got, files := r.lease(t, "/there"); got != 1 || files != 1 || r.files(2) != 0 {
		t.Fatal(got, files)
	}
	if got := r.tree.LeaseFiles(1, 0, 10); !slices.Equal(got, []InodeID{id}) {
		t.Fatal(got)
	}
	r.end(t, 1)
	r.absent(t, "/there")
}

// A file whose directory was deleted is no longer seen; its lease has it until
// its memory is freed, or the lease ends.
func TestAttachedFileInDeletedDirectory(t *testing.T) {
	for _, first := range []string{"reclaim", "end"} {
		t.Run(first, func(t *testing.T) {
			r := leaseRig(t)
			id := r.attachNew(t, 1, "/d/sub/f")
			w := r.open(t, "/d/open", "client")
			r.attach(t, 1, "/d/open")
			res := r.remove(t, "/d")
			if len(res.Closed) != 1 || res.Closed[0].Inode != w.Inode || res.Closed[0].Reason != ReasonDeleted || r.files(1) != 2 {
				t.Fatalf("%+v, %d files", res, r.files(1))
			}
			r.refused(t, &OpAttach{ID: 2, Inode: id})
			reclaim := func() {
				for r.tree.Counts().Detached > 0 {
					r.must(t, &OpReclaim{Limit: 1})
					sound(t, r.tree)
				}
			}
			if first == "reclaim" {
				reclaim()
				if r.files(1) != 0 {
					t.Fatal(r.files(1))
				}
			}
			res = r.end(t, 1)
			if len(res.Closed) != 0 || len(res.Events) != 0 || r.tree.Counts().Leases != map[string]int{"reclaim": 1, "end": 2}[first] {
				t.Fatalf("%+v", res)
			}
			if first == "end" { // of the two the other is left to OpReclaim
				if res = r.must(t, &OpReap{ID: 1, Limit: 1}); res.Deleted != 1 || len(res.Events) != 0 {
					t.Fatalf("%+v", res)
				}
				sound(t, r.tree)
			}
			reclaim()
			if c := r.tree.Counts(); c.Files != 0 || c.Dirs != 1 || c.Attached != 0 {
				t.Fatalf("%+v", c)
			}
		})
	}
}

func TestAttachElsewhereAndDetach(t *testing.T) {
	r := leaseRig(t)
	for _, f := range []string{"/a", "/b", "/c", "/d"} {
		r.create(t, f, "")
		r.attach(t, 1, f)
	}
	if op, err := PlanAttach(r.tree, nil, 1, At("/a")); op != nil || err != nil {
		t.Fatal(op, err)
	}
	r.attach(t, 2, "/a")
	op, err := PlanDetach(r.tree, nil, At("/b"))
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	if again, err := PlanDetach(r.tree, nil, At("/b")); again != nil || err != nil {
		t.Fatal(again, err)
	}
	r.refused(t, op)
	r.rename(t, "/c", "/kept", true)
	r.rename(t, "/d", "/moved", false)
	if r.files(1) != 1 || r.files(2) != 1 {
		t.Fatal(r.files(1), r.files(2))
	}
	r.end(t, 1)
	r.absent(t, "/moved")
	for path, lease := range map[string]LeaseID{"/a": 2, "/b": 0, "/kept": 0} {
		if got, _ := r.lease(t, path); got != lease {
			t.Fatalf("%s is attached to %d", path, got)
		}
	}
	// Detaching on the way what is attached to nothing is no error, neither for
	// a directory.
	r.rename(t, "/b", "/bb", true)
	r.mkdir(t, "/dir")
	r.rename(t, "/dir", "/dir2", true)
}

// attachMany makes n files that are attached to a lease.
func (r *rig) attachMany(t tb, id LeaseID, dir string, n int) {
	t.Helper()
	for i := range n {
		r.attachNew(t, id, fmt.Sprintf("%s/%03d", dir, i))
	}
}

// A lease that an older kind of record has ended refuses everything while its files are
// deleted a few at a time.
func TestEndedLease(t *testing.T) {
	r := leaseRig(t)
	r.attachMany(t, 1, "/d", endFiles)
	last := r.attachNew(t, 1, "/last")
	free := r.create(t, "/free", "")
	r.must(t, &OpAges{Ages: []Age{{AgeKey: AgeKey{Lease: 1}, MS: 5}}})
	res := r.endOld(t, 1)
	l, ok := r.tree.EndedLease(0)
	if res.Deleted != endFiles || !ok || l.Ended != res.TxID || l.Files != 1 || r.tree.Age(AgeKey{Lease: 1}) != 0 {
		t.Fatalf("%+v %+v", res, l)
	}
	r.tree.Leases(func(l Lease) bool {
		if l.ID == 1 {
			t.Fatal("an ended lease is listed")
		}
		return true
	})
	_, err := PlanEnd(r.tree, nil, 1, LeaseRevoked)
	wantKind(t, err, fserror.NotFound)
	_, err = PlanAttach(r.tree, nil, 1, At("/free"))
	wantKind(t, err, fserror.NotFound)
	_, err = PlanAttach(r.tree, nil, 2, At("/last"))
	wantKind(t, err, fserror.NotFound)
	_, err = PlanDetach(r.tree, nil, At("/last"))
	wantKind(t, err, fserror.NotFound)
	_, err = PlanRename(r.tree, nil, At("/last"), At("/saved"), false, true)
	wantKind(t, err, fserror.NotFound)
	_, err = PlanCreate(r.tree, nil, CreateRequest{At: At("/new"), Close: true, Lease: 1})
	wantKind(t, err, fserror.NotFound)
	wantKind(t, r.tree.CheckLease(nil, 1), fserror.NotFound)
	for _, op := range []Op{
		&OpEndLease{ID: 1},
		&OpAttach{ID: 1, Inode: free},
		&OpAttach{ID: 2, Inode: last},
		&OpDetach{Inode: last},
		&OpRename{FromParent: RootID, FromName: "last", ToParent: RootID, ToName: "saved", Detach: true},
		&OpCreate{Parent: RootID, Name: "new", Closed: true, Lease: 1},
	} {
		r.refused(t, op)
	}
	// An age that was counted before the end is not kept.
	r.must(t, &OpAges{Ages: []Age{{AgeKey: AgeKey{Lease: 1}, MS: 5}, {AgeKey: AgeKey{Lease: 99}, MS: 5}}})
	if r.tree.Age(AgeKey{Lease: 1}) != 0 || r.tree.Age(AgeKey{Lease: 99}) != 0 {
		t.Fatal("an ended lease has an age")
	}
	// What can still be done with the file does not save it.
	r.rename(t, "/last", "/moved", false)
	w := r.open(t, "/moved", "client")
	res = r.must(t, &OpReap{ID: 1, Limit: 10})
	if res.Deleted != 1 || len(res.Closed) != 1 || res.Closed[0].Epoch != w.Epoch || res.Closed[0].Reason != ReasonDeleted {
		t.Fatalf("%+v", res)
	}
	r.absent(t, "/moved")
	if _, ok := r.tree.Lease(nil, 1); ok || r.tree.EndedLeases() != 0 {
		t.Fatal("the lease is there")
	}
	r.refused(t, &OpReap{ID: 1, Limit: 10})
	r.grant(t, 1, 5)
	r.refused(t, &OpReap{ID: 1, Limit: 10})
}

// An ended lease whose last files are deleted by hand is gone too.
func TestEndedLeaseEmptiedByHand(t *testing.T) {
	r := leaseRig(t)
	r.attachMany(t, 1, "/d", endFiles+2)
	r.endOld(t, 1)
	r.remove(t, fmt.Sprintf("/d/%03d", endFiles))
	if r.tree.Counts().Attached != 1 || r.tree.EndedLeases() != 1 {
		t.Fatal(r.tree.Counts())
	}
	r.remove(t, "/d")
	if r.tree.EndedLeases() != 1 {
		t.Fatal("gone before its memory is freed")
	}
	r.must(t, &OpReclaim{Limit: 10})
	if _, ok := r.tree.Lease(nil, 1); ok || r.tree.EndedLeases() != 0 {
		t.Fatal("the lease is there")
	}
}

// Files are reaped lease by lease, in the order in which the leases ended, and
// of each those made first before others.
func TestReapOrder(t *testing.T) {
	r := leaseRig(t)
	r.attachMany(t, 1, "/one", endFiles+3)
	r.attachMany(t, 2, "/two", endFiles+3)
	r.endOld(t, 2) // first
	r.endOld(t, 1)
	left := func(dir string) string {
		t.Helper()
		_, entries, _, err := r.tree.List(nil, Follow(dir), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, strings.TrimPrefix(e.Name, "0"))
		}
		return strings.Join(names, " ")
	}
	for i, step := range []struct {
		lease          LeaseID // that ended first and has files
		limit, deleted int
		two, one       string
	}{
		{2, 0, 0, "64 65 66", "64 65 66"},
		{2, 2, 2, "66", "64 65 66"},
		{2, 3, 1, "", "64 65 66"},
		{1, 100, 3, "", ""},
	} {
		if l, _ := r.tree.EndedLease(0); l.ID != step.lease {
			t.Fatalf("step %d: lease %d ended first", i, l.ID)
		}
		res := r.must(t, &OpReap{ID: step.lease, Limit: uint32(step.limit)})
		if res.Deleted != step.deleted || left("/two") != step.two || left("/one") != step.one {
			t.Fatalf("step %d: %d deleted, %q and %q are left", i, res.Deleted, left("/two"), left("/one"))
		}
		sound(t, r.tree)
	}
	if c := r.tree.Counts(); c.Leases != 0 || c.Attached != 0 || r.tree.EndedLeases() != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestWhoMayUseALease(t *testing.T) {
	r := leaseRig(t) // the leases are u's
	top := r.mkdir(t, "/d")
	f := r.create(t, "/d/f", "")
	r.must(t, &OpSetAttr{Inode: top, SetMode: true, Mode: 0o777})
	u, v, super := &Call{User: "u"}, &Call{User: "v"}, &Call{User: "root", Super: true}
	for _, c := range []*Call{u, super, nil} {
		if err := r.tree.CheckLease(c, 1); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, r.tree.CheckLease(v, 1), fserror.Permission)
	wantKind(t, r.tree.CheckLease(v, 9), fserror.NotFound)
	_, err := PlanEnd(r.tree, v, 1, LeaseRevoked)
	wantKind(t, err, fserror.Permission)
	_, err = PlanAttach(r.tree, v, 1, At("/d/f"))
	wantKind(t, err, fserror.Permission)
	_, err = PlanCreate(r.tree, v, CreateRequest{At: At("/d/new"), Close: true, Lease: 1})
	wantKind(t, err, fserror.Permission)
	// Attaching takes the file's owner, or a superuser.
	_, err = PlanAttach(r.tree, u, 1, At("/d/f"))
	wantKind(t, err, fserror.Permission)
	if _, err := PlanAttach(r.tree, super, 1, At("/d/f")); err != nil {
		t.Fatal(err)
	}
	r.must(t, &OpSetAttr{Inode: f, User: "u"})
	if _, err := PlanAttach(r.tree, u, 1, At("/d/f")); err != nil {
		t.Fatal(err)
	}
	// Attaching and detaching take what deleting takes.
	r.must(t, &OpSetAttr{Inode: top, SetMode: true, Mode: 0o555})
	_, err = PlanAttach(r.tree, u, 1, At("/d/f"))
	wantKind(t, err, fserror.Permission)
	r.attach(t, 1, "/d/f")
	_, err = PlanDetach(r.tree, u, At("/d/f"))
	wantKind(t, err, fserror.Permission)
	r.must(t, &OpSetAttr{Inode: top, SetMode: true, Mode: 0o1777})
	r.must(t, &OpSetAttr{Inode: f, User: "v"})
	_, err = PlanDetach(r.tree, u, At("/d/f")) // the sticky bit: neither is u's
	wantKind(t, err, fserror.Permission)
}

// A name is its user's, free as soon as its lease has ended, and a call that has looked at
// it waits for the record that gave or freed it.
func TestNamesOfLeases(t *testing.T) {
	r := newRig(t)
	r.tree.Track(true)
	grant := func(id LeaseID, user, name string) error {
		op, err := PlanGrant(r.tree, nil, Lease{ID: id, TTL: 5, Owner: Owner{User: user, Client: "c", Host: "h"}, Name: name})
		if err == nil {
			r.must(t, op)
		}
		return err
	}
	asOf := func(want LeaseID) uint64 {
		t.Helper()
		c := &Call{}
		if got := r.tree.NamedLease(c, "u", "n-1"); got != want {
			t.Errorf("the name leads to %x, not %x", uint64(got), uint64(want))
		}
		return c.AsOf()
	}
	if err := grant(10, "u", "n-1"); err != nil || r.tree.NamedLease(nil, "v", "n-1") != 0 {
		t.Fatal(err)
	}
	granted, _ := r.tree.Last()
	if asOf(10) != granted {
		t.Error("a name is shown before it is durable")
	}
	if err := grant(11, "v", "n-1"); err != nil {
		t.Error(err)
	}
	err := grant(12, "u", "n-1")
	wantKind(t, err, fserror.Exists)
	if !strings.Contains(err.Error(), `user u has a lease "n-1" already, a, granted to c on host h`) {
		t.Error(err)
	}
	r.refused(t, &OpGrantNamed{OpGrant{ID: 12, TTL: 5, Owner: Owner{User: "u"}}, "n-1"})
	r.attachNew(t, 10, "/d/kept") // so that the lease is remembered after its end
	r.must(t, &OpEnd{ID: 10, Reason: LeaseRevoked})
	ended, _ := r.tree.Last()
	if asOf(0) != ended {
		t.Error("a name is shown as free before that is durable")
	}
	image, err := ReadImage(bytes.NewReader(imageOf(t, r.tree)))
	if err != nil {
		t.Fatal(err)
	}
	same(t, r.tree, image)
	same(t, r.tree, replay(t, r.journal))
	if err := grant(13, "u", "n-1"); err != nil {
		t.Error(err)
	}
	sound(t, r.tree)
	for _, name := range []string{"f00", "0", "DEADBEEF", "a/b", "a b", "a\nb", "\xff-", strings.Repeat("n", 256)} {
		err := grant(14, "u", name)
		wantKind(t, err, fserror.InvalidArgument)
		if !strings.Contains(err.Error(), "cannot be the name of a lease: ") {
			t.Error(err)
		}
		r.refused(t, &OpGrantNamed{OpGrant{ID: 14, TTL: 5, Owner: Owner{User: "u"}}, name})
	}
}

// TestNamesOfAnotherUnicode: which characters are graphic, the tables of Unicode say that a program is
// built with. So only who grants a lease is asked to choose others, and what another release
// has recorded fits a tree.
func TestNamesOfAnotherUnicode(t *testing.T) {
	r := newRig(t)
	for i, name := range []string{"n-\u0378", "n-\u200b", "n-\u0085", "n-\u00a0"} { // no character, no space to see, a control character, a space
		op := OpGrant{ID: LeaseID(i + 1), TTL: 5, Owner: Owner{User: "u", Client: "c", Host: "h"}} //nolint:gosec // small
		_, err := PlanGrant(r.tree, nil, Lease{ID: op.ID, TTL: op.TTL, Owner: op.Owner, Name: name})
		wantKind(t, err, fserror.InvalidArgument)
		r.must(t, &OpGrantNamed{op, name})
		if r.tree.NamedLease(nil, "u", name) != op.ID {
			t.Errorf("%q is no name of a lease", name)
		}
	}
	sound(t, r.tree)
	roundTrip(t, r.tree)
}

func TestRefusedGrants(t *testing.T) {
	r := leaseRig(t)
	for _, op := range []*OpGrant{{ID: 0, TTL: 1}, {ID: tables.MaxLeaseID + 1, TTL: 1}, {ID: 3}, {ID: 3, TTL: -1}, {ID: 3, TTL: tables.MaxLeaseTTL + 1}} {
		_, err := PlanGrant(r.tree, nil, Lease{ID: op.ID, TTL: op.TTL, Owner: op.Owner})
		wantKind(t, err, fserror.InvalidArgument)
		r.refused(t, op)
	}
	_, err := PlanGrant(r.tree, nil, Lease{ID: 1, TTL: 5})
	wantKind(t, err, fserror.Exists)
	r.refused(t, &OpGrant{ID: 1, TTL: 5})
	r.refused(t, &OpTxn{Parts: []Op{&OpMkdir{Parent: RootID, Names: []string{"d"}}, &OpAttach{ID: 99, Inode: 2}}})
	r.refused(t, &OpAttach{ID: 1, Inode: RootID})
	r.refused(t, &OpAttach{ID: 1, Inode: 99})
	r.refused(t, &OpDetach{Inode: RootID})
	r.refused(t, &OpCaching{Term: 1})
	r.refused(t, &OpCaching{Session: SessionID{1}, Term: -1})
	for _, a := range []Age{
		{MS: 1}, {AgeKey: AgeKey{Lease: 1}, MS: -1}, {AgeKey: AgeKey{Lease: 1, Inode: 1}, MS: 1}, {AgeKey: AgeKey{Session: SessionID{1}, Inode: 1}, MS: 1}, {AgeKey: AgeKey{Session: SessionID{1}, Lease: 1}, MS: 0},
	} {
		r.refused(t, &OpAges{Ages: []Age{{AgeKey: AgeKey{Lease: 2}, MS: 1}, a}})
	}
	if r.tree.Age(AgeKey{Lease: 2}) != 0 {
		t.Fatal("refused, but kept")
	}
}

// The age of a file's lease is over with the lease.
func TestAgesOfFiles(t *testing.T) {
	for name, do := range map[string]func(r *rig, w Writer){
		"closed":            func(r *rig, w Writer) { r.close(t, w) },
		"recovered":         func(r *rig, w Writer) { r.must(t, &OpRecover{Inode: w.Inode}) },
		"taken over":        func(r *rig, _ Writer) { r.open(t, "/d/f", "other") },
		"deleted":           func(r *rig, _ Writer) { r.remove(t, "/d/f") },
		"directory deleted": func(r *rig, _ Writer) { r.remove(t, "/d") },
		"lease ended": func(r *rig, _ Writer) {
			r.attach(t, 1, "/d/f")
			r.end(t, 1)
		},
		"renewed": func(r *rig, w Writer) { r.must(t, &OpAges{Ages: []Age{{AgeKey: AgeKey{Inode: w.Inode}}}}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := leaseRig(t)
			w := r.open(t, "/d/f", "client")
			key := AgeKey{Inode: w.Inode}
			other := AgeKey{Session: SessionID{5}}
			r.must(t, &OpAges{Ages: []Age{{AgeKey: key, MS: 7}, {AgeKey: other, MS: 8}}})
			if r.tree.Age(key) != 7 {
				t.Fatal(r.tree.Age(key))
			}
			roundTrip(t, r.tree)
			do(r, w)
			if r.tree.Age(key) != 0 || r.tree.Age(other) != 8 {
				t.Fatal(r.tree.Age(key), r.tree.Age(other))
			}
			// One that was counted before is too late.
			if name != "taken over" && name != "renewed" {
				r.must(t, &OpAges{Ages: []Age{{AgeKey: key, MS: 7}}})
				if r.tree.Age(key) != 0 {
					t.Fatal("a closed file has an age")
				}
			}
		})
	}
}

// A record of a writer, or that opens a file, forgets the ages of its session and of
// the file. One of the namenode, or of somebody else, does not.
func TestWritersRecordsForgetAges(t *testing.T) {
	const length = 3 // of /d/f, in its tail
	for name, c := range map[string]struct {
		do            func(r *rig, w Writer)
		session, file bool // is forgotten
	}{
		"flush":             {func(r *rig, w Writer) { r.write(t, w, length, "x") }, true, true},
		"commit":            {func(r *rig, w Writer) { r.commit(t, w, "abcmore") }, true, true},
		"close":             {func(r *rig, w Writer) { r.close(t, w) }, true, true},
		"open another":      {func(r *rig, _ Writer) { r.open(t, "/d/other", "client") }, true, false},
		"opened by another": {func(r *rig, _ Writer) { r.open(t, "/d/f", "thief") }, false, true},
		"recovered":         {func(r *rig, w Writer) { r.must(t, &OpRecover{Inode: w.Inode}) }, false, true},
		"renamed":           {func(r *rig, _ Writer) { r.rename(t, "/d/f", "/d/g", false) }, false, false},
		"sealed": {func(r *rig, w Writer) {
			r.must(t, &OpCommit{Inode: w.Inode, Block: r.block("abc"), TailCovered: length})
		}, false, false},
		"merged": {func(r *rig, w Writer) {
			r.must(t, &OpCommit{Inode: w.Inode, Block: r.block("abc"), TailCovered: length})
			r.must(t, &OpCommit{Inode: w.Inode, Block: r.block("abc"), ReplaceLast: true})
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := leaseRig(t)
			w := r.open(t, "/d/f", "client")
			r.write(t, w, 0, "abc")
			f, _ := r.tree.OpenFile(w.Inode)
			session, file, other := AgeKey{Session: f.Holder.Session}, AgeKey{Inode: w.Inode}, AgeKey{Session: SessionID{0xfe}}
			r.must(t, &OpAges{Ages: []Age{{AgeKey: session, MS: 7}, {AgeKey: file, MS: 8}, {AgeKey: other, MS: 9}}})
			c.do(r, w)
			if a := r.tree.Age(session); (a == 0) != c.session {
				t.Errorf("the session's age is %d", a)
			}
			if a := r.tree.Age(file); (a == 0) != c.file {
				t.Errorf("the file's age is %d", a)
			}
			if a := r.tree.Age(other); a != 9 {
				t.Errorf("another's age is %d", a)
			}
		})
	}
}

// That there is no inode of a number yet cannot be cached: no change tells of
// its making.
func TestInodeToComeIsNotCached(t *testing.T) {
	r := leaseRig(t)
	c := &Call{User: "u", Super: true, Collect: true}
	_, err := r.tree.Stat(c, Inode(r.tree.nextInode))
	wantKind(t, err, fserror.NotFound)
	if c.Collect || c.Looks != nil {
		t.Fatalf("may be kept: %+v", c.Looks)
	}
	// One that was is another matter.
	id := r.create(t, "/f", "")
	r.remove(t, "/f")
	c = &Call{User: "u", Super: true, Collect: true}
	_, err = r.tree.Stat(c, Inode(id))
	wantKind(t, err, fserror.NotFound)
	if !c.Collect || len(c.Looks) != 1 {
		t.Fatalf("may not be kept: %+v", c.Looks)
	}
}

// Clones and a tree whose events are off make none, and list nothing.
func TestEventsOff(t *testing.T) {
	r := newRig(t)
	r.tree.Events(true)
	if res := r.must(t, &OpMkdir{Parent: RootID, Names: []string{"a"}}); len(res.Events) != 1 {
		t.Fatal(res.Events)
	}
	if _, err := r.apply(CallID{}, &OpMkdir{Parent: RootID, Names: []string{"a"}}); err == nil {
		t.Fatal("made twice")
	}
	if c := r.tree.Clone(); c.events {
		t.Fatal("a clone makes events")
	}
	r.tree.Events(false)
	if res := r.must(t, &OpMkdir{Parent: RootID, Names: []string{"b"}}); res.Events != nil {
		t.Fatal(res.Events)
	}
}

// TestEvents says for each kind of record which events it makes.
func TestEvents(t *testing.T) {
	r := leaseRig(t)
	show := func(res Result) string {
		names := map[EventType]string{
			EventCreate: "create", EventClose: "close", EventDelete: "delete", EventRename: "rename", EventLength: "length", EventAttr: "attr", EventLease: "lease",
		}
		var out []string
		for _, e := range res.Events {
			s := names[e.Type] + " " + e.Path
			switch {
			case e.NewPath != "":
				s += " " + e.NewPath
			case e.IsDir:
				s += " dir"
			}
			if e.Holder != "" {
				s += " by " + e.Holder
			}
			if dir, _ := r.tree.Path(e.Dir); e.Type != EventDelete && e.Type != EventRename && !strings.HasPrefix(e.Path, strings.TrimSuffix(dir, "/")+"/") {
				s += " not in " + dir
			}
			if dir, _ := r.tree.Path(e.NewDir); e.Type == EventRename && !strings.HasPrefix(e.NewPath, strings.TrimSuffix(dir, "/")+"/") {
				s += " not to " + dir
			}
			if e.Length != 0 {
				s += fmt.Sprint(" ", e.Length)
			}
			out = append(out, s)
		}
		return strings.Join(out, ", ")
	}
	want := func(op Op, events string) {
		t.Helper()
		if got := show(r.must(t, op)); got != events {
			t.Errorf("%s: events %q, should be %q", opName(op), got, events)
		}
	}
	dir := r.mkdir(t, "/d")
	h := Holder{Client: "c1", Session: SessionID{1}}
	want(&OpMkdir{Parent: dir, Names: []string{"x", "y"}}, "create /d/x dir, create /d/x/y dir")
	y, _ := r.tree.Stat(nil, At("/d/x/y"))
	want(&OpCreate{Parent: dir, Dirs: []string{"n"}, Name: "f", Holder: h, Token: Token{1}}, "create /d/n dir, create /d/n/f, lease /d/n/f by c1")
	f, _ := r.tree.Stat(nil, At("/d/n/f"))
	want(&OpAppendTail{Inode: f.ID, Data: []byte("abc")}, "length /d/n/f 3")
	want(&OpAttach{ID: 1, Inode: f.ID}, "lease /d/n/f by c1 3")
	want(&OpOpen{Inode: f.ID, Holder: Holder{Client: "c2"}, Token: Token{2}}, "lease /d/n/f by c2 3")
	want(&OpRename{FromParent: f.Parent, FromName: "f", ToParent: dir, ToName: "f", Detach: true}, "lease /d/n/f by c2 3, rename /d/n/f /d/f 3")
	want(&OpClose{Inode: f.ID, Data: []byte("d")}, "length /d/f 4, close /d/f 4")
	want(&OpTruncate{Inode: f.ID, Length: 4}, "")
	want(&OpTruncate{Inode: f.ID, Length: 2}, "length /d/f 2")
	want(&OpSetAttr{Inode: dir, SetMTime: true}, "attr /d dir")
	want(&OpSymlink{Parent: dir, Name: "l", Target: "f"}, "create /d/l 1")
	want(&OpCreate{Parent: dir, Name: "f", Replace: f.ID, Closed: true, Data: []byte("z"), Lease: 2}, "delete /d/f 2, create /d/f 1")
	f, _ = r.tree.Stat(nil, At("/d/f"))
	want(&OpDetach{Inode: f.ID}, "lease /d/f 1")
	l, _ := r.tree.Stat(nil, At("/d/l"))
	want(&OpRename{FromParent: dir, FromName: "f", ToParent: dir, ToName: "l", Replace: l.ID, Detach: true}, "delete /d/l 1, rename /d/f /d/l 1")
	g := r.create(t, "/d/g", "")
	want(&OpConcat{Target: g, Sources: []InodeID{f.ID}}, "delete /d/l 1, length /d/g 1")
	w := r.open(t, "/d/g", "client")
	want(&OpRecover{Inode: w.Inode}, "close /d/g 1")
	r.attach(t, 2, "/d/g")
	r.attachNew(t, 2, "/d/x/y/z")
	want(&OpRename{FromParent: y.Parent, FromName: "y", ToParent: RootID, ToName: "y"}, "rename /d/x/y /y")
	want(&OpEndLease{ID: 2}, "delete /d/g 1, delete /y/z 1")
	r.open(t, "/d/open", "client")
	want(&OpDelete{Parent: RootID, Name: "d", Inode: dir}, "close /d/open, delete /d dir")
	want(&OpReclaim{Limit: 100}, "")
	want(&OpGrant{ID: 3, TTL: 1}, "")
	want(&OpSafeMode{}, "")
}

// A listing looks at a limited number of entries that went with a lease.
func TestListAmidTheDead(t *testing.T) {
	r := newRig(t) // an observer looks at all files after each
	r.grant(t, 1, 60_000)
	r.attachMany(t, 1, "/d", 2*maxDeadLook+10)
	r.create(t, "/d/stays", "")
	r.must(t, &OpEnd{ID: 1, Reason: LeaseExpired})
	var after string
	for _, want := range []int{0, 0, 1} {
		_, entries, next, err := r.tree.List(nil, At("/d"), after, 0)
		if err != nil || len(entries) != want || want == 0 && next <= after || want > 0 && next != "" {
			t.Fatalf("after %q: %d entries, then those after %q, %v", after, len(entries), next, err)
		}
		after = next
	}
}

// What List returns is greater than after, also if that can be no name.
func TestListAfterWhatIsNoName(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	long := strings.Repeat("n", 24)
	for _, name := range []string{"a", long, "z"} {
		r.create(t, "/d/"+name, "")
	}
	for after, want := range map[string]int{
		"a\x00": 2, "a\x00\x00": 2, long + strings.Repeat("x", 240): 1, long + strings.Repeat("x", 256): 1, "b": 2, "zz": 0,
	} {
		_, entries, _, err := r.tree.List(nil, At("/d"), after, 0)
		if err != nil || len(entries) != want || len(entries) > 0 && entries[0].Name <= after {
			t.Errorf("after %d bytes %.30q: %d entries, want %d, %v", len(after), after, len(entries), want, err)
		}
	}
}

// A lease ends in one step: from the record of its end on nothing that was attached
// is found, however many files that are, and readers give up three things.
func TestLeaseEndsInOneStep(t *testing.T) {
	const files = 3000
	r := leaseRig(t)
	r.attachMany(t, 1, "/d", files)
	r.create(t, "/d/stays", "")
	op, err := PlanEnd(r.tree, nil, 1, LeaseExpired)
	if err != nil {
		t.Fatal(err)
	}
	if keys := r.tree.Affects(op); len(keys) > 2 { // and the directory's delegation
		t.Errorf("the end changes %+v", keys)
	}
	res := r.must(t, op)
	if deleted := len(res.Events); deleted != endEvents {
		t.Errorf("the end tells of %d files", deleted)
	}
	dir, entries, _, err := r.tree.List(nil, At("/d"), "", 2*files)
	if err != nil || len(entries) != 1 || dir.Entries != 1 || entries[0].Name != "stays" {
		t.Fatalf("%d entries, counted are %d: %v", len(entries), dir.Entries, err)
	}
	r.absent(t, "/d/2999")
	if c := r.tree.CountReachable(); c.Files != 1 || c.Inodes != 3 {
		t.Errorf("%+v", c)
	}
	image := roundTrip(t, r.tree) // amid the removal
	told, since := len(res.Events), len(r.journal)
	for i := 0; r.tree.EndedLeases() > 0; i++ {
		res := r.must(t, &OpReap{ID: 1, Limit: 100})
		if told += len(res.Events); res.Deleted != 100 {
			t.Fatalf("%d files were removed", res.Deleted)
		}
	}
	for _, rec := range r.journal[since:] {
		if _, err := applyRecord(image, rec); err != nil {
			t.Fatal(err)
		}
	}
	same(t, r.tree, image)
	if c := r.tree.Counts(); told != files || c.Files != 1 || c.Attached != 0 || c.Leases != 1 {
		t.Errorf("told of %d files; %+v", told, c)
	}
}

// A name of what ended with a lease can be reused at once, in any way; and the directory
// can be removed, or replaced.
func TestNameOfWhatEnded(t *testing.T) {
	for name, do := range map[string]func(r *rig){
		"create":     func(r *rig) { r.create(t, "/d/f", "new") },
		"mkdir":      func(r *rig) { r.mkdir(t, "/d/f/below") },
		"rename":     func(r *rig) { r.rename(t, "/other", "/d/f", false) },
		"rmdir":      func(r *rig) { r.must(t, planRmdir(t, r.tree, "/d")) },
		"replace":    func(r *rig) { r.mkdir(t, "/e"); r.rename(t, "/e", "/d", false) },
		"move":       func(r *rig) { r.rename(t, "/d", "/moved", false) },
		"attach new": func(r *rig) { r.grant(t, 1, 5); r.attachNew(t, 1, "/d/f"); r.end(t, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			r := leaseRig(t)
			r.create(t, "/other", "other")
			r.attachNew(t, 1, "/d/f")
			r.attachNew(t, 1, "/d/g")
			r.end(t, 1)
			do(r)
			sound(t, r.tree)
			r.watch.check(t)
			roundTrip(t, r.tree)
			for l, ok := r.tree.EndedLease(0); ok; l, ok = r.tree.EndedLease(0) {
				r.must(t, &OpReap{ID: l.ID, Limit: 1})
				sound(t, r.tree)
			}
			for r.tree.Counts().Detached > 0 {
				r.must(t, &OpReclaim{Limit: 1})
				sound(t, r.tree)
			}
			if c, reachable := r.tree.Counts(), r.tree.CountReachable(); c != reachable {
				t.Errorf("%+v, of which can be reached %+v", c, reachable)
			}
		})
	}
}

func planRmdir(t tb, tree *Tree, path string) *OpDelete {
	t.Helper()
	op, err := PlanDelete(tree, nil, At(path), false, TypeDir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return op
}

// A writer of what ended with its lease is fenced, and told of which lease.
func TestWriterOfWhatEnded(t *testing.T) {
	r := leaseRig(t)
	w := r.open(t, "/d/f", "client")
	r.attach(t, 1, "/d/f")
	r.end(t, 1)
	err := r.tree.CheckWriter(nil, w)
	if wantKind(t, err, fserror.LeaseLostGone); !strings.Contains(err.Error(), "granted lease 1") {
		t.Error(err)
	}
	r.refused(t, &OpOpen{Inode: w.Inode})
	r.refused(t, &OpAppendTail{Inode: w.Inode, Data: []byte("x")})
	r.must(t, &OpReap{ID: 1, Limit: 1})
	wantKind(t, r.tree.CheckWriter(nil, w), fserror.LeaseLostGone)
}

// Nobody is shown that what was attached to a lease is gone before the record of the
// lease's end is durable.
func TestEndIsNotDurable(t *testing.T) {
	r := newRig(t)
	r.grant(t, 1, 60_000)
	f := r.attachNew(t, 1, "/d/f")
	r.tree.Track(true)
	end := r.end(t, 1).TxID
	for what, ask := range map[string]func(c *Call){
		"stat":       func(c *Call) { _, _ = r.tree.Stat(c, At("/d/f")) },
		"stat inode": func(c *Call) { _, _ = r.tree.Stat(c, Inode(f)) },
		"list":       func(c *Call) { _, _, _, _ = r.tree.List(c, At("/d"), "", 0) },
		"lease":      func(c *Call) { _ = r.tree.CheckLease(c, 1) },
		"create":     func(c *Call) { _, _ = PlanCreate(r.tree, c, CreateRequest{At: At("/d/f"), Close: true}) },
	} {
		c := &Call{Super: true}
		if ask(c); c.AsOf() != end {
			t.Errorf("%s is as of %d, should be of the end, %d", what, c.AsOf(), end)
		}
	}
}

// A lease can concern only so many directories, each of them with any number of files.
func TestLeaseOfManyDirectories(t *testing.T) {
	r := newRig(t)
	r.grant(t, 1, 60_000)
	for i := range tables.MaxLeaseDirs {
		r.attachNew(t, 1, fmt.Sprintf("/%d/f", i))
	}
	r.attachNew(t, 1, "/0/g")
	r.create(t, "/other/f", "")
	_, err := PlanAttach(r.tree, nil, 1, At("/other/f"))
	wantKind(t, err, fserror.NoSpace)
	_, err = PlanRename(r.tree, nil, At("/0/f"), At("/other/g"), false, false)
	wantKind(t, err, fserror.NoSpace)
	_, err = PlanCreate(r.tree, nil, CreateRequest{At: At("/other/g"), Lease: 1, Close: true})
	wantKind(t, err, fserror.NoSpace)
	_, err = PlanCreate(r.tree, nil, CreateRequest{At: At("/0/new/g"), Lease: 1, Close: true, Parents: true})
	wantKind(t, err, fserror.NoSpace)
	dir, err := PlanMkdir(r.tree, nil, At("/0/dir"), 0o755, false)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, dir)
	_, err = PlanAttach(r.tree, nil, 1, At("/0/dir")) // its parent concerns the lease, and it does not yet
	wantKind(t, err, fserror.NoSpace)
	r.remove(t, "/0/dir")
	r.rename(t, "/0/f", "/other/g", true)
	r.rename(t, "/0/g", "/0/f", false)
	r.remove(t, "/0/f")
	r.attach(t, 1, "/other/f")
	r.end(t, 1)
	sound(t, r.tree)
	if c := r.tree.CountReachable(); c.Files != 1 {
		t.Errorf("%+v", c)
	}
}

// An attached directory goes with all that is below it, whatever that is attached to;
// writers below are fenced, and what is moved out stays.
func TestAttachedDirectory(t *testing.T) {
	r := leaseRig(t)
	op, err := PlanMkdirLeased(r.tree, nil, At("/top/a"), 0o755, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := r.must(t, op).Inode
	r.create(t, "/top/a/deep/f", "x")
	w := r.open(t, "/top/a/deep/open", "client")
	inner := r.attachNew(t, 2, "/top/a/inner")
	r.attachNew(t, 1, "/top/a/own")
	link, err := PlanSymlinkLeased(r.tree, nil, At("/top/a/link"), "deep", false, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, link)
	link, err = PlanSymlinkLeased(r.tree, nil, Follow("/top/a/link2"), "link", false, 2)
	if err != nil {
		t.Fatal(err)
	}
	if id := r.must(t, link).Inode; r.tree.LeaseOf(id) != 2 {
		t.Error("the link is not attached, if links are followed")
	}
	r.create(t, "/top/a/saved", "x")
	r.rename(t, "/top/a/saved", "/saved", false)
	r.rename(t, "/top/a", "/moved", false)
	if got, files := r.lease(t, "/moved"); got != 1 || files != 2 {
		t.Fatal(got, files)
	}
	if again, err := PlanMkdirLeased(r.tree, nil, At("/moved"), 0o755, true, 1); again != nil || err != nil {
		t.Fatal(again, err)
	}
	_, err = PlanMkdirLeased(r.tree, nil, At("/top"), 0o755, true, 1)
	wantKind(t, err, fserror.Exists)
	keys := r.tree.Affects(&OpEnd{ID: 1})
	if !slices.Contains(keys, Change{Kind: ChangeAttr, Inode: dir}) {
		t.Errorf("who makes files in the directory is not asked: %+v", keys)
	}
	res := r.end(t, 1)
	if len(res.Closed) != 1 || res.Closed[0].Inode != w.Inode {
		t.Errorf("%+v", res.Closed)
	}
	wantKind(t, r.tree.CheckWriter(nil, w), fserror.LeaseLostGone)
	for _, path := range []string{"/moved", "/moved/deep/f", "/moved/inner"} {
		r.absent(t, path)
	}
	for _, id := range []InodeID{dir, inner} {
		_, err := r.tree.Stat(nil, Inode(id))
		wantKind(t, err, fserror.NotFound)
	}
	if c := r.tree.CountReachable(); c.Files != 1 || c.Dirs != 2 || c.Symlinks != 0 {
		t.Errorf("%+v", c)
	}
	roundTrip(t, r.tree)
	r.mkdir(t, "/moved/again") // its name is free
	r.end(t, 2)                // what it had went before
	for l, ok := r.tree.EndedLease(0); ok; l, ok = r.tree.EndedLease(0) {
		r.must(t, &OpReap{ID: l.ID, Limit: 1})
		sound(t, r.tree)
	}
	for r.tree.Counts().Detached > 0 {
		r.must(t, &OpReclaim{Limit: 2})
	}
	if c, reachable := r.tree.Counts(), r.tree.CountReachable(); c != reachable || c.Attached != 0 {
		t.Errorf("%+v, of which can be reached %+v", c, reachable)
	}
}

// Only a caller that may delete everything below a directory may attach it, or move it
// into an attached one.
func TestWhoMayAttachADirectory(t *testing.T) {
	r := newRig(t)
	r.grant(t, 1, 60_000) // u's
	u := &Call{User: "u"}
	owner := func(path, user string, mode uint16) {
		t.Helper()
		a, err := r.tree.Stat(nil, At(path))
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, &OpSetAttr{Inode: a.ID, SetMode: true, Mode: mode, User: user})
	}
	r.mkdir(t, "/home/mine/theirs/deep")
	r.mkdir(t, "/home/scratch")
	owner("/home", "u", 0o755)
	owner("/home/mine", "u", 0o755)
	owner("/home/scratch", "u", 0o755)
	owner("/home/mine/theirs", "v", 0o755)
	attach := func(c *Call, path string) error {
		_, err := PlanAttach(r.tree, c, 1, At(path))
		return err
	}
	wantKind(t, attach(u, "/home/mine"), fserror.Permission)        // below is what u may not delete
	wantKind(t, attach(u, "/home/mine/theirs"), fserror.Permission) // not u's
	wantKind(t, attach(u, "/"), fserror.InvalidArgument)
	if err := attach(nil, "/home/mine"); err != nil {
		t.Fatal(err)
	}
	r.attach(t, 1, "/home/scratch")
	_, err := PlanRename(r.tree, u, At("/home/mine"), At("/home/scratch/mine"), false, false)
	wantKind(t, err, fserror.Permission)
	r.remove(t, "/home/mine/theirs/deep")
	if err := attach(u, "/home/mine"); err != nil { // an empty directory can be removed
		t.Fatal(err)
	}
	if _, err := PlanRename(r.tree, u, At("/home/mine"), At("/home/scratch/mine"), false, false); err != nil {
		t.Fatal(err)
	}
	for i := range maxAttachLook {
		r.create(t, fmt.Sprintf("/home/mine/%d", i), "")
	}
	wantKind(t, attach(u, "/home/mine"), fserror.TooLarge)
}
