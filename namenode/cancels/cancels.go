// Package cancels answers clients that do not want any more what a call of theirs has opened,
// since its answer was lost.
package cancels

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Opens answers calls. Its methods are safe for concurrent use.
type Opens struct {
	engine *engine.Engine
	asked  Asked
}

// Asked finds out who asks, and for which call.
type Asked func(context.Context, *pb.CancelOpenRequest) (*namespace.Call, namespace.CallID, error)

// New returns what answers by the engine.
func New(e *engine.Engine, asked Asked) *Opens { return &Opens{e, asked} }

// CancelOpen closes what a call has opened, as it is. A call that was not carried out is prevented: the
// request may be on its way still. So a record that changes nothing takes its number; by that, a
// namenode that takes over refuses it, too.
func (s *Opens) CancelOpen(ctx context.Context, r *pb.CancelOpenRequest) (*pb.MutateResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	id.Hash = tables.AnyRequest
	open, err := s.engine.Do(ctx, engine.Request{Call: c, ID: id, Plan: func(*engine.Tx) (namespace.Op, error) {
		return new(namespace.OpAges), nil
	}})
	if err != nil {
		return nil, err
	}
	if !open.Repeat {
		return &pb.MutateResponse{Txid: open.TxID}, nil
	}
	c = new(namespace.Call) // as of Close: the token is all the right that it takes
	out, err := s.engine.Do(ctx, engine.Request{Call: c, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		// The epoch is the number of the record that opened the file: no other call has this one.
		w := namespace.Writer{Inode: open.Inode, Epoch: open.TxID, Token: open.Token}
		op, err := namespace.PlanClose(tx.Tree, c, w, 0, nil, -1, namespace.KeepMTime, 0)
		if errors.Is(err, fserror.LeaseLost) {
			return nil, nil // answered once that is durable, as all that c has looked at
		}
		return engine.OrNil(op, err)
	}})
	if err != nil {
		return nil, err
	}
	return &pb.MutateResponse{Txid: out.TxID}, nil
}
