package files

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/test/env"
)

// later gives a rig a clock that stands still, and returns what lets more than the soft limit pass.
func (r *rig) later() (silence func()) {
	var now atomic.Int64
	now.Store(r.began.UnixMilli())
	r.cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	return func() { now.Add(r.u.FS.Info().SoftLimit.Milliseconds() + 1) }
}

// TestCompleteOfWhatWasLetGo: complete does not say that a file is closed which was only let go of,
// with bytes that were not durable.
func TestCompleteOfWhatWasLetGo(t *testing.T) {
	r := start(t)
	inode, b, p := r.create("/f", 1<<20)
	if _, err := p.Write(0, []byte("acknowledged")); err != nil {
		t.Fatal(err)
	}
	f := r.open(inode)
	defer r.forget(f)
	if err := f.w.Detach(); err != nil {
		t.Fatal(err)
	}
	b.Length = int64(len("acknowledged"))
	if ok, err := r.Complete(t.Context(), r.u, name, "/f", inode, &b); ok || err != nil {
		t.Errorf("%v, %v, of a file that is open and has none of its bytes", ok, err)
	}
}

// TestSilentIsBack: a silent client that is heard of while its bytes are made durable keeps its places.
// From the moment on at which they are taken, it gets another session.
func TestSilentIsBack(t *testing.T) {
	r := start(t)
	silence := r.later()
	inode, _, _ := r.create("/f", 1<<20)
	f := r.open(inode)
	silence()
	f.hear()
	if gone := r.takeOut(f.u); len(gone) > 0 || r.open(inode) != f {
		t.Errorf("it lost %d files", len(gone))
	}
	silence()
	gone := r.takeOut(f.u)
	if len(gone) != 1 || r.open(inode) != nil {
		t.Fatalf("it lost %d files, want the one", len(gone))
	}
	next, err := r.cfg.Users.Get(t.Context(), f.holder)
	if err != nil {
		t.Fatal(err)
	}
	defer r.cfg.Users.Release(next)
	if next == f.u {
		t.Error("the client who is back has the session that is ending")
	}
	_ = f.w.Detach()
	r.forget(f)
}

// TestSilentOfOthers: who has his share gets the places of another's silent client only if they make
// room for him, and what that one has written is kept though he hangs up.
func TestSilentOfOthers(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	silence := r.later()
	r.places = share.New(16) // twelve of which are for who has more than one
	inode, _, p := r.create("/f", 1<<20)
	if _, err := p.Write(0, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	silence()
	eve := share.User("eve")
	r.places.Hold(2, eve)
	for n := range 12 {
		r.places.Hold(1, share.User(fmt.Sprint(n)))
	}
	u, err := r.cfg.Users.Get(ctx, users.Key{User: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.cfg.Users.Release(u)
	_, err = r.Create(ctx, u, "hers", "/hers", Create{Mode: 0o644, Create: true})
	r.kind("where a place of another's makes no room", err, fserror.Retry)
	if r.open(inode) == nil {
		t.Error("another lost his file for nothing")
	}
	for n := range 3 {
		r.places.Give(1, share.User(fmt.Sprint(n)))
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	r.endSilent(over, "eve", eve)
	if !r.places.Fits(1, eve) {
		t.Errorf("%d places are taken", r.places.Used())
	}
	if got, err := r.u.FS.ReadFile(ctx, "/f"); err != nil || string(got) != "kept" {
		t.Errorf("it has %q, %v", got, err)
	}
}

// TestCloseGivenUp: a file that could not be closed while its client asked is closed by a later renewal,
// with all that it was given, and gives its place back.
func TestCloseGivenUp(t *testing.T) {
	r := start(t)
	r.closeTime = 300 * time.Millisecond
	silence := r.later()
	ctx := t.Context()
	inode, b, p := r.create("/f", 64<<20)
	all := bytes.Repeat([]byte("bytes"), 1<<20)
	if _, err := p.Write(0, all); err != nil {
		t.Fatal(err)
	}
	r.create("/other", 1<<20) // which the client continues
	b.Length = int64(len(all))
	r.nn.Stop(t)
	if ok, err := r.Complete(ctx, r.u, name, "/f", inode, &b); ok || err != nil {
		t.Fatalf("without a namenode: %v, %v", ok, err)
	}
	r.nn.Start(t)
	r.Renew(ctx, r.u, name)
	if r.open(inode) == nil {
		t.Error("it was closed while the client may ask again")
	}
	silence()
	env.Eventually(t, "it is closed", func() bool {
		r.Renew(ctx, r.u, name)
		return r.open(inode) == nil
	})
	if n := r.InUse(); n != 1 {
		t.Errorf("%d files are open, want the other", n)
	}
	if i, err := r.u.FS.Stat(ctx, "/f"); err != nil || i.Open != nil || i.Length != b.Length {
		t.Errorf("%+v, %v", i, err)
	}
	if ok, err := r.Complete(ctx, r.u, name, "/f", inode, &b); !ok || err != nil {
		t.Errorf("its client asks again: %v, %v", ok, err)
	}
}
