package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// plans makes plans of changes by paths.
func planCreate(path, data string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, err := PlanCreate(t, nil, CreateRequest{At: At(path), Mode: 0o644, DirMode: 0o755, Parents: true, Close: true, Data: []byte(data)})
		return orNil(op, err)
	}
}

func planDelete(path string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, err := PlanDelete(t, nil, At(path), false, 0)
		return orNil(op, err)
	}
}

func planRename(from, to string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, err := PlanRename(t, nil, At(from), At(to), true, false)
		return orNil(op, err)
	}
}

func planXattr(path, name, value string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, err := PlanXattr(t, nil, Follow(path), name, []byte(value), calls.XattrSet)
		return orNil(op, err)
	}
}

func planAttach(path string, id LeaseID) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, err := PlanAttach(t, nil, id, Follow(path))
		return orNil(op, err)
	}
}

func orNil[T any, P interface {
	*T
	Op
}](op P, err error) (Op, error) {
	if op == nil || err != nil {
		return nil, err
	}
	return op, nil
}

func TestTxn(t *testing.T) {
	r := newRig(t)
	r.tree.Events(true)
	r.create(t, "/old", "old")
	r.create(t, "/from", "moved")
	r.mkdir(t, "/empty")
	w := r.open(t, "/open", "client")
	r.grant(t, 5, 60_000)
	kept := r.create(t, "/kept", "")
	r.must(t, &OpAttach{ID: 5, Inode: kept})
	op, _, err := PlanTxn(r.tree,
		func(t *Tree) (Op, error) { return PlanDetach(t, nil, At("/kept")) },
		planCreate("/new/deep/f", "content"),
		planXattr("/new/deep/f", "user.a", "v"), // of what the one before makes
		planAttach("/new/deep/f", 5),
		planCreate("/new/deep/g", ""), // in a directory that the first makes
		planDelete("/empty"),
		planDelete("/open"),
		planRename("/from", "/old"),
		planXattr("/old", "user.b", "w"),
		planXattr("/old", "user.b", "w"), // changes nothing
	)
	if err != nil || len(op.Parts) != 9 {
		t.Fatalf("%+v, %v", op, err)
	}
	res := r.must(t, op)
	sound(t, r.tree)
	a, err := r.tree.Stat(nil, At("/new/deep/f"))
	if err != nil || a.Lease != 5 || a.Xattrs != 1 || r.content(t, r.tree, a.ID) != "content" {
		t.Fatalf("%+v, %v", a, err)
	}
	if a, err := r.tree.Stat(nil, At("/old")); err != nil || r.content(t, r.tree, a.ID) != "moved" || a.Xattrs != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, gone := range []string{"/from", "/empty", "/open"} {
		if _, err := r.tree.Stat(nil, At(gone)); fserror.KindOf(err) != fserror.NotFound {
			t.Errorf("%s: %v", gone, err)
		}
	}
	if len(res.Closed) != 1 || res.Closed[0].Inode != w.Inode || res.Closed[0].Reason != ReasonDeleted {
		t.Errorf("closed %+v", res.Closed)
	}
	var events []string
	for _, e := range res.Events {
		events = append(events, fmt.Sprint(e.Type, " ", e.Path, " ", e.NewPath))
	}
	if a, err := r.tree.Stat(nil, At("/kept")); err != nil || a.Lease != 0 {
		t.Errorf("/kept is attached to %x, %v", a.Lease, err)
	}
	want := []string{
		"7 /kept ",
		"1 /new ", "1 /new/deep ", "1 /new/deep/f ", "6 /new/deep/f ", "7 /new/deep/f ", "1 /new/deep/g ",
		"3 /empty ", "3 /open ", "3 /old ", "4 /from /old", "6 /old ",
	}
	if !slices.Equal(events, want) {
		t.Errorf("events\n%q, should be\n%q", events, want)
	}
	same(t, r.tree, replay(t, r.journal))
	roundTrip(t, r.tree)
}

// TestTxnRefused: the plan that fails is named, and nothing has changed, whatever came
// before it.
func TestTxnRefused(t *testing.T) {
	r := newRig(t)
	r.create(t, "/f", "x")
	r.mkdir(t, "/d")
	before := imageOf(t, r.tree)
	for name, c := range map[string]struct {
		plans []func(*Tree) (Op, error)
		kind  fserror.Kind
	}{
		"taken":       {[]func(*Tree) (Op, error){planCreate("/g", ""), planCreate("/f", "")}, fserror.Exists},
		"taken by it": {[]func(*Tree) (Op, error){planCreate("/g", ""), planCreate("/g", "")}, fserror.Exists},
		"gone by it":  {[]func(*Tree) (Op, error){planDelete("/f"), planXattr("/f", "user.a", "")}, fserror.NotFound},
		"filled":      {[]func(*Tree) (Op, error){planCreate("/d/x", ""), planDelete("/d")}, fserror.NotEmpty},
		"no lease":    {[]func(*Tree) (Op, error){planCreate("/g", ""), planAttach("/g", 7)}, fserror.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			op, failed, err := PlanTxn(r.tree, c.plans...)
			if fserror.KindOf(err) != c.kind || failed != 1 || op != nil {
				t.Fatalf("%+v, %d, %v", op, failed, err)
			}
			if !slices.Equal(before, imageOf(t, r.tree)) {
				t.Fatal("a plan has changed the tree")
			}
		})
	}
	if op, _, err := PlanTxn(r.tree, func(*Tree) (Op, error) { return nil, nil }); op != nil || err != nil {
		t.Fatalf("nothing to do: %+v, %v", op, err)
	}
	if _, _, err := PlanTxn(r.tree, func(t *Tree) (Op, error) { return &OpSafeMode{On: true}, nil }); fserror.KindOf(err) != fserror.Internal {
		t.Fatalf("a part of a kind that cannot be one: %v", err)
	}
	// Records as no plan makes them.
	made := r.tree.nextInode
	create := func(name string) Op { return &OpCreate{Parent: RootID, Name: name, User: "new user", Closed: true} }
	for name, op := range map[string]*OpTxn{
		"empty":        {},
		"too many":     {Parts: slices.Repeat([]Op{&OpXattr{Inode: RootID, Name: "user.a"}}, MaxTxn+1)},
		"opens":        {Parts: []Op{create("g"), &OpCreate{Parent: RootID, Name: "h"}}},
		"opens two":    {Parts: []Op{&OpCreate{Parent: RootID, Name: "g"}, &OpCreate{Parent: RootID, Name: "h"}}},
		"opens, more":  {Parts: []Op{&OpCreate{Parent: RootID, Name: "g"}, &OpDelete{Parent: RootID, Name: "g", Inode: made}}},
		"of a kind":    {Parts: []Op{create("g"), &OpSafeMode{On: true}}},
		"second fails": {Parts: []Op{create("g"), &OpXattr{Inode: made, Name: "user.a"}, create("g")}},
		"made, large":  {Parts: []Op{create("g"), &OpXattr{Inode: made, Name: "user.a", Value: make([]byte, tables.MaxXattrValue+1)}}},
		"made, others": {Parts: []Op{create("g"), &OpXattr{Inode: made, Name: "user.a", Value: make([]byte, 9000)}, &OpXattr{Inode: made, Name: "user.b", Value: make([]byte, 9000)}}},
		"made, name":   {Parts: []Op{create("g"), &OpXattr{Inode: made, Name: "trusted.a"}}},
		"made, gone":   {Parts: []Op{create("g"), &OpXattr{Inode: made, Name: "user.a", Remove: true}}},
		"made, wrong":  {Parts: []Op{create("g"), &OpXattr{Inode: made + 1, Name: "user.a"}}},
		"not made":     {Parts: []Op{create("f"), &OpXattr{Inode: made, Name: "user.a"}}},
		"last fails":   {Parts: []Op{create("g"), create("h"), &OpDelete{Parent: RootID, Name: "f", Inode: made}}},
	} {
		t.Run(name, func(t *testing.T) {
			r.refused(t, op)
			if !slices.Equal(before, imageOf(t, r.tree)) {
				t.Fatal("a record that was refused has changed the tree")
			}
		})
	}
}

// TestTxnOpens: a file can be opened with attributes that it has from the first moment, in
// whatever mode, and instead of another one that somebody writes.
func TestTxnOpens(t *testing.T) {
	r := newRig(t)
	r.tree.Events(true)
	old := r.open(t, "/f", "old")
	c := &Call{User: "u", Super: true}
	h := Holder{User: "u", Client: "c", Session: SessionID{9}}
	op, _, err := PlanTxn(r.tree, func(t *Tree) (Op, error) {
		op, err := PlanCreate(t, c, CreateRequest{At: At("/f"), Mode: 0o444, Overwrite: true, Data: []byte("abc"), Holder: h, Token: Token{7}})
		c.Made, c.Super = true, false
		return orNil(op, err)
	}, func(t *Tree) (Op, error) {
		op, err := PlanXattr(t, c, At("/f"), "user.a", []byte("v"), calls.XattrSet)
		return orNil(op, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	res := r.must(t, op)
	sound(t, r.tree)
	a, err := r.tree.Stat(nil, At("/f"))
	if err != nil || a.Xattrs != 1 || a.Mode != 0o444 || a.Open == nil || a.Open.Epoch != res.TxID || a.Open.Holder != h {
		t.Fatalf("%+v, %v", a, err)
	}
	if res.Inode != a.ID || res.Length != 3 || res.Opened == nil || res.Opened.Token != (Token{7}) || Answer(&res, op).Token != (Token{7}) {
		t.Errorf("%+v", res)
	}
	if len(res.Closed) != 1 || res.Closed[0].Inode != old.Inode || res.Closed[0].Reason != ReasonReplaced {
		t.Errorf("closed %+v", res.Closed)
	}
	var events []EventType
	for _, e := range res.Events {
		events = append(events, e.Type)
	}
	if want := []EventType{EventDelete, EventCreate, EventAttr, EventLease}; !slices.Equal(events, want) {
		t.Errorf("events %v, should be %v", events, want)
	}
	c.Made = false
	if _, err := PlanXattr(r.tree, c, At("/f"), "user.b", nil, calls.XattrSet); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("an attribute of a file that is read-only: %v", err)
	}
	same(t, r.tree, replay(t, r.journal))
	roundTrip(t, r.tree)
}

// TestPlanMade compares PlanMade, which copies nothing, with PlanTxn.
func TestPlanMade(t *testing.T) {
	r := newRig(t)
	r.open(t, "/f", "old")
	x := func(name string, size int) calls.Xattr { return calls.Xattr{Name: name, Value: make([]byte, size)} }
	for name, c := range map[string]struct {
		xattrs []calls.Xattr
		kind   fserror.Kind
	}{
		"one":        {xattrs: []calls.Xattr{x("user.a", 3)}},
		"two":        {xattrs: []calls.Xattr{x("user.b", 3), x("user.a", 0)}},
		"same twice": {xattrs: []calls.Xattr{x("user.a", 3), x("user.a", 3)}},
		"changed":    {xattrs: []calls.Xattr{x("user.a", 9000), x("user.a", 3), x("user.b", 9000)}},
		"all":        {xattrs: []calls.Xattr{x("user.a", 9000), x("user.b", 9000)}, kind: fserror.NoSpace},
		"value":      {xattrs: []calls.Xattr{x("user.a", tables.MaxXattrValue+1)}, kind: fserror.TooLarge},
		"name":       {xattrs: []calls.Xattr{x("user.a", 1), x("trusted.a", 1)}, kind: fserror.Unsupported},
		"trash":      {xattrs: []calls.Xattr{x(tables.TrashXattr, 1)}, kind: fserror.NotDirectory},
	} {
		for _, at := range []string{"/f", "/g", "/d/e/g"} {
			t.Run(name+at, func(t *testing.T) {
				call := &Call{User: "u", Super: true, Made: true}
				req := CreateRequest{At: At(at), Overwrite: true, Parents: true, Holder: Holder{User: "u", Client: "c"}, Xattrs: c.xattrs}
				plans := []func(*Tree) (Op, error){func(t *Tree) (Op, error) { return orNil(PlanCreate(t, call, req)) }}
				for _, x := range c.xattrs {
					plans = append(plans, func(t *Tree) (Op, error) {
						return orNil(PlanXattr(t, call, req.At, x.Name, x.Value, calls.XattrSet))
					})
				}
				want, _, wantErr := PlanTxn(r.tree, plans...)
				file, err := PlanCreate(r.tree, call, req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := PlanMade(r.tree, call, req, file)
				if fserror.KindOf(err) != c.kind || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%v, should be %v", err, wantErr)
				}
				if err != nil {
					return
				}
				one := replay(t, r.journal)
				two := replay(t, r.journal)
				e := Entry{TxID: one.txid + 1, Time: one.time, Op: &OpTxn{Parts: want.Parts}}
				if _, err := one.Apply(e); err != nil {
					t.Fatal(err)
				}
				e.Op = got
				if _, err := two.Apply(e); err != nil {
					t.Fatal(err)
				}
				same(t, one, two)
			})
		}
	}
	// Memory that attributes of the same record take counts.
	call := &Call{User: "poor", Made: true}
	r.tree.counts.XattrBytes = MaxXattrMemory*15/16 - 9000
	defer func() { r.tree.counts.XattrBytes = 0 }()
	for n, kind := range map[int]fserror.Kind{1: 0, 2: fserror.NoSpace} {
		req := CreateRequest{At: At("/g"), Holder: Holder{User: "poor"}, Xattrs: []calls.Xattr{x("user.a", 5000), x("user.b", 5000)}[:n]}
		file := &OpCreate{Parent: RootID, Name: "g", User: "poor"}
		if _, err := PlanMade(r.tree, call, req, file); fserror.KindOf(err) != kind {
			t.Errorf("%d attributes: %v", n, err)
		}
	}
}

// One within another could nest without end: it is not even decoded.
func TestTxnNested(t *testing.T) {
	typ, body := EncodeOp(nil, CallID{}, &OpTxn{Parts: []Op{&OpTxn{}}})
	if _, _, err := DecodeOp(typ, body); fserror.KindOf(err) != fserror.Damaged {
		t.Fatal(err)
	}
	r := newRig(t)
	if _, err := r.tree.Apply(Entry{TxID: r.tree.txid + 1, Time: r.tree.time, Op: &OpTxn{Parts: []Op{&OpTxn{}}}}); fserror.KindOf(err) != fserror.Internal {
		t.Fatal(err)
	}
}

// TestTxnLooks: who plans one waits for what it has looked at, and what it tries out is
// not taken for a change.
func TestTxnLooks(t *testing.T) {
	r := newRig(t)
	r.tree.Track(true)
	txid := r.must(t, &OpCreate{Parent: RootID, Name: "f", Closed: true}).TxID
	c := &Call{Super: true}
	_, failed, err := PlanTxn(r.tree, planCreate("/g", ""), func(t *Tree) (Op, error) {
		return orNil(PlanMkdir(t, c, At("/f"), 0o755, false))
	})
	if failed != 1 || !errors.Is(err, fserror.Exists) || c.AsOf() != txid {
		t.Fatalf("operation %d: %v; it waits for %d, not %d", failed, err, c.AsOf(), txid)
	}
	g := &Call{Super: true}
	if _, err := r.tree.Stat(g, At("/g")); !errors.Is(err, fserror.NotFound) || g.AsOf() != 0 {
		t.Fatalf("what was tried out is waited for: %d, %v", g.AsOf(), err)
	}
}

// Txn draws several changes of the model's kinds, each as the single step draws it, and
// compares what comes of them with the same changes one by one.
func (m *machine) Txn(t *rapid.T) {
	one := replay(t, m.journal) // to which the parts are applied one by one
	var plans []func(*Tree) (Op, error)
	known := make([]string, 0, 4)
	for range rapid.IntRange(1, 4).Draw(t, "operations") {
		path := m.path(t, "path")
		known = append(known, path)
		switch rapid.IntRange(0, 4).Draw(t, "operation") {
		case 0, 1:
			plans = append(plans, planCreate(path, "data"))
		case 2:
			plans = append(plans, planXattr(m.known(t, "of"), "user.txn", path))
		case 3:
			plans = append(plans, planRename(rapid.SampledFrom(known).Draw(t, "from"), m.path(t, "to")))
		case 4:
			plans = append(plans, planDelete(rapid.SampledFrom(known).Draw(t, "gone")))
		}
	}
	op, failed, err := PlanTxn(m.tree, plans...)
	now := stamp{TxID: m.tree.txid + 1, Time: m.tree.time, reigned: m.tree.reigned}
	for i, plan := range plans {
		p, perr := plan(one)
		if perr != nil {
			if err == nil || failed != i || perr.Error() != err.Error() {
				t.Fatalf("operation %d fails with %v; together: %d, %v", i, perr, failed, err)
			}
			return
		}
		if p != nil {
			if _, err := p.apply(applier{one, now, keeper{}}); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
	}
	if err != nil {
		t.Fatalf("operation %d fails with others alone: %v", failed, err)
	}
	if op == nil {
		return
	}
	// The model learns by looking: that the parts do what they say is the other steps'.
	m.must(t, op)
	m.relearn(t)
	want, got := list(t, one), list(t, m.tree)
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("together\n%s\none by one\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// relearn takes over what the tree has, of what the model cannot know.
func (m *machine) relearn(t *rapid.T) {
	before := make(map[InodeID]*modelNode)
	for _, n := range m.nodes {
		before[n.id] = n
	}
	m.nodes = make(map[string]*modelNode)
	if err := m.tree.Walk(RootID, func(path []byte, a Attr) error {
		n := before[a.ID]
		delete(before, a.ID)
		if n == nil {
			n = &modelNode{id: a.ID, typ: a.Type}
			if a.Type == TypeFile {
				n.bytes = m.content(t, m.tree, a.ID)
			}
		}
		m.nodes[string(path)] = n
		return nil
	}); err != nil {
		t.Fatalf("%v", err)
	}
	for id, n := range before { // the deleted
		if n.lease != 0 {
			m.gone[id] = n.lease
		}
	}
}

// list is all that a walk shows, but for times.
func list(t *rapid.T, tree *Tree) (lines []string) {
	if err := tree.Walk(RootID, func(path []byte, a Attr) error {
		xattrs, err := tree.Xattrs(nil, At(string(path)))
		lines = append(lines, fmt.Sprintf("%s %d %d %d %v", path, a.Type, a.Length, a.Lease, xattrs))
		return err
	}); err != nil {
		t.Fatalf("%v", err)
	}
	return lines
}

// However many paths a call has, what it follows of symbolic links is limited, and each
// attempt of a call begins at nothing.
func TestLinksOfACall(t *testing.T) {
	r := newRig(t)
	r.create(t, "/f", "")
	target := strings.Repeat("./", 2000) + "f"
	op, err := PlanSymlink(r.tree, nil, At("/long"), target, false)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, op)
	plans := make([]func(*Tree) (Op, error), 100)
	c := &Call{Super: true}
	for i := range plans {
		plans[i] = func(tree *Tree) (Op, error) {
			return orNil(PlanTruncate(tree, c, Follow("/long"), 0))
		}
	}
	for range 2 {
		c.ResetAttempt()
		_, failed, err := PlanTxn(r.tree, plans...)
		if want := calls.MaxLinkBytes / len(target); failed != want || fserror.KindOf(err) != fserror.Loop {
			t.Errorf("plan %d fails, not %d: %v", failed, want, err)
		}
	}
	for i := range 100 { // calls of their own
		if _, err := r.tree.Stat(&Call{Super: true}, Follow("/long")); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// TestTxnPlannedBefore: a transaction that was planned on the tree as it is now is not tried
// again, with the same result as on a tree that reads its record; one that was planned before
// another change is refused if it does not fit any more.
func TestTxnPlannedBefore(t *testing.T) {
	r := newRig(t)
	plan := func(path string) *OpTxn {
		op, _, err := PlanTxn(r.tree, planCreate(path, "x"), planXattr(path, "user.a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	entry := func(op Op) Entry { return Entry{TxID: r.tree.txid + 1, Time: r.tree.time + 1, Op: op} }
	other := roundTrip(t, r.tree)
	op := plan("/d/f")
	if op.tried != r.tree {
		t.Error("a plan does not say on which tree it was tried")
	}
	e := entry(op)
	typ, body := EncodeOp(nil, CallID{}, op)
	if _, err := r.tree.Apply(e); err != nil {
		t.Fatal(err)
	}
	if _, err := applyRecord(other, record{txid: e.TxID, time: e.Time, typ: typ, body: body}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imageOf(t, r.tree), imageOf(t, other)) {
		t.Error("a tree that was changed by a plan differs from one that has read its record")
	}
	late := plan("/d/g")
	r.create(t, "/d/g", "of another")
	if _, err := r.tree.Apply(entry(late)); fserror.KindOf(err) != fserror.Internal {
		t.Errorf("a plan that does not fit any more: %v", err)
	}
	many := &OpTxn{Parts: make([]Op, MaxTxn+1), tried: r.tree, at: r.tree.txid}
	if _, err := r.tree.Apply(entry(many)); fserror.KindOf(err) != fserror.Internal {
		t.Errorf("a plan of %d parts: %v", len(many.Parts), err)
	}
}
