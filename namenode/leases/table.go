// Package leases keeps the lease table beside the namespace. The inode says who holds
// a file, and the tree which leases were granted; the table (leasemanager) is an index
// of that by time. It is built from the tree when a reign begins, follows each record,
// and is repaired where it differs. What it finds to be over is ended here, by
// records, and how old silent leases are is journalled.
package leases

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// Config is what a Table works with. All is required.
type Config struct {
	Clock  clock.Clock
	Log    *slog.Logger
	Engine *engine.Engine
	// Soft and Hard are the limits of sessions' leases; AgesEvery is how often the
	// ages of silent ones are journalled.
	Soft, Hard, AgesEvery time.Duration
	// ReapRate is how many files of granted leases that have ended are removed a second.
	ReapRate int
	// ObservePass is told how long a pass of Watch has held the namespace lock.
	ObservePass func(time.Duration)
	// Opened is leasemanager.Config's.
	Opened func(user string, n int)
}

// Table is the lease table of one namenode. Its methods are safe for concurrent use.
type Table struct {
	*leasemanager.Manager
	Config
	reaper *rate.Limiter // of the ends of granted leases
	wake   chan struct{}
}

// New returns an empty table.
func New(cfg Config) *Table {
	return &Table{
		Manager: leasemanager.New(leasemanager.Config{
			Clock: cfg.Clock, Soft: cfg.Soft, Hard: cfg.Hard, AgeEvery: cfg.AgesEvery, Opened: cfg.Opened,
			Jitter: rand.Float64, //nolint:gosec // spreads load, keeps no secret
		}),
		Config: cfg, wake: make(chan struct{}, 1),
		reaper: rate.NewLimiter(rate.Limit(cfg.ReapRate), max(cfg.ReapRate/10, 1)),
	}
}

// Reap has Watch look at once for files of ended leases.
func (t *Table) Reap() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// RebuildFromTree builds the table for a reign, and forgets the ages of
// holders that hold nothing any more.
func (t *Table) RebuildFromTree(ctx context.Context) error {
	safe := false
	t.Engine.Look(func(tree *namespace.Tree) {
		t.Rebuild(func(yield func(leasemanager.Holder, leasemanager.Ref) bool) {
			tree.OpenFiles(func(f namespace.OpenFile) bool { return yield(HolderOf(f.Holder), refOf(f)) })
		}, func(yield func(leasemanager.Granted) bool) {
			tree.Leases(func(l namespace.Lease) bool {
				return yield(leasemanager.Granted{Holder: ownerOf(l), ID: uint64(l.ID), TTL: ttlOf(l)})
			})
		}, func(k leasemanager.AgeKey) time.Duration { return JournalledAge(tree, k) })
		safe = tree.SafeMode()
	})
	if err := t.dropAges(ctx); err != nil {
		return err
	}
	if safe {
		t.Suspend()
	}
	return nil
}

// Applied brings the table up to a record. The namespace is locked.
func (t *Table) Applied(r namespace.Result) {
	var by *leasemanager.Holder
	if f := r.Opened; f != nil {
		h := HolderOf(f.Holder)
		by = &h
	}
	for _, f := range r.Closed {
		if by == nil || r.Opened.Inode != f.Inode { // else Open replaces the holder and tells him
			t.Close(uint64(f.Inode), f.Epoch, f.Reason, by)
		}
	}
	if f := r.Opened; f != nil {
		t.Open(*by, uint64(f.Inode), f.Epoch)
	}
	if l := r.Granted; l != nil {
		t.Grant(ownerOf(*l), uint64(l.ID), ttlOf(*l))
	}
	if r.LeaseEnded {
		t.Revoke(uint64(r.Lease))
	}
}

// RenewWriter renews the session of the writer whose record is about to be applied,
// so that live leases and those of a replay of the journal are renewed by the same.
// The namespace is locked.
func (t *Table) RenewWriter(tx *engine.Tx, op namespace.Op) error {
	f, ok := tx.Tree.WriterOf(op)
	if !ok || t.Touch(leasemanager.SessionID(f.Holder.Session), uint64(f.Inode)) {
		return nil
	}
	if st, known := t.State(uint64(f.Inode)); known && st.Ending {
		// Lost only with the record that ends it, which may not come to be.
		return ErrEnding()
	}
	t.open(f)
	return nil
}

// ErrEnding is the answer to a holder while his lease is being ended.
func ErrEnding() error {
	return &fserror.Error{Kind: fserror.Retry, Message: "the lease is past its hard limit and is being ended", RetryAfter: 50 * time.Millisecond}
}

// Take asks whether by may have an open file, after making sure that the table knows
// it.
func (t *Table) Take(f namespace.OpenFile, by namespace.Holder) (leasemanager.Verdict, leasemanager.State) {
	v, st := t.MayTake(uint64(f.Inode), HolderOf(by))
	if v == leasemanager.Free {
		t.repair(f)
		v, st = t.MayTake(uint64(f.Inode), HolderOf(by))
	}
	return v, st
}

// repairSlice is how many files of a renewal are looked at under one read lock.
const repairSlice = 1000

// RepairRenewed puts back those of a session's files that the table does not know and
// the inodes do: a live writer must not lose a file because of the index. It reports
// whether there were any.
func (t *Table) RepairRenewed(session leasemanager.SessionID, unknown []leasemanager.Ref) (repaired bool) {
	for some := range slices.Chunk(unknown, repairSlice) {
		t.Engine.Look(func(tree *namespace.Tree) { // so no record that closes one of them comes in between
			for _, ref := range some {
				f, open := tree.OpenFile(namespace.InodeID(ref.Inode))
				if !open || f.Epoch != ref.Epoch || leasemanager.SessionID(f.Holder.Session) != session {
					continue
				}
				repaired = t.repair(f) || repaired
			}
		})
	}
	return repaired
}

// RepairPass makes sure, a slice at a time, that the table knows every open file.
func (t *Table) RepairPass() func(context.Context) error {
	var at namespace.InodeID
	return func(context.Context) error {
		at = t.Repair(at, 10_000)
		return nil
	}
}

// Repair makes sure that the table knows the open files after the given one, at most
// limit of them; it returns the last one, 0 at the end.
func (t *Table) Repair(after namespace.InodeID, limit int) (last namespace.InodeID) {
	n := 0
	t.Engine.Look(func(tree *namespace.Tree) {
		tree.OpenFilesAfter(after, func(f namespace.OpenFile) bool {
			t.repair(f)
			n++
			last = f.Inode
			return n < limit
		})
	})
	if n < limit {
		return 0
	}
	return last
}

// repair puts an open file into the table if it is missing there. The namespace is
// locked.
func (t *Table) repair(f namespace.OpenFile) bool {
	if _, known := t.State(uint64(f.Inode)); known {
		return false
	}
	t.Log.Warn("an open file was missing in the lease table", "inode", f.Inode, "epoch", f.Epoch)
	t.open(f)
	return true
}

func (t *Table) open(f namespace.OpenFile) {
	t.Open(HolderOf(f.Holder), uint64(f.Inode), f.Epoch)
}

// HolderOf is a holder as the table knows him.
func HolderOf(h namespace.Holder) leasemanager.Holder {
	return leasemanager.Holder{User: h.User, Client: h.Client, Session: leasemanager.SessionID(h.Session), Host: h.Host, PID: h.PID, TTL: time.Duration(h.TTL) * time.Millisecond}
}

// ownerOf is how the table shows who a lease was granted to.
func ownerOf(l namespace.Lease) leasemanager.Holder {
	return leasemanager.Holder{User: l.Owner.User, Client: l.Owner.Client, Host: l.Owner.Host}
}

func ttlOf(l namespace.Lease) time.Duration { return time.Duration(l.TTL) * time.Millisecond }

func refOf(f namespace.OpenFile) leasemanager.Ref {
	return leasemanager.Ref{Inode: uint64(f.Inode), Epoch: f.Epoch}
}

// Name is how a lease's id is shown: hexadecimal, as etcd's.
func Name(id uint64) string { return strconv.FormatUint(id, 16) }
