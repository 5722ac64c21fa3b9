package namenode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/frames"
)

// Answers that a client asks for and does not take, of calls and of watches, take no more memory
// than is set aside for all of them; who takes them does not notice.
func TestAnswersNotTaken(t *testing.T) {
	const budget = 8 << 20
	n := env.Start(t, func(c *namenode.Config) { c.MaxUnfinished = budget })
	n.SetPatience(100 * time.Millisecond)
	r := n.Raw(t, "a")
	from := r.TxID() + 1
	dir := "/" + strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 200)+"/", 5), "/")
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir), Parents: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // a kilobyte of events each
		r.Make(fmt.Sprintf("%s/%d", dir, i))
	}
	if err := r.Flush(r.Create("/f"), 0, strings.Repeat("x", namenode.SmallFile)); err != nil {
		t.Fatal(err)
	}
	for i, about := range []struct {
		method string
		req    proto.Message
	}{
		{pb.Namenode_GetFile_FullMethodName, &pb.GetFileRequest{Caller: r.Who, At: pb.At("/f")}},
		{pb.Namenode_Watch_FullMethodName, &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true, FromTxid: from}},
	} {
		evil := frames.Dial(t, n.Addr()) // it grants a connection 64 KiB and no more
		req, err := proto.Marshal(about.req)
		if err != nil {
			t.Fatal(err)
		}
		var sent error
		for id := uint32(1); sent == nil && id < 400; id += 2 {
			if sent = evil.Call(id, about.method); sent == nil {
				sent = evil.Send(frames.Data, frames.FlagEnd, id, append(frames.Prefix(uint32(len(req))), req...)) //nolint:gosec // a few bytes
			}
		}
		env.Eventually(t, about.method+": its connection is ended", func() bool {
			return strings.Contains(n.Metrics(t), "\nleasefs_connections_overload_ended_total "+string(rune('1'+i))+"\n")
		})
	}
	if got := r.File("/f"); len(got.GetTail()) == 0 {
		t.Error("another connection gets no tail")
	}
	env.Eventually(t, "nothing of them is kept", func() bool { return strings.Contains(n.Metrics(t), "\nleasefs_unsent_bytes 0\n") })
}
