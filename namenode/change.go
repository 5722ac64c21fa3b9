package namenode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/journal"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxBacklog is how many bytes may wait for the disk before new changes are
// told to retry.
const maxBacklog = 32 << 20

// applied is the outcome of one change.
type applied struct {
	namespace.CallResult
	repeat bool // the call had happened before; nothing was done now
	noop   bool // there was nothing to change
}

// planFunc checks a request against the tree and makes its record; it runs
// under the namespace lock and changes nothing. A nil op without an error means
// that there is nothing to do.
type planFunc func() (namespace.Op, error)

// change carries out one request that changes something:
//
//	known call? → plan (validate) → apply → journal (append) → wait until durable
//
// all but the wait under the namespace lock. A call that happened before gets
// its first answer. An error, too, is answered only when what it was seen from
// is durable.
func (s *Server) change(ctx context.Context, id namespace.CallID, c *namespace.Call, grows bool, plan planFunc) (applied, error) {
	out, wait, err := s.begin(id, c, grows, plan)
	if werr := s.waitDurable(ctx, wait); werr != nil {
		return applied{}, werr
	}
	return out, err
}

// begin is change without the wait: the answer may be given when the txid that
// it returns is durable.
func (s *Server) begin(id namespace.CallID, c *namespace.Call, grows bool, plan planFunc) (out applied, wait uint64, err error) {
	if grows {
		if err := s.pressure.refuse(); err != nil {
			return out, 0, err
		}
	}
	s.mu.Lock()
	out, err = s.changeLocked(id, plan)
	s.mu.Unlock()
	wait = out.TxID
	if err != nil || out.noop {
		wait = c.AsOf()
	}
	return out, wait, err
}

func (s *Server) changeLocked(id namespace.CallID, plan planFunc) (applied, error) {
	if err := s.checkActive(); err != nil {
		return applied{}, err
	}
	if id.Seq != 0 {
		r, found, err := s.tree.CallResult(id)
		if err != nil || found {
			return applied{CallResult: r, repeat: found}, err
		}
	}
	if err := s.checkSafeMode(); err != nil {
		return applied{}, err
	}
	if s.journal.Backlog() > maxBacklog {
		return applied{}, &fserror.Error{Kind: fserror.Retry, Message: "overloaded: the journal's disk is behind", RetryAfter: 50 * time.Millisecond}
	}
	op, err := plan()
	if err != nil {
		return applied{}, err
	}
	if op == nil {
		return applied{noop: true}, nil
	}
	r, err := s.apply(id, op)
	return applied{CallResult: callResult(r, op)}, err
}

// own carries out a change of the namenode's own. It is allowed in safe mode:
// whoever plans it says whether it should be.
func (s *Server) own(ctx context.Context, plan planFunc) (namespace.Result, error) {
	s.mu.Lock()
	op, err := plan()
	var r namespace.Result
	if err == nil && op != nil {
		r, err = s.apply(namespace.CallID{}, op)
	}
	s.mu.Unlock()
	if err != nil || op == nil {
		return r, err
	}
	return r, s.waitDurable(ctx, r.TxID)
}

// apply gives a planned op the next txid, applies and journals it, and tells
// the lease table and those who wait. The caller holds mu.
func (s *Server) apply(id namespace.CallID, op namespace.Op) (namespace.Result, error) {
	last, lastMS := s.tree.Last()
	e := namespace.Entry{TxID: last + 1, Time: max(s.cfg.Clock.Wall().UnixMilli(), lastMS), Call: id, Op: op}
	typ, body := namespace.EncodeOp(nil, id, op)
	s.tree.SetDurable(s.journal.Durable())
	r, err := s.tree.Apply(e)
	if err != nil {
		// Planned under the same lock, so this is a fault of ours. Nothing was
		// changed and nothing is journalled.
		s.log.Error("a planned record does not apply", "op", fmt.Sprintf("%T", op), "txid", e.TxID, "cause", err)
		return r, fserror.Wrap(fserror.Internal, "", "", err)
	}
	if err := s.journal.Append(journal.Record{TxID: e.TxID, Time: e.Time, Type: typ, Body: body}); err != nil {
		s.stepDown(fmt.Errorf("the journal cannot be written: %w", err))
		return r, s.checkActive()
	}
	s.follow(r)
	return r, nil
}

// follow brings the lease table and the waiters up to a record. The order of
// records is the order of these calls, since both happen under mu.
func (s *Server) follow(r namespace.Result) {
	var by *leasemanager.Holder
	if r.Opened != nil {
		h := lmHolder(r.Opened.Holder)
		by = &h
	}
	for _, f := range r.Closed {
		if f.Reason != leasemanager.ReasonClosed {
			s.lost.add(f, by)
			s.sessions.tell(leasemanager.SessionID(f.Session), lossOf(r.TxID, f, by))
		}
		if by != nil && r.Opened.Inode == f.Inode {
			continue // Open below replaces the holder and tells him
		}
		s.leases.Close(uint64(f.Inode), f.Epoch, f.Reason, by)
		s.waits.freed(f.Inode)
	}
	if f := r.Opened; f != nil {
		s.leases.Open(lmHolder(f.Holder), uint64(f.Inode), f.Epoch)
	}
	if r.Inode != 0 {
		s.waits.changed(r.Inode)
	}
}

// waitDurable waits until the record txid is on disk. If that cannot be, the
// outcome of the call is not known and the caller is told so.
func (s *Server) waitDurable(ctx context.Context, txid uint64) error {
	if txid == 0 || s.journal.Durable() >= txid {
		return nil
	}
	err := s.journal.WaitDurable(ctx, txid)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrClosed):
		s.stepDown(fmt.Errorf("the journal cannot be written: %w", err))
		return s.checkActive()
	}
	return err
}

// read runs fn under the read lock and waits until what it looked at is
// durable, whether fn succeeded or not.
func (s *Server) read(ctx context.Context, c *namespace.Call, fn func() error) error {
	s.mu.RLock()
	if err := s.checkActive(); err != nil {
		s.mu.RUnlock()
		return err
	}
	err := fn()
	s.mu.RUnlock()
	if werr := s.waitDurable(ctx, c.AsOf()); werr != nil {
		return werr
	}
	return err
}

// snapshot returns a clone of the tree of this moment, once it is durable. For
// work that looks at much of the tree without holding up the others.
func (s *Server) snapshot(ctx context.Context) (*namespace.Tree, error) {
	s.mu.Lock()
	if err := s.checkActive(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	t := s.tree.Clone()
	s.mu.Unlock()
	last, _ := t.Last()
	return t, s.waitDurable(ctx, last)
}

func (s *Server) checkSafeMode() error {
	if !s.tree.SafeMode() {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Message: "the namenode is in safe mode; an operator ends it with: leasefs admin safemode off", RetryAfter: time.Second}
}

// callID takes a request's call id and hashes the rest of the request, so that
// a number used twice for different requests is noticed.
func callID(id *pb.CallId, req proto.Message, clearCall func()) (namespace.CallID, error) {
	var out namespace.CallID
	if id == nil || id.GetSeq() == 0 || len(id.GetSession()) != len(out.Session) {
		return out, fserror.New(fserror.InvalidArgument, "", "", "the request has no call id (16 bytes of session and a number from 1 on)")
	}
	if id.GetAcked() >= id.GetSeq() {
		return out, fserror.New(fserror.InvalidArgument, "", "", "call %d is said to be answered already (acked %d)", id.GetSeq(), id.GetAcked())
	}
	copy(out.Session[:], id.GetSession())
	out.Seq, out.Acked = id.GetSeq(), id.GetAcked()
	clearCall()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return out, fserror.Wrap(fserror.InvalidArgument, "", "", err)
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(string(req.ProtoReflect().Descriptor().Name()))
	_, _ = d.Write(raw)
	out.Hash = d.Sum64()
	return out, nil
}
