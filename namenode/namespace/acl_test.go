package namespace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
)

// Each class of user, by acl(5), with each right and each mask.
func TestACLAllows(t *testing.T) {
	for _, c := range []struct {
		name    string
		call    Call
		entries string // besides user::--- group::--- other::---, mask as in the loop
		perm    func(p, mask uint16) uint16
	}{
		{"owner", Call{User: "owner", Groups: []string{"named"}}, "u::%o,u:x:7", func(p, _ uint16) uint16 { return p }},
		{"named user", Call{User: "alice", Groups: []string{"named", "group"}}, "u:alice:%o,g:named:7,g::7", func(p, m uint16) uint16 { return p & m }},
		{"named user without rights", Call{User: "alice"}, "u:alice:0,o::%o", func(uint16, uint16) uint16 { return 0 }},
		{"owning group", Call{User: "bob", Groups: []string{"group"}}, "g::%o,u:alice:7,o::7", func(p, m uint16) uint16 { return p & m }},
		{"named group", Call{User: "bob", Groups: []string{"x", "named"}}, "g:named:%o,o::7", func(p, m uint16) uint16 { return p & m }},
		{"others", Call{User: "bob", Groups: []string{"x"}}, "o::%o,g:named:7,g::7", func(p, _ uint16) uint16 { return p }},
		{"nobody", Call{User: "nobody", Nobody: true}, "o::%o,u:nobody:7,g:nobody:7", func(p, _ uint16) uint16 { return p }},
		{"superuser", Call{User: "root", Super: true}, "o::%o,u:root:0", func(uint16, uint16) uint16 { return 7 }},
	} {
		for p := range uint16(8) {
			for mask := range uint16(8) {
				r := newRig(t)
				id := r.create(t, "/f", "")
				r.must(t, &OpSetAttr{Inode: id, SetMode: true, User: "owner", Group: "group"})
				r.setACL(t, "/f", fmt.Sprintf(c.entries, p)+fmt.Sprintf(",m::%o", mask))
				for want := uint16(1); want < 8; want++ {
					got := view{r.tree, &c.call, ""}.allowed(r.tree.get(id), want)
					if should := c.perm(p, mask)&want == want; got != should {
						t.Errorf("%s with %o, mask %o, wants %o: %t", c.name, p, mask, want, got)
					}
				}
			}
		}
	}
	// Rights of several groups do not add up: one entry must have all that is wanted.
	r := newRig(t)
	id := r.create(t, "/f", "")
	r.setACL(t, "/f", "g:a:r,g:b:w,g:c:x,m::rwx")
	in := &Call{User: "bob", Groups: []string{"a", "b"}}
	for want, should := range map[uint16]bool{4: true, 2: true, 6: false, 1: false} {
		if got := (view{r.tree, in, ""}).allowed(r.tree.get(id), want); got != should {
			t.Errorf("who is in two groups wants %o: %t", want, got)
		}
	}
}

// The calls look at ACLs, and their errors say so.
func TestACLDecidesCalls(t *testing.T) {
	r := newRig(t)
	r.create(t, "/d/f", "data")
	bob := &Call{User: "bob"}
	r.must(t, &OpSetAttr{Inode: r.tree.lookup(RootID, "d").ID, SetMode: true, Mode: 0o700})
	_, err := r.tree.Stat(bob, At("/d/f"))
	wantKind(t, err, fserror.Permission)
	r.setACL(t, "/d", "u:bob:rx")
	if _, err := r.tree.Stat(bob, At("/d/f")); err != nil {
		t.Fatal(err)
	}
	a, _, _, err := r.tree.List(bob, At("/d"), "", 0)
	if err != nil || !bob.MayList(a) {
		t.Fatal(err)
	}
	_, err = PlanCreate(r.tree, bob, CreateRequest{At: At("/d/g")})
	wantKind(t, err, fserror.Permission)
	if !strings.Contains(err.Error(), "mode 0750, and an ACL") {
		t.Errorf("it does not say that there is an ACL: %v", err)
	}
	r.must(t, &OpSetAttr{Inode: r.tree.lookup(RootID, "d").ID, SetMode: true, Mode: 0o700})
	_, err = r.tree.Stat(bob, At("/d/f"))
	wantKind(t, err, fserror.Permission)
}

func TestPlanSetACL(t *testing.T) {
	r := newRig(t)
	id := r.create(t, "/d/f", "")
	r.must(t, &OpSetAttr{Inode: id, User: "owner", SetMode: true, Mode: 0o640})
	op, err := PlanSymlink(r.tree, nil, At("/l"), "d/f", false)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	list := func(text string) posixacl.ACL {
		a, err := posixacl.ParseEntries(text, false)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	add := func(text string) posixacl.Change {
		return posixacl.Change{Action: posixacl.Modify, Entries: list(text)}
	}
	for _, c := range []struct {
		name   string
		user   string
		at     Ref
		change posixacl.Change
		want   fserror.Kind
	}{
		{"owner", "owner", At("/d/f"), add("u:x:r"), 0},
		{"through a link", "owner", Follow("/l"), add("u:x:r"), 0},
		{"of a link", "owner", At("/l"), add("u:x:r"), fserror.Unsupported},
		{"another", "x", At("/d/f"), add("u:x:r"), fserror.Permission},
		{"default of a file", "owner", At("/d/f"), add("d:u:x:r"), fserror.InvalidArgument},
		{"nothing there", "owner", At("/d/g"), add("u:x:r"), fserror.NotFound},
		{"no mask", "owner", At("/d/f"), posixacl.Change{Action: posixacl.Exact, Entries: list("u::r,g::r,o::r,u:x:r")}, fserror.InvalidArgument},
	} {
		op, err := PlanSetACL(r.tree, &Call{User: c.user}, c.at, c.change)
		if c.want != 0 {
			if err == nil || fserror.KindOf(err) != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || op.Inode != id || op.Mode != 0o640 {
			t.Errorf("%s: %+v, %v", c.name, op, err)
		}
	}
	// What changes nothing is no record; what is only a mode is no ACL.
	if op, err := PlanSetACL(r.tree, nil, At("/d/f"), add("o::-")); op != nil || err != nil {
		t.Errorf("%+v, %v", op, err)
	}
	r.setACL(t, "/d/f", "o::r,u::x")
	if a, _ := r.tree.Stat(nil, At("/d/f")); a.Access != nil || a.Mode != 0o144 || r.tree.Counts().ACLs != 0 {
		t.Errorf("%+v", a)
	}
}

// One who has many different ACLs leaves room for those who have few.
func TestACLMemoryIsShared(t *testing.T) {
	r := newRig(t)
	for user, path := range map[string]string{"greedy": "/g", "modest": "/m"} {
		r.must(t, &OpSetAttr{Inode: r.create(t, path, ""), User: user})
	}
	r.setACL(t, "/g", "u:x:r")
	use := r.tree.Uses.Of(r.tree.get(r.tree.lookup(RootID, "g").ID).User)
	if use.ACLs != r.tree.Counts().ACLBytes || use.ACLs == 0 {
		t.Fatalf("it counts %+v of %+v", use, r.tree.Counts())
	}
	// As if the greedy one had most of what there is.
	use.ACLs = acl.MaxMemory
	r.tree.counts.ACLBytes = acl.MaxMemory * 7 / 8
	change := posixacl.Change{Action: posixacl.Modify, Entries: posixacl.ACL{{Tag: posixacl.User, Name: "y", Perm: 4}}}
	_, err := PlanSetACL(r.tree, &Call{User: "greedy"}, At("/g"), change)
	wantKind(t, err, fserror.NoSpace)
	if _, err := PlanSetACL(r.tree, &Call{User: "modest"}, At("/m"), change); err != nil {
		t.Fatal(err)
	}
	same := posixacl.Change{Action: posixacl.Modify, Entries: posixacl.ACL{{Tag: posixacl.User, Name: "x", Perm: 4}}}
	if _, err := PlanSetACL(r.tree, &Call{User: "modest"}, At("/m"), same); err != nil {
		t.Fatalf("one that is there takes no room: %v", err)
	}
}

// Equal ACLs are there once, and go with the last file that has them.
func TestACLsAreShared(t *testing.T) {
	r := newRig(t)
	r.mkdir(t, "/d")
	r.setACL(t, "/d", "d:u:x:rw,d:g:y:r")
	for i := range 100 {
		r.create(t, fmt.Sprintf("/d/%d", i), "")
		r.mkdir(t, fmt.Sprintf("/d/s%d", i))
	}
	if c := r.tree.Counts(); c.ACLs != 201 || r.tree.acls.Lists() != 2 {
		t.Fatalf("%+v, %d different", c, r.tree.acls.Lists())
	}
	del, err := PlanDelete(r.tree, nil, At("/d"), true, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, del)
	r.must(t, &OpReclaim{Limit: 1000})
	if c := r.tree.Counts(); c.ACLs != 0 || c.ACLBytes != 0 {
		t.Fatalf("%+v", c)
	}
	sound(t, r.tree)
}
