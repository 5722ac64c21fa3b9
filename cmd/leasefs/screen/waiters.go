package screen

import (
	"fmt"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// WaiterJSON is who waits for a file, under --json.
type WaiterJSON struct {
	Holder   string `json:"holder"`
	User     string `json:"user"`
	Host     string `json:"client_host"`
	PID      *int64 `json:"pid"`
	Inode    uint64 `json:"inode"`
	WaitedMS int64  `json:"waited_ms"`
}

// WaitersJSON are those who wait for the files of a lease, under --json.
func WaitersJSON(l *client.Lease) []WaiterJSON {
	all := make([]WaiterJSON, len(l.Waiters))
	for i, w := range l.Waiters {
		all[i] = WaiterJSON{w.Client, w.User, w.Host, OrNull(w.PID), w.Inode, w.Since.Milliseconds()}
	}
	return all
}

// PrintWaiters prints who waits for the files of a lease.
func (p *Printer) PrintWaiters(l *client.Lease) {
	for _, w := range l.Waiters {
		file := fmt.Sprintf("inode %d", w.Inode)
		for _, f := range l.Files {
			if f.Inode == w.Inode {
				file = p.Name(f.Path)
			}
		}
		p.Printf("  %s (user %s, host %s, pid %d) has waited for %s for %s\n", QuoteName(w.Client), w.User, w.Host, w.PID, file, fserror.Round(w.Since))
	}
	if n := uint32(len(l.Waiters)); n > 0 && n < l.Waiting { //nolint:gosec // a count
		p.Printf("  and %d more wait\n", l.Waiting-n)
	}
}
