package delegation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// fake is a client to which directories are delegated, in which nothing has any name.
type fake struct {
	maxWhole int64
	linger   func() // called with each Linger
	looked   func() // called with each Delegated, before it returns
	broken   error  // of what Writers write
	// answer decides a Create; asBlock goes with its error.
	answer func(*pb.CreateRequest) (asBlock bool, err error)

	mu        sync.Mutex
	delegated map[uint64]bool
	present   map[door.Ref]bool
	names     map[uint64]*Names
	creates   []*pb.CreateRequest // Create and Open
	writers   []*writer
}

func (c *fake) Delegated(dir uint64) bool {
	c.mu.Lock()
	held := c.delegated[dir]
	c.mu.Unlock()
	if c.looked != nil {
		c.looked()
	}
	return held
}

func (c *fake) Absent(_ context.Context, at door.Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.present[at]
}

func (c *fake) Names(dir uint64) *Names { return c.names[dir] }

func (c *fake) MaxWhole() int64 { return c.maxWhole }

func (c *fake) Create(_ context.Context, path string, req *pb.CreateRequest) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !req.GetClose() {
		return false, fmt.Errorf("%s would stay open", path)
	}
	c.creates = append(c.creates, proto.CloneOf(req))
	return c.answer(req)
}

func (c *fake) Open(_ context.Context, path string, req *pb.CreateRequest) (*writer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.GetClose() || len(req.GetData()) > 0 {
		return nil, fmt.Errorf("%s would be whole", path)
	}
	c.creates = append(c.creates, proto.CloneOf(req))
	if _, err := c.answer(req); err != nil {
		return nil, err
	}
	w := &writer{broken: c.broken}
	c.writers = append(c.writers, w)
	return w, nil
}

func (c *fake) Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.linger != nil {
		c.linger()
	}
	return ctx, func() {}
}

// recall takes the delegation of a directory away, as a recall does before it is
// acknowledged.
func (c *fake) recall(dir uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delegated[dir] = false
}

// writer notes what is done with it.
type writer struct {
	data            []byte
	mtime           time.Time
	closed, aborted bool
	broken          error // of writes
}

func (w *writer) WriteContext(_ context.Context, p []byte) (int, error) {
	w.data = append(w.data, p...)
	return len(p), w.broken
}
func (w *writer) SetModTime(t time.Time)             { w.mtime = t }
func (w *writer) Abort() error                       { w.aborted = true; return nil }
func (w *writer) CloseContext(context.Context) error { w.closed = true; return nil }

type table = Table[*writer]

// newTable returns a Table with numbers from 100 on, to which the directories 1 and 2
// are delegated.
func newTable(n uint32) (*table, *fake) {
	c := &fake{
		maxWhole:  1 << 20,
		delegated: map[uint64]bool{1: true, 2: true}, present: map[door.Ref]bool{}, names: map[uint64]*Names{1: NewNames()},
		answer: func(*pb.CreateRequest) (bool, error) { return false, nil },
	}
	t := New(Config[*writer]{Client: c, IDs: namecall.NewIDs([]byte("session")), Umask: 0o27})
	give(t, 100, n)
	return t, c
}

// give gives a Table numbers, as the answer to a Create does.
func give(t *table, first uint64, n uint32) {
	req := new(pb.CreateRequest)
	t.Ask(req)
	t.Answered(req, &pb.OpenResponse{Creations: true, FirstInode: first, Inodes: n})
}

func file(dir uint64, name string) File {
	return File{
		Caller: &pb.Caller{User: "ann"},
		Dir:    &pb.Attr{Inode: dir, Group: "staff"}, Name: name, At: door.Ref{Base: dir, Path: name}, Path: fmt.Sprintf("/%d/%s", dir, name),
		Mode: 0o640, HasMode: true,
	}
}

// begin begins a draft with some bytes.
func begin(t *testing.T, tab *table, dir uint64, name string) *Draft[*writer] {
	t.Helper()
	d, ok := tab.NewDraft(t.Context(), file(dir, name))
	if !ok {
		t.Fatalf("no draft of %d/%s", dir, name)
	}
	if !d.Write([][]byte{[]byte("by"), []byte("tes")}) {
		t.Fatalf("%s takes no bytes", d.Path())
	}
	return d
}

// recalled are the drafts of an acknowledgement as text, in order.
func recalled(tab *table, all bool, dirs ...uint64) []string {
	var out []string
	for _, d := range tab.Recalled(all, dirs) {
		out = append(out, fmt.Sprintf("%d/%s=%d", d.GetDir(), d.GetName(), d.GetInode()))
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: %s, want %s", what, g, w)
	}
}

// kind is the kind of an error, as text; "none" of none.
func kind(err error) string {
	if err == nil {
		return "none"
	}
	return fserror.KindOf(err).String()
}

// A draft that is closed is one Create, with all that it was begun with, under a call id
// of its own that is given back.
func TestDraftIsMadeByOneCreate(t *testing.T) {
	tab, c := newTable(10)
	lingers := 0
	c.linger = func() { lingers++ }
	f := file(1, "a")
	f.Owner = &pb.Owner{User: "bob"}
	d, ok := tab.NewDraft(t.Context(), f)
	if !ok || !d.Write([][]byte{[]byte("by"), []byte("tes")}) {
		t.Fatal("no draft")
	}
	attr := d.Attr()
	want(t, "inode, mode, user, group, length", []any{attr.GetInode(), attr.GetMode(), attr.GetUser(), attr.GetGroup(), attr.GetLength()}, "[100 416 bob staff 5]")
	want(t, "time", attr.GetMtimeUnixMs(), d.Begun().UnixMilli())
	want(t, "what it is", []any{d.Path(), d.Dir(), d.Name(), d.Inode(), d.Length()}, "[/1/a 1 a 100 5]")
	want(t, "calls before it is closed", len(c.creates), 0)
	if err := d.Close(t.Context(), 77); err != nil {
		t.Fatal(err)
	}
	expect := &pb.CreateRequest{
		Call: &pb.CallId{Session: []byte("session"), Seq: 1}, Caller: &pb.Caller{User: "ann"}, At: &pb.Ref{Base: 1, Path: "a"},
		As: 100, Mode: 0o640, HasMode: true, Owner: &pb.Owner{User: "bob"}, Umask: proto.Uint32(0o27), Cache: true,
		Close: true, MtimeUnixMs: 77, Data: []byte("bytes"), DataCrc32C: blockstore.CRC([]byte("bytes")),
	}
	if len(c.creates) != 1 || !proto.Equal(c.creates[0], expect) {
		t.Errorf("sent %v, want %v", c.creates, expect)
	}
	want(t, "lingers", lingers, 1)
	want(t, "call ids in use", tab.cfg.IDs.Under(), 0)
	want(t, "begun", tab.Begun(1, "a"), false)
	want(t, "recalled", recalled(tab, true), "[]")
}

// A draft without a mode and an owner is the caller's, with the usual mode.
func TestAttrOfADraftWithoutOptions(t *testing.T) {
	tab, _ := newTable(1)
	f := file(2, "a")
	f.HasMode, f.Mode = false, 0
	d, ok := tab.NewDraft(t.Context(), f)
	if !ok {
		t.Fatal("no draft")
	}
	want(t, "mode, user, group", []any{d.Attr().GetMode(), d.Attr().GetUser(), d.Attr().GetGroup()}, "[420 ann staff]")
}

// A draft is begun only under the delegation, for an absent name that is no draft's,
// while there are numbers; a refusal takes no number.
func TestBegin(t *testing.T) {
	tab, c := newTable(2)
	refused := func(why string, dir uint64, name string) {
		t.Helper()
		if _, ok := tab.NewDraft(t.Context(), file(dir, name)); ok {
			t.Errorf("begun: %s", why)
		}
	}
	c.present[door.Ref{Base: 1, Path: "there"}] = true
	refused("what is there", 1, "there")
	refused("in a directory of another", 3, "a")
	first := begin(t, tab, 1, "a")
	refused("twice", 1, "a")
	want(t, "begun", []bool{tab.Begun(1, "a"), tab.Begun(1, "b"), tab.Begun(2, "a")}, "[true false false]")
	want(t, "the other number", begin(t, tab, 2, "a").Inode(), first.Inode()+1)
	refused("without a number", 2, "b")
	give(tab, 500, 1)
	want(t, "a new number", begin(t, tab, 2, "b").Inode(), 500)
}

// Numbers of several ranges are handed out once each, in order.
func TestNumbers(t *testing.T) {
	tab, _ := newTable(2)
	give(tab, 200, 1)
	give(tab, 300, 2)
	var got []uint64
	for i := range 5 {
		got = append(got, begin(t, tab, 1, fmt.Sprint(i)).Inode())
	}
	want(t, "numbers", got, "[100 101 200 300 301]")
	if _, ok := tab.NewDraft(t.Context(), file(1, "more")); ok {
		t.Error("begun without a number")
	}
}

// A session that was forgotten begins nothing under its old numbers; drafts that it has
// begun stay its own.
func TestForgetNumbers(t *testing.T) {
	tab, _ := newTable(1000)
	begin(t, tab, 1, "a")
	tab.ForgetNumbers()
	if _, ok := tab.NewDraft(t.Context(), file(1, "b")); ok {
		t.Error("begun under a number that was forgotten")
	}
	want(t, "recalled", recalled(tab, false, 1), "[1/a=100]")
	req := new(pb.CreateRequest)
	tab.Ask(req)
	want(t, "asks for numbers", req.GetNumbers(), true)
	tab.Answered(req, &pb.OpenResponse{Creations: true, FirstInode: 900, Inodes: 1})
	want(t, "a new number", begin(t, tab, 1, "b").Inode(), 900)
}

// Each Create asks for the delegation; one at a time asks for numbers, while few are left.
func TestAsk(t *testing.T) {
	tab, _ := newTable(fewNumbers)
	ask := func() *pb.CreateRequest {
		req := new(pb.CreateRequest)
		tab.Ask(req)
		if !req.GetCreations() {
			t.Error("a Create does not ask for the delegation")
		}
		return req
	}
	want(t, "asks with enough", ask().GetNumbers(), false)
	begin(t, tab, 1, "a")
	one, two := ask(), ask()
	want(t, "ask with few", []bool{one.GetNumbers(), two.GetNumbers()}, "[true false]")
	tab.Answered(two, nil)
	want(t, "asks while another does", ask().GetNumbers(), false)
	tab.Answered(one, nil) // it failed
	one = ask()
	want(t, "asks again", one.GetNumbers(), true)
	tab.Answered(one, &pb.OpenResponse{FirstInode: 900, Inodes: 9}) // without the delegation they are nobody's
	want(t, "numbers left", tab.left, fewNumbers-1)
	tab.Answered(new(pb.CreateRequest), &pb.OpenResponse{Creations: true}) // without numbers
	want(t, "ranges", len(tab.numbers), 1)
}

// The acknowledgement of a recall names the drafts of the directories that are recalled,
// until they are files.
func TestRecalled(t *testing.T) {
	tab, _ := newTable(10)
	a := begin(t, tab, 1, "a")
	begin(t, tab, 1, "b")
	begin(t, tab, 2, "a")
	want(t, "of one directory", recalled(tab, false, 1), "[1/a=100 1/b=101]")
	want(t, "of two", recalled(tab, false, 2, 1), "[1/a=100 1/b=101 2/a=102]")
	want(t, "of another", recalled(tab, false, 3), "[]")
	want(t, "of none", recalled(tab, false), "[]")
	want(t, "of all", recalled(tab, true), "[1/a=100 1/b=101 2/a=102]")
	if err := a.Close(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	want(t, "of one directory, one made", recalled(tab, false, 1), "[1/b=101]")
	want(t, "of all, one made", recalled(tab, true), "[1/b=101 2/a=102]")
}

// While it is being made, a draft is still named and has its name: it is no file yet.
func TestRecalledWhileItIsMade(t *testing.T) {
	tab, c := newTable(10)
	d := begin(t, tab, 1, "a")
	c.answer = func(*pb.CreateRequest) (bool, error) {
		want(t, "recalled", recalled(tab, false, 1), "[1/a=100]")
		want(t, "begun", tab.Begun(1, "a"), true)
		return false, nil
	}
	if err := d.Close(t.Context(), 0); err != nil || len(c.creates) != 1 {
		t.Fatal(err, c.creates)
	}
}

// The filter of a directory has the drafts in it from their beginning; a directory
// without a filter needs none.
func TestNamesHaveDrafts(t *testing.T) {
	tab, c := newTable(10)
	begin(t, tab, 1, "a")
	begin(t, tab, 2, "a")
	want(t, "a draft, another name", []bool{c.names[1].Has("a"), c.names[1].Has("b")}, "[true false]")
}

// Whoever ends a draft second gets an error and sends nothing.
func TestEndTwice(t *testing.T) {
	open := func(t *testing.T, d *Draft[*writer]) error { _, err := d.Open(t.Context()); return err }
	shut := func(t *testing.T, d *Draft[*writer]) error { return d.Close(t.Context(), 0) }
	for name, ends := range map[string][2]func(*testing.T, *Draft[*writer]) error{
		"close, close": {shut, shut}, "close, open": {shut, open}, "open, close": {open, shut}, "open, open": {open, open},
	} {
		t.Run(name, func(t *testing.T) {
			tab, c := newTable(10)
			d := begin(t, tab, 1, "a")
			if err := ends[0](t, d); err != nil {
				t.Fatal(err)
			}
			next := begin(t, tab, 1, "a") // of the same name, not ended by the error
			want(t, "the second end", kind(ends[1](t, d)), fserror.Closed)
			want(t, "calls", len(c.creates), 1)
			want(t, "begun", tab.Begun(1, "a"), true)
			want(t, "takes bytes", d.Write([][]byte{[]byte("x")}), false)
			if err := ends[1](t, next); err != nil {
				t.Fatal(err)
			}
			want(t, "begun in the end", len(tab.begun), 0)
		})
	}
}

// A draft takes 64 KiB, and no more than the namenode takes in one Create; pieces that
// are too many are taken not at all.
func TestWriteLimits(t *testing.T) {
	tab, c := newTable(10)
	d := begin(t, tab, 1, "a") // 5 bytes
	full := make([]byte, maxDraft-5)
	want(t, "a byte too many", d.Write([][]byte{full, {0}}), false)
	want(t, "length", d.Length(), 5)
	want(t, "full", d.Write([][]byte{full[1:], {0}}), true)
	want(t, "one more", d.Write([][]byte{{0}}), false)
	c.maxWhole = 6
	d = begin(t, tab, 1, "b")
	want(t, "beyond a Create", d.Write([][]byte{{0, 0}}), false)
	want(t, "up to it", d.Write([][]byte{{0}}), true)
	want(t, "length", d.Length(), 6)
}

// Opened, a draft is a Create without data or end, and its bytes are written.
func TestOpen(t *testing.T) {
	tab, c := newTable(10)
	w, err := begin(t, tab, 1, "a").Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "number, call ids in use", []uint64{c.creates[0].GetAs(), tab.cfg.IDs.Under()}, "[100 0]")
	want(t, "bytes, closed", []any{string(w.data), w.closed || w.aborted}, "[bytes false]")
	want(t, "begun", tab.Begun(1, "a"), false)
}

// What the errors of the Create mean to who closes or opens the draft.
func TestErrors(t *testing.T) {
	gone := &fserror.Error{Kind: fserror.InvalidArgument, Reason: noNumber, Message: "not set aside"}
	type sent struct {
		err     error
		asBlock bool
	}
	for _, c := range []struct {
		name        string
		answers     []sent // to each Create
		close, open any    // the kind of the error
		as          []uint64
		asOpen      []uint64
		left        int // numbers
	}{
		{"made", []sent{{}}, "none", "none", []uint64{100}, []uint64{100}, 9},
		{"another has the name", []sent{{err: fserror.New(fserror.Exists, "", "", "x")}}, fserror.LeaseLost, fserror.LeaseLost, []uint64{100}, []uint64{100}, 9},
		{"the directory is gone", []sent{{err: fserror.New(fserror.NotFound, "", "", "x")}}, fserror.LeaseLost, fserror.LeaseLost, []uint64{100}, []uint64{100}, 9},
		{"it is no directory", []sent{{err: fserror.New(fserror.NotDirectory, "", "", "x")}}, fserror.LeaseLost, fserror.LeaseLost, []uint64{100}, []uint64{100}, 9},
		{"no room", []sent{{err: fserror.New(fserror.NoSpace, "", "", "x")}}, fserror.NoSpace, fserror.NoSpace, []uint64{100}, []uint64{100}, 9},
		{"another invalid argument", []sent{{err: fserror.New(fserror.InvalidArgument, "", "", "x")}}, fserror.InvalidArgument, fserror.InvalidArgument, []uint64{100}, []uint64{100}, 9},
		{"no number, then made", []sent{{err: gone}, {}}, "none", fserror.LeaseLost, []uint64{100, 0}, []uint64{100}, 0},
		{"no number, then another has the name", []sent{{err: gone}, {err: fserror.New(fserror.Exists, "", "", "x")}}, fserror.LeaseLost, fserror.LeaseLost, []uint64{100, 0}, []uint64{100}, 0},
		{"no number, then no room in a tail", []sent{{err: gone}, {err: fserror.New(fserror.TooLarge, "", "", "x"), asBlock: true}}, fserror.LeaseLost, fserror.LeaseLost, []uint64{100, 0}, []uint64{100}, 0},
		{"no room in a tail, then open", []sent{{err: fserror.New(fserror.TooLarge, "", "", "x"), asBlock: true}, {}}, "none", fserror.TooLarge, []uint64{100, 100}, []uint64{100}, 9},
		{"no room in a tail, then no number", []sent{{err: fserror.New(fserror.TooLarge, "", "", "x"), asBlock: true}, {err: gone}}, fserror.LeaseLost, fserror.TooLarge, []uint64{100, 100}, []uint64{100}, 0},
	} {
		for _, opens := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/open=%t", c.name, opens), func(t *testing.T) {
				tab, cl := newTable(10)
				d := begin(t, tab, 1, "a")
				answers := c.answers
				cl.answer = func(*pb.CreateRequest) (bool, error) {
					a := answers[0]
					answers = answers[1:]
					return a.asBlock, a.err
				}
				var err error
				end, as, left := c.close, c.as, c.left
				if opens {
					_, err = d.Open(t.Context())
					end, as = c.open, c.asOpen
					if !errors.Is(c.answers[0].err, gone) {
						left = 9
					}
				} else {
					err = d.Close(t.Context(), 0)
				}
				want(t, "error", kind(err), end)
				var got []uint64
				for _, req := range cl.creates {
					got = append(got, req.GetAs())
				}
				want(t, "numbers sent", got, as)
				want(t, "numbers left", tab.left, left)
				want(t, "begun", tab.Begun(1, "a"), false)
				want(t, "call ids in use", tab.cfg.IDs.Under(), 0)
			})
		}
	}
}

// Bytes that do not fit into a tail are written and closed as those of any file.
func TestCloseAsBlock(t *testing.T) {
	tab, c := newTable(10)
	c.answer = func(req *pb.CreateRequest) (bool, error) {
		if req.GetClose() {
			return true, fserror.New(fserror.TooLarge, "", "", "x")
		}
		return false, nil
	}
	if err := begin(t, tab, 1, "a").Close(t.Context(), 77); err != nil {
		t.Fatal(err)
	}
	if err := begin(t, tab, 1, "b").Close(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for i, mtime := range []time.Time{time.UnixMilli(77), {}} {
		w := c.writers[i]
		want(t, "bytes, closed, aborted", []any{string(w.data), w.closed, w.aborted}, "[bytes true false]")
		if !w.mtime.Equal(mtime) {
			t.Errorf("time %s, want %s", w.mtime, mtime)
		}
	}
}

// A file that does not take the draft's bytes is not left open.
func TestBytesThatAreNotTaken(t *testing.T) {
	tab, c := newTable(10)
	c.broken = fserror.New(fserror.NoSpace, "", "", "x")
	c.answer = func(req *pb.CreateRequest) (bool, error) {
		if req.GetClose() {
			return true, fserror.New(fserror.TooLarge, "", "", "x")
		}
		return false, nil
	}
	_, err := begin(t, tab, 1, "a").Open(t.Context())
	want(t, "open", kind(err), fserror.NoSpace)
	want(t, "close", kind(begin(t, tab, 1, "b").Close(t.Context(), 0)), fserror.NoSpace)
	for _, w := range c.writers {
		want(t, "closed, aborted", []bool{w.closed, w.aborted}, "[false true]")
	}
	want(t, "drafts", len(tab.begun), 0)
}

// A recall that comes when the delegation was just looked for is acknowledged with the
// draft that is being begun.
func TestRecallWhileADraftBegins(t *testing.T) {
	tab, c := newTable(10)
	acks := make(chan []string, 1)
	recall := func() {
		c.recall(1)
		acks <- recalled(tab, false, 1)
	}
	c.looked = func() {
		if tab.mu.TryLock() { // it could come at once
			tab.mu.Unlock()
			recall()
		} else {
			go recall()
		}
	}
	begin(t, tab, 1, "a")
	want(t, "recalled", <-acks, "[1/a=100]")
}

// Drafts that begin beside a recall are in its acknowledgement or do not begin: no name
// is lost between the two.
func TestBeginBesideRecall(t *testing.T) {
	for range 200 {
		tab, c := newTable(10_000)
		var mu sync.Mutex
		begun := make(map[string]bool)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					d, ok := tab.NewDraft(t.Context(), file(1, fmt.Sprintf("%d-%d", g, i)))
					if !ok {
						return // recalled
					}
					mu.Lock()
					begun[d.Name()] = true
					mu.Unlock()
				}
			})
		}
		c.recall(1)
		named := make(map[string]bool)
		for _, d := range tab.Recalled(false, []uint64{1}) {
			named[d.GetName()] = true
		}
		wg.Wait()
		for name := range begun {
			if !named[name] {
				t.Fatalf("%s was begun, and the acknowledgement does not name it (%d of %d)", name, len(named), len(begun))
			}
		}
	}
}

// Drafts are begun, closed and recalled by many at once; each number is used once.
func TestConcurrently(t *testing.T) {
	const workers, files = 8, 100
	tab, c := newTable(workers * files)
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			for i := range files {
				dir, name := uint64(1+i%2), fmt.Sprintf("%d-%d", g, i) //nolint:gosec // a small number
				d, ok := tab.NewDraft(t.Context(), file(dir, name))
				if !ok || !tab.Begun(dir, name) || tab.Recalled(true, nil) == nil {
					t.Errorf("%s was not begun", name)
					return
				}
				if err := d.Close(t.Context(), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	used := make(map[uint64]bool)
	for _, req := range c.creates {
		used[req.GetAs()] = true
	}
	want(t, "numbers used, left, drafts", []int{len(used), tab.left, len(tab.begun)}, []int{workers * files, 0, 0})
}
