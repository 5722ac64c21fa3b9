package scenarios_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func watch(t *testing.T, fs *client.FS, path string, o client.WatchOptions) *client.Watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w, err := fs.Watch(ctx, path, o)
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

// line is an event as a test writes it.
func line(e client.Event) string {
	s := e.Type.String() + " " + e.Path
	switch e.Type {
	case client.EventRename:
		s += " -> " + e.NewPath
	case client.EventLength:
		s += fmt.Sprint(" ", e.Length)
	case client.EventLease:
		s += " " + e.Holder
	}
	if e.IsDir {
		s += "/"
	}
	return strings.TrimSuffix(s, " ")
}

// wantEvents takes exactly these events, in this order, from a watcher.
func wantEvents(t *testing.T, w *client.Watcher, want ...string) (all []client.Event) {
	t.Helper()
	last := uint64(0)
	for len(all) < len(want) {
		events, err := w.Next()
		if err != nil {
			t.Fatalf("after %v: %v", lines(all), err)
		}
		all = append(all, events...)
		for _, e := range events {
			if e.TxID < last || e.TxID > w.TxID() {
				t.Fatalf("transaction %d after %d, told up to %d", e.TxID, last, w.TxID())
			}
			last = e.TxID
		}
	}
	if got := lines(all); !slices.Equal(got, want) {
		t.Fatalf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return all
}

func lines(events []client.Event) (s []string) {
	for _, e := range events {
		s = append(s, line(e))
	}
	return s
}

// Every kind of change is told, in the order in which it happened, with what
// belongs to it.
func TestScenario59WhatIsTold(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	w := watch(t, n.Client(t, env.Named("B")), "/", client.WatchOptions{Recursive: true})

	must(t, a.MkdirAll(ctx, "/d/e", 0o755))
	f := create(t, a, "/d/f")
	flush(t, f, "1234")
	must(t, f.Close())
	must(t, a.WriteFile(ctx, "/d/whole", []byte("x")))
	must(t, a.WriteFile(ctx, "/d/whole", []byte("xy"), client.WithOverwrite()))
	must(t, a.Symlink(ctx, "/d/f", "/d/l"))
	must(t, a.Chmod(ctx, "/d/f", 0o600))
	must(t, a.Truncate(ctx, "/d/f", 2))
	must(t, a.Concat(ctx, "/d/f", "/d/whole"))
	must(t, a.Rename(ctx, "/d/f", "/d/e/f", false))
	f = appendTo(t, a, "/d/e/f")
	_, err := a.Recover(ctx, "/d/e/f", true)
	must(t, err)
	l := grant(t, a, time.Minute)
	must(t, a.Leases().Attach(ctx, l, "/d/e/f"))
	must(t, a.Leases().Detach(ctx, "/d/e/f"))
	must(t, a.WriteFile(ctx, "/d/g", nil, client.WithLease(l)))
	must(t, a.Publish(ctx, "/d/g", "/d/h", false))
	must(t, a.Leases().Attach(ctx, l, "/d/h"))
	err = a.Leases().Revoke(ctx, l)
	must(t, err)
	open := create(t, a, "/d/e/open")
	must(t, a.Remove(ctx, "/d/l"))
	must(t, a.RemoveAll(ctx, "/d"))
	wantLost(t, open.Close(), "", "")
	wantLost(t, f.Close(), "", "")

	all := wantEvents(t, w,
		"create /d/", "create /d/e/",
		"create /d/f", "lease /d/f A", "length /d/f 4", "close /d/f",
		"create /d/whole",
		"delete /d/whole", "create /d/whole",
		"create /d/l",
		"attr /d/f",
		"length /d/f 2",
		"delete /d/whole", "length /d/f 4",
		"rename /d/f -> /d/e/f",
		"lease /d/e/f A", "close /d/e/f",
		"lease /d/e/f", "lease /d/e/f",
		"create /d/g", "lease /d/g", "rename /d/g -> /d/h",
		"lease /d/h", "delete /d/h",
		"create /d/e/open", "lease /d/e/open A",
		"delete /d/l",
		"close /d/e/open", "delete /d/",
	)
	inode := map[string]uint64{}
	for _, e := range all {
		if e.Time.UnixMilli() == 0 || e.Inode == 0 {
			t.Errorf("%s has no time or no inode: %+v", line(e), e)
		}
		inode[line(e)] = e.Inode
	}
	if inode["create /d/f"] != inode["close /d/e/f"] {
		t.Errorf("the file is inode %d, after its rename %d", inode["create /d/f"], inode["close /d/e/f"])
	}
	// What changes nothing is not told; nor are directories' own times.
	must(t, a.MkdirAll(ctx, "/", 0o755))
	must(t, a.MkdirAll(ctx, "/end", 0o755))
	wantEvents(t, w, "create /end/")
}

// Three watches of one directory: of what is directly in it, of all below it,
// and of one file wherever it goes.
func TestScenario59Filters(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.MkdirAll(ctx, "/top/d/sub", 0o755))
	must(t, a.MkdirAll(ctx, "/else", 0o755))
	must(t, a.WriteFile(ctx, "/top/d/f", nil))
	flat := watch(t, b, "/top/d", client.WatchOptions{})
	deep := watch(t, b, "/top/d", client.WatchOptions{Recursive: true})
	inode := watch(t, b, "", client.WatchOptions{Inode: stat(t, a, "/top/d/f").Inode})
	file := watch(t, b, "/top/d/f", client.WatchOptions{})

	must(t, a.Mkdir(ctx, "/top/d/x", 0o755))
	must(t, a.Mkdir(ctx, "/top/d/sub/y", 0o755))
	must(t, a.Mkdir(ctx, "/top/dx", 0o755)) // its name only begins so
	must(t, a.Chmod(ctx, "/top/d/f", 0o600))
	must(t, a.Chmod(ctx, "/top/d", 0o700))
	must(t, a.Rename(ctx, "/top/d/f", "/else/f", false))
	must(t, a.Chmod(ctx, "/else/f", 0o640))
	must(t, a.Rename(ctx, "/else/f", "/top/d/sub/f", false))
	must(t, a.Rename(ctx, "/top", "/new", false)) // all that is watched moves away
	must(t, a.Mkdir(ctx, "/new/d/unseen", 0o755))
	must(t, a.Rename(ctx, "/new", "/top", false)) // and comes back
	must(t, a.Remove(ctx, "/top/d/sub/f"))
	must(t, a.RemoveAll(ctx, "/top"))
	must(t, a.MkdirAll(ctx, "/top/d/again", 0o755))
	must(t, a.WriteFile(ctx, "/top/d/f", nil))

	moves := []string{"rename /top -> /new/", "rename /new -> /top/"}
	wantEvents(t, flat, slices.Concat([]string{"create /top/d/x/", "attr /top/d/f", "attr /top/d/", "rename /top/d/f -> /else/f"},
		moves, []string{"delete /top/", "create /top/d/", "create /top/d/again/", "create /top/d/f"})...)
	wantEvents(t, deep, slices.Concat([]string{"create /top/d/x/", "create /top/d/sub/y/", "attr /top/d/f", "attr /top/d/", "rename /top/d/f -> /else/f", "rename /else/f -> /top/d/sub/f"},
		moves, []string{"delete /top/d/sub/f", "delete /top/", "create /top/d/", "create /top/d/again/", "create /top/d/f"})...)
	wantEvents(t, inode, "attr /top/d/f", "rename /top/d/f -> /else/f", "attr /else/f", "rename /else/f -> /top/d/sub/f", "delete /top/d/sub/f")
	wantEvents(t, file, slices.Concat([]string{"attr /top/d/f", "rename /top/d/f -> /else/f"}, moves, []string{"delete /top/", "create /top/d/f"})...)
}

// A path that does not exist yet can be watched; a directory that does not
// cannot be searched.
func TestScenario59NotThereYet(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	must(t, a.Symlink(ctx, "/d", "/link"))
	w := watch(t, b, "/d/f", client.WatchOptions{})
	through := watch(t, b, "/link/f", client.WatchOptions{}) // the path that it leads to
	must(t, a.WriteFile(ctx, "/d/e", nil))
	must(t, a.WriteFile(ctx, "/d/f", nil))
	must(t, a.Remove(ctx, "/d/f"))
	must(t, a.MkdirAll(ctx, "/d/f/g", 0o755))
	for _, w := range []*client.Watcher{w, through} {
		wantEvents(t, w, "create /d/f", "delete /d/f", "create /d/f/", "create /d/f/g/")
	}
	for path, kind := range map[string]fserror.Kind{"/missing/f": fserror.NotFound, "/d/e/f": fserror.NotDirectory, "relative": fserror.InvalidPath} {
		_, err := b.Watch(ctx, path, client.WatchOptions{})
		wantKind(t, err, kind)
	}
	_, err := b.Watch(ctx, "", client.WatchOptions{Inode: 12345})
	wantKind(t, err, fserror.NotFound)
}

// changed is a run of changes that are easy to check: each is in the name.
func changed(t *testing.T, a *client.FS, from, to int) (want []string) {
	t.Helper()
	for i := from; i < to; i++ {
		must(t, a.Mkdir(t.Context(), fmt.Sprintf("/d/%04d", i), 0o755))
		want = append(want, fmt.Sprintf("create /d/%04d/", i))
	}
	return want
}

// A watch continues over restarts of the namenode and over lost connections; and
// another one, begun where the first stopped, too.
func TestScenario59Resumes(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	b, wire := n.Wired(t, env.Named("B"))
	first := watch(t, a, "/d", client.WatchOptions{})
	must(t, a.Mkdir(ctx, "/d", 0o755))
	wantEvents(t, first, "create /d/") // or a watch that begins now may be told of it
	w := watch(t, b, "/d", client.WatchOptions{})
	wantEvents(t, w, changed(t, a, 0, 10)...)
	want := changed(t, a, 10, 20)
	n.Restart(t)
	want = append(want, changed(t, a, 20, 30)...)
	wantEvents(t, w, want...)

	wire.Cut()
	want = changed(t, a, 30, 40)
	n.Restart(t)
	want = append(want, changed(t, a, 40, 50)...)
	wire.Mend()
	wantEvents(t, w, want...)

	// Cut and mended while changes come.
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			wire.Cut()
			wire.Mend()
		}
	})
	want = changed(t, a, 50, 150)
	wg.Wait()
	all := wantEvents(t, w, want...)

	// A new one, from the middle, from the next and from a future change.
	w.Close()
	middle := all[40].TxID
	wantEvents(t, watch(t, b, "/d", client.WatchOptions{From: middle}), lines(all[40:])...)
	n.Restart(t)
	w2 := watch(t, b, "/d", client.WatchOptions{From: middle})
	wantEvents(t, w2, lines(all[40:])...)
	w3 := watch(t, b, "/d", client.WatchOptions{From: w2.TxID() + 1})
	future := watch(t, b, "/d", client.WatchOptions{From: w2.TxID() + 3})
	want = changed(t, a, 150, 155)
	wantEvents(t, w3, want...)
	wantEvents(t, future, want[2:]...)
	wantEvents(t, w2, want...)

	// An image keeps no changes: what was before it is too old, and the answer
	// says what to do.
	_, err := a.Admin().Checkpoint(ctx)
	must(t, err)
	wantEvents(t, watch(t, b, "/d", client.WatchOptions{From: w2.TxID() - 1}), want[3:]...)
	for range 3 { // older segments are purged
		changed(t, a, 1000+int(stat(t, a, "/d").Entries), 1001+int(stat(t, a, "/d").Entries)) //nolint:gosec // small
		_, err := a.Admin().Checkpoint(ctx)
		must(t, err)
	}
	n.Restart(t)
	_, err = b.Watch(ctx, "/d", client.WatchOptions{From: middle})
	wantTooOld(t, err)
}

// A watch that resumes after its line was down watches what it did before: a link that it came by
// may lead elsewhere, and what it watches, or the directory of that, may be deleted.
func TestScenario59ResumesWhatItBegan(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	b, wire := n.Wired(t, env.Named("B"))
	for _, dir := range []string{"/v1", "/v2", "/gone/d"} {
		must(t, a.MkdirAll(ctx, dir, 0o755))
	}
	must(t, a.Symlink(ctx, "/v1", "/current"))
	must(t, a.WriteFile(ctx, "/v1/f", nil))
	link := watch(t, b, "/current", client.WatchOptions{Recursive: true})
	inode := watch(t, b, "", client.WatchOptions{Inode: stat(t, a, "/v1/f").Inode})
	below := watch(t, b, "/gone/d/f", client.WatchOptions{})
	for range 2 { // that a watch is a resumed one is not forgotten
		wire.Cut()
		wire.Mend()
		must(t, a.Chmod(ctx, "/v1/f", 0o600))
		wantEvents(t, link, "attr /v1/f")
		wantEvents(t, inode, "attr /v1/f")
	}
	wire.Cut()
	must(t, a.Remove(ctx, "/current"))
	must(t, a.Symlink(ctx, "/v2", "/current"))
	must(t, a.WriteFile(ctx, "/v1/g", nil))
	must(t, a.Remove(ctx, "/v1/f"))
	must(t, a.RemoveAll(ctx, "/gone"))
	wire.Mend()
	wantEvents(t, link, "create /v1/g", "delete /v1/f")
	_, err := inode.Next()
	wantKind(t, err, fserror.NotFound)
	wantEvents(t, below, "delete /gone/")
	fresh := watch(t, b, "/current", client.WatchOptions{})
	must(t, a.WriteFile(ctx, "/v2/f", nil))
	wantEvents(t, fresh, "create /v2/f")
}

// Who resumes a watch of what he may not see learns nothing of it.
func TestScenario59ResumePermissions(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	root := n.Client(t, env.Named("A"))
	must(t, root.Mkdir(ctx, "/closed", 0o700))
	must(t, root.WriteFile(ctx, "/closed/secret", nil))
	ann := &pb.Caller{User: "ann", Client: "B", Session: pb.NewSession("ann")}
	nn := n.Raw(t, "raw").NN
	for _, r := range []*pb.WatchRequest{{Path: "/closed/secret"}, {Path: "/closed/missing"}, {Inode: stat(t, root, "/closed/secret").Inode}} {
		r.Caller, r.Resume = ann, true
		told, err := nn.Watch(ctx, r)
		if err == nil {
			_, err = told.Recv()
		}
		wantKind(t, wire.FromStatus(err), fserror.Permission)
	}
}

func wantTooOld(t *testing.T, err error) {
	t.Helper()
	if wantKind(t, err, fserror.TooOld); !strings.Contains(err.Error(), "list again") {
		t.Fatalf("%v: does not say what to do", err)
	}
}

// What is not kept any more cannot be watched from; who is too slow for what is
// kept is told so after what he got, which has no gap.
func TestScenario59TooOldTooSlow(t *testing.T) {
	t.Parallel()
	const kept = 50
	n, _ := frozen(t, func(c *namenode.Config) { c.WatchEvents = kept })
	ctx := t.Context()
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	must(t, a.Mkdir(ctx, "/d", 0o755))
	first := n.Raw(t, "A").TxID()
	changed(t, a, 0, kept)
	wantEvents(t, watch(t, b, "/d", client.WatchOptions{From: first + 1}), changed2(0, kept)...)
	changed(t, a, kept, kept+10)
	_, err := b.Watch(ctx, "/d", client.WatchOptions{From: first + 10})
	wantTooOld(t, err)
	wantEvents(t, watch(t, b, "/d", client.WatchOptions{From: first + 11}), changed2(10, kept+10)...)

	// Nobody reads, and more is told than the line takes; the names are long, so
	// that this is soon. Who reads is not held up, and misses nothing.
	dir := "/d" + strings.Repeat("/"+strings.Repeat("x", 250), 15)
	must(t, a.MkdirAll(ctx, dir, 0o755))
	w := watch(t, b, dir, client.WatchOptions{})
	fast := watch(t, n.Client(t, env.Named("C")), dir, client.WatchOptions{})
	const count = 600
	for i := range count {
		must(t, a.Mkdir(ctx, fmt.Sprintf("%s/%04d", dir, i), 0o755))
		wantEvents(t, fast, fmt.Sprintf("create %s/%04d/", dir, i))
	}
	got := 0
	for {
		events, err := w.Next()
		if err != nil {
			wantTooOld(t, err)
			break
		}
		for _, e := range events {
			if want := fmt.Sprintf("%s/%04d", dir, got); e.Path != want {
				t.Fatalf("event %d is of %s", got, brief(e.Path))
			}
			got++
		}
	}
	if got == 0 || got >= count {
		t.Fatalf("the slow watcher got %d of %d events", got, count)
	}
	if late := metric(t, n, "leasefs_watchers_too_slow_total"); late != 1 {
		t.Errorf("%v watchers were too slow, want 1", late)
	}
	status, err := n.Raw(t, "A").Admin.Status(ctx, &pb.StatusRequest{Caller: n.Raw(t, "A").Who})
	must(t, err)
	if !slices.ContainsFunc(status.GetGreedy(), func(h *pb.Holding) bool {
		return h.GetWhat() == "watches" && h.GetWho() == "user root" && h.GetDelayed() == 1
	}) {
		t.Errorf("it is not told whose watch was too slow: %v", status.GetGreedy())
	}
}

// changed2 is what changed returns.
func changed2(from, to int) (want []string) {
	for i := from; i < to; i++ {
		want = append(want, fmt.Sprintf("create /d/%04d/", i))
	}
	return want
}

// heldDisk makes nothing durable while it is held.
type heldDisk struct {
	vfs.FS
	mu   sync.Mutex
	held chan struct{} // nil: it is not
}

func (d *heldDisk) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ch := make(chan struct{})
	d.held = ch
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held = nil
		close(ch)
	})
}

func (d *heldDisk) wait() {
	d.mu.Lock()
	ch := d.held
	d.mu.Unlock()
	if ch != nil {
		<-ch
	}
}

func (d *heldDisk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &heldFile{f, d}, nil
}

func (d *heldDisk) Create(name string) (vfs.File, error) { return d.file(d.FS.Create(name)) }
func (d *heldDisk) CreateExclusive(name string) (vfs.File, error) {
	return d.file(d.FS.CreateExclusive(name))
}
func (d *heldDisk) OpenWrite(name string) (vfs.File, error) { return d.file(d.FS.OpenWrite(name)) }

type heldFile struct {
	vfs.File
	d *heldDisk
}

func (f *heldFile) Sync() error {
	f.d.wait()
	return f.File.Sync()
}

// A change is told when it is durable, and not before.
func TestScenario59DurableOnly(t *testing.T) {
	t.Parallel()
	disk := &heldDisk{FS: vfs.OS()}
	n, _ := frozen(t, func(c *namenode.Config) { c.FS = disk })
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	w := watch(t, b, "/", client.WatchOptions{Recursive: true})
	must(t, a.Mkdir(t.Context(), "/before", 0o755))
	wantEvents(t, w, "create /before/")
	told := make(chan []client.Event, 1)
	go func() {
		defer close(told)
		events, err := w.Next()
		if err != nil {
			t.Error(err)
		}
		told <- events
	}()

	release := disk.hold()
	defer release()
	done := make(chan error, 1)
	go func() { done <- a.Mkdir(t.Context(), "/held", 0o755) }()
	undurable := func() bool {
		s, err := n.Raw(t, "looker").Admin.Status(t.Context(), &pb.StatusRequest{Caller: &pb.Caller{User: "root"}})
		must(t, err)
		return s.GetTxid() > s.GetDurableTxid()
	}
	env.Eventually(t, "the change is applied", undurable)
	for range 20 {
		select {
		case events := <-told:
			t.Fatalf("told before it is durable: %v", lines(events))
		case err := <-done:
			t.Fatalf("answered before it is durable: %v", err)
		default:
		}
		if !undurable() {
			t.Fatal("the disk is not held")
		}
	}
	release()
	must(t, <-done)
	if got := lines(<-told); !slices.Equal(got, []string{"create /held/"}) {
		t.Fatalf("told of %v", got)
	}
}

// What happens in closed directories is not told to those who may not look into
// them. What is moved out of one is new to them, what is moved into one is gone.
func TestScenario59Permissions(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	root, ann := n.Client(t, env.Named("A")), n.Client(t, asUser("ann"))
	must(t, root.Mkdir(ctx, "/open", 0o755))
	must(t, root.Mkdir(ctx, "/closed", 0o700))
	must(t, root.MkdirAll(ctx, "/closed/sub", 0o777))
	must(t, root.WriteFile(ctx, "/closed/sub/secret", nil))
	for _, path := range []string{"/closed/sub", "/closed/new", "/closed/sub/secret"} {
		_, err := ann.Watch(ctx, path, client.WatchOptions{})
		wantKind(t, err, fserror.Permission)
	}
	_, err := ann.Watch(ctx, "", client.WatchOptions{Inode: stat(t, root, "/closed/sub/secret").Inode})
	wantKind(t, err, fserror.Permission)
	all := watch(t, ann, "/", client.WatchOptions{Recursive: true})
	dir := watch(t, ann, "/closed", client.WatchOptions{Recursive: true}) // its own name is no secret
	super := watch(t, root, "/", client.WatchOptions{Recursive: true})

	must(t, root.WriteFile(ctx, "/closed/f", nil))
	must(t, root.WriteFile(ctx, "/closed/sub/g", nil))
	must(t, root.Rename(ctx, "/closed/f", "/closed/sub/f", false))
	must(t, root.WriteFile(ctx, "/open/f", nil))
	must(t, root.Rename(ctx, "/open/f", "/closed/was-open", false))
	must(t, root.Rename(ctx, "/closed/sub/g", "/open/was-closed", false))
	must(t, root.Chmod(ctx, "/open/was-closed", 0o600))
	must(t, root.Remove(ctx, "/closed/was-open"))
	must(t, root.Chmod(ctx, "/closed", 0o755))
	wantEvents(t, all, "create /open/f", "delete /open/f", "create /open/was-closed", "attr /open/was-closed", "attr /closed/")
	wantEvents(t, super, "create /closed/f", "create /closed/sub/g", "rename /closed/f -> /closed/sub/f", "create /open/f",
		"rename /open/f -> /closed/was-open", "rename /closed/sub/g -> /open/was-closed", "attr /open/was-closed", "delete /closed/was-open", "attr /closed/")
	must(t, root.WriteFile(ctx, "/closed/now-seen", nil))
	wantEvents(t, all, "create /closed/now-seen")
	wantEvents(t, dir, "delete /open/f", "create /open/was-closed", "attr /closed/", "create /closed/now-seen")

	// Who may search a directory and not list it learns no names: he is told of those that he names.
	must(t, root.Chmod(ctx, "/closed", 0o711))
	named := watch(t, ann, "/closed/sub/known", client.WatchOptions{})
	inode := watch(t, ann, "", client.WatchOptions{Inode: stat(t, root, "/closed/now-seen").Inode})
	must(t, root.WriteFile(ctx, "/closed/hidden", nil))
	must(t, root.Rename(ctx, "/closed/hidden", "/closed/sub/known", false))
	must(t, root.Chmod(ctx, "/closed/now-seen", 0o600))
	must(t, root.Rename(ctx, "/closed/sub", "/closed/other", false))
	must(t, root.Mkdir(ctx, "/told", 0o755))
	wantEvents(t, all, "attr /closed/", "create /closed/sub/known", "create /told/")
	wantEvents(t, dir, "attr /closed/", "create /closed/sub/known")
	wantEvents(t, named, "create /closed/sub/known", "delete /closed/sub/")
	wantEvents(t, inode, "attr /closed/now-seen")

	// Made under a directory that is gone by the time it is told.
	must(t, root.Mkdir(ctx, "/tmp", 0o755))
	must(t, root.WriteFile(ctx, "/tmp/f", nil))
	must(t, root.Rename(ctx, "/tmp/f", "/open/published", false))
	must(t, root.RemoveAll(ctx, "/tmp"))
	must(t, root.Mkdir(ctx, "/end", 0o755))
	late := watch(t, ann, "/", client.WatchOptions{Recursive: true, From: all.TxID() + 1})
	wantEvents(t, late, "create /tmp/", "create /open/published", "delete /tmp/", "create /end/")
}

// A watch leaves nothing at the namenode when it is closed, when its client is,
// or when its line is cut. (That no goroutine is left is checked at the end of
// all tests.)
func TestScenario59LeavesNothing(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("A"))
	b, wire := n.Wired(t, env.Named("B"))
	watchers := func(want float64) {
		t.Helper()
		env.Eventually(t, fmt.Sprint(want, " watches are left"), func() bool { return metric(t, n, "leasefs_watchers") == want })
	}
	list := make([]*client.Watcher, 20)
	for i := range list {
		list[i] = watch(t, b, "/", client.WatchOptions{Recursive: i%2 == 0})
	}
	watchers(20)
	for _, w := range list[:10] {
		w.Close()
	}
	watchers(10)
	_, err := list[0].Next()
	wantKind(t, err, fserror.Canceled)
	canceled, cancel := context.WithCancel(ctx)
	own, err := a.Watch(canceled, "/", client.WatchOptions{})
	must(t, err)
	waits := make(chan error, 1)
	go func() {
		for {
			if _, err := own.Next(); err != nil {
				waits <- err
				return
			}
		}
	}()
	watchers(11)
	cancel()
	wantKind(t, <-waits, fserror.Canceled)
	watchers(10)
	wire.Cut()
	watchers(0)
	wire.Mend()
	must(t, b.Close())
	for {
		if _, err := list[19].Next(); err != nil {
			break
		}
	}
	_, err = b.Watch(ctx, "/", client.WatchOptions{})
	wantKind(t, err, fserror.Closed)
	watchers(0)
}
