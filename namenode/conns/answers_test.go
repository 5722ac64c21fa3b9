package conns

import (
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestDroppedAnswers: what gRPC drops of an answer without giving the buffer back, as it does when the
// stream has ended, counts no longer than it takes memory.
func TestDroppedAnswers(t *testing.T) {
	table := New(16, 1<<30)
	_, c := admit(t, table, "192.0.2.1:1")
	marshal := func(size int) {
		b, err := Codec().Marshal(To(c.RemoteAddr(), wrapperspb.Bytes(make([]byte, size))))
		if err != nil {
			t.Fatal(err)
		}
		if table.Stats().Unsent == 0 {
			t.Error("it is not counted")
		}
		if size%2 == 0 {
			b.Free()
		}
	}
	for _, size := range []int{10, 100_000} {
		if marshal(size); table.Stats().Unsent != 0 {
			t.Errorf("%d bytes are counted when %d were given back", table.Stats().Unsent, size)
		}
	}
	marshal(11)
	marshal(100_001)
	for end := time.Now().Add(2 * time.Minute); table.Stats().Unsent != 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are counted of what was dropped", table.Stats().Unsent)
		}
	}
	runtime.GC()
	if b := table.Stats().Unsent; b != 0 {
		t.Errorf("%d bytes are counted", b)
	}
}

func BenchmarkAnswer(b *testing.B) {
	table := New(16, 1<<30)
	c := table.admit(&socket{from: "192.0.2.1:1"})
	m := wrapperspb.Bytes(make([]byte, 200))
	for b.Loop() {
		s, err := Codec().Marshal(To(c.RemoteAddr(), m))
		if err != nil {
			b.Fatal(err)
		}
		s.Free()
	}
}
