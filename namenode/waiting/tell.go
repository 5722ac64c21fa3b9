package waiting

import (
	"time"

	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// mostTold is how many of those who wait for the files of a lease are named.
const mostTold = 10

// Tell adds those who wait for one of a lease's files to what is told of the lease: their number,
// and who the first are.
func (t *Table) Tell(l *pb.Lease, inode namespace.InodeID, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.drop(inode, now)
	l.Waiting += uint32(len(q)) //nolint:gosec // a count
	for _, w := range q[:min(len(q), mostTold-len(l.GetWaiters()))] {
		l.Waiters = append(l.Waiters, &pb.LeaseWaiter{Inode: uint64(inode), Who: &pb.HolderInfo{
			User: w.by.User, Client: w.by.Client, Session: pb.SessionName(w.by.Session[:]), Host: w.by.Host, Pid: w.by.PID, SinceMs: (now - w.since).Milliseconds(),
		}})
	}
}
