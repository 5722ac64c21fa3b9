package namenode_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/leasehistory"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/client/trash"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestPagesOfLongPaths: whatever lists paths answers in pages that fit into a message, however long
// the paths are. 530 paths of almost 32 KiB do not fit into one.
func TestPagesOfLongPaths(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	a := n.Client(t, env.Named("a"))
	below := strings.Repeat("/"+strings.Repeat("x", 250), 128)
	long := "/d" + below
	const many = 530
	each := func(do func(ctx context.Context, i int) error) {
		t.Helper()
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for i := range many {
			g.Go(func() error { return do(ctx, i) })
		}
		check(t, g.Wait())
	}
	counted := func(what string, got int, err error) {
		t.Helper()
		if err != nil || got < many {
			t.Errorf("%s: %d, want %d or more; %v", what, got, many, err)
		}
	}
	check(t, a.MkdirAll(ctx, long, 0o755), a.MkdirAll(ctx, "/e"+below, 0o755), a.Xattrs("/d").Set(ctx, trash.Xattr, []byte("1d"), client.XattrAny), snapshots.Allow(ctx, a, "/d"))
	must[string](t)(snapshots.Make(ctx, a, "/d", "s"))

	writers := make([]*client.Writer, many)
	file := func(i int) string { return fmt.Sprintf("%s/f%d", long, i) }
	each(func(ctx context.Context, i int) (err error) {
		writers[i], err = a.Create(ctx, file(i))
		return err
	})
	r := n.Raw(t, "raw")
	resp, err := r.NN.ListLeases(ctx, &pb.ListLeasesRequest{Caller: r.Who})
	if l := resp.GetLeases(); len(l) != 1 || l[0].GetFileCount() != many || len(l[0].GetFiles()) < 60 {
		t.Errorf("%d leases, with fewer files than there are; %v", len(l), err)
	}
	now := 0
	_, err = leasehistory.Read(ctx, a, leasehistory.Filter{Holder: "a"}, func(*leasehistory.Span) error { now++; return nil })
	if err != nil || now < 60 {
		t.Errorf("the history tells of %d files that are held now; %v", now, err)
	}
	each(func(_ context.Context, i int) error { return writers[i].Close() })
	history, cursor := 0, ""
	for more := true; more; more = cursor != "" {
		var page *pb.LeaseHistoryResponse
		page, err = r.NN.LeaseHistory(ctx, &pb.LeaseHistoryRequest{Caller: r.Who, Holder: "a", Limit: 1000, Cursor: cursor})
		history, cursor = history+len(page.GetSpans()), page.GetNextCursor()
	}
	counted("lease history", history, err)
	g, err := a.Leases().Grant(ctx, shortTTL, 0)
	check(t, err)
	each(func(ctx context.Context, i int) error { return a.Leases().Attach(ctx, g.ID, file(i)) })
	if resp, err = r.NN.ListLeases(ctx, &pb.ListLeasesRequest{Caller: r.Who}); err != nil || len(resp.GetLeases()) == 0 {
		t.Errorf("%d leases, %v", len(resp.GetLeases()), err)
	}
	ttl, err := r.NN.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{Caller: r.Who, Id: uint64(g.ID), Files: true})
	if len(ttl.GetFiles()) < 60 {
		t.Errorf("%d files of the lease are listed; %v", len(ttl.GetFiles()), err)
	}
	each(func(ctx context.Context, i int) error { return a.Leases().Detach(ctx, file(i)) })

	diff := 0
	err = snapshots.Diff(ctx, a, "/d", "s", "", func(*snapshots.Change) error { diff++; return nil })
	counted("snapshot diff", diff, err)
	each(func(ctx context.Context, i int) error { return a.Remove(ctx, file(i)) })
	kept := 0
	err = trash.List(ctx, a, trash.Filter{}, func(*trash.Entry) error { kept++; return nil })
	counted("trash", kept, err)

	each(func(ctx context.Context, i int) error {
		dir := fmt.Sprintf("/e%s/d%d", below, i)
		err := a.Mkdir(ctx, dir, 0o755)
		if err == nil {
			err = quota.Set(ctx, a, dir, 100, quota.None)
		}
		if err == nil {
			err = snapshots.Allow(ctx, a, dir)
		}
		return err
	})
	quotas := 0
	err = quota.List(ctx, a, func(*quota.Quota) error { quotas++; return nil })
	counted("quotas", quotas, err)
	dirs := 0
	err = snapshots.Dirs(ctx, a, func(snapshots.DirInfo) error { dirs++; return nil })
	counted("directories with snapshots", dirs, err)
}
