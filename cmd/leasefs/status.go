package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/rewind"
	"github.com/leasefs/leasefs/cmd/leasefs/room"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

func statusCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show the state of every namenode",
		UsageText: "leasefs status\n\nExample:\n  leasefs --namenode nn1:8020,nn2:8020 status",
		Description: "Shows a line for each namenode in --namenode: role, term, last change (TXID), how many changes\n" +
			"are not durable yet, or have not reached this standby (LAG), inodes, blocks, bytes of blocks that\n" +
			"wait to be deleted (GARBAGE), leases, open files, uptime, version. If none of them is active, the\n" +
			"one that they say is active is asked too. Exit code 9 if no namenode is active. A namenode that was\n" +
			"active and has lost sight of ZooKeeper is \"isolated\": it answers nothing until it knows who is.\n" +
			"One \"(no room)\" refuses what needs room, or would if it were active, or has none for an image,\n" +
			"or its own disk cannot be written; --json says why. One that \"(trusts clients)\" believes whoever\n" +
			"reaches it who he is (--insecure-trust-clients): anybody can act as any user. One \"(audit lost)\"\n" +
			"has lost lines of its audit log, or cannot write it now; --json says how many, and why. One\n" +
			"\"(damaged blocks)\" has found blocks of files damaged or gone; leasefs admin fsck names the files.\nA namenode marked \"(archive behind)\" cannot archive its journal, or is over a minute late;\n--json says why.\n" +
			"Then it shows what will be used up within 30 days at the rate of the last hour, or is nearly used up,\n" +
			"and what is refused then; --json shows all that is bounded.\n" +
			"Superusers are told which quotas are nearly used up, and who is greedy: who holds\nmuch of what all share, was refused more, had to wait, or whose watches fell behind.",
		Action: p.action(operands{}, status),
	}
}

// statusJSON is a namenode under --json. What it did not tell is null: all but
// its address and role if it is unreachable or still starting; a standby has no
// leases.
type statusJSON struct {
	Address     string  `json:"address"`
	Role        string  `json:"role"` // "unreachable" when it did not answer
	Term        *uint64 `json:"term"`
	TxID        *uint64 `json:"txid"`
	DurableTxID *uint64 `json:"durable_txid"`
	countsJSON
	UptimeMS        *int64  `json:"uptime_ms"`
	Error           *string `json:"error"`
	ImageTxID       *uint64 `json:"image_txid"` // null: there is no image yet
	OldestOverdueMS *int64  `json:"oldest_overdue_ms"`
	FeatureLevel    *uint64 `json:"feature_level"` // null: its release says nothing of levels
	NewestLevel     *uint64 `json:"newest_level"`  // that it knows
	SafeMode        *bool   `json:"safe_mode"`
	SafeModeWhy     *string `json:"safe_mode_why"`
	StoreConflict   *string `json:"store_conflict"` // why nothing is deleted from the block store
	Short           *string `json:"short"`          // why it refuses what needs room, or would if it were active, or has none for an image
	DiskError       *string `json:"disk_error"`     // why it is not known whether it has room, or that the journal's disk hangs
	Namespace       *string `json:"namespace"`
	Version         *string `json:"version"`
	Trusts          *string `json:"trusts"` // whose word it takes for who they are: machine, everybody; null: clients prove it
	dataJSON
	JournalBytes   *int64 `json:"journal_bytes"`
	HeapBytes      *int64 `json:"heap_bytes"`
	ZooKeeperBytes *int64 `json:"zookeeper_bytes"` // null with zookeeper_nodes of a namenode alone
	ZooKeeperNodes *int64 `json:"zookeeper_nodes"`
	DiskFree       *int64 `json:"disk_free"` // null with disk_total where the store has no size
	DiskTotal      *int64 `json:"disk_total"`
	scrubJSON
	clocksJSON
	auditJSON
}

// dataJSON is how many bytes files have, what was deleted, and what is nearly used up.
type dataJSON struct {
	TailBytes     *int64  `json:"tail_bytes"`
	StoredBytes   *int64  `json:"stored_bytes"`
	GarbageBytes  *int64  `json:"garbage_bytes"` // of blocks that wait to be deleted
	TrashBytes    *int64  `json:"trash_bytes"`   // of files in the trash, which the others count, too; null of a standby
	Snapshots     *uint64 `json:"snapshots"`
	SnapshotBytes *int64  `json:"snapshot_bytes"` // of blocks that only snapshots have
	// SnapshotMemory is about how much memory snapshots take; null of a standby.
	SnapshotMemory *int64 `json:"snapshot_memory_bytes"`
	room.Report
}

// scrubJSON is what its scrub has found, and how far its archive is.
type scrubJSON struct {
	DamagedBlocks *uint64 `json:"damaged_blocks"` // of files, that are damaged or gone
	ScrubbedMS    *int64  `json:"scrubbed_ms"`    // Unix milliseconds: when it last ended a pass over all blocks; null: never
	ScrubLateMS   *int64  `json:"scrub_late_ms"`  // by how much it takes longer than its period
	rewind.Status
}

// auditJSON is how its audit log is.
type auditJSON struct {
	AuditLost    *uint64 `json:"audit_lost"`    // lines of its audit log that could not be written
	AuditProblem *string `json:"audit_problem"` // why it cannot be written now
}

// countsJSON is how many there are of what the namespace holds.
type countsJSON struct {
	Inodes        *uint64 `json:"inodes"`
	Blocks        *uint64 `json:"blocks"`
	Leases        *uint64 `json:"leases"`
	OpenFiles     *uint64 `json:"open_files"`
	Files         *uint64 `json:"files"`
	Directories   *uint64 `json:"directories"`
	Sessions      *uint64 `json:"sessions"`
	GarbageBlocks *uint64 `json:"garbage_blocks"`
	GrantedLeases *uint64 `json:"granted_leases"`
}

// clocksJSON is how its clock stands with those of others.
type clocksJSON struct {
	// How far its machine's time of day is ahead of that of ZooKeeper's leader, and
	// of an S3 block store's, and how far that can be wrong. null: not known.
	ClockSkewMS       *int64 `json:"clock_skew_ms"`
	ClockBoundMS      *int64 `json:"clock_bound_ms"`
	StoreClockSkewMS  *int64 `json:"store_clock_skew_ms"`
	StoreClockBoundMS *int64 `json:"store_clock_bound_ms"`
}

// statusTimeout is how long namenodes have by default to say how they are.
const statusTimeout = 3 * time.Second

// statuses asks the namenodes how they are, whether or not one is active.
func (e *invocation) statuses() ([]client.NamenodeStatus, error) {
	cfg, err := e.clientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, statusTimeout)
	list, err := client.QueryStatus(e.ctx, cfg)
	return list, e.fail(err, "")
}

func status(e *invocation) error {
	list, err := e.statuses()
	if err != nil {
		return err
	}
	if e.JSON {
		for i := range list {
			if err := e.PrintJSON(statusToJSON(&list[i])); err != nil {
				return err
			}
		}
	} else if err := e.statusTable(list); err != nil {
		return err
	}
	_, err = e.active(list)
	return err
}

func statusToJSON(s *client.NamenodeStatus) statusJSON {
	j := statusJSON{Address: s.Address, Role: s.Role, Version: screen.OrNull(s.Version)}
	if s.Err != nil {
		text := screen.WithReason(s.Err)
		j.Role, j.Error = "unreachable", &text
		return j
	}
	if s.Role == "starting" {
		return j
	}
	j.FeatureLevel, j.NewestLevel = screen.OrNull(s.Level), screen.OrNull(s.NewestLevel)
	uptime, overdue := s.Uptime.Milliseconds(), s.OldestOverdue.Milliseconds()
	j.Term, j.TxID, j.DurableTxID, j.ImageTxID, j.UptimeMS = &s.Term, &s.TxID, &s.DurableTxID, screen.OrNull(s.ImageTxID), &uptime
	j.Inodes, j.Files, j.Directories, j.Blocks, j.GarbageBlocks, j.OpenFiles, j.GrantedLeases = &s.Inodes, &s.Files, &s.Directories, &s.Blocks, &s.GarbageBlocks, &s.OpenFiles, &s.GrantedLeases
	j.SafeMode, j.SafeModeWhy, j.Namespace, j.Trusts = &s.SafeMode, screen.OrNull(s.SafeModeWhy), screen.OrNull(s.NamespaceID), screen.OrNull(s.Trusts)
	j.StoreConflict, j.Short, j.DiskError = screen.OrNull(s.StoreConflict), screen.OrNull(s.Short), screen.OrNull(s.DiskError)
	if !s.Scrubbed.IsZero() {
		ms := s.Scrubbed.UnixMilli()
		j.ScrubbedMS = &ms
	}
	j.Status, j.Report = rewind.StatusOf(s.Archive), room.ReportOf(s)
	j.AuditLost, j.AuditProblem = &s.AuditLost, screen.OrNull(s.AuditProblem)
	j.TailBytes, j.StoredBytes, j.GarbageBytes, j.JournalBytes, j.HeapBytes = &s.TailBytes, &s.StoredBytes, &s.GarbageBytes, &s.JournalBytes, &s.HeapBytes
	j.Snapshots, j.SnapshotBytes = &s.Snapshots, &s.SnapshotBytes
	if s.ZooKeeperNodes > 0 {
		j.ZooKeeperBytes, j.ZooKeeperNodes = &s.ZooKeeperBytes, &s.ZooKeeperNodes
	}
	if s.DiskTotal > 0 {
		j.DiskFree, j.DiskTotal = &s.DiskFree, &s.DiskTotal
	}
	j.ClockSkewMS, j.ClockBoundMS = skewJSON(s.ZooKeeperClock)
	j.StoreClockSkewMS, j.StoreClockBoundMS = skewJSON(s.StoreClock)
	if s.Role != "standby" {
		j.Leases, j.Sessions, j.OldestOverdueMS, j.TrashBytes, j.SnapshotMemory = &s.Leases, &s.Sessions, &overdue, &s.TrashBytes, &s.SnapshotMemory
		late := s.ScrubLate.Milliseconds()
		j.DamagedBlocks, j.ScrubLateMS = &s.DamagedBlocks, &late
	}
	return j
}

func skewJSON(s *clock.Skew) (ahead, bound *int64) {
	if s == nil {
		return nil, nil
	}
	a, b := s.Ahead.Milliseconds(), s.Bound.Milliseconds()
	return &a, &b
}

// skewShown is from where on the table tells that a clock is wrong.
const skewShown = time.Second

// skewText tells of a clock that surely differs, for the role's column.
func skewText(s *clock.Skew, than string) string {
	if s == nil || !s.Beyond(skewShown) {
		return ""
	}
	ahead, way := s.Ahead, "ahead of"
	if ahead < 0 {
		ahead, way = -ahead, "behind"
	}
	return fmt.Sprintf(" (clock %s %s %s)", ahead.Round(100*time.Millisecond), way, than)
}

func (p *program) statusTable(list []client.NamenodeStatus) error {
	w := p.Table()
	fmt.Fprintln(w, "ADDRESS\tROLE\tTERM\tTXID\tLAG\tINODES\tBLOCKS\tGARBAGE\tLEASES\tGRANTED\tOPEN\tUPTIME\tVERSION")
	for i := range list {
		s := &list[i]
		if s.Err != nil {
			fmt.Fprintf(w, "%s\tunreachable\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n", s.Address)
			continue
		}
		if s.Role == "starting" {
			fmt.Fprintf(w, "%s\tstarting\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", s.Address, screen.OrDash(s.Version))
			continue
		}
		leases := strconv.FormatUint(s.Leases, 10)
		if s.Role == "standby" {
			leases = "-"
		}
		role := s.Role
		if s.SafeMode {
			role += " (safe mode)"
		}
		if s.StoreConflict != "" {
			role += " (store conflict)"
		}
		if s.Short != "" {
			role += " (no room)"
		}
		if s.DiskError != "" {
			role += " (disk error)"
		}
		if s.DamagedBlocks > 0 {
			role += " (damaged blocks)"
		}
		if s.ScrubLate > 0 {
			role += " (scrub late)"
		}
		if s.AuditLost > 0 || s.AuditProblem != "" {
			role += " (audit lost)"
		}
		if s.Trusts == "everybody" {
			role += " (trusts clients)"
		}
		role += rewind.Behind(s.Archive) + skewText(s.ZooKeeperClock, "ZooKeeper") + skewText(s.StoreClock, "the store")
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\n", s.Address, role, s.Term, s.TxID, max(s.TxID, s.DurableTxID)-min(s.TxID, s.DurableTxID),
			s.Inodes, s.Blocks, screen.Size(s.GarbageBytes, true), leases, s.GrantedLeases, s.OpenFiles, fserror.Round(s.Uptime), screen.OrDash(s.Version))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return room.Tables(&p.Printer, list)
}
