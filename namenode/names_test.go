package namenode_test

import (
	"slices"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/leasehistory"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func asAnn(c *client.Config) { c.User = "ann" }

// Leases tell nobody names in a directory that he may search and not list: only whose lease it
// is. The history of a path that somebody names tells of that path.
func TestLeasesTellNoNamesOfOthers(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, ann := n.Raw(t, "root"), n.Raw(t, "ann")
	ann.Who.User = "ann"
	fs := n.Client(t, env.Named("reader"), asAnn)
	if _, err := root.NN.Mkdir(ctx, &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/box"), HasMode: true, Mode: 0o733}); err != nil {
		t.Fatal(err)
	}
	root.Create("/box/secret")
	ann.Create("/box/own")
	granted := map[*env.Raw]uint64{}
	for r, path := range map[*env.Raw]string{root: "/box/leased", ann: "/box/leased-own"} {
		g, err := r.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, TtlMs: 3600_000})
		if err == nil {
			_, err = r.NN.Create(ctx, &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Lease: g.GetId(), Close: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		granted[r] = g.GetId()
	}
	paths := func(r *env.Raw) (all []string) {
		t.Helper()
		out, err := r.NN.ListLeases(ctx, &pb.ListLeasesRequest{Caller: r.Who})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range out.GetLeases() {
			all = append(all, l.GetAttached()...)
			for _, f := range l.GetFiles() {
				all = append(all, f.GetPath())
			}
		}
		for _, id := range granted {
			out, err := r.NN.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{Caller: r.Who, Id: id, Files: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, out.GetFiles()...)
		}
		slices.Sort(all)
		return all
	}
	const hidden = "(in a directory that you may not list)"
	if got, want := paths(ann), []string{hidden, "/box/leased-own", "/box/leased-own", "/box/own"}; !slices.Equal(got, want) {
		t.Errorf("ann is told of %q, want %q", got, want)
	}
	if got, want := paths(root), []string{"/box/leased", "/box/leased", "/box/leased-own", "/box/leased-own", "/box/own", "/box/secret"}; !slices.Equal(got, want) {
		t.Errorf("root is told of %q, want %q", got, want)
	}
	for holder, want := range map[string][]string{"root": {"root  now", "root  now"}, "ann": {"ann  now", "ann /box/own now"}} { // one of a granted lease each
		if got := slices.Sorted(slices.Values(told(t, fs, leasehistory.Filter{Holder: holder}))); !slices.Equal(got, want) {
			t.Errorf("ann is told of %s: %q, want %q", holder, got, want)
		}
	}
	wantTold(t, fs, leasehistory.Filter{Path: "/box/secret"}, "root /box/secret now")
}
