package namenode_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestGarbageIsOverdue: garbage that the archive needs is not late, however much there is and
// however long it waits; what nothing needs any more, and is not deleted, is.
func TestGarbageIsOverdue(t *testing.T) {
	t.Parallel()
	const keep = 6 * time.Hour
	clk, fake := env.FakeClock()
	n := env.Start(t, fake, archived(t.TempDir(), keep))
	r := n.Raw(t, "a")
	withBlock(t, r, "/file", "content")
	remove(t, r, "/file")
	overdue := func() time.Duration {
		t.Helper()
		m := regexp.MustCompile(`(?m)^leasefs_garbage_overdue_seconds (\S+)$`).FindStringSubmatch(n.Metrics(t))
		if m == nil {
			t.Fatal("the metric is missing")
		}
		s, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(s * float64(time.Second))
	}
	safeMode := func(a pb.SafeModeRequest_Action) {
		t.Helper()
		if _, err := r.Admin.SafeMode(t.Context(), &pb.SafeModeRequest{Caller: r.Who, Action: a}); err != nil {
			t.Fatal(err)
		}
	}
	collected := func(want int) {
		t.Helper()
		if deleted, _, err := n.CollectGarbage(t.Context()); err != nil || deleted != want {
			t.Errorf("%d were deleted, want %d; %v", deleted, want, err)
		}
	}
	clk.Advance(keep - time.Minute)
	collected(0)
	if late := overdue(); late != 0 {
		t.Errorf("%s late while the archive needs it", late)
	}
	safeMode(pb.SafeModeRequest_ACTION_ENTER)
	clk.Advance(3 * time.Hour)
	collected(0)
	if late := overdue(); late < time.Hour || late > 3*time.Hour-keep/8 {
		t.Errorf("%s late in safe mode, 3 h after the archive has no moment with it", late)
	}
	safeMode(pb.SafeModeRequest_ACTION_LEAVE)
	collected(1)
	if late := overdue(); late != 0 {
		t.Errorf("%s late, and nothing is left", late)
	}
}
