package namecall

import "testing"

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
