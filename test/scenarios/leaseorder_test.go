package scenarios_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Leases are listed in the exact order of their renewals, page by page, by the clock of
// the first page: writers' and granted ones, whatever is renewed meanwhile.
func TestLeasesAreListedInOrder(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	raw, fs := n.Raw(t, "looker"), n.Client(t, func(c *client.Config) { c.Client = "asker" })
	type lease struct {
		id    string
		renew func()
	}
	var all []lease
	for i := range 4 {
		clk.Advance(time.Millisecond)
		name := fmt.Sprintf("writer-%d", i)
		r := n.Raw(t, name)
		w := r.Create("/" + name)
		length := int64(0)
		l := leases(t, fs, name)
		if len(l) != 1 {
			t.Fatalf("%s has %d leases", name, len(l))
		}
		all = append(all, lease{l[0].ID, func() {
			must(t, r.Flush(w, length, "x"))
			length++
		}})
		clk.Advance(time.Millisecond)
		// The later one is granted, the sooner it would end.
		g, err := fs.Leases().Grant(t.Context(), 50*time.Second-time.Duration(i)*time.Second, 0)
		must(t, err)
		all = append(all, lease{g.ID.String(), func() { keepAlive(t, raw, g.ID) }})
		for range i {
			must(t, fs.WriteFile(t.Context(), fmt.Sprintf("/of-%s-%d", g.ID, i+len(all)+int(raw.TxID())), nil, client.WithLease(g.ID))) //nolint:gosec // a name
		}
	}
	var want []string
	for _, i := range []int{6, 1, 4, 0, 7, 2, 5, 3} {
		clk.Advance(time.Millisecond)
		all[i].renew()
		want = append(want, all[i].id)
	}
	clk.Advance(time.Second)
	list := func(order pb.LeaseOrder, limit int32, between func()) (got []*pb.Lease) {
		t.Helper()
		req := &pb.ListLeasesRequest{Caller: raw.Who, Order: order, Limit: limit}
		for {
			page, err := raw.NN.ListLeases(t.Context(), req)
			must(t, err)
			got = append(got, page.GetLeases()...)
			if req.Cursor = page.GetNextCursor(); req.Cursor == "" {
				return got
			}
			if len(page.GetLeases()) != int(limit) {
				t.Fatalf("a page of %d, not %d", len(page.GetLeases()), limit)
			}
			between()
		}
	}
	ids := func(list []*pb.Lease) (ids []string) {
		for _, l := range list {
			ids = append(ids, l.GetId())
		}
		return ids
	}
	for limit := int32(1); limit < 10; limit++ {
		got := list(pb.LeaseOrder_LEASE_ORDER_IDLE, limit, func() { clk.Advance(time.Millisecond) })
		if !slices.Equal(ids(got), want) {
			t.Fatalf("in pages of %d:\n got %v\nwant %v", limit, ids(got), want)
		}
		if !slices.IsSortedFunc(got, func(a, b *pb.Lease) int {
			return int(b.GetHolder().GetIdleMs() - a.GetHolder().GetIdleMs())
		}) {
			t.Errorf("in pages of %d the idle times are not in that order: %v", limit, got)
		}
	}
	var got []string
	for l, err := range fs.Leases().List(t.Context(), client.LeaseFilter{Order: client.LeasesByIdle, Limit: 3}) {
		must(t, err)
		got = append(got, l.ID)
	}
	if !slices.Equal(got, want[:3]) {
		t.Errorf("the first 3: %v, want %v", got, want[:3])
	}
	if got := list(pb.LeaseOrder_LEASE_ORDER_REMAINING, 3, func() {}); !slices.IsSortedFunc(got, func(a, b *pb.Lease) int {
		return int(a.GetRemainingMs() - b.GetRemainingMs())
	}) || len(got) != 8 {
		t.Errorf("by what remains: %v", got)
	}
	count := func(l *pb.Lease) int { return int(l.GetFileCount() + l.GetAttachedCount()) } //nolint:gosec // few
	if got := list(pb.LeaseOrder_LEASE_ORDER_FILES, 3, func() {}); !slices.IsSortedFunc(got, func(a, b *pb.Lease) int { return count(b) - count(a) }) || len(got) != 8 || count(got[0]) != 3 {
		t.Errorf("by files: %v", got)
	}

	// A lease that is renewed between two pages comes last, and none is left out.
	renewed := all[3]
	again := ids(list(pb.LeaseOrder_LEASE_ORDER_IDLE, 3, func() {
		clk.Advance(time.Millisecond)
		renewed.renew()
	}))
	if want := append(slices.Clone(want[:7]), renewed.id); !slices.Equal(again, want) {
		t.Errorf("renewed meanwhile:\n got %v\nwant %v", again, want)
	}
	if _, err := raw.NN.ListLeases(t.Context(), &pb.ListLeasesRequest{Caller: raw.Who, Order: 99}); err == nil {
		t.Error("an unknown order was taken")
	}
}
