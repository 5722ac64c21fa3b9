package namenode_test

import (
	"strings"
	"testing"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/frames"
)

// Messages whose last bytes do not come take no more memory than is set aside for
// all of them, on one connection or on several; who sends whole ones does not
// notice.
func TestUnfinishedMessages(t *testing.T) {
	const budget = 8 << 20
	n := env.Start(t, func(c *namenode.Config) { c.MaxUnfinished = budget })
	r := n.Raw(t, "a")
	w := r.Create("/f")
	for range 3 {
		evil := frames.Dial(t, n.Addr())
		var err error
		sent := 0
		chunk := make([]byte, 16<<10)
		for id := uint32(1); err == nil && sent < 16*budget; id += 2 {
			err = evil.Call(id, pb.Namenode_Stat_FullMethodName)
			if err == nil {
				err = evil.Send(frames.Data, 0, id, frames.Prefix(serve.MaxMessage))
			}
			for i := 0; err == nil && i < 60; i++ {
				err = evil.Send(frames.Data, 0, id, chunk)
				sent += len(chunk)
			}
		}
		if err == nil {
			t.Fatalf("the namenode took %d MiB of unfinished messages, %d MiB are set aside for them", sent>>20, budget>>20)
		}
	}
	if err := r.Flush(w, 0, strings.Repeat("x", namenode.SmallFile)); err != nil {
		t.Error(err)
	}
	env.Eventually(t, "nothing of them is kept", func() bool {
		page := n.Metrics(t)
		return strings.Contains(page, "\nleasefs_unfinished_bytes 0\n") && strings.Contains(page, "\nleasefs_connections_overload_ended_total 3\n")
	})
}
