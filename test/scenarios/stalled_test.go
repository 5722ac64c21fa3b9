package scenarios_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/textlog"
)

// The disk of a namenode alone hangs: its log says so once, and its status and /readyz for as long as
// it does; what needs no disk is answered.
func TestStalledJournalIsTold(t *testing.T) {
	t.Parallel()
	disk, log := &heldDisk{FS: vfs.OS()}, new(textlog.Log)
	n, clk := frozen(t, func(c *namenode.Config) { c.FS, c.Logger = disk, slog.New(slog.NewTextHandler(log, nil)) })
	ctx := t.Context()
	a, looker := n.Client(t, env.Named("A")), n.Raw(t, "looker")
	must(t, a.Mkdir(ctx, "/before", 0o755))
	told := func() string {
		t.Helper()
		s, err := looker.Admin.Status(ctx, &pb.StatusRequest{Caller: &pb.Caller{User: "root"}})
		must(t, err)
		resp, err := http.Get(fmt.Sprintf("http://%s/readyz", n.HTTPAddr()))
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		ready, err := io.ReadAll(resp.Body)
		must(t, err)
		return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(ready)), "; ", s.GetRole(), " ", s.GetDiskError())
	}
	const healthy = "200 ok; active "
	for round := range 2 {
		release := disk.hold()
		defer release()
		done := make(chan error, 1)
		go func() { done <- a.Mkdir(ctx, fmt.Sprint("/held", round), 0o755) }()
		env.Eventually(t, "the change waits", func() bool {
			s, err := looker.Admin.Status(ctx, &pb.StatusRequest{Caller: &pb.Caller{User: "root"}})
			return err == nil && s.GetTxid() > s.GetDurableTxid()
		})
		clk.Advance(9 * time.Second)
		if got := told(); got != healthy {
			t.Fatalf("after 9 s: %s", got)
		}
		clk.Advance(2 * time.Second)
		const silent = "the namenode's disk does not answer; look for its errors in the kernel's log"
		if got, want := told(), "503 not ready: "+silent+"; active "+silent; got != want {
			t.Fatalf("after 11 s: %s, want %s", got, want)
		}
		env.Eventually(t, "the log says so", func() bool { return log.Count("the disk of the journal takes nothing") == round+1 })
		stat(t, a, "/before")
		release()
		must(t, <-done)
		env.Eventually(t, "all is well again", func() bool { return told() == healthy && log.Count("the disk of the journal answers again") == round+1 })
	}
}
