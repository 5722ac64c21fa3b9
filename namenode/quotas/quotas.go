// Package quotas answers calls about the quotas of directories (docs/adr/0039): it sets them, and
// tells what they have.
package quotas

import (
	"cmp"
	"context"
	"slices"

	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxPage is how many quotas one answer looks at.
const maxPage = 1000

// Calls answers calls. All fields are required; its methods are safe for concurrent use.
type Calls struct {
	Engine *engine.Engine
	// Caller finds out who asks, Asked also for which call.
	Caller func(context.Context, *pb.Caller) (*namespace.Call, error)
	Asked  func(context.Context, *pb.SetQuotaRequest) (*namespace.Call, namespace.CallID, error)
}

// SetQuota sets a quota: see namespace.PlanQuota.
func (s *Calls) SetQuota(ctx context.Context, r *pb.SetQuotaRequest) (*pb.MutateResponse, error) {
	c, id, err := s.Asked(ctx, r)
	if err != nil {
		return nil, err
	}
	out, err := s.Engine.DoAnswer(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanQuota(tx.Tree, c, calls.RefOf(r.GetAt()), quota.Limits{Names: asked(r.Names), Bytes: asked(r.Bytes)}))
	}})
	if err != nil {
		return nil, err
	}
	return &pb.MutateResponse{Txid: out.TxID}, nil
}

// asked is a limit as a request has it.
func asked(limit *int64) int64 {
	if limit == nil {
		return quota.Keep
	}
	return *limit
}

// GetQuota tells of the quotas in which something counts.
func (s *Calls) GetQuota(ctx context.Context, r *pb.GetQuotaRequest) (*pb.GetQuotaResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	resp := new(pb.GetQuotaResponse)
	err = s.Engine.View(ctx, c, func(tx *engine.Tx) error {
		a, err := tx.Tree.Stat(c, calls.RefOf(r.GetAt()))
		if err != nil {
			return err
		}
		above := namespace.QuotasAbove(tx.Tree, c, a.ID)
		*resp = pb.GetQuotaResponse{Quotas: told(tx.Tree, c, above), Own: len(above) > 0 && above[0].Dir == a.ID}
		return nil
	})
	return resp, err
}

// told is what is told of some quotas.
func told(t *namespace.Tree, c *namespace.Call, some []quota.Entry) (list []*pb.Quota) {
	dirs := make([]namespace.InodeID, len(some))
	for i, e := range some {
		dirs[i] = e.Dir
	}
	held := namespace.HeldBelow(t, c, dirs)
	for _, e := range some {
		path, _ := t.Path(e.Dir)
		list = append(list, &pb.Quota{Inode: uint64(e.Dir), Path: path, Names: e.Limits.Names, Bytes: e.Limits.Bytes, UsedNames: e.Use.Names, UsedBytes: e.Use.Bytes, SnapshotBytes: held[e.Dir]})
	}
	return list
}

// mostFull is how many of the fullest quotas are told.
const mostFull = 10

// Tally is how many quotas there are, and how many of them are nearly used up or more; those of
// directories that were deleted are not counted.
func (s *Calls) Tally() (all, full int) {
	s.Engine.Look(func(t *namespace.Tree) {
		all = tally(t, func(quota.Entry) { full++ })
	})
	return all, full
}

// Fullest are the fullest of the quotas that are nearly used up or more, at most ten, the fullest first.
func (s *Calls) Fullest() (fullest []*pb.Quota) {
	s.Engine.Look(func(t *namespace.Tree) {
		var top []quota.Entry
		tally(t, func(e quota.Entry) {
			i, _ := slices.BinarySearchFunc(top, e, func(a, b quota.Entry) int {
				return cmp.Or(cmp.Compare(b.Ratio(), a.Ratio()), cmp.Compare(a.Dir, b.Dir))
			})
			if i < mostFull {
				top = slices.Insert(top, i, e)
				top = top[:min(len(top), mostFull)]
			}
		})
		fullest = told(t, nil, top)
	})
	return fullest
}

func tally(t *namespace.Tree, full func(quota.Entry)) int {
	return namespace.Quotas(t, nil).Tally(func(dir namespace.InodeID) bool {
		_, there := t.Path(dir)
		return there
	}, full)
}

// ListQuotas tells of a page of all quotas, but not of directories that the caller may not stat.
func (s *Calls) ListQuotas(ctx context.Context, r *pb.ListQuotasRequest) (*pb.ListQuotasResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	limit := int(r.GetLimit())
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	resp := new(pb.ListQuotasResponse)
	err = s.Engine.View(ctx, c, func(tx *engine.Tx) error {
		last, looked, size := namespace.InodeID(r.GetAfter()), 0, 0
		*resp = pb.ListQuotasResponse{}
		var some []quota.Entry
		namespace.Quotas(tx.Tree, c).From(last+1, func(e quota.Entry) bool {
			if looked == limit || size >= calls.PageBytes {
				resp.Next = uint64(last)
				return false
			}
			looked++
			last = e.Dir
			if _, err := tx.Tree.Stat(c, namespace.Inode(e.Dir)); err == nil {
				path, _ := tx.Tree.Path(e.Dir)
				size += len(path)
				some = append(some, e)
			}
			return true
		})
		resp.Quotas = told(tx.Tree, c, some)
		return nil
	})
	return resp, err
}
