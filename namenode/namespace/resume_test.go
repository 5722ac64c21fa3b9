package namespace

import (
	"errors"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// TestResume: a process of the client that has a file open resumes it, whatever its mode. Nobody else
// does, and nobody what is closed, also who may write it.
func TestResume(t *testing.T) {
	r := newRig(t)
	r.open(t, "/f", "client")
	r.create(t, "/closed", "data")
	for _, c := range []struct {
		path string
		call *Call
		want fserror.Kind // LeaseLost, or 0
	}{
		{"/f", &Call{User: "u", Client: "client"}, 0},
		{"/f", &Call{User: "u", Client: "another"}, fserror.LeaseLost},
		{"/f", &Call{User: "u"}, fserror.LeaseLost},
		{"/f", &Call{User: "eve", Client: "client"}, fserror.LeaseLost},
		{"/closed", &Call{User: "u", Client: "client"}, fserror.LeaseLost},
		{"/closed", &Call{User: "root", Client: "client", Super: true}, fserror.LeaseLost},
		{"/none", &Call{User: "u", Client: "client"}, fserror.NotFound},
	} {
		_, err := PlanOpen(r.tree, c.call, Follow(c.path), true)
		if (err == nil) != (c.want == 0) || err != nil && !errors.Is(err, c.want) {
			t.Errorf("%s, %s of %q: %v, want %v", c.path, c.call.Client, c.call.User, err, c.want)
		}
	}
	if _, err := PlanOpen(r.tree, &Call{User: "u", Client: "client"}, Follow("/f"), false); !errors.Is(err, fserror.Permission) {
		t.Errorf("an append that does not resume: %v", err)
	}
}

// TestSnapshotsAreShown: whether a directory may have snapshots is in its attributes, and a record that
// changes it affects them, so that nobody keeps the old ones.
func TestSnapshotsAreShown(t *testing.T) {
	r := newRig(t)
	r.raise(t)
	dir := r.mkdir(t, "/d")
	for _, do := range []snapshots.Action{snapshots.Allow, snapshots.Disallow} {
		op := &OpSnapshot{Change: snapshots.Change{Do: do, Dir: dir}}
		if keys := op.affects(affected{t: r.tree}).changes; !slices.Contains(keys, Change{Kind: ChangeAttr, Inode: dir}) {
			t.Errorf("action %d affects %v", do, keys)
		}
		r.must(t, op)
		a, err := r.tree.Stat(nil, Follow("/d"))
		if err != nil || a.Snapshots != (do == snapshots.Allow) {
			t.Errorf("action %d: %v, %v", do, a.Snapshots, err)
		}
	}
}
