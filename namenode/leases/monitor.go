package leases

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

const (
	// expirePass is how many leases the monitor ends in one pass.
	expirePass = 100
	// passLock is after how much time under the namespace lock a pass of the
	// monitor ends: the lock is released after each record, and a record that is
	// begun below it ends below leasemanager.DefaultSlice.
	passLock = leasemanager.DefaultSlice * 3 / 5
)

// monitor ends leases past the hard limit and granted leases whose time is over,
// and removes the files of ended ones. What an end changes may be kept by
// sessions: then it is asked for, and the end is set aside and tried again while
// others are done, so that a session that does not answer holds up nothing but the
// ends of what it keeps. It is for one goroutine.
type monitor struct {
	*Table
	held  time.Duration // under the namespace lock, in this pass
	aside map[end]*aside
}

// end is what the monitor tries as a whole: the end of a granted lease, the
// deletion of files of one that has ended, or the closing of a file. The other
// fields are zero.
type end struct {
	lease namespace.LeaseID
	reap  namespace.LeaseID
	inode namespace.InodeID
	epoch uint64
}

// aside is an end that has to wait.
type aside struct {
	recall engine.Recall
	tried  time.Duration // when it was due last
}

const (
	// maxAside is how many ends are set aside. What others would have to wait for
	// is asked for and they are tried again, too, but sessions may keep it again.
	maxAside = 1000
	// isolatedSleep is how soon a namenode that does not know whether it is active
	// looks again.
	isolatedSleep = 100 * time.Millisecond
	// asideSleep is how soon the monitor comes back to what is set aside.
	asideSleep = 10 * time.Millisecond
	// asideKept is for how long what an end changes cannot be kept by anybody when
	// the end is not due any more: its holder was heard of again.
	asideKept = 5 * time.Second
)

// Watch ends leases until the context ends. It sleeps first, does a bounded slice of work a pass,
// and never loops on a lease that it cannot end.
func (t *Table) Watch(ctx context.Context) error {
	m := monitor{Table: t, aside: make(map[end]*aside)}
	defer m.release(func(*aside) bool { return true })
	timer := time.NewTimer(t.Sleep())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-t.wake:
		}
		timer.Reset(m.pass(ctx))
	}
}

// pass returns how long the monitor may sleep after it.
func (m *monitor) pass(ctx context.Context) time.Duration {
	if m.Engine.Active() != nil {
		return isolatedSleep // nothing may end before it is known who is active
	}
	m.held = 0
	m.expire(ctx)
	next := max(m.Sleep(), time.Millisecond)
	if again := m.expireGranted(ctx); again > 0 {
		next = min(next, again)
	}
	if m.held > 0 {
		m.ObservePass(m.held)
	}
	before := m.Clock.Mono() - asideKept
	m.release(func(a *aside) bool { return a.tried < before })
	if len(m.aside) > 0 {
		next = min(next, asideSleep)
	}
	return next
}

// release gives up what is set aside and is so.
func (m *monitor) release(is func(*aside) bool) {
	for e, a := range m.aside {
		if is(a) {
			a.recall.Done()
			delete(m.aside, e)
		}
	}
}

// failed logs why something did not end, unless that is as it should be.
func (m *monitor) failed(ctx context.Context, err error, what string, args ...any) {
	if ctx.Err() == nil && !errors.Is(err, engine.ErrCached) && !errors.Is(err, fserror.Retry) {
		m.Log.Error(what+"; it will be tried again", append(args, "cause", err)...)
	}
}

// expire ends leases past the hard limit: each one's files are closed by one
// record each, applied under one short lock a file; then one wait for the disk
// covers all.
func (m *monitor) expire(ctx context.Context) {
	t := m.Table
	var ending []leasemanager.Ending
	var failed []bool
	var wait uint64
	for len(ending) < expirePass && m.held < passLock && ctx.Err() == nil {
		some := t.Expire(2) // the next files of one that has many, and another one
		if len(some) == 0 {
			break
		}
		for _, e := range some {
			txid, err := m.closeExpired(ctx, e)
			wait = max(wait, txid)
			ending, failed = append(ending, e), append(failed, err)
		}
	}
	if len(ending) == 0 {
		return
	}
	err := t.Engine.WaitDurable(ctx, wait)
	for i, e := range ending {
		if failed[i] || err != nil {
			t.NotEnded(e.LeaseID)
			continue
		}
		t.Log.Info("lease past its hard limit ended", "lease", Name(e.LeaseID), "client", e.Holder.Client, "host", e.Holder.Host, "files", len(e.Files))
		t.Ended(e.LeaseID)
	}
}

// closeExpired closes the files of a lease that is past its hard limit. What does
// not fit into the pass stays: the lease table hands it out again.
func (m *monitor) closeExpired(ctx context.Context, e leasemanager.Ending) (wait uint64, failed bool) {
	for i, f := range e.Files {
		if i > 0 && m.held >= passLock {
			break
		}
		txid, err := m.recoverExpired(namespace.InodeID(f.Inode), f.Epoch)
		wait = max(wait, txid)
		if err != nil {
			m.failed(ctx, err, "an expired file could not be closed", "inode", f.Inode)
			failed = true
		}
	}
	return wait, failed
}

func (m *monitor) recoverExpired(inode namespace.InodeID, epoch uint64) (txid uint64, err error) {
	err = m.locked(func(tx *engine.Tx) error {
		f, open := tx.Tree.OpenFile(inode)
		if !open || f.Epoch != epoch {
			m.Close(uint64(inode), epoch, "closed", nil)
			return nil
		}
		r, err := m.try(tx, end{inode: inode, epoch: epoch}, &namespace.OpRecover{Inode: inode, Reason: "hard limit"})
		txid = r.TxID
		return err
	})
	return txid, err
}

// expireGranted ends granted leases whose time is over, and removes the files of ended
// ones within what the rate allows. It returns when there is more to do, 0 if nothing
// is left or waits for the rate.
func (m *monitor) expireGranted(ctx context.Context) (again time.Duration) {
	t := m.Table
	var wait uint64
	more := true
	for n := 0; n < grantedPass && m.held < passLock && more && ctx.Err() == nil; n++ {
		var txid uint64
		txid, more = m.endNext(ctx)
		wait = max(wait, txid)
	}
	if t.Engine.WaitDurable(ctx, wait) != nil {
		return 0 // the namenode ends, and says why
	}
	left := m.reap(ctx)
	switch {
	case more || m.held >= passLock && t.reapTokens(1) > 0:
		return time.Millisecond
	case left:
		return 10 * time.Millisecond
	}
	return 0
}

// endNext ends the next granted lease whose time is over. One that does not end
// now is as it was, and can be kept alive: nobody may be told of an end that may
// not come to be. So all of it is under one hold of the lock.
func (m *monitor) endNext(ctx context.Context) (txid uint64, found bool) {
	t := m.Table
	var id uint64
	err := m.locked(func(tx *engine.Tx) error {
		ids := t.ExpireGranted(1)
		if found = len(ids) > 0; !found {
			return nil
		}
		id = ids[0]
		op, err := namespace.PlanEnd(tx.Tree, nil, namespace.LeaseID(id), namespace.LeaseExpired)
		var r namespace.Result
		if err == nil {
			r, err = m.try(tx, end{lease: op.ID}, op)
		}
		if err != nil {
			t.NotExpired(id)
			return err
		}
		txid = r.TxID
		return nil
	})
	if err != nil {
		m.failed(ctx, err, "a lease whose time is over could not be ended", "lease", Name(id))
	}
	return txid, found
}

// reap removes files of ended leases, in the order in which the leases ended.
// It tells whether some are left for whom the rate is to be waited.
func (m *monitor) reap(ctx context.Context) (left bool) {
	t := m.Table
	var wait, after uint64 // the last record; when the lease ended that has to wait
	for more := true; more && m.held < passLock && ctx.Err() == nil; {
		n := t.reapTokens(reapSlice)
		if n <= 0 {
			left = t.endedLeases() > 0
			break
		}
		err := m.locked(func(tx *engine.Tx) error {
			var l namespace.Lease
			if l, more = tx.Tree.EndedLease(after); more && l.Ended > tx.ListedTo() {
				more, left = false, true
			}
			if namespace.Quotas(tx.Tree, nil).Len() > 0 {
				n = 1 // a directory is counted down to its end
			}
			if !more {
				return nil
			}
			r, err := m.try(tx, end{reap: l.ID}, &namespace.OpReap{ID: l.ID, Limit: uint32(n)}) //nolint:gosec // at most reapSlice
			if errors.Is(err, engine.ErrCached) {
				after = l.Ended
				return nil
			}
			wait = max(wait, r.TxID)
			t.reapSpent(r.Deleted)
			return err
		})
		if err != nil {
			m.failed(ctx, err, "files of a lease that has ended could not be removed")
			break
		}
	}
	if t.Engine.WaitDurable(ctx, wait) != nil {
		return false // the namenode ends, and says why
	}
	return left
}

// locked runs fn under the namespace lock, unless nothing may end now.
func (m *monitor) locked(fn func(*engine.Tx) error) error {
	return m.Engine.Update(func(tx *engine.Tx) error {
		begin := m.Clock.Mono()
		defer func() { m.held += m.Clock.Mono() - begin }()
		if err := m.Engine.Active(); err != nil {
			return err
		}
		if err := tx.RefuseInSafeMode(nil); err != nil {
			return err
		}
		return fn(tx)
	})
}

// try applies the record of an end, or sets it aside: then it returns engine.ErrCached.
// The namespace is locked.
func (m *monitor) try(tx *engine.Tx, e end, op namespace.Op) (namespace.Result, error) {
	a := m.aside[e]
	if a == nil {
		a = &aside{}
	}
	a.tried = m.Clock.Mono()
	if a.recall.Pending() {
		return namespace.Result{}, engine.ErrCached
	}
	r, err := tx.Apply(namespace.CallID{}, op, &a.recall)
	if errors.Is(err, engine.ErrCached) && (m.aside[e] != nil || len(m.aside) < maxAside) {
		m.aside[e] = a
		return r, err
	}
	a.recall.Done()
	delete(m.aside, e)
	return r, err
}

// grantedPass is how many granted leases are ended before the disk is waited for.
const grantedPass = 1000

// reapSlice is how many files of ended leases one record removes.
const reapSlice = 100

// manyEnded is the number of ended leases from which on their files are removed without
// regard to the rate.
const manyEnded = tables.MaxLeases / 8

func (t *Table) endedLeases() (n int) {
	t.Engine.Look(func(tree *namespace.Tree) { n = tree.EndedLeases() })
	return n
}

// reapTokens is how many files, of up to n, may be removed now. Ended leases count
// towards the limit of granted leases, so there must not be too many of them.
func (t *Table) reapTokens(n int) int {
	if t.endedLeases() > manyEnded {
		return n
	}
	return min(n, max(0, int(t.reaper.TokensAt(t.reapNow()))))
}

// reapSpent takes from the rate what was done; it may go below zero.
func (t *Table) reapSpent(n int) {
	for n > 0 {
		part := min(n, t.reaper.Burst())
		t.reaper.ReserveN(t.reapNow(), part)
		n -= part
	}
}

// reapNow is the clock of the rate: it must not follow the time of day.
func (t *Table) reapNow() time.Time { return time.Unix(0, 0).Add(t.Clock.Mono()) }
