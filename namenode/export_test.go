package namenode

import (
	"time"

	"github.com/leasefs/leasefs/leasemanager"
)

// MaxManyKeys is about how many cache keys an answer to CreateMany has.
const MaxManyKeys = maxManyKeys

// ForgetLeases is damage: the lease table loses all it knows, the inodes do not.
func (s *Server) ForgetLeases() {
	s.leases.Rebuild(func(func(leasemanager.Holder, leasemanager.Ref) bool) {}, func(func(leasemanager.Granted) bool) {}, nil)
}

// RepairLeases is one round of the background repair over all open files.
func (s *Server) RepairLeases() {
	for at := s.repairLeases(0, 2); at != 0; {
		at = s.repairLeases(at, 2)
	}
}

// SetPatience sets how long a client may take nothing of a long answer.
func (s *Server) SetPatience(d time.Duration) { s.patience = d }

// LockWait is how long a caller waits for the namespace's lock now: what others
// hold it for.
func (s *Server) LockWait() time.Duration {
	began := time.Now()
	s.mu.Lock()
	took := time.Since(began)
	s.mu.Unlock() //nolint:staticcheck // the wait is all
	return took
}

// SettleAtOnce has restores not wait, for a test that is not run beside others.
func SettleAtOnce(t interface{ Cleanup(func()) }) {
	was := settle
	settle = 0
	t.Cleanup(func() { settle = was })
}
