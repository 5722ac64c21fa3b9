package namespace

import (
	"math"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// A Ref leads from its base, or the root, to what has a path, and to nothing else
// than it expects.
func TestRef(t *testing.T) {
	r := newRig(t)
	dir, sub := r.mkdir(t, "/d"), r.mkdir(t, "/d/sub")
	file := r.create(t, "/d/sub/f", "x")
	link := func(path, target string) InodeID {
		op, err := PlanSymlink(r.tree, nil, At(path), target, false)
		if err != nil {
			t.Fatal(err)
		}
		return r.must(t, op).Inode
	}
	up, in := link("/d/sub/up", "../sub/f"), link("/d/in", "sub")
	gone := r.create(t, "/gone", "")
	del, err := PlanDelete(r.tree, nil, At("/gone"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, del)
	const never = math.MaxUint32
	for what, c := range map[string]struct {
		ref  Ref
		to   InodeID
		kind fserror.Kind
	}{
		"root":                 {At("/"), RootID, 0},
		"path":                 {At("/d/sub/f"), file, 0},
		"base":                 {Inode(dir), dir, 0},
		"base that is a file":  {Inode(file), file, 0},
		"base that is a link":  {Ref{Base: up, How: FollowLast}, up, 0},
		"name in base":         {Ref{Base: sub, Path: "f"}, file, 0},
		"path from base":       {Ref{Base: dir, Path: "sub/f"}, file, 0},
		"link":                 {Ref{Base: sub, Path: "up"}, up, 0},
		"followed link":        {Ref{Base: sub, Path: "up", How: FollowLast}, file, 0},
		"link on the way":      {Ref{Base: dir, Path: "in/f"}, file, 0},
		"link not followed":    {Ref{Base: dir, Path: "in", How: NoLinks}, in, 0},
		"no links at the end":  {Ref{Base: sub, Path: "up", How: NoLinks | FollowLast}, 0, fserror.Loop},
		"no links on the way":  {Ref{Path: "/d/in/f", How: NoLinks}, 0, fserror.Loop},
		"expected":             {Ref{Base: sub, Path: "f", Expect: file}, file, 0},
		"another expected":     {Ref{Base: sub, Path: "f", Expect: sub}, 0, fserror.NotFound},
		"missing expected":     {Ref{Base: sub, Path: "none", Expect: file}, 0, fserror.NotFound},
		"missing":              {Ref{Base: sub, Path: "none"}, 0, fserror.NotFound},
		"below a file":         {Ref{Base: file, Path: "x"}, 0, fserror.NotDirectory},
		"base that is gone":    {Inode(gone), 0, fserror.NotFound},
		"base that never was":  {Inode(never), 0, fserror.NotFound},
		"relative to the root": {At("d"), 0, fserror.InvalidPath},
		"nothing":              {Ref{}, 0, fserror.InvalidPath},
		"absolute from base":   {Ref{Base: dir, Path: "/d"}, 0, fserror.InvalidPath},
		"up from base":         {Ref{Base: sub, Path: "../sub"}, 0, fserror.InvalidPath},
		"unknown way":          {Ref{Path: "/d", How: 4}, 0, fserror.InvalidArgument},
	} {
		a, err := r.tree.Stat(nil, c.ref)
		if fserror.KindOf(err) != c.kind && !(err == nil && c.kind == 0) || a.ID != c.to {
			t.Errorf("%s: inode %d, %v; want %d, %v", what, a.ID, err, c.to, c.kind)
		}
	}
	_, err = PlanMkdir(r.tree, nil, Ref{Base: sub, Path: "f/x"}, 0o755, false)
	if err == nil || !strings.Contains(err.Error(), "/d/sub/f") {
		t.Errorf("the error does not name the whole path: %v", err)
	}
	// By its number an inode is taken from the name that it has.
	op, err := PlanDelete(r.tree, nil, Inode(file), false, 0)
	if err != nil || op.Parent != sub || op.Name != "f" || op.Inode != file {
		t.Errorf("a delete by number: %+v, %v", op, err)
	}
}

// Who names a base has to be allowed to search all directories above it.
func TestRefGivesNoRights(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/shut")
	sub := r.mkdir(t, "/shut/sub")
	r.create(t, "/shut/sub/f", "")
	r.must(t, &OpSetAttr{Inode: sub, SetMode: true, Mode: 0o777})
	stranger := &Call{User: "stranger"}
	for _, mode := range []uint16{0o711, 0o700} {
		shut, err := r.tree.Stat(nil, At("/shut"))
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, &OpSetAttr{Inode: shut.ID, SetMode: true, Mode: mode})
		for _, ref := range []Ref{Inode(sub), {Base: sub, Path: "f"}, At("/shut/sub/f")} {
			_, err := r.tree.Stat(stranger, ref)
			if denied := fserror.KindOf(err) == fserror.Permission; denied != (mode == 0o700) || err != nil && !denied {
				t.Errorf("mode %o, %+v: %v", mode, ref, err)
			}
			if _, err := r.tree.Stat(&Call{Super: true}, ref); err != nil {
				t.Errorf("mode %o, %+v, as superuser: %v", mode, ref, err)
			}
		}
	}
}
