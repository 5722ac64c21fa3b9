package namespace

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// copiedInode is a deep copy of an inode below a directory.
type copiedInode struct {
	path, shown string
	typ         Type
	parent      InodeID
	keys        []blockstore.Key
}

// copyOf is a deep copy of what is below a directory, by inode, and what it takes.
func copyOf(t tb, tree *Tree, dir string) map[InodeID]copiedInode {
	t.Helper()
	all := make(map[InodeID]copiedInode)
	top, err := tree.Stat(nil, At(dir))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	dir, _ = tree.Path(top.ID) // without symbolic links
	if err := tree.Walk(top.ID, func(p []byte, a Attr) error {
		_, id := snapshots.Split(a.ID)
		_, parent := snapshots.Split(a.Parent)
		c := copiedInode{path: strings.TrimPrefix(string(p), dir), typ: a.Type, parent: parent}
		c.shown = fmt.Sprintf("%d %o %s %s %d %d %d %s", a.Type, a.Mode, a.User, a.Group, a.MTime, a.Length, a.Entries, a.LinkTarget)
		xattrs, err := tree.Xattrs(nil, Inode(a.ID))
		if err != nil {
			return err
		}
		c.shown += fmt.Sprint(xattrs)
		if a.Type != TypeSymlink {
			list, err := tree.ACL(nil, Inode(a.ID))
			if err != nil {
				return err
			}
			c.shown += fmt.Sprint(list)
		}
		if a.Type == TypeFile {
			f, err := tree.File(nil, Inode(a.ID))
			if err != nil {
				return err
			}
			c.shown += fmt.Sprintf("%v %q", f.Blocks, f.Tail)
			for _, b := range f.Blocks {
				c.keys = append(c.keys, b.Key)
			}
		}
		all[id] = c
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return all
}

// naive is what snapshots.Differ has to list.
func naive(dir InodeID, was, is map[InodeID]copiedInode) (list []snapshots.Diff) {
	ids := slices.Collect(maps.Keys(was))
	for id := range is {
		if _, both := was[id]; !both {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	rel := func(p string) string { return strings.TrimPrefix(p, "/") }
	for _, id := range ids {
		a, before := was[id]
		b, after := is[id]
		switch {
		case !before:
			if _, there := was[b.parent]; there {
				list = append(list, snapshots.Diff{Kind: snapshots.Created, Inode: id, Type: b.typ, To: rel(b.path)})
			}
		case !after:
			if _, there := is[a.parent]; there {
				list = append(list, snapshots.Diff{Kind: snapshots.Deleted, Inode: id, Type: a.typ, From: rel(a.path)})
			}
		default:
			moved := id != dir && (a.parent != b.parent || path.Base(a.path) != path.Base(b.path))
			d := snapshots.Diff{Kind: snapshots.Modified, Inode: id, Type: a.typ, From: rel(a.path), To: rel(b.path), Modified: a.shown != b.shown}
			if moved {
				d.Kind = snapshots.Renamed
			}
			if moved || d.Modified {
				list = append(list, d)
			}
		}
	}
	return list
}

// pastCopy is a snapshot of the model.
type pastCopy struct {
	dir, name string
	inode     InodeID
	all       map[InodeID]copiedInode
}

// snapMachine makes snapshots beside all other changes.
type snapMachine struct {
	*rig
	snaps map[snapshots.ID]*pastCopy
	keys  []blockstore.Key
	image *Tree
	since int
}

var snapPaths = []string{"/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/a/b/b", "/a/a/" + longName, "/b/b", "/b/" + longName}

func (m *snapMachine) path(t *rapid.T) string { return rapid.SampledFrom(snapPaths).Draw(t, "path") }

// plan carries out what was planned, if it could be.
func plan[O interface {
	comparable
	Op
}](m *snapMachine, t *rapid.T, op O, err error) Result {
	var none O
	if err != nil || op == none {
		return Result{}
	}
	keeps, fits := PlanKeep(m.tree, &Call{User: "u", Super: true}, op)
	if !fits {
		t.Fatal("the trash is full")
	}
	return m.must(t, keeps)
}

func (m *snapMachine) Mkdir(t *rapid.T) {
	op, err := PlanMkdir(m.tree, nil, At(m.path(t)), uint16(rapid.SampledFrom([]uint16{0o755, 0o700}).Draw(t, "mode")), true)
	plan(m, t, op, err)
}

func (m *snapMachine) Create(t *rapid.T) {
	p := m.path(t)
	op, err := PlanCreate(m.tree, nil, CreateRequest{At: Follow(p), Mode: 0o644, Overwrite: rapid.Bool().Draw(t, "over"), Close: true, Data: []byte(rapid.SampledFrom([]string{"", "tail"}).Draw(t, "data"))})
	plan(m, t, op, err)
}

func (m *snapMachine) Symlink(t *rapid.T) {
	op, err := PlanSymlink(m.tree, nil, At(m.path(t)), "a", false)
	plan(m, t, op, err)
}

// Write opens a file, or writes to one that is open, a block or a tail.
func (m *snapMachine) Write(t *rapid.T) {
	a, err := m.tree.Stat(nil, At(m.path(t)))
	if err != nil || a.Type != TypeFile {
		return
	}
	if a.Open == nil {
		m.must(t, &OpOpen{Inode: a.ID, Holder: Holder{User: "u", Session: SessionID{1}}, Token: m.newToken()})
		a, _ = m.tree.Stat(nil, Inode(a.ID))
	}
	w := Writer{Inode: a.ID, Epoch: a.Open.Epoch, Token: a.Open.Token}
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		m.write(t, w, a.Length, "x")
	case 1:
		m.close(t, w)
	default:
		if n := m.tree.get(a.ID); len(n.Tail()) > 0 {
			m.commit(t, w, string(n.Tail())+"y")
		} else {
			m.commit(t, w, "block")
		}
		b := m.tree.get(a.ID).Blocks()
		m.keys = append(m.keys, b[len(b)-1].Key)
	}
}

func (m *snapMachine) Rename(t *rapid.T) {
	op, err := PlanRename(m.tree, nil, At(m.path(t)), At(m.path(t)), true, rapid.Bool().Draw(t, "detach"))
	plan(m, t, op, err)
}

func (m *snapMachine) Delete(t *rapid.T) {
	p := m.path(t)
	op, err := PlanDelete(m.tree, nil, At(p), true, 0)
	for _, s := range m.snaps {
		if err == nil && (s.inode == op.Inode || m.tree.IsBelow(s.inode, op.Inode)) {
			t.Fatalf("%s can be deleted, though %s has snapshots", p, s.dir)
		}
	}
	plan(m, t, op, err)
}

func (m *snapMachine) Truncate(t *rapid.T) {
	op, err := PlanTruncate(m.tree, nil, At(m.path(t)), rapid.Int64Range(0, 9).Draw(t, "length"))
	plan(m, t, op, err)
}

func (m *snapMachine) Concat(t *rapid.T) {
	op, err := PlanConcat(m.tree, nil, At(m.path(t)), []Ref{At(m.path(t))})
	if err == nil && len(ConcatNeedsSeal(m.tree, op)) == 0 {
		plan(m, t, op, err)
	}
}

func (m *snapMachine) Attr(t *rapid.T) {
	p := m.path(t)
	op, err := PlanSetAttr(m.tree, nil, At(p), OpSetAttr{SetMode: true, Mode: rapid.SampledFrom([]uint16{0o600, 0o755}).Draw(t, "mode")})
	plan(m, t, op, err)
	action := rapid.SampledFrom([]tables.XattrAction{tables.XattrSet, tables.XattrRemove}).Draw(t, "action")
	x, err := PlanXattr(m.tree, nil, At(p), "user.x", []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")), action)
	plan(m, t, x, err)
	entries, _ := posixacl.ParseEntries(rapid.SampledFrom([]string{"u:u1:rw", "u:u2:x", "d:u:u1:rx"}).Draw(t, "acl"), false)
	acl, err := PlanSetACL(m.tree, nil, At(p), posixacl.Change{Action: rapid.SampledFrom([]posixacl.Action{posixacl.Modify, posixacl.RemoveAll}).Draw(t, "acl action"), Entries: entries})
	plan(m, t, acl, err)
}

func (m *snapMachine) Trash(t *rapid.T) {
	op, err := PlanXattr(m.tree, nil, At("/"), tables.TrashXattr, []byte(rapid.SampledFrom([]string{"1d", "off"}).Draw(t, "keep")), tables.XattrSet)
	plan(m, t, op, err)
	var ids []InodeID
	m.tree.trash.Due(func(e *tables.Trashed) bool { ids = append(ids, e.Inode); return true })
	for _, id := range ids {
		if rapid.Bool().Draw(t, "restore") {
			op, err := PlanRestore(m.tree, nil, id, At(m.path(t)))
			plan(m, t, op, err)
		} else {
			m.must(t, &OpTrash{Do: TrashEmpty, Inodes: []InodeID{id}})
		}
	}
}

// Lease attaches something to a lease, and ends it: what is attached is dead, until it is reaped.
func (m *snapMachine) Lease(t *rapid.T) {
	if _, lives := m.tree.Lease(nil, 1); !lives {
		m.must(t, &OpGrant{ID: 1, TTL: 60_000, Owner: Owner{User: "u"}})
	}
	op, err := PlanAttach(m.tree, nil, 1, At(m.path(t)))
	plan(m, t, op, err)
	switch rapid.IntRange(0, 2).Draw(t, "end") {
	case 0:
		m.must(t, &OpEnd{ID: 1, Reason: LeaseRevoked})
	case 1:
		if m.tree.EndedLeases() > 0 {
			m.must(t, &OpReap{ID: 1, Limit: 1})
		}
	}
}

// Numbered makes a file with a number that was set aside, perhaps before a snapshot.
func (m *snapMachine) Numbered(t *rapid.T) {
	s := SessionID{9}
	if m.tree.Caching(s) == 0 {
		m.must(t, &OpCaching{Session: s, Term: 1000})
		m.must(t, &OpReserve{Session: s, Count: 100})
	}
	for id := m.tree.nextInode - 1; id > 1; id-- {
		if m.tree.Reserved(s, id) {
			op, err := PlanCreateAs(m.tree, nil, id, CreateRequest{At: At(m.path(t)), Mode: 0o600, Close: true, Holder: Holder{Session: s}})
			plan(m, t, op, err)
			return
		}
	}
}

func (m *snapMachine) Reclaim(t *rapid.T) {
	m.must(t, &OpReclaim{Limit: uint32(rapid.IntRange(1, 4).Draw(t, "limit"))})
	m.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: uint32(rapid.IntRange(1, 4).Draw(t, "blocks"))}})
}

func (m *snapMachine) Snapshot(t *rapid.T) {
	p := m.path(t)
	allow, err := PlanAllowSnapshots(m.tree, nil, At(p), true)
	if err == nil && allow != nil {
		m.must(t, allow)
	}
	name := fmt.Sprint("s", len(m.journal))
	op, err := PlanSnapshot(m.tree, nil, At(p), name)
	if err != nil {
		return
	}
	want := copyOf(t, m.tree, p)
	id, dir := snapshots.Split(m.must(t, op).Inode)
	m.snaps[id] = &pastCopy{p, name, dir, want}
}

// one is a snapshot of the model; nil: there is none.
func (m *snapMachine) one(t *rapid.T, label string) (snapshots.ID, *pastCopy) {
	if len(m.snaps) == 0 {
		return 0, nil
	}
	ids := slices.Sorted(maps.Keys(m.snaps))
	id := rapid.SampledFrom(ids).Draw(t, label)
	return id, m.snaps[id]
}

func (m *snapMachine) DeleteSnapshot(t *rapid.T) {
	id, s := m.one(t, "snapshot")
	if s == nil {
		return
	}
	op, err := PlanDeleteSnapshot(m.tree, nil, Inode(s.inode), s.name)
	if err != nil {
		t.Fatal(err)
	}
	m.must(t, op)
	delete(m.snaps, id)
}

func (m *snapMachine) RenameSnapshot(t *rapid.T) {
	_, s := m.one(t, "snapshot")
	if s == nil {
		return
	}
	to := rapid.SampledFrom([]string{"one", "two", s.name}).Draw(t, "to")
	op, err := PlanRenameSnapshot(m.tree, nil, Inode(s.inode), s.name, to)
	if fserror.KindOf(err) == fserror.Exists {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if op != nil {
		m.must(t, op)
	}
	s.name = to
}

// Quota sets or takes the quota of a directory, of which a snapshot has none.
func (m *snapMachine) Quota(t *rapid.T) {
	limit := rapid.Int64Range(quota.Keep, 12)
	l := quota.Limits{Names: limit.Draw(t, "names"), Bytes: limit.Draw(t, "bytes")}
	op, err := PlanQuota(m.tree, nil, At(m.path(t)), l)
	plan(m, t, op, err)
	if id, s := m.one(t, "snapshot"); s != nil {
		if op, err := PlanQuota(m.tree, nil, Inode(id.Number(s.inode)), l); fserror.KindOf(err) != fserror.ReadOnly {
			t.Fatalf("a quota in a snapshot: %+v, %v", op, err)
		}
	}
}

// countQuotas compares what quotas have in use with what is in their directories, of which that in
// snapshots and in the trash is no part.
func (m *snapMachine) countQuotas(t *rapid.T) {
	uses := make(map[InodeID]quota.Use)
	m.tree.each(0, func(n *inode) bool {
		one := quota.Use{Names: 1}
		if n.Type == TypeFile {
			one.Bytes = n.Length()
		}
		for dir := n; dir != nil; dir = m.tree.get(dir.Parent) {
			uses[dir.ID] = uses[dir.ID].Plus(one, 1)
		}
		return true
	})
	Quotas(m.tree, nil).From(0, func(e quota.Entry) bool {
		if e.Use != uses[e.Dir] {
			t.Fatalf("the quota of directory %d has %+v in use, not %+v", e.Dir, e.Use, uses[e.Dir])
		}
		return true
	})
}

// Diff compares differences with those of the copies.
func (m *snapMachine) Diff(t *rapid.T) {
	_, a := m.one(t, "from")
	_, b := m.one(t, "to")
	if a == nil {
		return
	}
	from, to, was, is := a.name, b.name, a.all, b.all
	if a.inode != b.inode || a == b {
		dir, _ := m.tree.Path(a.inode)
		to, is = "", copyOf(t, m.tree, dir)
		if rapid.Bool().Draw(t, "back") {
			from, to, was, is = to, from, is, was
		}
	}
	var got []snapshots.Diff
	for start := InodeID(0); ; {
		list, next, err := m.tree.SnapshotDiff(nil, Inode(a.inode), from, to, start, 2)
		if err != nil || len(list) > 2 {
			t.Fatal(len(list), err)
		}
		if got = append(got, list...); next == 0 {
			break
		}
		start = next
	}
	if want := naive(a.inode, was, is); !slices.Equal(got, want) {
		t.Fatalf("from %q to %q:\n%+v, not\n%+v", from, to, got, want)
	}
}

func (m *snapMachine) Image(t *rapid.T) {
	m.image, m.since = roundTrip(t, m.tree), len(m.journal)
	if rapid.Bool().Draw(t, "restart") {
		m.tree = roundTrip(t, m.tree)
	}
}

// Check compares all snapshots with the copies, by path and by number, and counts what is in quotas.
func (m *snapMachine) Check(t *rapid.T) {
	sound(t, m.tree)
	m.countQuotas(t)
	for id, s := range m.snaps {
		dir, ok := m.tree.Path(s.inode)
		if !ok {
			t.Fatalf("%s has no path", s.dir)
		}
		got := copyOf(t, m.tree, path.Join(dir, snapshots.DirName, s.name))
		for i, c := range got {
			want := s.all[i]
			if i == s.inode {
				c.parent, want.parent = 0, 0
			}
			if c.shown != want.shown || c.path != want.path || c.parent != want.parent {
				t.Fatalf("inode %d of snapshot %d is %+v, not %+v", i, id, c, want)
			}
		}
		if len(got) != len(s.all) {
			t.Fatalf("snapshot %d has %d inodes, not %d", id, len(got), len(s.all))
		}
	}
}

// finish reclaims all: blocks are kept exactly as long as they are needed.
func (m *snapMachine) finish(t *rapid.T) {
	m.must(t, &OpReclaim{Limit: 1000})
	for m.tree.snaps.Dying() {
		m.must(t, &OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: 2}})
		sound(t, m.tree)
	}
	needed := make(map[blockstore.Key]bool)
	m.tree.each(0, func(n *inode) bool {
		for _, b := range n.Blocks() {
			needed[b.Key] = true
		}
		return true
	})
	for _, s := range m.snaps {
		for _, c := range s.all {
			for _, k := range c.keys {
				needed[k] = true
			}
		}
	}
	for _, k := range m.keys {
		if m.tree.HasBlock(k) != needed[k] || m.tree.IsGarbage(k) == needed[k] {
			t.Fatalf("block %v is needed: %v, kept: %v, garbage: %v", k, needed[k], m.tree.HasBlock(k), m.tree.IsGarbage(k))
		}
	}
	referenced := make(map[blockstore.Key]bool)
	last := InodeID(0)
	m.tree.Referenced(0, func(id InodeID, b Block) bool {
		if referenced[b.Key] || id < last {
			t.Fatalf("block %v of inode %d comes again, or after %d", b.Key, id, last)
		}
		last, referenced[b.Key] = id, true
		return true
	})
	if !maps.Equal(referenced, needed) {
		t.Fatalf("referenced are %v, needed %v", referenced, needed)
	}
	same(t, m.tree, replay(t, m.journal))
	if m.image != nil {
		for _, rec := range m.journal[m.since:] {
			if _, err := applyRecord(m.image, rec); err != nil {
				t.Fatalf("record %d after the image: %v", rec.txid, err)
			}
		}
		same(t, m.tree, m.image)
	}
	m.tree = roundTrip(t, m.tree)
	m.Check(t)
}

func TestSnapshotModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := snapMachine{rig: newRig(t), snaps: make(map[snapshots.ID]*pastCopy)}
		m.quota(t, "/", 1000, 1000)
		for _, p := range []string{"/a/a", "/b"} {
			m.mkdir(t, p)
		}
		t.Repeat(rapid.StateMachineActions(&m))
		m.finish(t)
	})
}
