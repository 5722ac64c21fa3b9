package namenode

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// startAt is a namenode by a clock that the test moves.
func startAt(t *testing.T, clk clock.Clock) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: Limits{Reserve: 1}, Clock: clk,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// While a lease is being ended its holder has not lost it yet: the record that
// says so may not come to be.
func TestAWriterIsToldToTryAgainWhileItsLeaseIsEnding(t *testing.T) {
	clk := new(clock.Fake)
	s := startAt(t, clk)
	session := make([]byte, 16)
	session[0] = 1
	out, err := s.calls.Create(t.Context(), &pb.CreateRequest{
		Call: &pb.CallId{Session: session, Seq: 1}, At: pb.At("/f"),
		Caller: &pb.Caller{User: "root", Client: "c", Session: session, Host: "h", Pid: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := writerID(out.GetWriter())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.engine.Update(func(tx *engine.Tx) error { // so no record ends it, not the monitor's either
		clk.Advance(s.cfg.HardLimit + time.Minute)
		s.leases.Expire(100)
		if st, known := s.leases.State(uint64(w.Inode)); !known || !st.Ending {
			return fmt.Errorf("%+v, %v", st, known)
		}
		if err := s.calls.writers.writer(t.Context(), tx, &namespace.Call{}, w); err != nil {
			return err
		}
		if _, err := tx.Apply(namespace.CallID{}, &namespace.OpAppendTail{Inode: w.Inode, Data: []byte("x")}, new(engine.Recall)); !errors.Is(err, fserror.Retry) {
			return fmt.Errorf("its holder's flush: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// stuckDisk holds up the syncs of the journal while its gate is locked.
type stuckDisk struct {
	vfs.FS
	gate sync.RWMutex
}

type stuckFile struct {
	vfs.File
	d *stuckDisk
}

func (d *stuckDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil || filepath.Base(filepath.Dir(f.Name())) != datadir.JournalDir {
		return f, err
	}
	return &stuckFile{f, d}, nil
}

func (d *stuckDisk) Create(name string) (vfs.File, error)    { return d.wrap(d.FS.Create(name)) }
func (d *stuckDisk) OpenWrite(name string) (vfs.File, error) { return d.wrap(d.FS.OpenWrite(name)) }

func (f *stuckFile) Sync() error {
	f.d.gate.RLock()
	defer f.d.gate.RUnlock()
	return f.File.Sync()
}

func startOnStuckDisk(t *testing.T) (*Server, *stuckDisk) {
	t.Helper()
	disk := &stuckDisk{FS: vfs.OS()}
	s, err := Start(t.Context(), Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: Limits{Reserve: 1}, FS: disk,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, disk
}

// greeting is the stream of a session that says Hello, and no more.
type greeting struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (g greeting) Context() context.Context { return g.ctx }

func (g greeting) Recv() (*pb.SessionRequest, error) {
	session := make([]byte, 16)
	session[0] = 1
	return &pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{
		Caller: &pb.Caller{User: "root", Client: "c", Session: session, Host: "h", Pid: 1}, Stream: 1, Cache: true,
	}}}, nil
}

func (g greeting) Send(*pb.SessionResponse) error { return errors.New("nobody listens") }

// TestWhoLeavesWhileItIsGreetedIsForgotten: a client that leaves before its session is
// durable leaves no caching session behind.
func TestWhoLeavesWhileItIsGreetedIsForgotten(t *testing.T) {
	s, disk := startOnStuckDisk(t)
	disk.gate.Lock()
	open := sync.OnceFunc(disk.gate.Unlock)
	defer open()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.calls.Session(greeting{ctx: ctx}) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.engine.Caches().Stats().Sessions == 0 {
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatal("not greeted:", err)
		}
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	open()
	if err := s.calls.endCaching(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.engine.Caches().Stats().Sessions; n != 0 {
		t.Errorf("%d sessions are known that have ended", n)
	}
}

// That there is nothing to do is known for sure only when what says so is
// durable.
func TestNothingToDoIsToldWhenItIsDurable(t *testing.T) {
	s, disk := startOnStuckDisk(t)
	disk.gate.Lock()
	open := sync.OnceFunc(disk.gate.Unlock)
	defer open()
	_, wait, err := s.engine.Submit(t.Context(), engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return &namespace.OpSafeMode{On: true}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	nothing := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return nil, nil }})
		return err
	}
	if err := nothing(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("told too early: %v", err)
	}
	open()
	if err := s.engine.WaitDurable(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	if err := nothing(); err != nil {
		t.Error(err)
	}
}

// callers returns a function that gives a user's next call, and who makes it.
func callers() func(user string) (*pb.CallId, *pb.Caller) {
	seq := uint64(0)
	return func(user string) (*pb.CallId, *pb.Caller) {
		session := make([]byte, 16)
		copy(session, user)
		seq++
		return &pb.CallId{Session: session, Seq: seq}, &pb.Caller{User: user, Client: user, Session: session, Host: "h", Pid: 1}
	}
}

// Between the check of what is below a directory and its deletion, its name may
// become another's: what was not checked is not deleted.
func TestWhatWasNotCheckedIsNotRemoved(t *testing.T) {
	s := startAt(t, new(clock.Fake)).calls
	who := callers()
	mkdir := func(user, path string, mode uint32) {
		t.Helper()
		r := &pb.MkdirRequest{At: pb.At(path), HasMode: true, Mode: mode}
		r.Call, r.Caller = who(user)
		if _, err := s.Mkdir(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		r := &pb.RenameRequest{From: pb.At(from), To: pb.At(to)}
		r.Call, r.Caller = who("root")
		if _, err := s.Rename(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() *pb.DeleteRequest {
		r := &pb.DeleteRequest{At: pb.At("/all/d"), Recursive: true}
		r.Call, r.Caller = who("ann")
		return r
	}
	mkdir("root", "/all", 0o777)
	mkdir("ann", "/all/d", 0o777)
	mkdir("ann", "/all/d/sub", 0o777)
	mkdir("root", "/bob", 0o755)
	mkdir("root", "/bob/private", 0o700)
	mkdir("root", "/bob/private/x", 0o700)

	r := remove()
	checked := new(removal)
	if err := s.mayRemoveAll(t.Context(), r, checked); err != nil || checked.dir == 0 {
		t.Fatal(checked, err)
	}
	rename("/all/d", "/all/was")
	rename("/bob", "/all/d")
	if _, err := s.remove(t.Context(), r, checked); !errors.Is(err, fserror.Retry) {
		t.Errorf("removed what was not checked: %v", err)
	}
	if _, err := s.Delete(t.Context(), remove()); !errors.Is(err, fserror.Permission) {
		t.Errorf("again: %v", err)
	}
	rename("/all/d", "/bob")
	rename("/all/was", "/all/d")
	s.removals.unregister(checked)

	// Nor what came into a directory after that was checked.
	mkdir("root", "/bob/open", 0o777)
	mkdir("root", "/bob/open/private", 0o700)
	mkdir("root", "/bob/open/private/x", 0o700)
	checked, r = new(removal), remove()
	if err := s.mayRemoveAll(t.Context(), r, checked); err != nil {
		t.Fatal(err)
	}
	tx := &pb.TransactRequest{Ops: []*pb.TxOp{
		{Path: "/bob/beside", Op: &pb.TxOp_Mkdir{Mkdir: &pb.TxDir{}}},
		{Path: "/bob/open", Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: "/all/d/sub/open"}}},
	}}
	tx.Call, tx.Caller = who("root")
	if _, err := s.Transact(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.remove(t.Context(), r, checked); !errors.Is(err, fserror.Retry) {
		t.Errorf("removed what came later: %v", err)
	}
	s.removals.unregister(checked)
	if _, err := s.Delete(t.Context(), remove()); !errors.Is(err, fserror.Permission) {
		t.Errorf("again: %v", err)
	}
	rename("/all/d/sub/open", "/bob/open")

	// Nor what came out of the trash.
	keep := &pb.SetXattrRequest{At: pb.At("/bob"), Name: "user.leasefs.trash", Value: []byte("1d")}
	keep.Call, keep.Caller = who("root")
	if _, err := s.SetXattr(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	bin := &pb.DeleteRequest{At: pb.At("/bob/open"), Recursive: true}
	bin.Call, bin.Caller = who("root")
	if out, err := s.Delete(t.Context(), bin); err != nil || !out.GetTrashed() {
		t.Fatal(out, err)
	}
	list := &pb.ListTrashRequest{}
	_, list.Caller = who("root")
	entries, err := s.ListTrash(t.Context(), list)
	if err != nil || len(entries.GetEntries()) != 1 {
		t.Fatal(entries, err)
	}
	checked, r = new(removal), remove()
	if err := s.mayRemoveAll(t.Context(), r, checked); err != nil {
		t.Fatal(err)
	}
	back := &pb.RestoreTrashRequest{Inode: entries.GetEntries()[0].GetInode(), To: pb.At("/all/d/sub/open")}
	back.Call, back.Caller = who("root")
	if _, err := s.RestoreTrash(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if _, err := s.remove(t.Context(), r, checked); !errors.Is(err, fserror.Retry) {
		t.Errorf("removed what was restored later: %v", err)
	}
	s.removals.unregister(checked)
	if _, err := s.Delete(t.Context(), remove()); !errors.Is(err, fserror.Permission) {
		t.Errorf("again: %v", err)
	}
	rename("/all/d/sub/open", "/bob/open")
	if _, err := s.Delete(t.Context(), remove()); err != nil {
		t.Error(err)
	}
}
