package namecall

import (
	"testing"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func TestAckedIsLowWaterMark(t *testing.T) {
	c := NewIDs([]byte("s"))
	a, b, d := c.Next(), c.Next(), c.Next()
	c.Retire(b)
	c.Retire(d)
	if got := c.Next().Acked; got != 0 {
		t.Fatalf("acked %d while the first call is open", got)
	}
	if n := c.Under(); n != 4 {
		t.Errorf("%d are under way behind the first, want 4", n)
	}
	c.Retire(a)
	if got := c.Next(); got.Acked != 3 || got.Seq != 5 {
		t.Fatalf("acked %d, seq %d", got.Acked, got.Seq)
	}
}

// A call that is sent again acknowledges what was answered meanwhile.
func TestRepetitionsAcknowledge(t *testing.T) {
	c := NewIDs([]byte("s"))
	a, req := c.Next(), &pb.MkdirRequest{Call: c.Next()}
	c.acknowledge(req)
	if req.Call.Acked != 0 {
		t.Errorf("acked %d before the first call is answered", req.Call.Acked)
	}
	c.Retire(a)
	c.acknowledge(req)
	if req.Call.Acked != 1 || req.Call.Seq != 2 {
		t.Errorf("acked %d, seq %d", req.Call.Acked, req.Call.Seq)
	}
	c.acknowledge(&pb.StatRequest{}) // has no id
}
