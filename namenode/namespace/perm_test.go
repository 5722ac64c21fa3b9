package namespace

import (
	"fmt"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestPermissionMatrix tries each operation as owner, group and other under
// each mode of the inode that it needs something of.
func TestPermissionMatrix(t *testing.T) {
	callers := []struct {
		name  string
		call  *Call
		shift uint
	}{
		{"owner", &Call{User: "owner", Groups: []string{"other"}}, 6},
		{"group", &Call{User: "member", Groups: []string{"x", "group"}}, 3},
		{"other", &Call{User: "stranger"}, 0},
		{"super", &Call{User: "root", Super: true}, 16},
	}
	const dir, file = 0, 1
	ops := []struct {
		name string
		of   int    // whose mode counts
		need uint16 // of it
		try  func(tr *Tree, c *Call) error
	}{
		{"stat", dir, 1, func(tr *Tree, c *Call) error { _, err := tr.Stat(c, Follow("/d/f")); return err }},
		{"stat missing", dir, 1, func(tr *Tree, c *Call) error {
			_, err := tr.Stat(c, Follow("/d/none"))
			if fserror.KindOf(err) == fserror.NotFound {
				return nil
			}
			return err
		}},
		{"stat below", dir, 1, func(tr *Tree, c *Call) error { _, err := tr.Stat(c, Follow("/d/sub/g")); return err }},
		{"list", dir, 4, func(tr *Tree, c *Call) error { _, _, _, err := tr.List(c, Follow("/d"), "", 0); return err }},
		{"create", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanCreate(tr, c, CreateRequest{At: At("/d/n")})
			return err
		}},
		{"create with parents", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanCreate(tr, c, CreateRequest{At: At("/d/n/m"), Parents: true})
			return err
		}},
		{"overwrite, directory", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanCreate(tr, c, CreateRequest{At: Follow("/d/open"), Overwrite: true})
			return err
		}},
		{"overwrite, file", file, 2, func(tr *Tree, c *Call) error {
			_, err := PlanCreate(tr, c, CreateRequest{At: Follow("/all/f"), Overwrite: true})
			return err
		}},
		{"mkdir", dir, 3, func(tr *Tree, c *Call) error { _, err := PlanMkdir(tr, c, At("/d/n"), 0o755, false); return err }},
		{"mkdir -p", dir, 3, func(tr *Tree, c *Call) error { _, err := PlanMkdir(tr, c, At("/d/n/m"), 0o755, true); return err }},
		{"symlink", dir, 3, func(tr *Tree, c *Call) error { _, err := PlanSymlink(tr, c, At("/d/n"), "x", false); return err }},
		{"delete", dir, 3, func(tr *Tree, c *Call) error { _, err := PlanDelete(tr, c, At("/d/f"), false, 0); return err }},
		{"rename from", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanRename(tr, c, At("/d/f"), At("/all/n"), false, false)
			return err
		}},
		{"rename to", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanRename(tr, c, At("/all/f"), At("/d/n"), false, false)
			return err
		}},
		{"rename over", dir, 3, func(tr *Tree, c *Call) error {
			_, err := PlanRename(tr, c, At("/all/f"), At("/d/f"), true, false)
			return err
		}},
		{"rename directory", dir, 2, func(tr *Tree, c *Call) error {
			_, err := PlanRename(tr, c, At("/d"), At("/all/n"), false, false)
			return err
		}},
		{"read", file, 4, func(tr *Tree, c *Call) error { _, err := tr.File(c, Follow("/all/f")); return err }},
		{"append", file, 2, func(tr *Tree, c *Call) error { _, err := PlanOpen(tr, c, Follow("/all/f"), false); return err }},
		{"truncate", file, 2, func(tr *Tree, c *Call) error { _, err := PlanTruncate(tr, c, Follow("/all/f"), 0); return err }},
		{"concat target", file, 2, func(tr *Tree, c *Call) error {
			_, err := PlanConcat(tr, c, Follow("/all/f"), []Ref{At("/all/s")})
			return err
		}},
		{"concat source", file, 6, func(tr *Tree, c *Call) error {
			_, err := PlanConcat(tr, c, Follow("/all/s"), []Ref{At("/all/f")})
			return err
		}},
		{"touch", file, 2, func(tr *Tree, c *Call) error {
			_, err := PlanSetAttr(tr, c, Follow("/all/f"), OpSetAttr{SetMTime: true})
			return err
		}},
	}
	r := newRig(t)
	ids := map[string]InodeID{}
	for _, d := range []string{"/d", "/d/sub", "/all"} {
		ids[d] = r.mkdir(t, d)
	}
	for _, f := range []string{"/d/f", "/d/open", "/d/sub/g", "/all/f", "/all/s"} {
		ids[f] = r.create(t, f, "data")
	}
	for _, id := range ids {
		r.must(t, &OpSetAttr{Inode: id, SetMode: true, Mode: 0o777, User: "owner", Group: "group"})
	}
	r.must(t, &OpSetAttr{Inode: RootID, SetMode: true, Mode: 0o777})
	for bits := range uint16(8) {
		for _, who := range callers {
			mode := uint16(0o777)
			if who.shift < 16 {
				mode = 0o777&^(7<<who.shift) | bits<<who.shift
			}
			for _, op := range ops {
				target := []InodeID{ids["/d"], ids["/all/f"]}[op.of]
				r.must(t, &OpSetAttr{Inode: target, SetMode: true, Mode: mode})
				err := op.try(r.tree, who.call)
				allowed := who.call.Super || bits&op.need == op.need || op.name == "touch" && who.name == "owner"
				if allowed && err != nil || !allowed && fserror.KindOf(err) != fserror.Permission {
					t.Errorf("%s as %s under %04o: %v", op.name, who.name, mode, err)
				}
				r.must(t, &OpSetAttr{Inode: target, SetMode: true, Mode: 0o777})
			}
		}
	}
}

func TestStickyBit(t *testing.T) {
	r := newRig(t)
	dir := r.mkdir(t, "/tmp")
	r.must(t, &OpSetAttr{Inode: dir, SetMode: true, Mode: 0o1777, User: "dirowner"})
	for _, path := range []string{"/tmp/f", "/tmp/g"} {
		r.must(t, &OpSetAttr{Inode: r.create(t, path, ""), SetMode: true, Mode: 0o666, User: "fileowner"})
	}
	try := map[string]func(c *Call) error{
		"delete": func(c *Call) error { _, err := PlanDelete(r.tree, c, At("/tmp/f"), false, 0); return err },
		"rename": func(c *Call) error {
			_, err := PlanRename(r.tree, c, At("/tmp/f"), At("/tmp/h"), false, false)
			return err
		},
		"rename over": func(c *Call) error {
			_, err := PlanRename(r.tree, c, At("/tmp/f"), At("/tmp/g"), true, false)
			return err
		},
		"overwrite": func(c *Call) error {
			_, err := PlanCreate(r.tree, c, CreateRequest{At: Follow("/tmp/f"), Overwrite: true})
			return err
		},
		"empty": func(c *Call) error {
			_, err := r.tree.CanRemoveAll(c, dir, new(RemoveCheck), 100)
			return err
		},
	}
	for name, op := range try {
		for user, allowed := range map[string]bool{"dirowner": true, "fileowner": true, "stranger": false} {
			err := op(&Call{User: user})
			if allowed && err != nil || !allowed && fserror.KindOf(err) != fserror.Permission {
				t.Errorf("%s as %s: %v", name, user, err)
			}
		}
	}
	if _, err := PlanCreate(r.tree, &Call{User: "stranger"}, CreateRequest{At: At("/tmp/new")}); err != nil {
		t.Errorf("create in a sticky directory: %v", err)
	}
}

func TestPlanSetAttr(t *testing.T) {
	r := newRig(t)
	id := r.create(t, "/f", "")
	r.must(t, &OpSetAttr{Inode: id, SetMode: true, Mode: 0o6755, User: "owner", Group: "g1"})
	owner := &Call{User: "owner", Groups: []string{"g1", "g2"}}
	other := &Call{User: "other", Groups: []string{"g1"}}
	super := &Call{User: "root", Super: true}
	for _, c := range []struct {
		name string
		call *Call
		op   OpSetAttr
		want fserror.Kind
		mode uint16 // of the record, if it sets one
	}{
		{"chmod", owner, OpSetAttr{SetMode: true, Mode: 0o2700}, 0, 0o2700},
		{"chmod by another", other, OpSetAttr{SetMode: true, Mode: 0o700}, fserror.Permission, 0},
		{"set-group-id outside the group", &Call{User: "owner"}, OpSetAttr{SetMode: true, Mode: 0o2700}, 0, 0o700},
		{"chown to another", owner, OpSetAttr{User: "other"}, fserror.Permission, 0},
		{"chown to oneself", owner, OpSetAttr{User: "owner"}, 0, 0},
		{"taking a file", other, OpSetAttr{User: "other"}, fserror.Permission, 0},
		{"chown by the superuser", super, OpSetAttr{User: "other"}, 0, 0},
		{"chgrp takes the set-id bits", owner, OpSetAttr{Group: "g2"}, 0, 0o755},
		{"chgrp to a foreign group", owner, OpSetAttr{Group: "g3"}, fserror.Permission, 0},
		{"chgrp by another", other, OpSetAttr{Group: "g1"}, fserror.Permission, 0},
		{"mtime", owner, OpSetAttr{SetMTime: true, MTime: 5}, 0, 0},
		{"mtime by another", other, OpSetAttr{SetMTime: true, MTime: 5}, fserror.Permission, 0},
		{"touch without write", other, OpSetAttr{SetMTime: true}, fserror.Permission, 0},
	} {
		op, err := PlanSetAttr(r.tree, c.call, Follow("/f"), c.op)
		if c.want != 0 {
			if fserror.KindOf(err) != c.want || err == nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || op.Inode != id || op.SetMode != (c.mode != 0) || op.SetMode && op.Mode != c.mode {
			t.Errorf("%s: %+v, %v", c.name, op, err)
		}
	}
	if op, err := PlanSetAttr(r.tree, owner, Follow("/f"), OpSetAttr{}); op != nil || err != nil {
		t.Errorf("nothing to change: %+v, %v", op, err)
	}
}

func TestCanRemoveAll(t *testing.T) {
	r := newRig(t)
	c := &Call{User: "u"}
	top := r.mkdir(t, "/top")
	deep := RootID
	for i := range 40 {
		dir := fmt.Sprintf("/top/d%d/e/f", i)
		deep = r.mkdir(t, dir)
		r.create(t, dir+"/file", "")
	}
	var all []InodeID
	if err := r.tree.Walk(top, func(_ []byte, a Attr) error {
		all = append(all, a.ID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range all {
		r.must(t, &OpSetAttr{Inode: id, SetMode: true, Mode: 0o700, User: "u"})
	}
	check := func(budget int) (slices int, err error) {
		var at RemoveCheck
		for done := false; !done; slices++ {
			if done, err = r.tree.CanRemoveAll(c, top, &at, budget); err != nil {
				return slices, err
			}
		}
		return slices, nil
	}
	if n, err := check(7); err != nil || n < 10 {
		t.Fatalf("%d slices, %v", n, err)
	}
	if n, err := check(1 << 20); err != nil || n != 1 {
		t.Fatalf("%d slices, %v", n, err)
	}
	r.must(t, &OpSetAttr{Inode: deep, SetMode: true, Mode: 0o500})
	for _, budget := range []int{1, 3, 1 << 20} {
		_, err := check(budget)
		wantKind(t, err, fserror.Permission)
		if e := err.(*fserror.Error); e.Path != "/top/d39/e/f" { //nolint:errorlint // made here
			t.Fatalf("the error names %s", e.Path)
		}
	}
	// An empty directory may be removed whatever its own mode is.
	r.must(t, &OpDelete{Parent: deep, Name: "file", Inode: r.tree.lookup(deep, "file").ID})
	if _, err := check(5); err != nil {
		t.Fatal(err)
	}
}
