package namespace

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
)

// modelNode is an inode of the model; the model is a plain map of paths.
type modelNode struct {
	id      InodeID
	typ     Type
	bytes   string
	open    bool
	writer  Writer
	session SessionID    // of the writer
	lease   LeaseID      // that it is attached to
	acl     posixacl.ACL // with what the mode says; nil: the model does not know it
}

// heir is the ACL of something that is made with a mode in a directory.
func heir(dir *modelNode, typ Type, mode uint16) posixacl.ACL {
	if dir == nil || dir.acl == nil {
		return nil
	}
	d := dir.acl.Part(true)
	if len(d) == 0 || typ == TypeSymlink {
		return posixacl.FromMode(mode)
	}
	a := under(d, mode)
	if typ == TypeDir {
		a = append(a, d.AsDefault()...)
	}
	return a
}

// under is an access ACL, of which owner, mask (or group) and others get at most a mode.
func under(a posixacl.ACL, mode uint16) posixacl.ACL {
	return withBits(a, func(had uint8, bits uint16) uint8 { return had & uint8(bits&7) }, mode)
}

// chmod is an ACL with a mode.
func chmod(a posixacl.ACL, mode uint16) posixacl.ACL {
	return withBits(a, func(_ uint8, bits uint16) uint8 { return uint8(bits & 7) }, mode)
}

func withBits(a posixacl.ACL, perm func(had uint8, bits uint16) uint8, mode uint16) posixacl.ACL {
	_, masked := a.Get(false, posixacl.Mask, "")
	a = slices.Clone(a)
	for i, e := range a {
		switch {
		case e.Default:
		case e.Tag == posixacl.Owner:
			a[i].Perm = perm(e.Perm, mode>>6)
		case e.Tag == posixacl.Mask || e.Tag == posixacl.OwningGroup && !masked:
			a[i].Perm = perm(e.Perm, mode>>3)
		case e.Tag == posixacl.Other:
			a[i].Perm = perm(e.Perm, mode)
		}
	}
	return a
}

type snapshot struct {
	tree  *Tree
	image []byte
}

// machine compares a tree with the model under random operations.
type machine struct {
	*rig
	nodes map[string]*modelNode
	leaseModel
	passes passModel
	clones []snapshot
	image  *Tree // read from an image in the middle of the journal
	since  int   // records that it holds
}

func (m *machine) init(t *rapid.T) {
	m.rig = newRig(t)
	m.nodes = map[string]*modelNode{"/": {id: RootID, typ: TypeDir, acl: posixacl.FromMode(0o755)}}
	m.initLeases()
	m.passes = passModel{}
	m.watch = newObserver(m.tree)
}

var (
	longName = strings.Repeat("n", node.Inline+1)
	hugeName = strings.Repeat("x", fspath.MaxName-1)
	names    = []string{"a", "b", "c", "d", strings.Repeat("n", node.Inline), longName, longName + "1", hugeName + "1", hugeName + "2", "é"}
)

func (m *machine) path(t *rapid.T, label string) string {
	depth := rapid.IntRange(1, 4).Draw(t, label+" depth")
	path := ""
	for range depth {
		path += "/" + rapid.SampledFrom(names).Draw(t, label)
	}
	return path
}

// known returns a path, usually of something that exists.
func (m *machine) known(t *rapid.T, label string) string {
	if rapid.IntRange(0, 4).Draw(t, label+" known") == 0 {
		return m.path(t, label)
	}
	paths := make([]string, 0, len(m.nodes))
	for p := range m.nodes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return rapid.SampledFrom(paths).Draw(t, label)
}

// way is the error, if any, that the components above a path give.
func (m *machine) way(path string) (missing bool, err fserror.Kind) {
	for i, c := range path {
		if i == 0 || c != '/' {
			continue
		}
		n := m.nodes[path[:i]]
		switch {
		case n == nil:
			return true, 0
		case n.typ != TypeDir:
			return false, fserror.NotDirectory
		}
	}
	return false, 0
}

func (m *machine) empty(path string) bool {
	for p := range m.nodes {
		if p != path && strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
			return false
		}
	}
	return true
}

// expect compares an error with the kind expected (0: none) and reports
// whether to continue.
func expect(t *rapid.T, what string, err error, want fserror.Kind) bool {
	if err == nil && want == 0 {
		return true
	}
	if err == nil || fserror.KindOf(err) != want {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
	return false
}

// learn adds directories that were made on the way.
func (m *machine) learn(path string, mode uint16) {
	for i, c := range path {
		if i > 0 && c == '/' && m.nodes[path[:i]] == nil {
			a, _ := m.tree.Stat(nil, At(path[:i]))
			dir, _ := fspath.Split(path[:i])
			m.nodes[path[:i]] = &modelNode{id: a.ID, typ: TypeDir, acl: heir(m.nodes[dir], TypeDir, mode)}
		}
	}
}

func (m *machine) Mkdir(t *rapid.T) {
	path, parents := m.path(t, "path"), rapid.Bool().Draw(t, "parents")
	lease := m.drawLease(t, true)
	missing, want := m.way(path)
	n := m.nodes[path]
	switch {
	case lease != 0 && !m.lives(lease):
		want = fserror.NotFound
	case want != 0:
	case missing && !parents:
		want = fserror.NotFound
	case n != nil && (n.typ != TypeDir || !parents):
		want = fserror.Exists
	case lease != 0 && n != nil && n.lease != lease:
		want = fserror.Exists
	}
	var op Op
	var nothing bool
	var err error
	if lease != 0 {
		var o *OpTxn
		o, err = PlanMkdirLeased(m.tree, nil, At(path), 0o755, parents, lease)
		op, nothing = o, o == nil
	} else {
		var o *OpMkdir
		o, err = PlanMkdir(m.tree, nil, At(path), 0o755, parents)
		op, nothing = o, o == nil
	}
	if !expect(t, "mkdir "+path, err, want) || nothing {
		return
	}
	id := m.must(t, op).Inode
	m.learn(path, 0o755)
	dir, _ := fspath.Split(path)
	m.nodes[path] = &modelNode{id: id, typ: TypeDir, lease: lease, acl: heir(m.nodes[dir], TypeDir, 0o755)}
}

func (m *machine) Create(t *rapid.T) {
	path, parents, over := m.path(t, "path"), rapid.Bool().Draw(t, "parents"), rapid.Bool().Draw(t, "overwrite")
	closed := rapid.Bool().Draw(t, "close")
	data := rapid.StringN(0, 20, 40).Draw(t, "data")
	lease := m.drawLease(t, true)
	missing, want := m.way(path)
	n := m.nodes[path]
	switch {
	case want != 0:
	case lease != 0 && !m.lives(lease):
		want = fserror.NotFound
	case missing && !parents:
		want = fserror.NotFound
	case n != nil && !over:
		want = fserror.Exists
	case n != nil && n.typ == TypeDir:
		want = fserror.IsDirectory
	}
	h := Holder{User: "u", Client: "c", Session: SessionID{9}, Host: "h", TTL: rapid.Int64Range(0, 2).Draw(t, "session ttl")}
	token := m.newToken()
	at := At(path)
	if over {
		at = Follow(path)
	}
	op, err := PlanCreate(m.tree, nil, CreateRequest{At: at, Mode: 0o644, DirMode: 0o755, Overwrite: over, Parents: parents, Close: closed, Holder: h, Token: token, Data: []byte(data), Lease: lease})
	if !expect(t, "create "+path, err, want) {
		return
	}
	res := m.must(t, op)
	if len(res.Closed) > 0 != (n != nil && n.open) {
		t.Fatalf("create over %+v closed %v", n, res.Closed)
	}
	m.learn(path, 0o755)
	dir, _ := fspath.Split(path)
	of := heir(m.nodes[dir], TypeFile, 0o644)
	if n != nil { // a file that replaces one keeps who may use it, under its own mode
		if of = nil; n.acl != nil {
			of = chmod(n.acl, 0o644)
		}
	}
	m.nodes[path] = &modelNode{id: res.Inode, typ: TypeFile, bytes: data, open: !closed, lease: lease, acl: of}
	if !closed {
		m.nodes[path].writer = Writer{Inode: res.Inode, Epoch: res.Opened.Epoch, Token: token}
		m.nodes[path].session = h.Session
		m.heard(m.nodes[path])
	}
}

// file draws a path of a file; nil if there is none.
func (m *machine) file(t *rapid.T, open bool) *modelNode {
	var ids []*modelNode
	for _, n := range m.nodes {
		if n.typ == TypeFile && n.open == open {
			ids = append(ids, n)
		}
	}
	if len(ids) == 0 {
		t.Skip("no file")
	}
	slices.SortFunc(ids, func(a, b *modelNode) int { return int(a.id) - int(b.id) })
	return rapid.SampledFrom(ids).Draw(t, "file")
}

func (m *machine) Open(t *rapid.T) {
	n := m.file(t, rapid.Bool().Draw(t, "take over"))
	old := n.writer
	token := m.newToken()
	res := m.must(t, &OpOpen{Inode: n.id, Holder: Holder{Client: "x", Session: SessionID{3}}, Token: token})
	if (len(res.Closed) > 0) != n.open || res.Length != int64(len(n.bytes)) {
		t.Fatalf("open of %+v: %+v", n, res)
	}
	if n.open && m.tree.CheckWriter(nil, old) == nil {
		t.Fatalf("the old writer was not fenced")
	}
	n.open, n.writer, n.session = true, Writer{Inode: n.id, Epoch: res.Opened.Epoch, Token: token}, SessionID{3}
	m.heard(n)
}

func (m *machine) Append(t *rapid.T) {
	n := m.file(t, true)
	data := rapid.StringN(1, 30, 60).Draw(t, "data")
	op, length, err := PlanAppendTail(m.tree, nil, n.writer, int64(len(n.bytes)), []byte(data), testMaxTail)
	if err != nil || length != int64(len(n.bytes)+len(data)) {
		t.Fatalf("append: %v", err)
	}
	m.must(t, op)
	again, _, err := PlanAppendTail(m.tree, nil, n.writer, int64(len(n.bytes)), []byte(data), testMaxTail)
	if again != nil || err != nil {
		t.Fatalf("append repeated: %+v, %v", again, err)
	}
	n.bytes += data
	m.heard(n)
}

func (m *machine) Commit(t *rapid.T) {
	n := m.file(t, true)
	v, _ := m.tree.File(nil, Inode(n.id))
	begin := int(v.Attr.Length - v.Attr.TailLength)
	data := n.bytes[begin:]
	if rapid.Bool().Draw(t, "part") {
		data = data[:rapid.IntRange(0, len(data)).Draw(t, "covered")]
	} else {
		data += rapid.StringN(0, 20, 40).Draw(t, "more")
	}
	if data == "" {
		t.Skip("nothing to commit")
	}
	b := m.commit(t, n.writer, data)
	if len(data) > len(n.bytes)-begin {
		n.bytes = n.bytes[:begin] + data
		m.heard(n)
	}
	op, err := PlanCommit(m.tree, nil, n.writer, int64(begin), b, 0, 0)
	if op != nil || err != nil {
		t.Fatalf("commit repeated: %+v, %v", op, err)
	}
}

// seal makes a file's tail, and perhaps its last block, a block.
func (m *machine) seal(t *rapid.T, id InodeID, replace bool) {
	v, _ := m.tree.File(nil, Inode(id))
	if len(v.Tail) == 0 {
		return
	}
	data, offset := string(v.Tail), v.Attr.Length-v.Attr.TailLength
	var last *Block
	if len(v.Blocks) > 0 {
		last = &v.Blocks[len(v.Blocks)-1]
	}
	if replace = replace && last != nil; replace {
		data = string(m.store[last.Key][:last.Used]) + data
		offset -= int64(last.Used)
	}
	op, err := PlanMerge(m.tree, id, m.block(data), offset, int64(len(v.Tail)), replace, last)
	if err != nil {
		t.Fatalf("seal: %v", err)
	}
	m.must(t, op)
}

func (m *machine) Seal(t *rapid.T) {
	m.seal(t, m.file(t, rapid.Bool().Draw(t, "open")).id, rapid.Bool().Draw(t, "replace last"))
}

func (m *machine) Close(t *rapid.T) {
	n := m.file(t, true)
	how := rapid.IntRange(0, 2).Draw(t, "how")
	switch how {
	case 0:
		m.must(t, &OpRecover{Inode: n.id, Reason: "forced"})
	case 1:
		m.close(t, n.writer)
	case 2:
		data := rapid.StringN(1, 30, 60).Draw(t, "data")
		op, err := PlanClose(m.tree, nil, n.writer, int64(len(n.bytes)), []byte(data), int64(len(n.bytes)+len(data)), 5, testMaxTail)
		if err != nil {
			t.Fatalf("close: %v", err)
		}
		m.must(t, op)
		n.bytes += data
	}
	if m.tree.CheckWriter(nil, n.writer) == nil {
		t.Fatalf("closed, but its writer may write")
	}
	if how > 0 {
		m.heard(n)
	}
	n.open = false
}

func (m *machine) Truncate(t *rapid.T) {
	n := m.file(t, false)
	length := rapid.IntRange(0, len(n.bytes)).Draw(t, "length")
	before, err := m.tree.File(nil, Inode(n.id))
	if err != nil {
		t.Fatalf("%v", err)
	}
	m.must(t, &OpTruncate{Inode: n.id, Length: int64(length)})
	if after, _ := m.tree.File(nil, Inode(n.id)); (after.Cut > before.Cut) != (length < len(n.bytes)) {
		t.Fatalf("cut from %d to %d bytes: record %d, before %d", len(n.bytes), length, after.Cut, before.Cut)
	}
	n.bytes = n.bytes[:length]
}

func (m *machine) Rename(t *rapid.T) {
	from, to, over := m.known(t, "from"), m.known(t, "to"), rapid.Bool().Draw(t, "overwrite")
	if n := m.nodes[from]; n != nil && n.typ == TypeSymlink {
		dir, _ := fspath.Split(to)
		to = fspath.Join(dir, "link") // never in the middle of a path
	}
	detach := rapid.Bool().Draw(t, "detach")
	src, dst := m.nodes[from], m.nodes[to]
	missing, want := m.way(from)
	if want == 0 && (missing || src == nil) {
		want = fserror.NotFound
	}
	if want == 0 {
		missing, want = m.way(to)
		switch {
		case want != 0:
		case from == "/" || to == "/":
			want = fserror.InvalidArgument
		case missing:
			want = fserror.NotFound
		case from == to:
		case src.typ == TypeDir && strings.HasPrefix(to, from+"/"):
			want = fserror.InvalidArgument
		case dst != nil && !over:
			want = fserror.Exists
		case dst != nil && dst.typ == TypeDir && src.typ != TypeDir:
			want = fserror.IsDirectory
		case dst != nil && dst.typ != TypeDir && src.typ == TypeDir:
			want = fserror.NotDirectory
		case dst != nil && dst.typ == TypeDir && !m.empty(to):
			want = fserror.NotEmpty
		case detach && m.ending(src):
			want = fserror.NotFound
		}
	}
	op, err := PlanRename(m.tree, nil, At(from), At(to), over, detach)
	if !expect(t, "rename "+from+" "+to, err, want) || op == nil {
		return
	}
	m.must(t, op)
	if detach {
		src.lease = 0
	}
	delete(m.nodes, to)
	moved := make(map[string]*modelNode)
	for p, n := range m.nodes {
		if p == from || strings.HasPrefix(p, from+"/") {
			moved[to+p[len(from):]] = n
			delete(m.nodes, p)
		}
	}
	for p, n := range moved {
		m.nodes[p] = n
	}
}

func (m *machine) Delete(t *rapid.T) {
	path, recursive := m.known(t, "path"), rapid.Bool().Draw(t, "recursive")
	missing, want := m.way(path)
	switch n := m.nodes[path]; {
	case want != 0:
	case missing || n == nil:
		want = fserror.NotFound
	case path == "/":
		want = fserror.InvalidArgument
	case n.typ == TypeDir && !recursive && !m.empty(path):
		want = fserror.NotEmpty
	}
	op, err := PlanDelete(m.tree, nil, At(path), recursive, 0)
	if !expect(t, "delete "+path, err, want) {
		return
	}
	res := m.must(t, op)
	open := map[InodeID]uint64{}
	for p, n := range m.nodes {
		if p == path || strings.HasPrefix(p, path+"/") {
			if n.open {
				open[n.id] = n.writer.Epoch
			}
			delete(m.nodes, p)
			if n.lease != 0 && p != path {
				m.gone[n.id] = n.lease
			}
			if _, err := m.tree.Stat(nil, Inode(n.id)); fserror.KindOf(err) != fserror.NotFound {
				t.Fatalf("deleted, but there: %v", err)
			}
		}
	}
	for _, c := range res.Closed {
		if open[c.Inode] != c.Epoch {
			t.Fatalf("delete closed %+v, not in %v", c, open)
		}
		delete(open, c.Inode)
	}
	if len(open) > 0 {
		t.Fatalf("delete left %v open", open)
	}
}

func (m *machine) Symlink(t *rapid.T) {
	dir := m.known(t, "dir")
	path := fspath.Join(dir, "link")
	n := m.nodes[dir]
	if n == nil || n.typ != TypeDir || m.nodes[path] != nil {
		t.Skip("no place")
	}
	target := rapid.SampledFrom([]string{"/a", "b/..", "../a", "a/../../b", "link", longName}).Draw(t, "target")
	lease := m.drawLease(t, true)
	if !m.lives(lease) {
		lease = 0
	}
	op, err := PlanSymlink(m.tree, nil, At(path), target, false)
	if err != nil {
		t.Fatalf("symlink: %v", err)
	}
	var record Op = op
	if lease != 0 {
		if record, err = PlanSymlinkLeased(m.tree, nil, At(path), target, false, lease); err != nil {
			t.Fatalf("symlink: %v", err)
		}
	}
	m.nodes[path] = &modelNode{id: m.must(t, record).Inode, typ: TypeSymlink, bytes: target, lease: lease}
}

func (m *machine) Concat(t *rapid.T) {
	target := m.file(t, false)
	var paths []string
	for p, n := range m.nodes {
		if n.typ == TypeFile && !n.open && n != target {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	if len(paths) == 0 {
		t.Skip("no source")
	}
	paths = rapid.Permutation(paths).Draw(t, "sources")[:rapid.IntRange(1, len(paths)).Draw(t, "count")]
	where, _ := m.tree.Path(target.id)
	op, err := PlanConcat(m.tree, nil, Follow(where), refs(paths))
	if err != nil {
		t.Fatalf("concat: %v", err)
	}
	for _, id := range ConcatNeedsSeal(m.tree, op) {
		m.seal(t, id, false)
	}
	m.must(t, op)
	for _, p := range paths {
		target.bytes += m.nodes[p].bytes
		delete(m.nodes, p)
	}
}

func (m *machine) SetAttr(t *rapid.T) {
	path := m.known(t, "path")
	if m.nodes[path] == nil {
		return
	}
	mode := rapid.SampledFrom([]uint16{0o755, 0o711, 0o700, 0o644, 0}).Draw(t, "mode")
	if n := m.nodes[path]; n.acl != nil {
		n.acl = chmod(n.acl, mode)
	}
	op, err := PlanSetAttr(m.tree, nil, At(path), OpSetAttr{SetMode: true, Mode: mode, User: rapid.SampledFrom([]string{"", "u1", "u2"}).Draw(t, "user"), SetMTime: true})
	if err != nil {
		t.Fatalf("setattr: %v", err)
	}
	m.must(t, op)
}

func (m *machine) SetACL(t *rapid.T) {
	path := m.known(t, "path")
	n := m.nodes[path]
	if n == nil || n.typ != TypeSymlink && n.acl == nil {
		return
	}
	change := posixacl.Change{Action: rapid.SampledFrom([]posixacl.Action{posixacl.Replace, posixacl.Modify, posixacl.Modify, posixacl.Remove, posixacl.RemoveDefault, posixacl.RemoveAll, posixacl.Exact, posixacl.Whole}).Draw(t, "action")}
	if change.Action != posixacl.RemoveDefault && change.Action != posixacl.RemoveAll {
		given := rapid.SliceOfNDistinct(rapid.SampledFrom(aclEntries), 1, 5, func(e string) string { return e }).Draw(t, "entries")
		if change.Action != posixacl.Modify && change.Action != posixacl.Remove {
			given = append(given, "u::rwx", "g::r", "o::x")
		}
		var err error
		if change.Entries, err = posixacl.ParseEntries(strings.Join(given, ","), false); err != nil {
			t.Fatalf("%v", err)
		}
	}
	want, wantErr := n.acl.Apply(change)
	op, err := PlanSetACL(m.tree, nil, At(path), change)
	switch {
	case n.typ == TypeSymlink:
		expect(t, "setacl", err, fserror.Unsupported)
		return
	case wantErr != nil || n.typ != TypeDir && len(want.Part(true)) > 0:
		expect(t, "setacl", err, fserror.InvalidArgument)
		return
	case err != nil || (op == nil) != slices.Equal(want, n.acl):
		t.Fatalf("setacl from %s to %s: %+v, %v", n.acl, want, op, err)
	case op != nil:
		m.must(t, op)
	}
	n.acl = want
}

// aclEntries are what ACLs of the model are made of.
var aclEntries = []string{"u:u1:rw", "u:u2:x", "g:g1:r", "g:g2:rwx", "m::rw", "m::-", "d:u::rwx", "d:u:u1:rx", "d:g:g1:w", "d:m::r", "d:o::r", "d:g::rw"}

// Quota sets a quota; must holds each record to it.
func (m *machine) Quota(t *rapid.T) {
	path := m.known(t, "path")
	missing, want := m.way(path)
	n := m.nodes[path]
	switch {
	case want != 0:
	case missing || n == nil:
		want = fserror.NotFound
	case n.typ != TypeDir:
		want = fserror.NotDirectory
	}
	limit := rapid.Int64Range(quota.Keep, 12)
	op, err := PlanQuota(m.tree, nil, At(path), quota.Limits{Names: limit.Draw(t, "names"), Bytes: limit.Draw(t, "bytes")})
	if expect(t, "quota "+path, err, want) && op != nil && Permit(m.tree, op) == nil {
		m.must(t, op)
	}
}

func (m *machine) Reclaim(t *rapid.T) {
	m.must(t, &OpReclaim{Limit: uint32(rapid.IntRange(1, 5).Draw(t, "limit"))})
}

func (m *machine) Collect(t *rapid.T) {
	keys := m.tree.Garbage().Oldest(m.now, 5, math.MaxInt64)
	if len(keys) > 0 {
		m.must(t, &OpCollected{Keys: keys})
	}
	for _, k := range keys {
		delete(m.store, k)
	}
}

// Raise raises the level: nothing else changes, and the images from then on are of that level.
func (m *machine) Raise(t *rapid.T) {
	at := m.tree.Level()
	raised := levels.State{Level: at.Level + 1, Release: fmt.Sprint(at.Level + 1)}
	_, err := m.apply(CallID{}, &OpLevel{State: raised})
	switch now := m.tree.Level(); {
	case at.Level == levels.Newest():
		if fserror.ReasonOf(err) != fserror.ReasonNewer || now != at {
			t.Fatalf("above the newest level: %v, at %+v", err, now)
		}
	case err != nil || now != raised:
		t.Fatalf("%v, at %+v", err, now)
	}
}

func (m *machine) Clone(t *rapid.T) {
	c := m.tree.Clone()
	m.clones = append(m.clones, snapshot{c, imageOf(t, c)})
}

func (m *machine) Image(t *rapid.T) {
	m.image, m.since = roundTrip(t, m.tree), len(m.journal)
}

// Check compares everything after each step.
func (m *machine) Check(t *rapid.T) {
	m.checkPasses(t)
	sound(t, m.tree)
	m.checkLeases(t)
	m.watch.check(t)
	seen := 0
	types := make(map[Type]int)
	err := m.tree.Walk(RootID, func(p []byte, a Attr) error {
		path := string(p)
		n := m.nodes[path]
		if n == nil {
			return fmt.Errorf("%s is in the tree only", path)
		}
		seen++
		types[a.Type]++
		if a.ID != n.id || a.Type != n.typ || (a.Open != nil) != n.open || a.Lease != n.lease {
			return fmt.Errorf("%s is %+v, should be %+v", path, a, n)
		}
		if n.acl != nil {
			if have, err := m.tree.ACL(nil, Inode(a.ID)); err != nil || !slices.Equal(have, n.acl) || a.Mode&0o777 != n.acl.Mode() || (a.Access != nil) != n.acl.Part(false).Extended() || (a.Default != nil) != (len(n.acl.Part(true)) > 0) {
				return fmt.Errorf("%s has the ACL %s and the mode %o, should have %s: %w", path, have, a.Mode, n.acl, err)
			}
		}
		if n.typ == TypeFile && m.content(t, m.tree, n.id) != n.bytes {
			return fmt.Errorf("content of %s is %q, should be %q", path, m.content(t, m.tree, n.id), n.bytes)
		}
		if n.typ == TypeSymlink && a.LinkTarget != n.bytes {
			return fmt.Errorf("%s points to %q", path, a.LinkTarget)
		}
		if p, ok := m.tree.Path(a.ID); !ok || p != path {
			return fmt.Errorf("path of %s is %s", path, p)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if seen != len(m.nodes) {
		t.Fatalf("the tree has %d of %d nodes", seen, len(m.nodes))
	}
	if c := m.tree.CountReachable(); c.Inodes != seen || c.Files != types[TypeFile] || c.Dirs != types[TypeDir] || c.Symlinks != types[TypeSymlink] {
		t.Fatalf("%+v are reachable, should be %d: %v", c, seen, types)
	}
	// Something more is cached, which the steps to come may not change.
	paths := make([]string, 0, len(m.nodes))
	for p := range m.nodes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for range rapid.IntRange(0, 4).Draw(t, "reads") {
		m.watch.read(t, paths)
	}
}

// finish checks what holds for the whole run.
func (m *machine) finish(t *rapid.T) {
	for _, c := range m.clones {
		if !bytes.Equal(imageOf(t, c.tree), c.image) {
			t.Fatalf("a clone of record %d changed", c.tree.txid)
		}
		sound(t, c.tree)
	}
	same(t, m.tree, replay(t, m.journal))
	if m.image != nil {
		for _, rec := range m.journal[m.since:] {
			if _, err := applyRecord(m.image, rec); err != nil {
				t.Fatalf("record %d after the image: %v", rec.txid, err)
			}
		}
		same(t, m.tree, m.image)
		sound(t, m.image)
	}
	roundTrip(t, m.tree)
	for m.tree.EndedLeases() > 0 {
		m.reap(t, 50)
	}
	for m.tree.Counts().Detached > 0 {
		m.must(t, &OpReclaim{Limit: 3})
		sound(t, m.tree)
	}
	if c := m.tree.Counts(); c.Inodes != len(m.nodes) {
		t.Fatalf("%d inodes after all is reclaimed, the model has %d", c.Inodes, len(m.nodes))
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m machine
		m.init(t)
		t.Repeat(rapid.StateMachineActions(&m))
		m.finish(t)
	})
}
