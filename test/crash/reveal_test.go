package crash

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// slow is a disk on which the syncs of the journal can be held up.
type slow struct {
	*crashfs.FS
	gate sync.RWMutex // locked: held up
}

func (s *slow) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil || path.Base(path.Dir(f.Name())) != "journal" {
		return f, err
	}
	return &slowFile{f, s}, nil
}

func (s *slow) Create(name string) (vfs.File, error)    { return s.wrap(s.FS.Create(name)) }
func (s *slow) OpenWrite(name string) (vfs.File, error) { return s.wrap(s.FS.OpenWrite(name)) }

type slowFile struct {
	vfs.File
	s *slow
}

func (f *slowFile) Sync() error {
	f.s.gate.RLock()
	defer f.s.gate.RUnlock()
	return f.File.Sync()
}

// TestNothingIsShownBeforeItIsDurable: while a change is not on the disk nobody
// is answered from it, errors and repeats included, and a crash takes it back;
// what has nothing to do with it is answered at once.
func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	disk := &slow{FS: crashfs.New()}
	m, err := boot(disk, epoch)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{day: "reveal", disk: disk.FS, m: m, wall: epoch, want: newModel(), clients: map[string]*client{}}
	if err := r.guard(func() { reveal(r, disk) }); err != nil {
		t.Fatal(err)
	}
}

func reveal(r *run, disk *slow) {
	a, b := r.by("a"), r.by("b")
	r.do(a.create("f", "/f", "old", false))
	r.do(a.create("g", "/g", "to be deleted", true))
	r.do(a.create("h", "/h", "to be closed", false))
	r.do(a.create("i", "/i", "to be taken", false))
	r.do(a.create("o", "/d/o", "of no concern", true))
	ctx, cancel := background()
	defer cancel()
	txid := func() uint64 {
		st, err := r.m.admin.Status(ctx, &pb.StatusRequest{})
		if err != nil {
			r.failf("%v", err)
		}
		return st.GetTxid()
	}
	before := txid()

	// Each by a session of its own: they may come in any order.
	c := r.by("c")
	changes := []*call{a.flush("f", " new"), c.mkdir("/new"), r.by("d").delete("/g"), a.close("h", "."), b.recover("/i")}
	lost, _ := a.writer("i")
	disk.gate.Lock()
	errs := make(chan error, len(changes))
	for _, c := range changes {
		go func() { _, err := c.send(r.m); errs <- err }()
	}
	applied := errors.New("not all applied")
	if err := r.until(r.m, func() error {
		if txid() < before+uint64(len(changes)) {
			return applied
		}
		return nil
	}); err != nil {
		disk.gate.Unlock()
		r.failf("%v", err)
	}

	who := root
	early := map[string]func(context.Context) error{
		"read of a flushed file": func(ctx context.Context) error {
			_, err := r.m.api.GetFile(ctx, &pb.GetFileRequest{Caller: who, At: pb.Follow("/f")})
			return err
		},
		"stat of a new folder": func(ctx context.Context) error {
			_, err := r.m.api.Stat(ctx, &pb.StatRequest{Caller: who, At: pb.At("/new")})
			return err
		},
		"a deleted file is not found": func(ctx context.Context) error {
			_, err := r.m.api.Stat(ctx, &pb.StatRequest{Caller: who, At: pb.At("/g")})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := r.m.api.List(ctx, &pb.ListRequest{Caller: who, At: pb.Follow("/")})
			return err
		},
		"find": func(ctx context.Context) error {
			s, err := r.m.api.Find(ctx, &pb.FindRequest{Caller: who, At: pb.Follow("/")})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"summary": func(ctx context.Context) error {
			_, err := r.m.api.Summary(ctx, &pb.SummaryRequest{Caller: who, At: pb.Follow("/")})
			return err
		},
		"a name is taken": func(ctx context.Context) error {
			_, err := r.m.api.Create(ctx, &pb.CreateRequest{Call: b.id(), Caller: b.who(), At: pb.At("/new"), Close: true})
			return err
		},
		"append to a file that was closed": func(ctx context.Context) error {
			_, err := r.m.api.Append(ctx, &pb.AppendRequest{Call: r.by("e").id(), Caller: r.by("e").who(), At: pb.Follow("/h")})
			return err
		},
		"a lease is lost": func(ctx context.Context) error {
			_, err := r.m.api.AppendTail(ctx, &pb.AppendTailRequest{Writer: lost, Offset: 11, Data: []byte("x"), Crc32C: crc([]byte("x"))})
			return err
		},
		"a lost file is told at a renewal": func(ctx context.Context) error {
			_, err := r.m.api.RenewLease(ctx, &pb.RenewLeaseRequest{
				Caller: a.who(), Session: a.session, Version: 1, HasSet: true, Open: []*pb.OpenRef{{Inode: lost.GetInode(), Epoch: lost.GetEpoch()}},
			})
			return err
		},
		"an image": func(ctx context.Context) error {
			_, err := r.m.admin.Checkpoint(ctx, &pb.CheckpointRequest{Caller: who})
			return err
		},
		"leases": func(ctx context.Context) error {
			_, err := r.m.api.ListLeases(ctx, &pb.ListLeasesRequest{Caller: who})
			return err
		},
		"the same call again": func(ctx context.Context) error {
			q := &pb.MkdirRequest{Call: &pb.CallId{Session: c.session, Seq: c.seq, Acked: c.seq - 1}, Caller: c.who(), At: pb.At("/new"), Parents: true}
			_, err := r.m.api.Mkdir(ctx, q)
			return err
		},
	}
	soon, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var told []string
	for name, ask := range early {
		wg.Go(func() {
			// A change of one's own that may be lost is told of as that, if the namenode sees the end first.
			if err := wire.FromStatus(ask(soon)); !errors.Is(err, fserror.Deadline) && !errors.Is(err, fserror.Unknown) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprintf("%s: %v", name, err))
			}
		})
	}
	// Of no concern: at once, also while all the others wait.
	_, errOther := r.m.api.GetFile(ctx, &pb.GetFileRequest{Caller: who, At: pb.Follow("/d/o")})
	wg.Wait()
	images, err := disk.List(dataDir + "/image")
	left := disk.FS.Clone().Crash(crashfs.Strict)
	disk.gate.Unlock()
	if err != nil || len(images) > 0 {
		r.failf("images %v of what is not durable, %v", images, err)
	}
	if errOther != nil {
		r.failf("a file of no concern: %v", errOther)
	}
	if len(told) > 0 {
		r.failf("answered from what is not durable: %s", strings.Join(told, "; "))
	}
	m := r.mustBoot(left)
	r.match(m, r.want)
	r.stop(m, false)
	for range changes {
		if err := <-errs; err != nil {
			r.failf("when the disk works again: %v", err)
		}
	}
	r.stop(r.m, false)
}

// TestSafeModeIsNotShownBeforeItIsDurable: who is told that it is on, or is
// refused for it, can count on it after a crash.
func TestSafeModeIsNotShownBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	disk := &slow{FS: crashfs.New()}
	m, err := boot(disk, epoch)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.halt() }()
	ctx, cancel := background()
	defer cancel()
	enter := &pb.SafeModeRequest{Caller: root, Action: pb.SafeModeRequest_ACTION_ENTER}
	get := &pb.SafeModeRequest{Caller: root, Action: pb.SafeModeRequest_ACTION_GET}
	disk.gate.Lock()
	open := sync.OnceFunc(disk.gate.Unlock)
	defer open()
	entered := make(chan error, 1)
	go func() { _, err := m.admin.SafeMode(ctx, enter); entered <- err }()
	for on := false; !on; {
		st, err := m.admin.Status(ctx, &pb.StatusRequest{Caller: root})
		if err != nil {
			t.Fatal(err)
		}
		on = st.GetSafeMode()
	}
	soon, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	for name, ask := range map[string]func() error{
		"get":      func() error { _, err := m.admin.SafeMode(soon, get); return err },
		"on again": func() error { _, err := m.admin.SafeMode(soon, enter); return err },
		"a change is refused": func() error {
			_, err := m.api.Mkdir(soon, &pb.MkdirRequest{Call: &pb.CallId{Session: root.GetSession(), Seq: 1}, Caller: root, At: pb.At("/d")})
			return err
		},
	} {
		wg.Go(func() {
			if err := wire.FromStatus(ask()); !errors.Is(err, fserror.Deadline) {
				t.Errorf("%s: answered too early: %v", name, err)
			}
		})
	}
	wg.Wait()
	open()
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if st, err := m.admin.SafeMode(ctx, get); err != nil || !st.GetOn() {
		t.Fatalf("%v, %v", st, err)
	}
}
