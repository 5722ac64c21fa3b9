package namenode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// Somebody sets the machine's clock: no result of a call is forgotten and no
// garbage deleted before its time, and files made later have sane times.
func TestTheTimeOfDayJumps(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, func(c *namenode.Config) { c.CollectEvery = 1000 * time.Hour })
	r, other := n.Raw(t, "r"), n.Raw(t, "other")
	create := func(id *pb.CallId) (*pb.OpenResponse, error) {
		return r.NN.Create(t.Context(), &pb.CreateRequest{Call: id, Caller: r.Who, At: pb.At("/f")})
	}
	id := r.Call()
	first, err := create(id)
	if err != nil {
		t.Fatal(err)
	}
	fileOfABlock(t, other, "/garbage")
	if _, err := other.NN.Delete(t.Context(), &pb.DeleteRequest{Call: other.Call(), Caller: other.Who, At: pb.At("/garbage")}); err != nil {
		t.Fatal(err)
	}

	const century = 74 * 365 * 24 * time.Hour
	clk.ShiftWall(century)
	clk.Advance(time.Second)
	mkdir(t, other, "/then", 0o755)
	collect := func() *pb.CollectResponse {
		t.Helper()
		out, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := collect(); out.GetDeleted() != 0 || out.GetWaiting() != 1 {
		t.Errorf("garbage, of which readers have URLs: %v", out)
	}
	again, err := create(id)
	if err != nil || again.GetWriter().GetEpoch() != first.GetWriter().GetEpoch() {
		t.Errorf("the same call again: %v, %v", again, err)
	}

	clk.ShiftWall(-century)
	mkdir(t, other, "/now", 0o755)
	out, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/now")})
	if err != nil {
		t.Fatal(err)
	}
	if off := time.UnixMilli(out.GetAttr().GetMtimeUnixMs()).Sub(clk.Wall()); off > time.Minute || off < -time.Minute {
		t.Errorf("a new folder's time is %s off", off)
	}

	// In its time all comes to its end.
	clk.Advance(namenode.DefaultURLLife + 2*time.Minute)
	if out := collect(); out.GetDeleted() != 1 {
		t.Errorf("garbage after its time: %v", out)
	}
	mkdir(t, other, "/later", 0o755) // with a record time passes
	if _, err := create(id); !errors.Is(err, fserror.Exists) && !errors.Is(err, fserror.Held) {
		t.Errorf("the call again after it was forgotten: %v", err)
	}
}

// The time of day is another one after a restart: no result of a call is
// forgotten and no garbage deleted for that.
func TestTheTimeOfDayJumpsOverARestart(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{11 * time.Minute, -11 * time.Minute, 74 * 365 * 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			clk, with := env.FakeClock()
			n := env.Start(t, with, func(c *namenode.Config) { c.CollectEvery = 1000 * time.Hour })
			r, other := n.Raw(t, "r"), n.Raw(t, "other")
			id := r.Call()
			create := func() (*pb.OpenResponse, error) {
				return r.NN.Create(t.Context(), &pb.CreateRequest{Call: id, Caller: r.Who, At: pb.At("/f"), Close: true})
			}
			first, err := create()
			if err != nil {
				t.Fatal(err)
			}
			fileOfABlock(t, other, "/garbage")
			for _, path := range []string{"/garbage", "/f"} {
				if _, err := other.NN.Delete(t.Context(), &pb.DeleteRequest{Call: other.Call(), Caller: other.Who, At: pb.At(path)}); err != nil {
					t.Fatal(err)
				}
			}
			clk.ShiftWall(by)
			n.Restart(t)
			clk.Advance(time.Second)
			mkdir(t, other, "/then", 0o755) // with a record time passes
			again, err := create()
			if err != nil || again.GetAttr().GetInode() != first.GetAttr().GetInode() {
				t.Errorf("the same call again: %v, %v", again, err)
			}
			_, err = r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/f")})
			if err := wire.FromStatus(err); !errors.Is(err, fserror.NotFound) {
				t.Errorf("the same call made the file twice: %v", err)
			}
			out, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who})
			if err != nil || out.GetDeleted() != 0 || out.GetWaiting() != 1 {
				t.Errorf("garbage, of which readers have URLs: %v, %v", out, err)
			}
		})
	}
}

// fileOfABlock makes a file that is one block.
func fileOfABlock(t *testing.T, r *env.Raw, path string) {
	t.Helper()
	w := r.Create(path)
	b, err := r.PutBlock(w, []byte("block"))
	if err == nil {
		err = errors.Join(r.Commit(w, 0, b, ""), r.Close(w, 5))
	}
	if err != nil {
		t.Fatal(err)
	}
}
