package namenode

import (
	"context"
	"net/http"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/page"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// newPage makes the page for people.
func (s *Server) newPage(call serve.Call) http.Handler {
	p := page.New(page.Config{
		Clock: s.cfg.Clock, Call: call, Fetch: s.fetchForPage, Fleet: s.fleetForPage, Rates: s.shown,
		Soft: s.cfg.SoftLimit, Hard: s.cfg.HardLimit, Believes: s.cfg.trusts() != "", Hosts: page.Hosts(s.cfg.Listen, s.cfg.HTTP, s.cfg.Pages, s.cfg.Advertise, s.cfg.AdvertiseHTTP),
	})
	s.loops.Every("figures", page.Every, nil, p.Sample)
	return p
}

// fetchForPage reads a block that GetFile has told of, so the rooms are there.
func (s *Server) fetchForPage(ctx context.Context, b *pb.Block) ([]byte, error) {
	return s.blocks.Fetch(ctx, namespace.Block{
		Key: blockstore.Key{Term: b.GetTerm(), Seq: b.GetSeq()}, Stored: uint32(b.GetStoredLength()), Used: uint32(b.GetUsedLength()), CRC: b.GetCrc32C(), //nolint:gosec // as it was given
	})
}

// fleetForPage lists the namenodes.
func (s *Server) fleetForPage(ctx context.Context) ([]page.Member, error) {
	members, err := s.role.Members(ctx)
	out := make([]page.Member, len(members))
	for i, m := range members {
		out[i] = page.Member{Address: m.Address, Page: m.HTTP, Host: m.Host, PID: m.Pid, Version: m.Version, Active: m.Elected, JoinedMS: m.JoinedMS}
		if m.Report != nil {
			out[i].TxID, out[i].Unfit = &m.Report.TxID, m.Report.Unfit
		}
	}
	return out, err
}
