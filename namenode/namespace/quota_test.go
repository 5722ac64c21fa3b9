package namespace

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// use is what a directory's quota has, the limits left out.
func (r *rig) use(t tb, path string) quota.Use {
	t.Helper()
	a, err := r.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	e, ok := Quotas(r.tree, nil).Get(a.ID)
	if !ok {
		t.Fatalf("%s has no quota", path)
	}
	return e.Use
}

// quotaRig has /q with 6 names and 20 bytes, all of which are used, /q/in with 3 names, /r with
// much room, and /free without a quota. /r keeps for a day what is deleted.
func quotaRig(t tb) *rig {
	r := newRig(t)
	r.create(t, "/q/in/f", "0123456789")
	r.create(t, "/q/a", "01234")
	r.create(t, "/q/b", "01234")
	r.create(t, "/r/x", "xyz")
	r.create(t, "/r/dir/y", "y")
	r.create(t, "/free/z", "zzzz")
	r.create(t, "/free/dir/deep/u", "u")
	r.quota(t, "/q", 6, 20)
	r.quota(t, "/q/in", 3, quota.None)
	r.quota(t, "/r", 1000, 1000)
	r.quota(t, "/q", quota.Keep, 20+1) // one byte is free, and a name
	r.must(t, &OpXattr{Inode: r.id(t, "/r"), Name: tables.TrashXattr, Value: []byte("1d")})
	if in, q := r.use(t, "/q/in"), r.use(t, "/q"); in != (quota.Use{Names: 2, Bytes: 10}) || q != (quota.Use{Names: 5, Bytes: 20}) {
		t.Fatalf("%+v, %+v", in, q)
	}
	return r
}

func (r *rig) id(t tb, path string) InodeID {
	t.Helper()
	a, err := r.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return a.ID
}

func rename(from, to string, over bool) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) { return PlanRename(t, nil, At(from), At(to), over, false) }
}

func remove(path string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) { return PlanDelete(t, nil, At(path), true, 0) }
}

func file(path, data string) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		return PlanCreate(t, nil, CreateRequest{At: Follow(path), Parents: true, Overwrite: true, Close: true, Data: []byte(data)})
	}
}

func txn(plans ...func(*Tree) (Op, error)) func(*Tree) (Op, error) {
	return func(t *Tree) (Op, error) {
		op, _, err := PlanTxn(t, plans...)
		return op, err
	}
}

// TestQuotas plans all that can grow, at the border of quotas. Rig.must holds the counts of what
// is applied to whether it is refused.
func TestQuotas(t *testing.T) {
	const names, bytes = fserror.ReasonQuotaNames, fserror.ReasonQuotaBytes
	mkdir := func(path string) func(*Tree) (Op, error) {
		return func(t *Tree) (Op, error) { return PlanMkdir(t, nil, At(path), 0o755, true) }
	}
	concat := func(target string, sources ...string) func(*Tree) (Op, error) {
		return func(t *Tree) (Op, error) { return PlanConcat(t, nil, At(target), refs(sources)) }
	}
	for name, c := range map[string]struct {
		plan func(*Tree) (Op, error)
		want string // reason of the refusal
	}{
		"the last name":                       {mkdir("/q/d"), ""},
		"two names":                           {mkdir("/q/d/e"), names},
		"a file":                              {file("/q/c", ""), ""},
		"the last byte":                       {file("/q/c", "1"), ""},
		"two bytes":                           {file("/q/c", "12"), bytes},
		"a file with its directory":           {file("/q/d/c", ""), names},
		"over a file that is longer":          {file("/q/a", "1234"), ""},
		"over a file, the last byte":          {file("/q/a", "123456"), ""},
		"over a file, a byte too many":        {file("/q/a", "1234567"), bytes},
		"below two quotas":                    {mkdir("/q/in/d"), ""},
		"below two quotas, two":               {mkdir("/q/in/d/e"), names},
		"no quota":                            {mkdir("/free/a/b/c/d/e/f/g"), ""},
		"a link":                              {func(t *Tree) (Op, error) { return PlanSymlink(t, nil, At("/q/l"), "a long target has no bytes", true) }, ""},
		"a link with its directory":           {func(t *Tree) (Op, error) { return PlanSymlink(t, nil, At("/q/d/l"), "x", true) }, names},
		"within a quota":                      {rename("/q/in/f", "/q/f", false), ""},
		"within, into a nested one":           {rename("/q/a", "/q/in/a", false), ""},
		"within, a directory":                 {rename("/q/in", "/q/out", false), ""},
		"over a file within":                  {rename("/q/a", "/q/in/f", true), ""},
		"out":                                 {rename("/q/in", "/r/in", false), ""},
		"in":                                  {rename("/free/z", "/q/z", false), bytes},
		"in, over a file as long":             {rename("/free/z", "/q/b", true), ""},
		"in, from another quota":              {rename("/r/dir", "/q/dir", false), names},
		"in, one that fits":                   {rename("/r/dir/y", "/q/y", false), ""},
		"in, a whole tree":                    {rename("/free/dir", "/q/dir", false), names},
		"a quota's directory, into another":   {rename("/q", "/r/q", false), ""},
		"append to the end by concat":         {concat("/q/a", "/q/b", "/q/in/f"), ""},
		"concat from another quota":           {concat("/q/a", "/r/x"), bytes},
		"concat from another, one byte":       {concat("/q/a", "/r/dir/y"), ""},
		"concat to another":                   {concat("/r/x", "/q/in/f"), ""},
		"delete":                              {remove("/q/in"), ""},
		"a transaction that makes room":       {txn(remove("/q/in/f"), file("/q/c", "0123456789")), ""},
		"a transaction that makes it after":   {txn(file("/q/c", "0123456789"), remove("/q/in/f")), ""},
		"a transaction that makes too little": {txn(remove("/q/a"), file("/q/c", "0123456789")), bytes},
		"a transaction in a new directory":    {txn(mkdir("/q/d"), file("/q/d/f", "")), names},
		"a transaction that swaps":            {txn(rename("/q/in", "/free/in", false), rename("/free/dir", "/q/dir", false)), ""},
		"a transaction that swaps for more":   {txn(rename("/free/dir", "/q/dir", false), rename("/q/b", "/free/b", false)), names},
		"a transaction there and back":        {txn(rename("/free/dir", "/q/dir", false), rename("/q/dir", "/free/dir2", false)), ""},
		"a transaction moves the quota":       {txn(rename("/q", "/free/q", false), file("/free/q/d/f", "")), names},
	} {
		t.Run(name, func(t *testing.T) {
			r := quotaRig(t)
			op, err := c.plan(r.tree)
			if err != nil {
				t.Fatal(err)
			}
			err = FitQuotas(r.tree, nil, op)
			if fserror.ReasonOf(err) != c.want || err != nil && !errors.Is(err, fserror.NoSpace) {
				t.Fatal(err)
			}
			if c.want != "" && !strings.HasPrefix(err.Error(), "/q") {
				t.Error(err)
			}
			if concat, is := op.(*OpConcat); is {
				for _, id := range ConcatNeedsSeal(r.tree, concat) {
					n := r.tree.get(id)
					seal, err := PlanMerge(r.tree, id, r.block(string(n.Tail())), 0, int64(len(n.Tail())), false, nil)
					if err != nil {
						t.Fatal(err)
					}
					r.must(t, seal)
				}
			}
			r.must(t, op)
			sound(t, r.tree)
			same(t, r.tree, replay(t, r.journal))
			sound(t, replay(t, r.journal))
			sound(t, roundTrip(t, r.tree))
		})
	}
}

// TestQuotaWriters: a writer is refused what is too much, at each of its ways, and can end.
func TestQuotaWriters(t *testing.T) {
	r := quotaRig(t)
	w := r.open(t, "/q/w", "client")
	refused := func(op Op, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := FitQuotas(r.tree, nil, op); fserror.ReasonOf(err) != fserror.ReasonQuotaBytes {
			t.Fatalf("%s: %v", opName(op), err)
		}
	}
	refused(func() (Op, error) {
		op, _, err := PlanAppendTail(r.tree, nil, w, 0, []byte("12"), testMaxTail)
		return op, err
	}())
	refused(PlanClose(r.tree, nil, w, 0, []byte("12"), 2, 0, testMaxTail))
	refused(PlanCommit(r.tree, nil, w, 0, r.block("12"), 0, 0))
	r.write(t, w, 0, "1")
	refused(func() (Op, error) {
		op, _, err := PlanAppendTail(r.tree, nil, w, 1, []byte("2"), testMaxTail)
		return op, err
	}())
	refused(PlanCommit(r.tree, nil, w, 0, r.block("12"), 1, crcOf("1")))
	r.commit(t, w, "1") // what was flushed becomes a block, and needs no room
	if u := r.use(t, "/q"); u != (quota.Use{Names: 6, Bytes: 21}) {
		t.Fatal(u)
	}
	r.quota(t, "/q", 0, 0) // below what there is
	again := r.open(t, "/q/w", "another")
	if err := FitQuotas(r.tree, nil, &OpRecover{Inode: again.Inode}); err != nil {
		t.Fatal(err)
	}
	r.close(t, again)
	cut, err := PlanTruncate(r.tree, nil, At("/q/w"), 0)
	if err != nil || FitQuotas(r.tree, nil, cut) != nil {
		t.Fatal(err)
	}
	r.must(t, cut)
	if u := r.use(t, "/q"); u != (quota.Use{Names: 6, Bytes: 20}) {
		t.Fatal(u)
	}
}

// TestQuotaTrash: what is in the trash counts nowhere, and in what it is restored to. Its own
// quota stays what it is.
func TestQuotaTrash(t *testing.T) {
	r := quotaRig(t)
	r.create(t, "/r/own/f", "abc")
	r.grant(t, 9, 1000)
	r.attachNew(t, 9, "/r/own/dies")
	r.quota(t, "/r/own", 9, 9)
	own, had, before := r.id(t, "/r/own"), r.use(t, "/r/own"), r.use(t, "/r")
	del, err := remove("/r/own")(r.tree)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := PlanKeep(r.tree, &Call{User: "u"}, del)
	r.must(t, kept)
	if u := r.use(t, "/r"); u != before.Plus(had, -1) {
		t.Fatal(u, before)
	}
	r.end(t, 9) // what goes meanwhile counts there no more
	for r.tree.EndedLeases() > 0 {
		r.must(t, &OpReap{ID: 9, Limit: 1})
	}
	sound(t, r.tree)
	if e, ok := Quotas(r.tree, nil).Get(own); !ok || e.Use != (quota.Use{Names: 2, Bytes: 3}) {
		t.Fatal(e, ok)
	}
	for to, reason := range map[string]string{"/q/back": fserror.ReasonQuotaNames, "/free/back": "", "/r/back": ""} {
		op, err := PlanRestore(r.tree, nil, own, At(to))
		if err != nil {
			t.Fatal(err)
		}
		if err := FitQuotas(r.tree, nil, op); fserror.ReasonOf(err) != reason {
			t.Errorf("%s: %v", to, err)
		}
	}
	op, _ := PlanRestore(r.tree, nil, own, At("/r/own"))
	r.must(t, op)
	sound(t, r.tree)
	// Replacing something keeps that, too.
	over, err := file("/r/x", "longer than it was")(r.tree)
	if err != nil {
		t.Fatal(err)
	}
	r.quota(t, "/r", quota.Keep, 0)
	kept, _ = PlanKeep(r.tree, &Call{User: "u"}, over)
	if err := FitQuotas(r.tree, nil, kept); fserror.ReasonOf(err) != fserror.ReasonQuotaBytes {
		t.Fatal(err)
	}
	r.must(t, kept)
	del, _ = remove("/r/own")(r.tree)
	kept, _ = PlanKeep(r.tree, &Call{User: "u"}, del)
	r.must(t, kept)
	r.must(t, &OpTrash{Do: TrashEmpty, Inodes: []InodeID{own}})
	if _, ok := Quotas(r.tree, nil).Get(own); ok {
		t.Fatal("a quota of what is gone")
	}
	sound(t, r.tree)
}

// TestQuotaHide: what is hidden stays where it counts; what gets its name comes in.
func TestQuotaHide(t *testing.T) {
	r := quotaRig(t)
	r.grant(t, 5, 1000)
	for from, reason := range map[string]string{"/r/dir/y": "", "/free/z": fserror.ReasonQuotaBytes, "/q/b": ""} {
		op, err := PlanRename(r.tree, nil, At(from), At("/q/a"), true, false)
		if err != nil {
			t.Fatal(err)
		}
		hide, err := PlanHide(r.tree, nil, op, Hide{Inode: r.id(t, "/q/a"), Name: ".hidden", Lease: 5})
		if err != nil {
			t.Fatal(err)
		}
		if err := FitQuotas(r.tree, nil, hide); fserror.ReasonOf(err) != reason {
			t.Errorf("%s: %v", from, err)
		}
		if from == "/r/dir/y" {
			defer func() {
				r.must(t, hide)
				sound(t, r.tree)
				if u := r.use(t, "/q"); u != (quota.Use{Names: 6, Bytes: 21}) {
					t.Error(u)
				}
				r.end(t, 5)
				// A dead name can be had before it is removed.
				if op, err := file("/q/.hidden", "12345")(r.tree); err != nil || FitQuotas(r.tree, nil, op) != nil {
					t.Error(err)
				} else {
					r.must(t, op)
				}
				sound(t, r.tree)
			}()
		}
	}
}

// TestQuotaOfNumbers: a file whose number was set aside counts as any.
func TestQuotaOfNumbers(t *testing.T) {
	r := quotaRig(t)
	r.must(t, &OpCaching{Session: SessionID{7}, Term: 10_000})
	first := r.must(t, &OpReserve{Session: SessionID{7}, Count: 3}).Inode
	for data, reason := range map[string]string{"1": "", "12": fserror.ReasonQuotaBytes} {
		op, err := PlanCreateAs(r.tree, nil, first, CreateRequest{At: At("/q/n"), Close: true, Data: []byte(data), Holder: Holder{Session: SessionID{7}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := FitQuotas(r.tree, nil, op); fserror.ReasonOf(err) != reason {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// TestQuotaSet: who sets quotas of what, and what is told of them.
func TestQuotaSet(t *testing.T) {
	r := quotaRig(t)
	for name, c := range map[string]struct {
		user string
		path string
		quota.Limits
		kind   fserror.Kind
		reason string
	}{
		"root":           {"hdfs", "/", quota.Limits{Names: 5, Bytes: quota.None}, 0, ""},
		"most":           {"hdfs", "/free", quota.Limits{Names: math.MaxInt64, Bytes: math.MaxInt64}, 0, ""},
		"below the use":  {"hdfs", "/q", quota.Limits{Names: 0, Bytes: 0}, 0, ""},
		"clear":          {"hdfs", "/q", quota.Limits{Names: quota.None, Bytes: quota.None}, 0, ""},
		"user":           {"ann", "/q", quota.Limits{Names: 5, Bytes: 5}, fserror.Permission, fserror.ReasonNotSuperuser},
		"file":           {"hdfs", "/q/a", quota.Limits{Names: 5, Bytes: 5}, fserror.NotDirectory, ""},
		"nothing":        {"hdfs", "/x", quota.Limits{Names: 5, Bytes: 5}, fserror.NotFound, ""},
		"negative names": {"hdfs", "/q", quota.Limits{Names: -3, Bytes: 5}, fserror.InvalidArgument, ""},
		"negative bytes": {"hdfs", "/q", quota.Limits{Names: 5, Bytes: math.MinInt64}, fserror.InvalidArgument, ""},
	} {
		op, err := PlanQuota(r.tree, &Call{User: c.user, Super: c.user == "hdfs"}, At(c.path), c.Limits)
		if c.kind == 0 && (err != nil || op == nil || op.Limits != c.Limits) || c.kind != 0 && (fserror.KindOf(err) != c.kind || fserror.ReasonOf(err) != c.reason) {
			t.Errorf("%s: %+v, %v", name, op, err)
		}
	}
	for _, l := range []quota.Limits{{Names: quota.Keep, Bytes: quota.Keep}, {Names: 6, Bytes: quota.Keep}, {Names: 6, Bytes: 21}} {
		if op, err := PlanQuota(r.tree, nil, At("/q"), l); op != nil || err != nil {
			t.Errorf("%+v changes %+v, %v", l, op, err)
		}
	}
	if op, err := PlanQuota(r.tree, nil, At("/free"), quota.Limits{Names: quota.None, Bytes: quota.Keep}); op != nil || err != nil {
		t.Errorf("%+v, %v", op, err)
	}
	above := QuotasAbove(r.tree, nil, r.id(t, "/q/in"))
	if len(above) != 2 || above[0].Limits.Names != 3 || above[1].Limits.Bytes != 21 {
		t.Errorf("%+v", above)
	}
	r.must(t, &OpDelete{Parent: RootID, Name: "r", Inode: r.id(t, "/r")})
	r.quota(t, "/q/in", quota.None, quota.None)
	if n := Quotas(r.tree, nil).Len(); n != 1 {
		t.Errorf("%d quotas", n)
	}
	sound(t, r.tree)
}

// TestQuotaLook: who is told of a quota, or refused by one, waits for what that depends on.
func TestQuotaLook(t *testing.T) {
	r := quotaRig(t)
	r.tree.Track(true)
	looks := func(what func(c *Call)) uint64 {
		c := &Call{Super: true}
		c.ResetAttempt()
		what(c)
		return c.AsOf()
	}
	refused := func(c *Call) {
		op, err := rename("/free/dir", "/q/dir", false)(r.tree)
		if err == nil && FitQuotas(r.tree, c, op) == nil {
			t.Error("not refused")
		}
	}
	if n := looks(refused); n != 0 {
		t.Errorf("waits for %d", n)
	}
	r.write(t, r.open(t, "/q/in/f", "c"), 10, "x")
	last, _ := r.tree.Last()
	if n := looks(refused); n != last {
		t.Errorf("waits for %d, not %d", n, last)
	}
	r.tree.SetDurable(last)
	for _, p := range []string{"/q/in", "/r", "/q"} {
		r.must(t, &OpQuota{Inode: r.id(t, p), Limits: quota.Limits{Names: quota.None, Bytes: quota.None}})
	}
	last, _ = r.tree.Last() // none is left, which is not durable either
	if n := looks(func(c *Call) { Quotas(r.tree, c) }); n != last {
		t.Errorf("waits for %d, not %d", n, last)
	}
}
