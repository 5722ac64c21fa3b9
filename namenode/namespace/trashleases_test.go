package namespace

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// bin makes a directory that keeps for a day what is deleted in it.
func (r *rig) bin(t tb, path string) InodeID {
	t.Helper()
	id := r.mkdir(t, path)
	r.must(t, &OpXattr{Inode: id, Name: tables.TrashXattr, Value: []byte("1d")})
	return id
}

// throw deletes what r names, into the trash, under a name.
func (r *rig) throw(t tb, at Ref, as string) (InodeID, Result) {
	t.Helper()
	op, err := PlanDelete(r.tree, nil, at, true, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	kept, fits := PlanKeep(r.tree, &Call{User: "u", TrashAs: as}, op)
	if _, keeps := kept.(*OpTrash); !keeps || !fits {
		t.Fatalf("%+v is not kept", at)
	}
	return op.Inode, r.must(t, kept)
}

// TestTrashOfTooLongPaths: what has a path that nobody can name, since a directory was moved in
// which not all was looked at, or since it is kept under a longer name, is in the trash under the
// end of it; an image that has it can be read.
func TestTrashOfTooLongPaths(t *testing.T) {
	r := newRig(t)
	k := r.bin(t, "/k")
	r.mkdir(t, "/k"+strings.Repeat("/d", 800))
	deep := r.mkdir(t, "/x"+strings.Repeat("/e", 800))
	r.must(t, &OpRename{FromParent: RootID, FromName: "x", ToParent: r.mkdir(t, "/k"+strings.Repeat("/d", 800)), ToName: "x"})
	long := r.mkdir(t, "/k"+strings.Repeat("/"+strings.Repeat("n", 254), 128))
	r.must(t, &OpCreate{Parent: long, Name: "n", Closed: true, User: "u", Group: "g"})

	first, _ := r.throw(t, Ref{Base: deep}, "")
	second, _ := r.throw(t, Ref{Base: long, Path: "n"}, strings.Repeat("m", fspath.MaxName))
	for id, end := range map[InodeID]string{first: "/e/e", second: "/" + strings.Repeat("m", fspath.MaxName)} {
		e := r.tree.Trash(nil).Get(id)
		if e == nil || fspath.Check(e.Path) != nil || !strings.HasSuffix(e.Path, end) {
			t.Errorf("inode %d is in the trash as %+v", id, e)
		}
	}
	sound(t, r.tree)
	roundTrip(t, r.tree)
	op, err := PlanRestore(r.tree, nil, first, Ref{Base: k, Path: "back"})
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	sound(t, r.tree)
}

// TestTrashAndLeases attaches files and directories to granted leases, opens, deletes, restores
// and ends at random. The tree stays sound, nothing in the trash is open, what is attached
// below a directory in the trash ends with its lease, and what was attached itself does not.
func TestTrashAndLeases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		r.bin(t, "/k")
		names := []string{"/k/a", "/k/a/b", "/k/a/b/c", "/k/d", "/n", "/n/e"}
		place := func() string { return rapid.SampledFrom(names).Draw(t, "path") }
		lease := LeaseID(0)
		var thrown []InodeID
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				sound(t, r.tree)
				for _, id := range thrown {
					if e := r.tree.Trash(nil).Get(id); e != nil && r.tree.LeaseOf(id) != 0 {
						t.Fatalf("inode %d in the trash is attached", id)
					}
				}
				r.tree.open.Ascend(func(id InodeID) bool {
					if inTrash(r.tree, r.tree.get(id)) {
						t.Fatalf("inode %d in the trash is open", id)
					}
					return true
				})
			},
			"grant": func(t *rapid.T) {
				lease++
				r.grant(t, lease, 60_000)
			},
			"make": func(t *rapid.T) {
				if op, err := PlanMkdir(r.tree, nil, At(place()), 0o755, true); err == nil && op != nil {
					r.must(t, op)
				}
			},
			"create": func(t *rapid.T) {
				req := CreateRequest{At: At(place()), Mode: 0o644, Close: rapid.Bool().Draw(t, "closed"), Overwrite: true, Data: []byte("x")}
				if rapid.Bool().Draw(t, "leased") && lease > 0 && r.tree.Grants.Get(lease) != nil {
					req.Lease = lease
				}
				if !req.Close {
					req.Holder, req.Token = Holder{User: "u", Client: "c", Session: SessionID{1}}, r.newToken()
				}
				op, err := PlanCreate(r.tree, nil, req)
				if err != nil {
					return
				}
				if op.Replace != 0 {
					thrown = append(thrown, op.Replace)
				}
				kept, _ := PlanKeep(r.tree, &Call{User: "u"}, op)
				r.must(t, kept)
			},
			"attach": func(t *rapid.T) {
				if op, err := PlanAttach(r.tree, nil, lease, At(place())); err == nil && op != nil {
					r.must(t, op)
				}
			},
			"delete": func(t *rapid.T) {
				op, err := PlanDelete(r.tree, nil, At(place()), true, 0)
				if err != nil {
					return
				}
				thrown = append(thrown, op.Inode)
				kept, _ := PlanKeep(r.tree, &Call{User: "u"}, op)
				r.must(t, kept)
			},
			"end": func(t *rapid.T) {
				if op, err := PlanEnd(r.tree, nil, lease, "revoked"); err == nil {
					r.must(t, op)
				}
			},
			"reap": func(t *rapid.T) {
				op := &OpReap{ID: LeaseID(rapid.Uint64Range(1, 3).Draw(t, "lease")), Limit: 2}
				if l, _ := op.files(r.tree); l != nil {
					r.must(t, op)
				}
			},
			"restore": func(t *rapid.T) {
				if len(thrown) == 0 {
					return
				}
				op, err := PlanRestore(r.tree, nil, rapid.SampledFrom(thrown).Draw(t, "entry"), At(place()))
				if err == nil {
					r.must(t, op)
				} else if k := fserror.KindOf(err); k == fserror.Internal {
					t.Fatal(err)
				}
			},
			"empty": func(t *rapid.T) {
				if len(thrown) == 0 {
					return
				}
				if id := rapid.SampledFrom(thrown).Draw(t, "entry"); r.tree.Trash(nil).Get(id) != nil {
					r.must(t, &OpTrash{Do: TrashEmpty, Inodes: []InodeID{id}})
				}
			},
			"reclaim": func(t *rapid.T) { r.must(t, &OpReclaim{Limit: 2}) },
		})
		roundTrip(t, r.tree)
		same(t, r.tree, replay(t, r.journal))
	})
}
