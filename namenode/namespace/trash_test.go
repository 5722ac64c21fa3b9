package namespace

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// bin is an entry of the trash in the model: what a user deleted, and all that was below it.
type bin struct {
	user, path string
	due        int64
	below      map[string]InodeID // by the rest of the path, which is empty for itself
}

// trashModel is a tree whose directories /k and /k/off say what is kept, and plain maps of what
// is in it and in the trash.
type trashModel struct {
	*rig
	live map[string]InodeID
	bins map[InodeID]*bin
}

const trashDay = 24 * 3600 * 1000

// kept is whether what is deleted at a path comes into the trash.
func kept(path string) bool {
	return (path == "/k" || strings.HasPrefix(path, "/k/")) && path != "/k/off" && !strings.HasPrefix(path, "/k/off/")
}

// lose takes a path and all below it out of the model's tree.
func (m *trashModel) lose(path, user string, skip bool) {
	gone := map[string]InodeID{}
	for p, id := range m.live {
		if p == path || strings.HasPrefix(p, path+"/") {
			gone[p[len(path):]] = id
			delete(m.live, p)
		}
	}
	if kept(path) && !skip {
		m.bins[gone[""]] = &bin{user, path, tables.TrashDue(m.tree.Reigned(), trashDay), gone}
	}
}

func (m *trashModel) check(t *rapid.T) {
	sound(t, m.tree)
	for p, id := range m.live {
		if a, err := m.tree.Stat(nil, At(p)); err != nil || a.ID != id {
			t.Fatalf("%s is %d, %v, not inode %d", p, a.ID, err, id)
		}
	}
	trash := m.tree.Trash(nil)
	if trash.Len() != len(m.bins) {
		t.Fatalf("the trash has %d entries, not %d", trash.Len(), len(m.bins))
	}
	for id, b := range m.bins {
		e := trash.Get(id)
		if e == nil || e.User != b.user || e.Path != b.path || e.Due != b.due {
			t.Fatalf("the trash has %+v of inode %d, not %+v", e, id, b)
		}
		for rest, id := range b.below { // it is there, but nobody gets at it
			if _, err := m.tree.Stat(nil, Inode(id)); fserror.KindOf(err) != fserror.NotFound {
				t.Fatalf("%s%s in the trash can be reached: %v", b.path, rest, err)
			}
			if m.tree.get(id) == nil {
				t.Fatalf("%s%s is lost", b.path, rest)
			}
		}
	}
}

// draw returns one of the keys of a map, by a label; false if there is none.
func draw[K ~string | ~uint64, V any](t *rapid.T, label string, of map[K]V) (k K, ok bool) {
	keys := slices.Sorted(maps.Keys(of))
	if len(keys) == 0 {
		return k, false
	}
	return rapid.SampledFrom(keys).Draw(t, label), true
}

// TestTrashModel deletes, replaces, restores and empties at random, and compares with maps. What
// is deleted is all there, unreachable, until it is restored as it was or removed; the journal,
// replayed, and an image give the same tree.
func TestTrashModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &trashModel{newRig(t), map[string]InodeID{}, map[InodeID]*bin{}}
		for _, dir := range []string{"/k", "/k/off", "/k/a", "/n"} {
			m.live[dir] = m.mkdir(t, dir)
		}
		m.must(t, &OpXattr{Inode: m.live["/k"], Name: tables.TrashXattr, Value: []byte("1d")})
		m.must(t, &OpXattr{Inode: m.live["/k/off"], Name: tables.TrashXattr, Value: []byte("off")})
		place := func(label string) string {
			return rapid.SampledFrom([]string{"/k", "/k/off", "/k/a", "/n", "/k/a/d"}).Draw(t, label) + "/" + rapid.SampledFrom([]string{"d", "f", longName}).Draw(t, label+" name")
		}
		keep := func(op Op, err error) (done bool) {
			c := &Call{User: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), Super: true, SkipTrash: rapid.IntRange(0, 4).Draw(t, "skip") == 0}
			if err != nil {
				return false
			}
			planned, fits := PlanKeep(m.tree, c, op)
			if !fits {
				t.Fatal("the trash is full")
			}
			var lost []string
			switch op := op.(type) {
			case *OpDelete:
				p, _ := m.tree.Path(op.Inode)
				lost = append(lost, p)
			case *OpRename:
				if p, ok := m.tree.Path(op.Replace); ok {
					lost = append(lost, p)
				}
			case *OpCreate:
				if p, ok := m.tree.Path(op.Replace); ok {
					lost = append(lost, p)
				}
			case *OpTxn:
				for _, part := range op.Parts {
					p, _ := m.tree.Path(part.(*OpDelete).Inode)
					lost = append(lost, p)
				}
			}
			m.must(t, planned)
			for _, p := range lost {
				m.lose(p, c.User, c.SkipTrash)
			}
			return true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"create": func(*rapid.T) {
				p := place("path")
				op, err := PlanCreate(m.tree, nil, CreateRequest{At: At(p), Mode: 0o644, Close: rapid.Bool().Draw(t, "closed"), Overwrite: true, Holder: Holder{User: "u", Client: "c", Session: SessionID{1}}, Token: m.newToken(), Data: []byte("x")})
				if err == nil && keep(op, nil) {
					a, err := m.tree.Stat(nil, At(p))
					if err != nil {
						t.Fatal(err)
					}
					m.live[p] = a.ID
				}
			},
			"mkdir": func(*rapid.T) {
				p := place("path")
				if op, err := PlanMkdir(m.tree, nil, At(p), 0o755, false); err == nil {
					m.live[p] = m.must(t, op).Inode
				}
			},
			"delete": func(*rapid.T) {
				if p, ok := draw(t, "path", m.live); ok && p != "/k" && p != "/k/off" {
					op, err := PlanDelete(m.tree, nil, At(p), true, 0)
					keep(op, err)
				}
			},
			"two in one": func(*rapid.T) {
				p, q := place("path"), place("other")
				if p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") || m.live[p] == 0 || m.live[q] == 0 {
					return
				}
				op, _, err := PlanTxn(m.tree, func(t *Tree) (Op, error) { return PlanDelete(t, nil, At(p), true, 0) }, func(t *Tree) (Op, error) { return PlanDelete(t, nil, At(q), true, 0) })
				keep(op, err)
			},
			"rename": func(*rapid.T) {
				from, to := place("from"), place("to")
				op, err := PlanRename(m.tree, nil, At(from), At(to), true, false)
				if err != nil || op == nil || !keep(op, nil) {
					return
				}
				moved := map[string]InodeID{}
				for p, id := range m.live {
					if p == from || strings.HasPrefix(p, from+"/") {
						moved[to+p[len(from):]] = id
						delete(m.live, p)
					}
				}
				maps.Copy(m.live, moved)
			},
			"restore": func(*rapid.T) {
				id, ok := draw(t, "entry", m.bins)
				if !ok {
					return
				}
				b, to := m.bins[id], place("to")
				if rapid.Bool().Draw(t, "back") {
					to = b.path
				}
				op, err := PlanRestore(m.tree, nil, id, At(to))
				if err != nil {
					if fserror.KindOf(err) == fserror.Exists != (m.live[to] != 0) {
						t.Fatalf("restoring to %s: %v", to, err)
					}
					return
				}
				m.must(t, op)
				for rest, id := range b.below {
					m.live[to+rest] = id
				}
				delete(m.bins, id)
			},
			"empty": func(*rapid.T) {
				if id, ok := draw(t, "entry", m.bins); ok {
					m.must(t, &OpTrash{Do: TrashEmpty, Inodes: []InodeID{id}})
					delete(m.bins, id)
				}
			},
			"reclaim": func(*rapid.T) { m.must(t, &OpReclaim{Limit: 3}) },
		})
		roundTrip(t, m.tree)
		same(t, m.tree, replay(t, m.journal))
	})
}

// TestTrashAges: what is kept ages by the time of reigns. A reign that begins with a clock that
// is a year ahead makes nothing due.
func TestTrashAges(t *testing.T) {
	r := newRig(t)
	dir := r.mkdir(t, "/k")
	r.must(t, &OpXattr{Inode: dir, Name: tables.TrashXattr, Value: []byte("1d")})
	r.create(t, "/k/f", "content")
	op, err := PlanDelete(r.tree, nil, At("/k/f"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := PlanKeep(r.tree, &Call{User: "u", TrashAs: "was"}, op)
	r.tree.Events(true)
	if res := r.must(t, kept); len(res.Events) != 1 || !res.Events[0].Trashed {
		t.Errorf("events %+v", res.Events)
	}
	e := r.tree.Trash(nil).Get(op.Inode)
	if e == nil || e.Path != "/k/was" || e.Left(r.tree.Reigned()) != trashDay {
		t.Fatalf("the entry is %+v", e)
	}
	r.now += 365 * trashDay
	r.must(t, &OpActivate{Term: r.tree.Term() + 1})
	if left := e.Left(r.tree.Reigned()); left != trashDay {
		t.Errorf("%d ms are left after a jump of a year, not %d", left, trashDay)
	}
	if a, ok := r.tree.Trashed(nil, op.Inode); !ok || a.Length != int64(len("content")) {
		t.Errorf("the trash has %+v, %v", a, ok)
	}
}

// TestTrashSeals: the tail of what is in the trash becomes a block, as that of a file in the
// tree, and comes back with it.
func TestTrashSeals(t *testing.T) {
	r := newRig(t)
	dir := r.mkdir(t, "/k")
	r.must(t, &OpXattr{Inode: dir, Name: tables.TrashXattr, Value: []byte("1d")})
	r.mkdir(t, "/k/d")
	id := r.create(t, "/k/d/f", "content")
	if _, ok := r.tree.FileInTrash(nil, id); ok {
		t.Error("it is in the trash before it is deleted")
	}
	del, err := PlanDelete(r.tree, nil, At("/k/d"), true, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := PlanKeep(r.tree, &Call{User: "u"}, del)
	r.must(t, kept)
	if v, ok := r.tree.FileInTrash(nil, id); !ok || string(v.Tail) != "content" {
		t.Fatalf("the trash has %+v, %v", v, ok)
	}
	op, err := PlanMerge(r.tree, id, r.block("content"), 0, 7, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	back, err := PlanRestore(r.tree, nil, del.Inode, At("/d"))
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, back)
	if f, err := r.tree.File(nil, At("/d/f")); err != nil || len(f.Blocks) != 1 || len(f.Tail) != 0 {
		t.Errorf("it came back as %+v, %v", f, err)
	}
}

// TestTrashDepth: a directory does not come back where paths below it would be too long.
func TestTrashDepth(t *testing.T) {
	r := newRig(t)
	dir := r.mkdir(t, "/k")
	r.must(t, &OpXattr{Inode: dir, Name: tables.TrashXattr, Value: []byte("1d")})
	deep := strings.Repeat("/d", 600)
	for _, path := range []string{"/k" + deep, "/x" + deep} {
		op, err := PlanMkdir(r.tree, nil, At(path), 0o755, true)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
	}
	op, err := PlanDelete(r.tree, nil, At("/k/d"), true, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := PlanKeep(r.tree, &Call{User: "u"}, op)
	r.must(t, kept)
	if _, err := PlanRestore(r.tree, nil, op.Inode, At("/x"+deep+"/again")); fserror.KindOf(err) != fserror.NameTooLong {
		t.Errorf("where it is too deep: %v", err)
	}
	if _, err := PlanRestore(r.tree, nil, op.Inode, At("/k/d")); err != nil {
		t.Error(err)
	}
}

// TestTrashXattr: only the owner of a directory, or a superuser, says what is kept; and only
// what can be understood.
func TestTrashXattr(t *testing.T) {
	r := newRig(t)
	dir := r.mkdir(t, "/k")
	file := r.create(t, "/k/f", "")
	r.must(t, &OpSetAttr{Inode: dir, SetMode: true, Mode: 0o777, User: "ann"})
	for _, c := range []struct {
		user, value string
		id          InodeID
		action      tables.XattrAction
		want        fserror.Kind
	}{
		{"ann", "7d", dir, tables.XattrSet, 0},
		{"ann", "365d", dir, tables.XattrSet, 0},
		{"ann", "off", dir, tables.XattrSet, 0},
		{"ann", "366d", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "0s", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "-1d", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "7", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "d", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "", dir, tables.XattrSet, fserror.InvalidArgument},
		{"ann", "99999999999999999999d", dir, tables.XattrSet, fserror.InvalidArgument},
		{"bob", "7d", dir, tables.XattrSet, fserror.Permission},
		{"bob", "", dir, tables.XattrRemove, fserror.Permission},
	} {
		_, err := PlanXattr(r.tree, &Call{User: c.user}, Inode(c.id), tables.TrashXattr, []byte(c.value), c.action)
		if c.want == 0 && err != nil || c.want != 0 && fserror.KindOf(err) != c.want {
			t.Errorf("%s sets %q: %v, want %v", c.user, c.value, err, c.want)
		}
	}
	if _, err := PlanXattr(r.tree, nil, Inode(file), tables.TrashXattr, []byte("7d"), tables.XattrSet); fserror.KindOf(err) != fserror.NotDirectory {
		t.Errorf("a file keeps what is deleted in it: %v", err)
	}
}
