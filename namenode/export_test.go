package namenode

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// ForgetLeases is damage: the lease table loses all it knows, the inodes do not.
func (s *Server) ForgetLeases() {
	s.leases.Rebuild(func(func(leasemanager.Holder, leasemanager.Ref) bool) {}, func(func(leasemanager.Granted) bool) {}, nil)
}

// RepairLeases is one round of the background repair over all open files.
func (s *Server) RepairLeases() {
	for at := s.leases.Repair(0, 2); at != 0; {
		at = s.leases.Repair(at, 2)
	}
}

// JournalledAge is the age of a session's lease that a successor would find.
func (s *Server) JournalledAge(session []byte) (age time.Duration) {
	s.engine.Look(func(t *namespace.Tree) {
		age = leases.JournalledAge(t, leasemanager.AgeKey{Session: leasemanager.SessionID(session)})
	})
	return age
}

// SetPatience sets how long a client may take nothing of a long answer.
func (s *Server) SetPatience(d time.Duration) { s.calls.tree.patience = d }

// SetBackupLife sets how long the URLs of a backup are good.
func (s *Server) SetBackupLife(d time.Duration) { s.calls.operators.urlLife = d }

// ShareLittle leaves that many granted leases, caching sessions and sessions of which results
// are kept to all callers together.
func (s *Server) ShareLittle(most int64) {
	s.engine.Share(s.role.Term(), engine.Limits{Granted: most, Results: most, Caching: int(most)})
}

// Served is how many unary calls are under way and wait for nobody.
func (s *Server) Served() int64 { return s.front.Served.Used() }

// Parked is how many calls wait for others.
func (s *Server) Parked() int64 { return s.front.Parked.Used() }

// HoldWalks has walks of the tree wait until the function that it returns is called.
func (s *Server) HoldWalks(ctx context.Context) (release func(), err error) {
	const all = 2
	for range all {
		if err := s.calls.walkers.Begin(ctx, ""); err != nil {
			return nil, err
		}
	}
	return func() {
		for range all {
			s.calls.walkers.End("")
		}
	}, nil
}

// Granted is how many granted leases count for the share of each user.
func (s *Server) Granted() int64 { return s.engine.Granted() }

// CompareClocks has the clocks compared now.
func (s *Server) CompareClocks() { s.clocks.Due <- struct{}{} }

// LockWait is how long a caller waits for the namespace's lock now: what others
// hold it for.
func (s *Server) LockWait() time.Duration {
	began := time.Now()
	_ = s.engine.Update(func(*engine.Tx) error { return nil })
	return time.Since(began)
}

// ApplyAtOnce applies records one after the other, with nothing between them, when
// what first does has sessions give up what they keep of it.
func (s *Server) ApplyAtOnce(first func(), ops ...namespace.Op) error {
	return s.engine.Update(func(tx *engine.Tx) error {
		first()
		for _, op := range ops {
			var recall engine.Recall
			defer recall.Done()
			_, err := tx.Apply(namespace.CallID{}, op, &recall)
			for errors.Is(err, engine.ErrCached) {
				runtime.Gosched()
				if !recall.Pending() {
					_, err = tx.Apply(namespace.CallID{}, op, &recall)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// GiveUp gives the reign up, as a namenode does that has no room.
func (s *Server) GiveUp(ctx context.Context) { s.role.GiveUp(ctx, "a test") }

// KnowsUnfit reports whether no standby could be handed over to, one of them for that
// reason.
func (s *Server) KnowsUnfit(ctx context.Context, why string) bool {
	return strings.Contains(strings.Join(s.role.Unready(ctx), "\n"), why)
}

// HoldImage is as if an image were written, until stored is called.
func (s *Server) HoldImage(t *testing.T) (stored func()) {
	t.Helper()
	stored, err := s.images.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stored
}
