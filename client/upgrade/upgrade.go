// Package upgrade shows at which feature level a namespace is, and raises it.
//
// A namespace stays at the level at which it is while its namenodes are replaced by those of a
// new release, one by one, and can be taken back. When all of them have the new release, an
// operator raises the level, for good.
package upgrade

import (
	"context"
	"maps"
	"slices"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Status is at which level a namespace is, and what its namenodes can do.
type Status struct {
	Level     uint64
	Release   string // of leasefs, which raised it to that; empty: none has
	Newest    uint64 // the newest level that the active namenode knows
	Brings    string // what the levels up to that add
	Namenodes []Namenode
	// Clients are the sessions that are connected, the caller's own included, by the release of
	// leasefs that they say. Nil: the active namenode's release does not tell.
	Clients []Clients
}

// Clients are the sessions of clients of one release.
type Clients struct {
	Release  string // empty: they do not say, as clients before that was asked
	Sessions uint64
}

// Namenode is one of the namespace's namenodes.
type Namenode struct {
	Address string
	Release string
	Newest  uint64 // the newest level that it knows; 0: it does not answer
	Err     error  // why nothing is known of it
}

// Look asks the active namenode, which knows those that have joined, and each namenode of the
// client's configuration: the latter comes last if it has not joined. Permission: the
// caller is no superuser.
func Look(ctx context.Context, fs *client.FS) (s Status, err error) {
	if s, err = ask(ctx, fs, 0); err != nil {
		return s, err
	}
	configured, err := fs.Status(ctx)
	for _, c := range configured {
		joined := slices.ContainsFunc(s.Namenodes, func(n Namenode) bool { return n.Address == c.Address || n.Address == c.Listen })
		switch {
		case c.Err != nil && !joined:
			s.Namenodes = append(s.Namenodes, Namenode{Address: c.Address, Err: c.Err})
		case c.Err == nil && !joined && c.Role != "active":
			s.Namenodes = append(s.Namenodes, Namenode{Address: c.Address, Release: c.Version, Newest: max(c.NewestLevel, 1)})
		}
	}
	return s, err
}

// Finish raises the level to the newest that the active namenode knows, for good: older
// releases cannot serve the namespace any more. Nothing happens if it is there already.
// Unsupported: a namenode does not know that level. Unavailable: one of the
// client's configuration does not answer, and is not among those to be left out (without).
func Finish(ctx context.Context, fs *client.FS, without ...string) (Status, error) {
	s, err := Look(ctx, fs)
	if err != nil {
		return s, err
	}
	for _, n := range s.Namenodes {
		switch {
		case slices.Contains(without, n.Address):
		case n.Err != nil:
			return s, fserror.New(fserror.Unavailable, "upgrade", "", "namenode %s does not answer, and may be of an older release (%v): start it with the new one, or leave it out", n.Address, n.Err).Because(fserror.ReasonUpgrade)
		case n.Newest < s.Newest:
			return s, fserror.New(fserror.Unsupported, "upgrade", "", "namenode %s, of leasefs %s, knows feature levels up to %d, not %d: install the new release there, or stop it, before the level is raised", n.Address, n.Release, n.Newest, s.Newest).
				Because(fserror.ReasonUpgrade)
		}
	}
	return ask(ctx, fs, s.Newest)
}

func ask(ctx context.Context, fs *client.FS, raise uint64) (s Status, err error) {
	resp := new(pb.UpgradeResponse)
	err = lowlevel.Of(fs).Ask(ctx, "upgrade", "", pb.Admin_Upgrade_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
		return &pb.UpgradeRequest{Caller: c, RaiseTo: raise}
	}, resp)
	if fserror.ReasonOf(err) == fserror.ReasonOlder {
		err = fserror.New(fserror.Unsupported, "upgrade", "", "the active namenode is of a release that knows no feature levels, so the namespace is at level 1: hand over to one of the new release first")
	}
	s = Status{Level: resp.GetLevel(), Release: resp.GetRelease(), Newest: resp.GetNewestLevel(), Brings: resp.GetBrings()}
	for _, n := range resp.GetNamenodes() {
		s.Namenodes = append(s.Namenodes, Namenode{Address: n.GetAddress(), Release: n.GetRelease(), Newest: n.GetNewestLevel()})
	}
	for _, release := range slices.Sorted(maps.Keys(resp.GetClients())) {
		s.Clients = append(s.Clients, Clients{release, resp.GetClients()[release]})
	}
	return s, err
}
