package rewind

import (
	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// Status is what leasefs status --json tells of the archive of a journal; null: the namenode
// archives nothing, or is not active.
type Status struct {
	TxID    *uint64 `json:"archive_txid"`    // all changes up to this one are archived; 0: not known yet
	Records *uint64 `json:"archive_records"` // that are durable, and not archived
	LagMS   *int64  `json:"archive_lag_ms"`  // what was durable that long ago is archived; null: not known yet, too
	Holes   *uint64 `json:"archive_holes"`   // since it became active: times that changes were purged before they were archived
	Problem *string `json:"archive_problem"` // why nothing can be archived now
}

// StatusOf is that of a namenode's archive.
func StatusOf(a *client.ArchiveStatus) (s Status) {
	if a != nil {
		lag := a.Lag.Milliseconds()
		s = Status{&a.TxID, &a.Records, &lag, &a.Holes, screen.OrNull(a.Problem)}
		if a.TxID == 0 {
			s.LagMS = nil
		}
	}
	return s
}

// Behind is what the table tells of an archive that is late, for the role's column.
func Behind(a *client.ArchiveStatus) string {
	if a.Late() {
		return " (archive behind)"
	}
	return ""
}
