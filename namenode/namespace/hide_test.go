package namespace

import (
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// planned applies what a plan returned; op must not be nil.
func planned(t tb, r *rig, op Op, err error) Result {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op)
}

// TestHide: a file that loses its name to another continues under a hidden one,
// its writer and bytes with it, in one record; at the end of the lease it goes.
func TestHide(t *testing.T) {
	r := newRig(t)
	r.watch = newObserver(r.tree)
	r.grant(t, 5, 60_000)
	w := r.open(t, "/d/log", "client")
	r.write(t, w, 0, "old")
	newer := r.create(t, "/tmp/new", "new")
	op, err := PlanRename(r.tree, nil, At("/tmp/new"), At("/d/log"), true, false)
	if err != nil {
		t.Fatal(err)
	}
	hide, err := PlanHide(r.tree, nil, op, Hide{Inode: w.Inode, Name: ".hidden", Lease: 5})
	res := planned(t, r, hide, err)
	if len(res.Closed) != 0 || res.Inode != w.Inode {
		t.Fatalf("%+v", res)
	}
	if a, err := r.tree.Stat(nil, At("/d/log")); err != nil || a.ID != newer {
		t.Fatalf("%+v %v", a, err)
	}
	r.absent(t, "/tmp/new")
	if path, _ := r.tree.Path(w.Inode); path != "/d/.hidden" {
		t.Fatal(path)
	}
	if id, files := r.lease(t, "/d/.hidden"); id != 5 || files != 1 {
		t.Fatal(id, files)
	}
	r.write(t, w, 3, " and more")
	if got := r.content(t, r.tree, w.Inode); got != "old and more" {
		t.Fatal(got)
	}
	if d, _ := r.tree.Stat(nil, At("/d")); d.Entries != 2 {
		t.Fatal(d.Entries)
	}

	// A removal likewise.
	del, err := PlanDelete(r.tree, nil, At("/d/log"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	hide, err = PlanHide(r.tree, nil, del, Hide{Inode: newer, Name: ".gone", Lease: 5})
	planned(t, r, hide, err)
	r.absent(t, "/d/log")
	if got := r.content(t, r.tree, newer); got != "new" {
		t.Fatal(got)
	}
	sound(t, r.tree)
	same(t, r.tree, replay(t, r.journal))
	if closed := r.end(t, 5).Closed; len(closed) != 1 || closed[0].Inode != w.Inode {
		t.Fatalf("%+v", closed)
	}
	if d, _ := r.tree.Stat(nil, At("/d")); d.Entries != 0 {
		t.Fatal(d.Entries)
	}
	r.watch.check(t)
}

func TestPlanHideRefuses(t *testing.T) {
	r := newRig(t)
	r.grant(t, 5, 60_000)
	id := r.create(t, "/f", "x")
	other := r.create(t, "/g", "y")
	op, err := PlanDelete(r.tree, nil, At("/f"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := PlanHide(r.tree, nil, op, Hide{Inode: other, Name: ".h", Lease: 5}); err != nil || got != Op(op) {
		t.Fatalf("another inode is deleted: %+v %v", got, err)
	}
	for name, c := range map[string]struct {
		h    Hide
		kind fserror.Kind
	}{
		"name taken": {Hide{Inode: id, Name: "g", Lease: 5}, fserror.Exists},
		"bad name":   {Hide{Inode: id, Name: "a/b", Lease: 5}, fserror.InvalidPath},
		"no lease":   {Hide{Inode: id, Name: ".h", Lease: 6}, fserror.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := PlanHide(r.tree, nil, op, c.h)
			wantKind(t, err, c.kind)
		})
	}
	r.refused(t, &OpHide{Parent: RootID, Name: "f", Inode: id, Hidden: "g", Lease: 5})
	r.refused(t, &OpHide{Parent: RootID, Name: "f", Inode: id, Hidden: ".h", Lease: 6})
	r.refused(t, &OpHide{Parent: RootID, Name: "f", Inode: id, Hidden: ".h", Lease: 5, FromParent: RootID, FromName: "f"})
}

// TestCut: a writer cuts its file and continues; what it sent before is fenced.
func TestCut(t *testing.T) {
	r := newRig(t)
	r.watch = newObserver(r.tree)
	w := r.open(t, "/f", "client")
	r.write(t, w, 0, "abc")
	a, err := PlanOpen(r.tree, nil, Follow("/f"), false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = PlanCut(r.tree, a, 4, Holder{}, Token{})
	wantKind(t, err, fserror.Unsupported)
	_, err = PlanCut(r.tree, a, -1, Holder{}, Token{})
	wantKind(t, err, fserror.InvalidArgument)
	op, err := PlanCut(r.tree, a, 0, a.Open.Holder, Token{9})
	res := planned(t, r, op, err)
	if res.Opened == nil || res.Length != 0 || len(res.Closed) != 1 || res.Closed[0].Reason != ReasonClosed {
		t.Fatalf("%+v", res)
	}
	// The same bytes at the same place, sent once more under the old epoch.
	_, _, err = PlanAppendTail(r.tree, nil, w, 0, []byte("abc"), testMaxTail)
	wantKind(t, err, fserror.LeaseLost)
	w = Writer{Inode: w.Inode, Epoch: res.Opened.Epoch, Token: Token{9}}
	r.write(t, w, 0, "abc") // and under the new one they are new
	if got := r.content(t, r.tree, w.Inode); got != "abc" {
		t.Fatal(got)
	}
	r.commit(t, w, "abcdefgh")
	op, err = PlanCut(r.tree, a, 5, Holder{Session: SessionID{77}, Client: "other"}, Token{8})
	if res := planned(t, r, op, err); res.Closed[0].Reason != ReasonTakenOver || res.Length != 5 {
		t.Fatalf("%+v", res)
	}
	if got := r.content(t, r.tree, w.Inode); got != "abcde" {
		t.Fatal(got)
	}
	sound(t, r.tree)
	same(t, r.tree, replay(t, r.journal))
	r.watch.check(t)
}

// TestHideNothing: inode 0 stands for none, and is no file that a rename to a new
// name displaces.
func TestHideNothing(t *testing.T) {
	r := newRig(t)
	r.create(t, "/a", "text")
	op, err := PlanRename(r.tree, nil, At("/a"), At("/b"), true, false)
	if err != nil {
		t.Fatal(err)
	}
	same, err := PlanHide(r.tree, nil, op, Hide{Name: "x", Lease: 1})
	if err != nil || same != Op(op) {
		t.Fatalf("%+v, %v", same, err)
	}
}
