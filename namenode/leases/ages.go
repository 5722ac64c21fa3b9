package leases

import (
	"context"
	"slices"
	"time"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// agesRecord is how many ages one record keeps.
const agesRecord = 1000

// CheckpointAges journals how old the leases are that have missed renewals, and
// that others are renewed again: so restarts and take-overs in a row cannot keep
// a dead holder alive (etcd calls it a lease checkpoint).
func (t *Table) CheckpointAges(ctx context.Context) error {
	for ctx.Err() == nil {
		ages := t.CheckAges(agesRecord)
		if len(ages) == 0 {
			return nil
		}
		if err := t.journalAges(ctx, ages); err != nil {
			return err
		}
	}
	return nil
}

// JournalLastAges journals how old the leases are when a reign ends in good order, so
// that not even the seconds since the last checkpoint are lost.
func (t *Table) JournalLastAges(ctx context.Context) error {
	for all := range t.LastAges() {
		for part := range slices.Chunk(all, agesRecord) {
			if err := t.journalAges(ctx, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// journalAges writes one record of ages.
func (t *Table) journalAges(ctx context.Context, ages []leasemanager.Age) error {
	_, err := t.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		op := new(namespace.OpAges)
		for _, a := range t.AgesJournalled(ages) {
			op.Ages = append(op.Ages, namespace.Age{AgeKey: ageKey(a.AgeKey), MS: a.Age.Milliseconds()})
		}
		if len(op.Ages) == 0 {
			return nil, nil
		}
		return op, nil
	}})
	if err == nil {
		t.AgesDurable(ages)
	}
	return err
}

// dropAges forgets the ages of sessions that a former reign knew and that hold
// nothing any more.
func (t *Table) dropAges(ctx context.Context) error {
	holders := make(map[namespace.SessionID]bool)
	t.Engine.Look(func(tree *namespace.Tree) {
		tree.OpenFiles(func(f namespace.OpenFile) bool {
			holders[f.Holder.Session] = true
			return true
		})
	})
	for {
		op := new(namespace.OpAges)
		_, err := t.Engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			tx.Tree.Ages(func(a namespace.Age) bool {
				if a.Session != (namespace.SessionID{}) && !holders[a.Session] {
					op.Ages = append(op.Ages, namespace.Age{AgeKey: a.AgeKey})
				}
				return len(op.Ages) < agesRecord
			})
			if len(op.Ages) == 0 {
				return nil, nil
			}
			return op, nil
		}})
		if err != nil || len(op.Ages) == 0 {
			return err
		}
	}
}

func ageKey(k leasemanager.AgeKey) namespace.AgeKey {
	return namespace.AgeKey{Session: namespace.SessionID(k.Session), Inode: namespace.InodeID(k.Inode), Lease: namespace.LeaseID(k.Granted)}
}

// JournalledAge is the age of a lease as journalled.
func JournalledAge(t *namespace.Tree, k leasemanager.AgeKey) time.Duration {
	return time.Duration(t.Age(ageKey(k))) * time.Millisecond
}
