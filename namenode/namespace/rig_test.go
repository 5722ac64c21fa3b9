package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
)

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// record is an encoded journal record.
type record struct {
	txid uint64
	time int64
	typ  uint8
	body []byte
}

// rig drives a tree as a namenode does: it plans, encodes, decodes, applies.
type rig struct {
	tree    *Tree
	journal []record
	now     int64
	token   byte
	keySeq  uint64
	store   map[blockstore.Key][]byte // bytes of blocks
	watch   *observer                 // nil: nobody watches
}

const testStart = 1_700_000_000_000

func newRig(t tb) *rig {
	t.Helper()
	r := &rig{tree: New(), now: testStart, store: make(map[blockstore.Key][]byte)}
	r.must(t, &OpActivate{Term: 1, NamespaceID: [16]byte{1, 2}, User: "hdfs", Group: "supergroup"})
	return r
}

// apply journals a record and applies what a decoder makes of it.
func (r *rig) apply(call CallID, op Op) (Result, error) {
	r.now++
	last, _ := r.tree.Last()
	typ, body := EncodeOp(nil, call, op)
	rec := record{txid: last + 1, time: r.now, typ: typ, body: body}
	if r.watch != nil {
		r.watch.before(op)
	}
	res, err := applyRecord(r.tree, rec)
	if r.watch != nil {
		r.watch.after(op, &res, err)
	}
	if err == nil {
		r.journal = append(r.journal, rec)
	}
	return res, err
}

func applyRecord(t *Tree, rec record) (Result, error) {
	body := bytes.Clone(rec.body)
	call, op, err := DecodeOp(rec.typ, body)
	if err != nil {
		return Result{}, err
	}
	res, err := t.Apply(Entry{TxID: rec.txid, Time: rec.time, Call: call, Op: op})
	for i := range body {
		body[i] = 0xdb // what was decoded must not be needed any more
	}
	return res, err
}

func (r *rig) must(t tb, op Op) Result {
	t.Helper()
	if err := Permit(r.tree, op); err != nil { // an image would not have what it does
		t.Fatalf("%v", err)
	}
	before, refused := r.tree.quotas.Clone(), FitQuotas(r.tree, nil, op)
	res, err := r.apply(CallID{}, op)
	if err != nil {
		t.Fatalf("apply %s: %v", opName(op), err)
	}
	if over := exceeded(r.tree, before); over != (refused != nil) {
		t.Fatalf("%s makes a quota grow beyond its limit: %v, refused: %v", opName(op), over, refused)
	}
	return res
}

// exceeded reports whether a record, which was applied, made a quota grow beyond a limit.
func exceeded(t *Tree, before quota.Table[node.Ext]) (over bool) {
	before.From(0, func(e quota.Entry) bool {
		now, there := t.quotas.Get(e.Dir)
		over = over || there && (now.Limits.Names != quota.None && now.Use.Names > max(now.Limits.Names, e.Use.Names) || now.Limits.Bytes != quota.None && now.Use.Bytes > max(now.Limits.Bytes, e.Use.Bytes))
		return true
	})
	return over
}

// quota sets the quota of a directory.
func (r *rig) quota(t tb, path string, names, bytes int64) {
	t.Helper()
	op, err := PlanQuota(r.tree, nil, At(path), quota.Limits{Names: names, Bytes: bytes})
	if err != nil || op == nil {
		t.Fatalf("%+v, %v", op, err)
	}
	r.raise(t)
	r.must(t, op)
}

// raise brings the tree to the newest level, of whose images quotas are a part.
func (r *rig) raise(t tb) {
	t.Helper()
	if newest := levels.Newest(); r.tree.Level().Level < newest {
		r.must(t, &OpLevel{State: levels.State{Level: newest}})
	}
}

// replay applies a whole journal to an empty tree.
func replay(t tb, journal []record) *Tree {
	t.Helper()
	tree := New()
	for _, rec := range journal {
		if _, err := applyRecord(tree, rec); err != nil {
			t.Fatalf("replay of record %d: %v", rec.txid, err)
		}
	}
	return tree
}

// setACL adds entries to what something has.
func (r *rig) setACL(t tb, path, entries string) {
	t.Helper()
	given, err := posixacl.ParseEntries(entries, false)
	if err != nil {
		t.Fatalf("%v", err)
	}
	op, err := PlanSetACL(r.tree, nil, At(path), posixacl.Change{Action: posixacl.Modify, Entries: given})
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

func (r *rig) newToken() Token {
	r.token++
	return Token{r.token, 7}
}

func (r *rig) mkdir(t tb, path string) InodeID {
	t.Helper()
	op, err := PlanMkdir(r.tree, nil, At(path), 0o755, true)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if op == nil {
		a, _ := r.tree.Stat(nil, Follow(path))
		return a.ID
	}
	return r.must(t, op).Inode
}

// create makes a closed file.
func (r *rig) create(t tb, path string, data string) InodeID {
	t.Helper()
	op, err := PlanCreate(r.tree, nil, CreateRequest{At: At(path), Mode: 0o644, DirMode: 0o755, Parents: true, Close: true, Data: []byte(data)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op).Inode
}

// open makes an open file, or opens one.
func (r *rig) open(t tb, path, client string) Writer {
	t.Helper()
	h := Holder{User: "u", Client: client, Session: SessionID{client[0]}, Host: "host", PID: 42}
	token := r.newToken()
	a, err := PlanOpen(r.tree, nil, Follow(path), false)
	var res Result
	if errors.Is(err, fserror.NotFound) {
		op, err := PlanCreate(r.tree, nil, CreateRequest{At: At(path), Mode: 0o644, DirMode: 0o755, Parents: true, Holder: h, Token: token})
		if err != nil {
			t.Fatalf("%v", err)
		}
		res = r.must(t, op)
	} else if err != nil {
		t.Fatalf("%v", err)
	} else {
		res = r.must(t, &OpOpen{Inode: a.ID, Holder: h, Token: token})
	}
	if res.Opened == nil {
		t.Fatalf("open %s: %+v", path, res)
	}
	return Writer{Inode: res.Inode, Epoch: res.Opened.Epoch, Token: token}
}

const testMaxTail = 1 << 20

func (r *rig) write(t tb, w Writer, offset int64, data string) {
	t.Helper()
	op, _, err := PlanAppendTail(r.tree, nil, w, offset, []byte(data), testMaxTail)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

func (r *rig) close(t tb, w Writer) {
	t.Helper()
	op, err := PlanClose(r.tree, nil, w, 0, nil, -1, 0, testMaxTail)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

// block puts bytes into the store.
func (r *rig) block(data string) Block {
	r.keySeq++
	k := blockstore.Key{Term: 1, Seq: r.keySeq}
	r.store[k] = []byte(data)
	return Block{Key: k, Stored: uint32(len(data) + 4), Used: uint32(len(data)), CRC: crcOf(data)}
}

func crcOf(data string) uint32 { return content.Sum([]byte(data)) }

// grant grants a lease to user u.
func (r *rig) grant(t tb, id LeaseID, ttl int64) {
	t.Helper()
	op, err := PlanGrant(r.tree, nil, Lease{ID: id, TTL: ttl, Owner: Owner{User: "u", Client: "client", Host: "host"}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
}

func (r *rig) attach(t tb, id LeaseID, path string) InodeID {
	t.Helper()
	op, err := PlanAttach(r.tree, nil, id, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op).Inode
}

// attachNew makes a closed file that is attached to a lease.
func (r *rig) attachNew(t tb, id LeaseID, path string) InodeID {
	t.Helper()
	op, err := PlanCreate(r.tree, nil, CreateRequest{At: At(path), Mode: 0o644, DirMode: 0o755, Parents: true, Close: true, Data: []byte("x"), Lease: id})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op).Inode
}

// end revokes a lease.
func (r *rig) end(t tb, id LeaseID) Result {
	t.Helper()
	op, err := PlanEnd(r.tree, nil, id, LeaseRevoked)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r.must(t, op)
}

// endOld ends a lease by a record as older journals have it.
func (r *rig) endOld(t tb, id LeaseID) Result {
	t.Helper()
	return r.must(t, &OpEndLease{ID: id, Reason: LeaseRevoked})
}

// commit makes data a block at the end of a file's blocks.
func (r *rig) commit(t tb, w Writer, data string) Block {
	t.Helper()
	v, err := r.tree.File(nil, Inode(w.Inode))
	if err != nil {
		t.Fatalf("%v", err)
	}
	covered := min(len(data), len(v.Tail))
	b := r.block(data)
	op, err := PlanCommit(r.tree, nil, w, v.Attr.Length-v.Attr.TailLength, b, int64(covered), crcOf(data[:covered]))
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
	return b
}

// content is what a reader reads.
func (r *rig) content(t tb, tree *Tree, id InodeID) string {
	t.Helper()
	v, err := tree.File(nil, Inode(id))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var s strings.Builder
	for _, b := range v.Blocks {
		s.Write(r.store[b.Key][:b.Used])
	}
	s.Write(v.Tail)
	if int64(s.Len()) != v.Attr.Length {
		t.Fatalf("length of inode %d is %d, its bytes are %d", id, v.Attr.Length, s.Len())
	}
	return s.String()
}

func sound(t tb, tree *Tree) {
	t.Helper()
	if p := tree.Check(); len(p) > 0 {
		t.Fatalf("check:\n%s", strings.Join(p, "\n"))
	}
}

// same compares the states of two trees, which are all in their images.
func same(t tb, a, b *Tree) {
	t.Helper()
	if bytes.Equal(imageOf(t, a), imageOf(t, b)) {
		return
	}
	t.Fatalf("trees differ:\n%s\n%s", shown(t, a), shown(t, b))
}

// shown is what there is to see of a tree.
func shown(t tb, tree *Tree) string {
	t.Helper()
	s := fmt.Sprintf("%+v %+v", tree.Counts(), tree.history)
	if err := tree.Walk(RootID, func(path []byte, a Attr) error {
		s += fmt.Sprintf("\n%s %+v %+v", path, a, a.Open)
		return nil
	}); err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

func imageOf(t tb, tree *Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tree.WriteImage(&b); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

// roundTrip writes and reads an image.
func roundTrip(t tb, tree *Tree) *Tree {
	t.Helper()
	back, err := ReadImage(bytes.NewReader(imageOf(t, tree)))
	if err != nil {
		t.Fatalf("%v", err)
	}
	same(t, tree, back)
	sound(t, back)
	return back
}

func wantKind(t *testing.T, err error, kind fserror.Kind) {
	t.Helper()
	if err == nil || fserror.KindOf(err) != kind {
		t.Fatalf("error is %v, want kind %v", err, kind)
	}
}
