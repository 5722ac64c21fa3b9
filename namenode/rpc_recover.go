package namenode

import (
	"context"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// mayRecover says under which reason an open file may be closed by somebody
// else than its writer: a reason, "" if there is nothing to do, or an error.
type mayRecover func(f namespace.OpenFile, by namespace.Holder) (reason string, err error)

// recoverFile closes a file by the one record of recovery, if decide
// lets it. A file that is closed already is no error.
func (s *writers) recoverFile(ctx context.Context, r request, at *pb.Ref, decide mayRecover) (out engine.Outcome, length int64, err error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return out, 0, err
	}
	h, err := s.holder(r.GetCaller())
	if err != nil {
		return out, 0, err
	}
	out, err = s.engine.Do(ctx, engine.Request{Call: c, ID: id, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		a, err := namespace.PlanOpen(tx.Tree, c, ref(at), false)
		if err != nil {
			return nil, err
		}
		length = a.Length
		if a.Open == nil {
			return nil, nil
		}
		reason, err := decide(*a.Open, h)
		if err != nil || reason == "" {
			return nil, err
		}
		return &namespace.OpRecover{Inode: a.ID, Reason: reason}, nil
	}})
	if !out.Noop {
		length = out.Length
	}
	return out, length, err
}

// CloseAbandoned closes a file that an earlier process of the same user and
// client name left open. Closed already is no error.
func (s *writers) CloseAbandoned(ctx context.Context, r *pb.CloseAbandonedRequest) (*pb.CloseResponse, error) {
	_, length, err := s.recoverFile(ctx, r, r.GetAt(),
		func(f namespace.OpenFile, by namespace.Holder) (string, error) {
			v, st := s.leases.Take(f, by)
			mine := f.Holder.User == by.User && f.Holder.Client == by.Client
			if mine && (v == leasemanager.Takeable || v == leasemanager.SameSession) {
				return "same client", nil
			}
			return "", s.held(f, st)
		})
	if err != nil {
		return nil, err
	}
	return &pb.CloseResponse{Length: length}, nil
}

// Recover closes an abandoned file at its flushed length under a new epoch.
func (s *writers) Recover(ctx context.Context, r *pb.RecoverRequest) (*pb.RecoverResponse, error) {
	out, length, err := s.recoverFile(ctx, r, r.GetAt(),
		func(f namespace.OpenFile, by namespace.Holder) (string, error) {
			if r.GetEpoch() != 0 && r.GetEpoch() != f.Epoch {
				return "", nil
			}
			v, st := s.leases.Take(f, by)
			switch {
			case v == leasemanager.Takeable || v == leasemanager.SameSession:
				return "soft limit", nil
			case r.GetForce():
				return "forced", nil
			}
			return "", s.held(f, st)
		})
	if err != nil {
		return nil, err
	}
	if out.Noop {
		return &pb.RecoverResponse{Length: length}, nil
	}
	return &pb.RecoverResponse{WasOpen: true, Length: length, Epoch: out.TxID}, nil
}
