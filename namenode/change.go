package namenode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/leasemanager/readlease"
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
//	known call? → admit → plan (validate) → apply → journal (append) → wait until durable
//
// all but the wait under the namespace lock. A call that happened before gets
// its first answer. An error, too, is answered only when what it was seen from
// is durable.
func (s *Server) change(ctx context.Context, id namespace.CallID, c *namespace.Call, grows bool, plan planFunc) (applied, error) {
	out, wait, err := s.begin(ctx, id, c, grows, plan)
	if werr := s.waitDurable(ctx, wait); werr != nil {
		return applied{}, werr
	}
	return out, err
}

// begin is change without the wait: the answer may be given when the txid that
// it returns is durable.
func (s *Server) begin(ctx context.Context, id namespace.CallID, c *namespace.Call, grows bool, plan planFunc) (out applied, wait uint64, err error) {
	err = s.exclusive(ctx, func(r *recall) error {
		return s.withOwner(ctx, c, func() (err error) {
			out, err = s.changeLocked(ctx, id, c, grows, plan, r)
			return err
		})
	})
	wait = out.TxID
	if err != nil || out.noop {
		wait = c.AsOf()
	}
	return out, wait, err
}

func (s *Server) changeLocked(ctx context.Context, id namespace.CallID, c *namespace.Call, grows bool, plan planFunc, recall *recall) (applied, error) {
	if err := s.checkActive(); err != nil {
		return applied{}, err
	}
	if id.Seq != 0 {
		r, found, err := s.tree.CallResult(id)
		if err != nil || found {
			return applied{CallResult: r, repeat: found}, err
		}
	}
	if err := s.tree.CheckPlaces(c); err != nil {
		return applied{}, err
	}
	// What has no id (AppendTail, Commit) is known as repeated only to its plan.
	if id.Seq != 0 {
		if err := s.admit(c, grows); err != nil {
			return applied{}, err
		}
	}
	remembered, err := s.remembering(ctx, c, id)
	if err != nil {
		return applied{}, err
	}
	op, err := plan()
	if err != nil {
		return applied{}, err
	}
	if op == nil {
		return applied{noop: true}, nil
	}
	if id.Seq == 0 {
		if err := s.admit(c, grows); err != nil {
			return applied{}, err
		}
	}
	r, err := recall.apply(id, op)
	if err == nil {
		remembered()
	}
	return applied{CallResult: callResult(r, op)}, err
}

// admit refuses what cannot be taken on now: in safe mode, when room is short,
// and when the disk is behind. The caller holds mu.
func (s *Server) admit(c *namespace.Call, grows bool) error {
	if err := s.refuseInSafeMode(c); err != nil {
		return err
	}
	if grows {
		if err := s.pressure.refuse(); err != nil {
			return err
		}
	}
	if err := s.overKept(); err != nil {
		return err
	}
	if s.journal.Backlog() > maxBacklog {
		return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: the journal's disk is behind", RetryAfter: 50 * time.Millisecond}
	}
	return nil
}

// own carries out a change of the namenode's own. It is allowed in safe mode:
// whoever plans it says whether it should be. If there was nothing to do, what
// says so is durable when it returns.
func (s *Server) own(ctx context.Context, plan planFunc) (r namespace.Result, err error) {
	var wait uint64
	err = s.exclusive(ctx, func(recall *recall) error {
		op, err := plan()
		if err != nil || op == nil {
			wait, _ = s.tree.Last()
			return err
		}
		r, err = recall.apply(namespace.CallID{}, op)
		wait = r.TxID
		return err
	})
	if werr := s.waitDurable(ctx, wait); err == nil {
		err = werr
	}
	return r, err
}

// exclusive runs fn under the namespace lock. If fn has to wait until sessions
// have given up what they cached, it runs again after that, and has to look at
// everything again. A panic in fn may leave the state half changed, so it ends
// the reign.
func (s *Server) exclusive(ctx context.Context, fn func(*recall) error) error {
	given, _ := ctx.Value(givenUpKey{}).(*readlease.GivenUp)
	r := recall{s: s, given: given}
	defer r.done()
	for {
		err := s.locked(func() error { return fn(&r) })
		if !errors.Is(err, errCached) {
			return err
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

func (s *Server) locked(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := false
	defer func() {
		if !whole {
			s.stepDown(errors.New("a fault of the program in the middle of a change; its stack is in this log"))
		}
	}()
	err := fn()
	whole = true
	return err
}

// apply is for recall.apply. It gives a planned op the next txid, applies and journals it, and tells
// the lease table and those who wait. The caller holds mu.
func (s *Server) apply(id namespace.CallID, op namespace.Op) (namespace.Result, error) {
	if s.over.Load() { // also the namenode's own work
		return namespace.Result{}, s.checkActive()
	}
	if err := s.renewWriter(op); err != nil {
		return namespace.Result{}, err
	}
	last, lastMS := s.tree.Last()
	e := namespace.Entry{TxID: last + 1, Time: max(s.time.now(), lastMS), Call: id, Op: op}
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
	switch op := op.(type) {
	case *namespace.OpCreateAs:
		s.drafts.made(id.Session, &op.OpCreate)
	case *namespace.OpCreate:
		s.drafts.made(id.Session, op)
	}
	s.follow(r)
	s.tellRemovals(op, r.Inode)
	s.keepEvents(e, r.Events)
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
	if l := r.Granted; l != nil {
		s.granted.Hold(1, owns(l.Owner.User))
		s.leases.Grant(leaseOwner(*l), uint64(l.ID), time.Duration(l.TTL)*time.Millisecond)
	}
	for _, id := range r.Forgotten {
		s.results.Give(1, s.resultsOf[id])
		delete(s.resultsOf, id)
	}
	if r.LeaseEnded {
		s.granted.Give(1, owns(r.LeaseOwner))
		s.leases.Revoke(uint64(r.Lease))
		s.keepers.ended(uint64(r.Lease), r.Reason, r.TxID)
	}
}

// waitDurable waits until the record txid is on disk. If that cannot be, the
// outcome of the call is not known and the caller is told so.
func (s *Server) waitDurable(ctx context.Context, txid uint64) error {
	if txid == 0 || s.journal.Durable() >= txid {
		return s.checkWindow()
	}
	err := s.journal.WaitDurable(ctx, txid)
	switch {
	case err == nil:
		return s.checkWindow()
	case errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrClosed):
		s.stepDown(fmt.Errorf("the journal cannot be written: %w", err))
		return s.checkActive()
	}
	return err
}

// read runs fn under the read lock and waits until what it looked at is
// durable, whether fn succeeded or not.
func (s *Server) read(ctx context.Context, c *namespace.Call, fn func() error) error {
	err := s.rlocked(func() error {
		if err := s.tree.CheckPlaces(c); err != nil {
			return err
		}
		return fn()
	})
	if werr := s.waitDurable(ctx, c.AsOf()); werr != nil {
		return werr
	}
	return err
}

func (s *Server) rlocked(fn func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.checkActive(); err != nil {
		return err
	}
	return fn()
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

// checkSafeMode refuses the namenode's own work in safe mode.
func (s *Server) checkSafeMode() error { return s.refuseInSafeMode(nil) }

// refuseInSafeMode refuses a request, which has then seen the mode.
func (s *Server) refuseInSafeMode(c *namespace.Call) error {
	if !s.tree.InSafeMode(c) {
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
