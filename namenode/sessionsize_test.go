package namenode_test

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/frames"
)

// A session with a connection of its own takes four goroutines: three of gRPC's and the one
// that serves its stream; also after it was told something. It takes no buffer while it is
// idle, and nothing when it is over.
func TestGoroutinesOfSession(t *testing.T) {
	const sessions, each = 100, 4
	n := env.Start(t, termOf(longTerm)) // none ends while others begin
	r := n.Raw(t, "other")
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")}); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	clients := make([]*frames.Client, sessions)
	streams := make([]uint32, sessions)
	next := func(i int) *pb.SessionResponse {
		t.Helper()
		stream, b, err := clients[i].Next()
		m := new(pb.SessionResponse)
		if err == nil {
			err = proto.Unmarshal(b, m)
		}
		if err != nil || stream != streams[i] {
			t.Fatalf("stream %d: %v", stream, err)
		}
		return m
	}
	say := func(i int, m *pb.SessionRequest) {
		t.Helper()
		if err := clients[i].Send(streams[i], m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sessions {
		c, err := frames.Connect(t.Context(), n.Addr(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
		who := &pb.Caller{User: "root", Client: "c", Session: pb.NewSession("root"), Host: "h", Pid: 1}
		if streams[i], err = c.Open(pb.Namenode_Session_FullMethodName, &pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: who, Cache: true, Stream: 1}}}); err != nil {
			t.Fatal(err)
		}
		if next(i).GetWelcome() == nil {
			t.Fatal("no welcome")
		}
		say(i, &pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: 1}}})
		if next(i).GetCacheTerm() == nil {
			t.Fatal("no term")
		}
		stream, err := c.Open(pb.Namenode_Stat_FullMethodName, &pb.StatRequest{Caller: who, At: pb.At("/d"), Cache: true})
		if err == nil {
			err = c.Send(stream, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := new(pb.StatResponse)
		_, b, err := c.Next()
		if err == nil {
			err = proto.Unmarshal(b, kept)
		}
		if err != nil || len(kept.GetKeys()) == 0 {
			t.Fatalf("session %d keeps %v: %v", i, kept.GetKeys(), err)
		}
		if ended, _, err := c.Next(); ended != stream { //nolint:errorlint // it is ErrEnded
			t.Fatal(ended, err)
		}
	}
	extra := func() int { return runtime.NumGoroutine() - before - sessions*each }
	quiet := func(what string) {
		t.Helper()
		env.Eventually(t, what+": as many goroutines as there are to be", func() bool { return extra() <= sessions/10 })
	}
	quiet("after the welcome")

	changed := make(chan error, 1)
	go func() {
		_, err := r.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d"), SetMode: true, Mode: 0o700})
		changed <- err
	}()
	for i := range sessions {
		revoked := next(i).GetCacheRevocation()
		if revoked == nil {
			t.Fatal("no revocation")
		}
		say(i, &pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Seq: revoked.GetSeq()}}})
	}
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	quiet("after a revocation")
	if stacks := allStacks(); strings.Contains(stacks, "bufio.(*Reader).Read(") && strings.Contains(stacks, "conns.(*meter).Read(") {
		t.Error("connections that wait have buffers of their own")
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, "all is over", func() bool { return runtime.NumGoroutine() < before+sessions/10 })
}

func allStacks() string {
	b := make([]byte, 16<<20)
	return string(b[:runtime.Stack(b, true)])
}
