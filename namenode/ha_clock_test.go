package namenode_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// wrongClock is the machine's clock but for its time of day.
type wrongClock struct {
	clock.System
	ahead atomic.Int64
}

func (c *wrongClock) Wall() time.Time {
	return c.System.Wall().Add(time.Duration(c.ahead.Load()))
}

// The time of day of a standby is wrong when it takes over, whether it went wrong
// while it followed or it started so: a call that is repeated there is not
// carried out again, and files get the time of day, as from the first reign on.
func TestTakeOverWithAWrongTimeOfDay(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const wrong = 11 * time.Minute
	first, _ := p.config()
	clk := new(wrongClock)
	second, _ := p.config(func(c *namenode.Config) { c.Clock = clk })
	a := p.active(first)
	b := p.start(second)
	r := env.RawAt(t, first.Listen, "w")
	id := r.Call()
	who := r.Who
	mkdir := func(r *env.Raw) (*pb.MutateResponse, error) {
		return r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Caller: who, Call: id, At: pb.At("/dir"), Mode: 0o755})
	}
	made, err := mkdir(r)
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *namenode.Server, cfg namenode.Config, path string) {
		t.Helper()
		p.becomes(s, "active")
		n := env.RawAt(t, cfg.Listen, "w")
		n.Create(path) // with a record time passes
		if again, err := mkdir(n); err != nil || again.GetTxid() != made.GetTxid() {
			t.Errorf("the same call after a take-over: %v, %v; want the first answer, %v", again, err, made)
		}
		out, err := n.NN.Stat(t.Context(), &pb.StatRequest{Caller: n.Who, At: pb.At(path)})
		if err != nil {
			t.Fatal(err)
		}
		if ahead := time.Until(time.UnixMilli(out.GetAttr().GetMtimeUnixMs())); ahead.Abs() > time.Minute {
			t.Errorf("the time of a file that is made now is %s ahead", ahead)
		}
	}
	clk.ahead.Store(int64(wrong))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	check(b, second, "/followed")
	a = p.start(first)
	p.becomes(a, "standby")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	check(a, first, "/right")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b = p.start(second)
	check(b, second, "/started")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
