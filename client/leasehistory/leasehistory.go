// Package leasehistory tells who held files and granted leases, from when to when, and why
// that ended, as far back as the namenode keeps it.
package leasehistory

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Filter says what is looked for: exactly one of Path, Holder and Lease.
type Filter struct {
	// Path is clean and absolute: of the file that is there, whatever its path was, and of
	// files that had that path when they were closed.
	Path   string
	Holder string    // a client name, or a session as lease lists show it
	Lease  string    // the id or the name of a granted lease
	Since  time.Time // nothing that ended before; zero: all that is kept
	Limit  int       // of spans; 0: all
}

// Span is a time for which somebody held a file or a granted lease.
type Span struct {
	TxID uint64 // of the change that ended it; 0: it has not ended
	// Unknown: of what ended in that time, nothing is known, since the namenode that
	// answers was away. All but the times and TxID are zero.
	Unknown bool

	Lease   string // the id of the granted lease; empty: it is about a file
	Name    string // of that lease, if it has one
	Path    string // of the file when it was closed, or now; empty: the caller may not know it, or its directory was deleted
	Inode   uint64
	Epoch   uint64
	Holder  client.Holder // Since and Idle are zero
	Session string        // of the holder of a file

	From, To time.Time // by the namenode's clock, to the millisecond; To is zero if it has not ended
	// Why it ended: closed, taken over, deleted, replaced, soft limit, hard limit, forced,
	// same client, repair, lease expired, lease revoked; of a granted lease, expired or revoked.
	Why string
	By  *client.Holder // who ended it, if another did and that is known: user, client and host
}

// About is what an answer says besides.
type About struct {
	KeptFrom time.Time // what ended before is not kept
	Problem  string    // why the latest ends may be missing; empty: they are there
}

// Read calls fn for what is held now, and then for what was, the last end first, until fn
// returns an error, which it returns. Errors besides: of kind Unsupported, the namenode keeps
// no history; InvalidArgument; Permission (a directory on the way to Path).
func Read(ctx context.Context, fs *client.FS, f Filter, fn func(*Span) error) (about About, err error) {
	req := &pb.LeaseHistoryRequest{Path: f.Path, Holder: f.Holder, Lease: f.Lease, Limit: 1000}
	if !f.Since.IsZero() {
		req.SinceUnixMs = f.Since.UnixMilli()
	}
	n := 0
	for {
		if f.Limit > 0 {
			req.Limit = int32(min(f.Limit-n, 1000)) //nolint:gosec // it fits
		}
		resp := new(pb.LeaseHistoryResponse)
		err := lowlevel.Of(fs).Ask(ctx, "lease history", f.Path, pb.Namenode_LeaseHistory_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
			req.Caller = c
			return req
		}, resp)
		if err != nil {
			return about, err
		}
		about = About{time.UnixMilli(resp.GetKeptFromUnixMs()), resp.GetProblem()}
		for _, m := range resp.GetSpans() {
			if err := fn(spanOf(m)); err != nil {
				return about, err
			}
			if n++; n == f.Limit {
				return about, nil
			}
		}
		if req.Cursor = resp.GetNextCursor(); req.Cursor == "" {
			return about, nil
		}
	}
}

func spanOf(m *pb.LeaseSpan) *Span {
	s := &Span{
		TxID: m.GetTxid(), Unknown: m.GetHolder() == nil, Lease: m.GetLease(), Name: m.GetName(), Path: m.GetPath(), Inode: m.GetInode(), Epoch: m.GetEpoch(),
		Session: hex.EncodeToString(m.GetHolder().GetSession()), From: time.UnixMilli(m.GetFromUnixMs()), Why: m.GetReason(),
	}
	if s.TxID != 0 {
		s.To = time.UnixMilli(m.GetToUnixMs())
	}
	if h := m.GetHolder(); h != nil {
		s.Holder = wire.Holder(h)
	}
	if m.GetBy() != nil {
		by := wire.Holder(m.GetBy())
		s.By = &by
	}
	return s
}
