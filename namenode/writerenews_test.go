package namenode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// silence is how long a writer was not heard of: the journal has its age then.
const silence = 47 * time.Second

// silentWriter is a writer of /f, which has five bytes, and of /g, that was not
// heard of for the silence.
func silentWriter(t *testing.T, n *env.Namenode, clk *clock.Fake) (r *env.Raw, w, g *pb.WriterId) {
	t.Helper()
	r = n.Raw(t, "writer")
	w, g = r.Create("/f"), r.Create("/g")
	if err := r.Flush(w, 0, "bytes"); err != nil {
		t.Fatal(err)
	}
	clk.Advance(silence)
	env.Eventually(t, "its age is journalled", func() bool { return n.JournalledAge(w.GetSession()) >= silence })
	return r, w, g
}

// A writer's call that is journalled renews its lease, also for a namenode that
// knows of it by the journal alone: nobody gets the file sooner than the soft limit
// after it.
func TestAnsweredWritesOutliveACrash(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(r *env.Raw, w, g *pb.WriterId) error{
		"flush": func(r *env.Raw, w, _ *pb.WriterId) error { return r.Flush(w, 5, "more") },
		"commit": func(r *env.Raw, w, _ *pb.WriterId) error {
			b, err := r.PutBlock(w, []byte("bytes and more"))
			if err != nil {
				return err
			}
			return r.Commit(w, 0, b, "bytes")
		},
		"create another": func(r *env.Raw, _, _ *pb.WriterId) error {
			r.Create("/h")
			return nil
		},
		"close another": func(r *env.Raw, _, g *pb.WriterId) error { return r.Close(g, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk, frozen := env.FakeClock()
			disk := crashfs.New()
			n := env.Start(t, frozen, func(c *namenode.Config) { c.FS, c.Data = disk, "/data" })
			r, w, g := silentWriter(t, n, clk)
			if err := write(r, w, g); err != nil {
				t.Fatal(err)
			}
			if age := n.JournalledAge(w.GetSession()); age != 0 {
				t.Errorf("the journal still has the age %v", age)
			}
			cfg := n.Config()
			cfg.FS, cfg.Listen, cfg.HTTP = disk.Crash(crashfs.Strict), "127.0.0.1:0", "127.0.0.1:0"
			s, err := namenode.Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			other := env.RawAt(t, s.Addr(), "other")
			clk.Advance(namenode.DefaultSoftLimit - time.Second)
			if _, err := other.Append("/f"); !errors.Is(err, fserror.Held) {
				t.Fatalf("%v, a second before the soft limit", err)
			}
			clk.Advance(2 * time.Second)
			if _, err := other.Append("/f"); err != nil {
				t.Fatalf("%v, after the soft limit", err)
			}
		})
	}
}

// What a writer asks for that leaves nothing in the journal renews nothing, since
// a crash would forget it: the allocation of a block, a flush sent twice, a read.
func TestCallsWithoutARecordRenewNothing(t *testing.T) {
	t.Parallel()
	clk, frozen := env.FakeClock()
	n := env.Start(t, frozen)
	r, w, _ := silentWriter(t, n, clk)
	if _, err := r.PutBlock(w, []byte("never committed")); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(w, 0, "bytes"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Inode(w.GetInode()), Writer: w}); err != nil {
		t.Fatal(err)
	}
	other := n.Raw(t, "other")
	clk.Advance(namenode.DefaultSoftLimit - silence)
	if _, err := other.Append("/f"); !errors.Is(err, fserror.Held) {
		t.Fatalf("%v, at the soft limit", err)
	}
	clk.Advance(time.Second)
	if _, err := other.Append("/f"); err != nil {
		t.Fatalf("%v, after the soft limit", err)
	}
}
