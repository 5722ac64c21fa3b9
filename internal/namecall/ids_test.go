package namecall

import (
	"testing"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func TestAckedIsLowWaterMark(t *testing.T) {
	c := NewIDs([]byte("s"))
	a, b, d := c.Begin(), c.Begin(), c.Begin()
	c.End(b)
	c.End(d)
	if got := c.Begin().Acked; got != 0 {
		t.Fatalf("acked %d while the first call is open", got)
	}
	if n := c.Under(); n != 4 {
		t.Errorf("%d are under way behind the first, want 4", n)
	}
	c.End(a)
	if got := c.Begin(); got.Acked != 3 || got.Seq != 5 {
		t.Fatalf("acked %d, seq %d", got.Acked, got.Seq)
	}
}

// A call that is sent again acknowledges what was answered meanwhile.
func TestRepetitionsAcknowledge(t *testing.T) {
	c := NewIDs([]byte("s"))
	a, req := c.Begin(), &pb.MkdirRequest{Call: c.Begin()}
	c.acknowledge(req)
	if req.Call.Acked != 0 {
		t.Errorf("acked %d before the first call is answered", req.Call.Acked)
	}
	c.End(a)
	c.acknowledge(req)
	if req.Call.Acked != 1 || req.Call.Seq != 2 {
		t.Errorf("acked %d, seq %d", req.Call.Acked, req.Call.Seq)
	}
	c.acknowledge(&pb.StatRequest{}) // has no id
}
