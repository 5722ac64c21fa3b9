package namenode

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/meters"
)

// register has the registry show all that /metrics shows, beside the meters. Counts of
// things come from the tree and the lease table when they are asked for, so the hot path
// pays for calls only.
func register(s *Server, r *prometheus.Registry) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasefs_build_info", Help: "1, with the version of the namenode.", ConstLabels: prometheus.Labels{"version": s.cfg.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(s.front.Metrics()...)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &stateCollector{s})
}

// stateCollector reads gauges and counters off the state.
type stateCollector struct{ s *Server }

// Describe implements prometheus.Collector. What there is depends on the state, so
// nothing is said beforehand.
func (c *stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.s
	set := func(name string, v float64, help string) {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") { // what Prometheus calls a counter
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("leasefs_"+name, help, nil, nil), kind, v)
	}
	role := s.role.Status()
	set("ready", flag(s.role.Active() == nil), "1 while the namenode answers.")
	set("space_short", flag(s.calls.shortOf(role) != ""), "1 while disk or memory is short: nothing new is made, or would be if this namenode were active, or there is no room for an image, or its own disk cannot be written.")
	set("shares_refused_total", float64(s.refusals()), "How often somebody was refused more of what all share: connections, streams, watches, waiting calls, calls a second.")
	for _, h := range s.greedy() {
		ch <- prometheus.MustNewConstMetric(descGreedy, prometheus.GaugeValue, float64(h.Held), h.What, h.Who)
	}
	cn := s.front.Conns()
	set("connections", float64(cn.Open), "Connections of clients, on both addresses.")
	set("connections_refused_total", float64(cn.Refused), "Connections closed at once because there was no room for more.")
	set("connections_idle_ended_total", float64(cn.Ended), "Idle connections closed to make room for others.")
	set("connections_overload_ended_total", float64(cn.Overloaded), "Connections closed because they held most of too many bytes of incomplete messages, or of answers that were not taken.")
	set("unfinished_bytes", float64(cn.Unfinished), "Bytes of messages that are not complete.")
	set("unsent_bytes", float64(cn.Unsent), "Bytes of answers that clients have not taken.")
	a := s.audit.Stats()
	set("audit_lines_total", float64(a.Lines), "Lines of the audit log, those included that were lost.")
	set("audit_lost_total", float64(a.Lost), "Lines of the audit log that could not be written.")
	set("audit_failing", flag(a.Problem != ""), "1 while the audit log cannot be written.")
	if role.Role == "starting" {
		return // what follows is being made
	}
	if h := s.history.Stats(); s.history != nil {
		set("lease_history_bytes", float64(h.Bytes), "Bytes of files that the history of leases takes.")
		set("lease_history_lost_total", float64(h.Lost), "Ends of leases that the history has not: more came than could be written.")
		set("lease_history_failing", flag(h.Failing), "1 while the history of leases cannot be written.")
	}
	s.archive.Measure(set)
	set("archive_blocks_deleted_early_total", float64(s.blocks.Early()), "Blocks deleted for want of room although the archive of the journal needs them.")
	meters.Store(ch, set, s.store)
	s.forecast.Measure(ch)
	if role.Several {
		set("standby", flag(role.Role == "standby"), "1 while this one of several namenodes follows the active one.")
		set("zookeeper_journal_bytes", float64(role.Kept), "Bytes of each ZooKeeper server's memory that the journal takes, its nodes included: images free them.")
		set("zookeeper_journal_nodes", float64(role.KeptNodes), "Nodes of the journal that ZooKeeper holds.")
	}
	s.clocks.All(func(than string, skew clock.Skew) {
		if than == "zookeeper" {
			set("clock_skew_seconds", skew.Ahead.Seconds(), "How far this machine's time of day is ahead of that of ZooKeeper's leader.")
			set("clock_skew_bound_seconds", skew.Bound.Seconds(), "How far leasefs_clock_skew_seconds can be wrong, either way.")
		}
	})
	if !s.role.Ready() {
		if role.Several && s.engine.Opened() { // how far behind it is
			last := s.engine.Facts().Last
			set("txid", float64(last), "Last journal record applied.")
			set("durable_txid", float64(max(role.Newest, last)), "Last journal record that is on disk.")
		}
		return
	}
	n := s.engine.Facts()
	total, _ := s.journal.Size()
	s.scrub.Measure(set)
	set("term", float64(s.role.Term()), "Number of this namenode's reign.")
	set("txid", float64(n.Last), "Last journal record applied.")
	set("durable_txid", float64(s.journal.Durable()), "Last journal record that is on disk.")
	set("journal_backlog_bytes", float64(s.journal.Backlog()), "Bytes that wait for the journal's disk.")
	set("journal_bytes", float64(total), "Bytes of journal kept.")
	set("inodes", float64(n.Inodes), "Files, directories and links, deleted ones not yet reclaimed included.")
	set("blocks", float64(n.Blocks), "Blocks of files.")
	set("open_files", float64(n.Open), "Files open for write.")
	set("stored_bytes", float64(n.StoredBytes), "Bytes of files in blocks.")
	set("tail_bytes", float64(n.TailBytes), "Bytes of files in the namenode's memory.")
	set("garbage_blocks", float64(n.Garbage), "Blocks that wait to be deleted.")
	set("garbage_bytes", float64(n.GarbageBytes), "Bytes of blocks that wait to be deleted.")
	set("garbage_overdue_seconds", s.blocks.Overdue().Seconds(), "For how long the oldest block that waits could have been deleted.")
	bin := s.calls.Sizes()
	set("trash_bytes", float64(bin.Bytes), "Bytes of files in the trash, which leasefs_stored_bytes and leasefs_tail_bytes count, too.")
	set("trash_files", float64(bin.Files), "Files in the trash, those in deleted directories included.")
	set("trash_entries", float64(n.Trashed), "Deleted files and directories that can be restored.")
	set("snapshots", float64(n.Snapshots), "Snapshots of directories.")
	set("snapshot_blocks", float64(n.Held), "Blocks that only snapshots have, those of deleted snapshots that are still to be freed included.")
	set("snapshot_bytes", float64(n.HeldBytes), "Bytes of blocks that only snapshots have, which leasefs_stored_bytes does not count.")
	set("snapshot_memory_bytes", float64(s.calls.SnapshotMemory()), "Bytes of memory that snapshots take, about, counted once a minute.")
	quotas, full := s.calls.Tally()
	set("quotas", float64(quotas), "Directories with a quota.")
	set("quotas_full", float64(full), "Directories with a quota that have 90 % or more of one of its limits in use.")
	set("detached_subtrees", float64(n.Detached), "Deleted directories whose memory is being given back.")
	set("retry_sessions", float64(n.Sessions), "Client processes whose last answers are kept.")
	set("allocated_blocks", float64(s.blocks.Allocated()), "Block keys handed out and neither committed nor given up.")
	meters.Leases(set, s.leases.Stats())
	set("granted_leases", float64(n.Leases), "Granted leases, those that are ending included.")
	set("attached_files", float64(n.Attached), "Files attached to granted leases.")
	meters.Caches(set, s.engine.Caches().Stats())
	ev := s.events.Stats()
	set("watchers", float64(ev.Watchers), "Watches under way.")
	set("watch_events", float64(ev.Events), "Events kept for watches.")
	set("watchers_too_slow_total", float64(ev.Dropped), "Watches that fell behind what is kept.")
	set("feature_level", float64(n.Level.Level), "Feature level of the namespace, which an operator raises after an upgrade.")
	set("safe_mode", flag(n.SafeMode), "1 in safe mode.")
	set("store_conflict", flag(s.owner.Conflict() != ""), "1 while nothing is deleted because the block store has another copy of the namespace.")
	set("unswept_blocks", float64(s.blocks.Unswept()), "Blocks without a file that the last search left for a collection that an operator asks for.")
	if len(n.Images) > 0 {
		set("image_txid", float64(n.Images[len(n.Images)-1].TxID), "Last record in the newest image.")
	}
	set("images_damaged", float64(s.images.Bad()), "Published images that were found damaged or gone. While one of the latest two is, nothing older is removed.")
}

var descGreedy = prometheus.NewDesc("leasefs_share_held", "What those hold who hold much of what all share, or were refused more: at most ten of each kind; of calls, those of a second.", []string{"what", "who"}, nil)

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
