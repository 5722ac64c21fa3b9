package namenode

import "github.com/leasefs/leasefs/leasemanager"

// ForgetLeases is damage: the lease table loses all it knows, the inodes do not.
func (s *Server) ForgetLeases() {
	s.leases.Rebuild(func(func(leasemanager.Holder, leasemanager.Ref) bool) {})
}

// RepairLeases is one round of the background repair over all open files.
func (s *Server) RepairLeases() {
	for at := s.repairLeases(0, 2); at != 0; {
		at = s.repairLeases(at, 2)
	}
}
