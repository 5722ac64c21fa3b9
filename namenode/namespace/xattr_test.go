package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

func (r *rig) xattr(t tb, path, name, value string) {
	t.Helper()
	op, err := PlanXattr(r.tree, nil, At(path), name, []byte(value), calls.XattrSet)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

func xattrs(t tb, tree *Tree, path string) string {
	t.Helper()
	all, err := tree.Xattrs(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var b strings.Builder
	for _, x := range all {
		b.WriteString(x.Name + "=" + string(x.Value) + " ")
	}
	return b.String()
}

func TestXattr(t *testing.T) {
	r := newRig(t)
	id := r.create(t, "/d/f", "x")
	r.create(t, "/g", "")
	r.xattr(t, "/d/f", "user.b", "2")
	r.xattr(t, "/d/f", "user.a", "1")
	r.xattr(t, "/d", "user.dir", "")
	clone := r.tree.Clone()
	r.xattr(t, "/d/f", "user.b", "3")
	r.rename(t, "/d/f", "/f", false)
	op, err := PlanXattr(r.tree, nil, Inode(id), "user.a", nil, calls.XattrRemove)
	planned(t, r, op, err)
	for _, c := range []struct{ got, want string }{
		{xattrs(t, r.tree, "/f"), "user.b=3 "},
		{xattrs(t, r.tree, "/g"), ""},
		{xattrs(t, r.tree, "/d"), "user.dir= "},
		{xattrs(t, clone, "/d/f"), "user.a=1 user.b=2 "},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if op, err := PlanXattr(r.tree, nil, At("/f"), "user.b", []byte("3"), calls.XattrSet); op != nil || err != nil {
		t.Fatal("the same value again is a change", op, err)
	}
	sound(t, r.tree)
	roundTrip(t, r.tree)
	same(t, r.tree, replay(t, r.journal))

	// They go with their files, those below a directory too.
	r.remove(t, "/f")
	r.create(t, "/e/deep/h", "")
	r.xattr(t, "/e/deep/h", "user.h", "1")
	r.remove(t, "/e")
	r.remove(t, "/d")
	r.must(t, &OpReclaim{Limit: 100})
	if n, size := r.tree.xattrs, r.tree.Counts().XattrBytes; n.Len() != 0 || size != 0 {
		t.Fatalf("%d extended attributes, of %d bytes, are of nothing", n.Len(), size)
	}
}

func TestPlanXattrRefuses(t *testing.T) {
	r := newRig(t)
	r.create(t, "/f", "")
	r.xattr(t, "/f", "user.there", "")
	r.xattr(t, "/f", "user.large", strings.Repeat("v", tables.MaxXattrValue))
	big := bytes.Repeat([]byte("v"), tables.MaxXattrValue)
	for name, c := range map[string]struct {
		name   string
		value  []byte
		action calls.XattrAction
		kind   fserror.Kind
	}{
		"namespace":  {"security.x", nil, calls.XattrSet, fserror.Unsupported},
		"empty":      {"user.", nil, calls.XattrSet, fserror.InvalidArgument},
		"no UTF-8":   {"user.\xff", nil, calls.XattrSet, fserror.InvalidArgument},
		"long name":  {"user." + strings.Repeat("n", 251), nil, calls.XattrSet, fserror.TooLarge},
		"long value": {"user.x", append(big, 0), calls.XattrSet, fserror.TooLarge},
		"too much":   {"user.x", big, calls.XattrSet, fserror.NoSpace},
		"exists":     {"user.there", nil, calls.XattrCreate, fserror.Exists},
		"replace":    {"user.x", nil, calls.XattrReplace, fserror.NotFound},
		"remove":     {"user.x", nil, calls.XattrRemove, fserror.NotFound},
		"action":     {"user.x", nil, calls.XattrRemove + 1, fserror.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := PlanXattr(r.tree, nil, At("/f"), c.name, c.value, c.action)
			wantKind(t, err, c.kind)
			if c.kind != fserror.NotFound && c.kind != fserror.Exists && c.action <= calls.XattrRemove {
				r.refused(t, &OpXattr{Inode: r.tree.lookup(RootID, "f").ID, Name: c.name, Value: c.value})
			}
		})
	}
	_, err := PlanXattr(r.tree, &Call{User: "stranger"}, At("/f"), "user.x", nil, calls.XattrSet)
	wantKind(t, err, fserror.Permission)
	r.must(t, &OpSetAttr{Inode: r.tree.lookup(RootID, "f").ID, SetMode: true, Mode: 0o600})
	_, err = r.tree.Xattrs(&Call{User: "stranger"}, At("/f"))
	wantKind(t, err, fserror.Permission)
}

// TestXattrBudget: all extended attributes together take bounded memory.
func TestXattrBudget(t *testing.T) {
	r := newRig(t)
	r.create(t, "/f", "")
	r.create(t, "/g", "")
	r.xattr(t, "/f", "user.a", "value")
	r.tree.counts.XattrBytes = MaxXattrMemory
	_, err := PlanXattr(r.tree, nil, At("/g"), "user.a", []byte("x"), calls.XattrSet)
	wantKind(t, err, fserror.NoSpace)
	for _, action := range []calls.XattrAction{calls.XattrReplace, calls.XattrRemove} { // what takes no more
		if op, err := PlanXattr(r.tree, nil, At("/f"), "user.a", []byte("less"), action); op == nil || err != nil {
			t.Fatal(op, err)
		}
	}
}

// What an owner's files take is counted: made, changed, given to another, loaded from
// an image, and deleted.
func TestWhatOwnersUse(t *testing.T) {
	r := newRig(t)
	id := r.create(t, "/f", "a tail")
	r.xattr(t, "/f", "user.a", "value")
	use := func(tree *Tree, user string) tables.OwnerUse {
		i, _ := tree.UserNames.Number(user)
		return *tree.Uses.Of(i)
	}
	was := use(r.tree, "hdfs")
	if was.Tails != r.tree.OwnedTails("hdfs") || was.Tails != r.tree.Counts().TailBytes || was.Xattrs != r.tree.Counts().XattrBytes || was.Tails == 0 {
		t.Fatalf("%+v of %+v", was, r.tree.Counts())
	}
	r.must(t, &OpSetAttr{Inode: id, User: "ann"})
	back, err := ReadImage(bytes.NewReader(imageOf(t, r.tree)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tree := range []*Tree{r.tree, back} {
		if left, now := use(tree, "hdfs"), use(tree, "ann"); left != (tables.OwnerUse{}) || now != was || tree.OwnerOf(id) != "ann" {
			t.Errorf("%+v are left, %+v given, not %+v", left, now, was)
		}
	}
	op, err := PlanDelete(r.tree, nil, At("/f"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	if left := use(r.tree, "ann"); left != (tables.OwnerUse{}) {
		t.Errorf("%+v are left of a deleted file", left)
	}
	for _, problem := range append(r.tree.Check(), back.Check()...) {
		t.Error(problem)
	}
}

// The memory for extended attributes is not all for one user.
func TestOneUserLeavesRoomForAttributes(t *testing.T) {
	r := newRig(t)
	value := bytes.Repeat([]byte("v"), tables.MaxXattrValue)
	add := func(user, path string) error {
		r.must(t, &OpSetAttr{Inode: r.create(t, path, ""), User: user})
		op, err := PlanXattr(r.tree, &Call{User: user}, At(path), "user.a", value, calls.XattrSet)
		if err == nil {
			r.must(t, op)
		}
		r.journal = nil // which would take as much again
		return err
	}
	var err error
	for i := 0; err == nil; i++ {
		if i > 2*MaxXattrMemory/tables.MaxXattrValue {
			t.Fatal("there is no limit")
		}
		err = add("greedy", fmt.Sprintf("/%d", i))
	}
	if !errors.Is(err, fserror.NoSpace) {
		t.Fatal(err)
	}
	if err := add("modest", "/modest"); err != nil {
		t.Fatalf("one user has all that he could get, and another gets none: %v", err)
	}
}
