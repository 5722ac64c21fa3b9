package namenode

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	// expirePass is how many leases the monitor ends in one pass.
	expirePass = 100
	// passLock is after how much time under the namespace lock a pass of the
	// monitor ends: the lock is released after each record, and a record that is
	// begun below it ends below leasemanager.DefaultSlice.
	passLock = leasemanager.DefaultSlice * 3 / 5
)

// monitor ends leases past the hard limit. It sleeps first, does a bounded
// slice of work a pass, and never loops on a lease that it cannot end.
func (s *Server) monitor(ctx context.Context) error {
	t := time.NewTimer(s.leases.Sleep())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-s.reapWake:
		}
		var held time.Duration
		s.expire(ctx, &held)
		next := max(s.leases.Sleep(), time.Millisecond)
		if again := s.expireGranted(ctx, &held); again > 0 {
			next = min(next, again)
		}
		if held > 0 {
			s.metrics.passLock.Observe(held.Seconds())
		}
		t.Reset(next)
	}
}

// expire is one pass: each lease's files are closed by one record each, applied
// under one short lock a file; then one wait for the disk covers all.
func (s *Server) expire(ctx context.Context, held *time.Duration) {
	var ending []leasemanager.Ending
	var failed []bool
	var wait uint64
	for len(ending) < expirePass && *held < passLock && ctx.Err() == nil {
		some := s.leases.Expire(2) // the next files of one that has many, and another one
		if len(some) == 0 {
			break
		}
		for _, e := range some {
			txid, err := s.closeExpired(e, held)
			wait = max(wait, txid)
			ending, failed = append(ending, e), append(failed, err)
		}
	}
	if len(ending) == 0 {
		return
	}
	err := s.waitDurable(ctx, wait)
	for i, e := range ending {
		if failed[i] || err != nil {
			s.leases.NotEnded(e.LeaseID)
			continue
		}
		s.log.Info("lease past its hard limit ended", "lease", leaseID(e.LeaseID), "client", e.Holder.Client, "host", e.Holder.Host, "files", len(e.Files))
		s.leases.Ended(e.LeaseID)
	}
}

// closeExpired closes the files of a lease that is past its hard limit. What does
// not fit into the pass stays: the lease table hands it out again.
func (s *Server) closeExpired(e leasemanager.Ending, held *time.Duration) (wait uint64, failed bool) {
	for i, f := range e.Files {
		if i > 0 && *held >= passLock {
			break
		}
		txid, err := s.recoverExpired(namespace.InodeID(f.Inode), f.Epoch, held)
		wait = max(wait, txid)
		if err != nil {
			s.log.Error("an expired file could not be closed; it will be tried again", "inode", f.Inode, "cause", err)
			failed = true
		}
	}
	return wait, failed
}

func (s *Server) recoverExpired(inode namespace.InodeID, epoch uint64, held *time.Duration) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := s.cfg.Clock.Mono()
	defer func() { *held += s.cfg.Clock.Mono() - begin }()
	if err := s.checkActive(); err != nil {
		return 0, err
	}
	if err := s.checkSafeMode(); err != nil {
		return 0, err
	}
	f, open := s.tree.OpenFile(inode)
	if !open || f.Epoch != epoch {
		s.leases.Close(uint64(inode), epoch, "closed", nil)
		return 0, nil
	}
	r, err := s.apply(namespace.CallID{}, &namespace.OpRecover{Inode: inode, Reason: "hard limit"})
	return r.TxID, err
}

// expireGranted ends granted leases whose time is over, and deletes the files
// of those that have ended, both within what the rate allows. It returns when
// there is more to do, 0 if nothing waits for the rate.
func (s *Server) expireGranted(ctx context.Context, held *time.Duration) (again time.Duration) {
	// One by one: the end of each may take up to endFiles files with it, which
	// the next one then has to wait for.
	var wait uint64
	for n := 0; n < grantedPass && *held < passLock && s.reapTokens(1) > 0 && ctx.Err() == nil; n++ {
		ids := s.leases.ExpireGranted(1)
		if len(ids) == 0 {
			break
		}
		wait = max(wait, s.endExpired(ctx, ids[0], held))
	}
	if s.waitDurable(ctx, wait) != nil {
		return 0 // the namenode ends, and says why
	}
	for s.endedLeases() > 0 && *held < passLock && ctx.Err() == nil {
		n := s.reapTokens(reapSlice)
		if n <= 0 {
			break
		}
		r, wait, err := s.ownBegun(ctx, func() (namespace.Op, error) {
			if err := s.checkSafeMode(); err != nil || s.tree.EndedLeases() == 0 {
				return nil, err
			}
			return &namespace.OpReap{Limit: uint32(n)}, nil //nolint:gosec // at most reapSlice
		}, held)
		if werr := s.waitDurable(ctx, wait); err == nil {
			err = werr
		}
		if err != nil || r.Deleted == 0 {
			return time.Second
		}
		s.reapSpent(r.Deleted)
	}
	if *held >= passLock && s.reapTokens(1) > 0 {
		return time.Millisecond
	}
	if s.endedLeases() > 0 || s.reapTokens(1) == 0 {
		return 10 * time.Millisecond
	}
	return 0
}

// endExpired ends one granted lease whose time is over.
func (s *Server) endExpired(ctx context.Context, id uint64, held *time.Duration) (wait uint64) {
	r, wait, err := s.ownBegun(ctx, func() (namespace.Op, error) {
		if err := s.checkSafeMode(); err != nil {
			return nil, err
		}
		return orNil(s.tree.PlanEndLease(nil, namespace.LeaseID(id), namespace.LeaseExpired))
	}, held)
	if err != nil {
		s.leases.NotExpired(id)
		if ctx.Err() == nil && !errors.Is(err, fserror.Retry) {
			s.log.Error("a lease whose time is over could not be ended; it will be tried again", "lease", leaseID(id), "cause", err)
		}
		return 0
	}
	s.reapSpent(max(1, r.Deleted))
	return wait
}

// grantedPass is how many granted leases are ended before the disk is waited for.
const grantedPass = 1000

// reapSlice is how many files of ended leases one record deletes.
const reapSlice = 100

func (s *Server) endedLeases() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tree.EndedLeases()
}

// reapTokens is how many, of up to n, may be ended or deleted now.
func (s *Server) reapTokens(n int) int {
	return min(n, max(0, int(s.reaper.TokensAt(s.reapNow()))))
}

// reapSpent takes from the rate what was done; it may go below zero.
func (s *Server) reapSpent(n int) {
	for n > 0 {
		part := min(n, s.reaper.Burst())
		s.reaper.ReserveN(s.reapNow(), part)
		n -= part
	}
}

// reapNow is the clock of the rate: it must not follow the time of day.
func (s *Server) reapNow() time.Time { return time.Unix(0, 0).Add(s.cfg.Clock.Mono()) }
