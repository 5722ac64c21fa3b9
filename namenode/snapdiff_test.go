package namenode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// snapshotsOf makes a directory that has a snapshot s, with first and sub in it.
func snapshotsOf(t *testing.T, s *service, who func(string) (*pb.CallId, *pb.Caller), dir string) {
	t.Helper()
	allow, snap := &pb.AllowSnapshotsRequest{At: pb.At(dir), Allow: true}, &pb.MakeSnapshotRequest{At: pb.At(dir), Name: "s"}
	allow.Call, allow.Caller = who("root")
	snap.Call, snap.Caller = who("root")
	for _, name := range []string{"first", "sub"} {
		mkdir := &pb.MkdirRequest{At: pb.At(fspath.Join(dir, name)), Parents: true}
		mkdir.Call, mkdir.Caller = who("root")
		if _, err := s.Mkdir(t.Context(), mkdir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AllowSnapshots(t.Context(), allow); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeSnapshot(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
}

// TestDifferencesAreDurable: what is said to differ from a snapshot is not lost when the namenode fails.
func TestDifferencesAreDurable(t *testing.T) {
	s, disk := startOnStuckDisk(t)
	who := callers()
	snapshotsOf(t, s.calls, who, "/d")
	disk.gate.Lock()
	open := sync.OnceFunc(disk.gate.Unlock)
	defer open()
	_, wait, err := s.engine.Submit(t.Context(), engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		a, err := tx.Tree.Stat(nil, namespace.At("/d/sub"))
		return &namespace.OpSetAttr{Inode: a.ID, SetMode: true, Mode: 0o700}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	differ := func(ctx context.Context) (*pb.DiffSnapshotsResponse, error) {
		r := &pb.DiffSnapshotsRequest{At: pb.At("/d"), From: "s"}
		_, r.Caller = who("root")
		return s.calls.DiffSnapshots(ctx, r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, err := differ(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("told too early: %v, %v", r, err)
	}
	open()
	if err := s.engine.WaitDurable(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	if r, err := differ(t.Context()); err != nil || len(r.GetChanges()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestDifferencesOfTheRoot: paths are relative to the directory that is compared, also to the root.
func TestDifferencesOfTheRoot(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	snapshotsOf(t, s, who, "/")
	mkdir := &pb.MkdirRequest{At: pb.At("/sub/new")}
	mkdir.Call, mkdir.Caller = who("root")
	if _, err := s.Mkdir(t.Context(), mkdir); err != nil {
		t.Fatal(err)
	}
	r := &pb.DiffSnapshotsRequest{At: pb.At("/"), From: "s"}
	_, r.Caller = who("root")
	resp, err := s.DiffSnapshots(t.Context(), r)
	var told []string
	for _, c := range resp.GetChanges() {
		told = append(told, fmt.Sprintf("%s into %s", c.GetPath(), c.GetInto()))
	}
	if want := "[sub into  sub/new into sub]"; err != nil || fmt.Sprint(told) != want {
		t.Errorf("%v, want %s; %v", told, want, err)
	}
}

// TestSnapshotsTakeMuchMemory: while snapshots take more of the memory than they may no more are made,
// and the error says how much that is, and what to do.
func TestSnapshotsTakeMuchMemory(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	if st, err := s.Status(t.Context(), &pb.StatusRequest{}); err != nil || st.GetSnapshotMemoryBytes() != 0 {
		t.Errorf("%v, %v", st, err)
	}
	snapshotsOf(t, s, who, "/d")
	snap := func(name string) error {
		r := &pb.MakeSnapshotRequest{At: pb.At("/d"), Name: name}
		r.Call, r.Caller = who("root")
		_, err := s.MakeSnapshot(t.Context(), r)
		return err
	}
	mkdir := &pb.MkdirRequest{At: pb.At("/d/changed")}
	mkdir.Call, mkdir.Caller = who("root")
	if _, err := s.Mkdir(t.Context(), mkdir); err != nil {
		t.Fatal(err)
	}
	if err := s.MeasureSnapshots(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := s.SnapshotMemory()
	if took <= 0 {
		t.Fatal("a directory that changed takes nothing")
	}
	if st, err := s.Status(t.Context(), &pb.StatusRequest{}); err != nil || st.GetSnapshotMemoryBytes() != took {
		t.Errorf("%d bytes, %v, want %d", st.GetSnapshotMemoryBytes(), err, took)
	}
	s.Service.Memory = 4*took - 1
	for _, name := range []string{"t", ""} {
		if err := snap(name); fserror.KindOf(err) != fserror.NoSpace || !strings.Contains(err.Error(), "delete snapshots") || !strings.Contains(err.Error(), "; most are of /d (1, user root); ") {
			t.Errorf("%q: %v", name, err)
		}
	}
	s.Service.Memory = 4 * took
	if err := snap("t"); err != nil {
		t.Error(err)
	}
	if err := snap(""); err != nil {
		t.Error(err)
	}
}

// TestSnapshotsAreShared: who has many snapshots leaves the last ones that the namespace can have to
// others. Superusers may take them all.
func TestSnapshotsAreShared(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	make1 := func(user, dir string, n int) error { // in turn, so what was answered is acknowledged
		r := &pb.MakeSnapshotRequest{At: pb.At(dir), Name: strconv.Itoa(n)}
		r.Call, r.Caller = who(user)
		r.Call.Acked = r.GetCall().GetSeq() - 1
		_, err := s.MakeSnapshot(t.Context(), r)
		return err
	}
	for _, dir := range []string{"/ann1", "/ann2", "/ann3", "/ann4", "/bob"} {
		snapshotsOf(t, s, who, dir)
		chown := &pb.SetAttrRequest{At: pb.At(dir), User: strings.Trim(dir, "/1234")}
		chown.Call, chown.Caller = who("root")
		if _, err := s.SetAttr(t.Context(), chown); err != nil {
			t.Fatal(err)
		}
	}
	made := 5 // all together
	var refused error
	for n := 0; refused == nil; n++ {
		if refused = make1("ann", fmt.Sprint("/ann", n/1023+1), n); refused == nil {
			made++
		}
	}
	if fserror.KindOf(refused) != fserror.NoSpace || !strings.Contains(refused.Error(), "directories of user ann have 3071") || made != snapshots.Max*3/4 {
		t.Fatalf("%d were made: %v", made, refused)
	}
	if err := make1("bob", "/bob", 0); err != nil {
		t.Errorf("who has one snapshot gets no other: %v", err)
	}
	if err := make1("root", "/ann4", 9999); err != nil {
		t.Errorf("a superuser: %v", err)
	}
	r := &pb.DeleteSnapshotRequest{At: pb.At("/ann1"), Name: "1"}
	for _, r.Name = range []string{"1", "2", "3"} {
		r.Call, r.Caller = who("ann")
		if _, err := s.DeleteSnapshot(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := make1("ann", "/ann1", 1); err != nil {
		t.Errorf("once there is room again: %v", err)
	}
}

// TestComparisonsOfOneThing: a cursor is of the directory and the snapshots with which a comparison
// began. Whatever has their names later, nothing of it comes into the rest.
func TestComparisonsOfOneThing(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(path string) {
		t.Helper()
		r := &pb.MkdirRequest{At: pb.At(path)}
		r.Call, r.Caller = who("root")
		_, err := s.Mkdir(t.Context(), r)
		do(err)
	}
	rename := func(from, to string) {
		t.Helper()
		r := &pb.RenameRequest{From: pb.At(from), To: pb.At(to)}
		r.Call, r.Caller = who("root")
		_, err := s.Rename(t.Context(), r)
		do(err)
	}
	differ := func(cursor string) (*pb.DiffSnapshotsResponse, error) {
		r := &pb.DiffSnapshotsRequest{At: pb.At("/d"), From: "s", Cursor: cursor, Limit: 1}
		_, r.Caller = who("root")
		return s.DiffSnapshots(t.Context(), r)
	}
	for _, dir := range []string{"/d", "/other"} {
		snapshotsOf(t, s, who, dir)
		for _, name := range []string{"/a", "/b", "/c"} {
			mkdir(dir + name)
		}
	}
	first, err := differ("")
	do(err)
	if len(first.GetChanges()) != 1 || first.GetNextCursor() == "" {
		t.Fatal(first)
	}
	second, err := differ(first.GetNextCursor())
	do(err)

	rename("/d", "/away")
	if r, err := differ(second.GetNextCursor()); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("of a directory that was renamed: %v, %v", r, err)
	}
	rename("/other", "/d")
	if r, err := differ(second.GetNextCursor()); fserror.KindOf(err) != fserror.NotFound || !strings.Contains(err.Error(), "compare again") {
		t.Errorf("of a directory that got the name of another: %v, %v", r, err)
	}
	rename("/d", "/other")
	rename("/away", "/d")
	third, err := differ(second.GetNextCursor())
	do(err)
	gone := &pb.DeleteSnapshotRequest{At: pb.At("/d"), Name: "s"}
	gone.Call, gone.Caller = who("root")
	_, err = s.DeleteSnapshot(t.Context(), gone)
	do(err)
	again := &pb.MakeSnapshotRequest{At: pb.At("/d"), Name: "s"}
	again.Call, again.Caller = who("root")
	_, err = s.MakeSnapshot(t.Context(), again)
	do(err)
	if r, err := differ(third.GetNextCursor()); fserror.KindOf(err) != fserror.NotFound || !strings.Contains(err.Error(), "compare again") {
		t.Errorf("of a snapshot that got the name of another: %v, %v", r, err)
	}
	for _, bad := range []string{"nonsense", "1", "1.2.3", "1.2.3.4.5", "-1.0.0.0", second.GetNextCursor() + "x", "99999999999999999.1.1.0"} {
		if r, err := differ(bad); fserror.KindOf(err) != fserror.InvalidArgument {
			t.Errorf("%q: %v, %v", bad, r, err)
		}
	}
}

// TestNameOfARepeatedSnapshot: who makes a snapshot without a name is told the one that it has, also
// if the call comes again after it was renamed.
func TestNameOfARepeatedSnapshot(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	snapshotsOf(t, s, who, "/d")
	r := &pb.MakeSnapshotRequest{At: pb.At("/d")}
	r.Call, r.Caller = who("root")
	first, err := s.MakeSnapshot(t.Context(), r)
	if err != nil || first.GetSnapshot() == "" {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := s.MakeSnapshot(t.Context(), r)
	if err != nil || again.GetSnapshot() != first.GetSnapshot() {
		t.Errorf("%v, %v, not %v", again, err, first)
	}
	rename := &pb.RenameSnapshotRequest{At: pb.At("/d"), Name: first.GetSnapshot(), NewName: "other"}
	rename.Call, rename.Caller = who("root")
	if _, err := s.RenameSnapshot(t.Context(), rename); err != nil {
		t.Fatal(err)
	}
	if again, err = s.MakeSnapshot(t.Context(), r); err != nil || again.GetSnapshot() != "other" {
		t.Errorf("%v, %v", again, err)
	}
}
