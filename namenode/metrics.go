package namenode

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// metrics is all that /metrics shows. Counts of things come from the tree and
// the lease table when they are asked for, so the hot path pays for calls only.
type metrics struct {
	registry  *prometheus.Registry
	cacheWait prometheus.Histogram
	passLock  prometheus.Histogram
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.cacheWait = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "leasefs_cache_wait_seconds", Help: "Time that a change waited for readers to give up what they had cached.",
		Buckets: prometheus.ExponentialBuckets(100e-6, 4, 10),
	})
	m.passLock = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "leasefs_lease_pass_lock_seconds", Help: "Time under the namespace lock of a pass of the lease monitor that ended leases; it releases the lock between records.",
		Buckets: []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1},
	})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasefs_build_info", Help: "1, with the version of the namenode.", ConstLabels: prometheus.Labels{"version": s.cfg.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(s.front.Metrics()...)
	m.registry.MustRegister(build, m.passLock, m.cacheWait,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &stateCollector{s})
	return m
}

// stateCollector reads the gauges off the state.
type stateCollector struct{ s *Server }

func gauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("leasefs_"+name, help, nil, nil)
}

var (
	descReady      = gauge("ready", "1 while the namenode answers.")
	descTerm       = gauge("term", "Number of this namenode's reign.")
	descTxID       = gauge("txid", "Last journal record applied.")
	descDurable    = gauge("durable_txid", "Last journal record that is on disk.")
	descBacklog    = gauge("journal_backlog_bytes", "Bytes that wait for the journal's disk.")
	descJournal    = gauge("journal_bytes", "Bytes of journal kept.")
	descInodes     = gauge("inodes", "Files, directories and links, deleted ones not yet reclaimed included.")
	descBlocks     = gauge("blocks", "Blocks of files.")
	descOpen       = gauge("open_files", "Files open for write.")
	descStored     = gauge("stored_bytes", "Bytes of files in blocks.")
	descTail       = gauge("tail_bytes", "Bytes of files in the namenode's memory.")
	descGarbage    = gauge("garbage_blocks", "Blocks that wait to be deleted.")
	descGarbageB   = gauge("garbage_bytes", "Bytes of blocks that wait to be deleted.")
	descDetached   = gauge("detached_subtrees", "Deleted directories whose memory is being given back.")
	descSessions   = gauge("retry_sessions", "Client processes whose last answers are kept.")
	descAllocated  = gauge("allocated_blocks", "Block keys handed out and neither committed nor given up.")
	descLeases     = gauge("leases", "Leases that hold files.")
	descConnected  = gauge("sessions_connected", "Client processes that have a stream.")
	descOverdue    = gauge("lease_oldest_overdue_seconds", "How long the oldest lease past its hard limit waits for the monitor.")
	descExpired    = gauge("leases_expired_total", "Leases ended at their hard limit.")
	descRenewals   = gauge("lease_renewals_total", "Renewals.")
	descSafeMode   = gauge("safe_mode", "1 in safe mode.")
	descSkew       = gauge("clock_skew_seconds", "How far this machine's time of day is ahead of that of ZooKeeper's leader.")
	descSkewBound  = gauge("clock_skew_bound_seconds", "How far leasefs_clock_skew_seconds can be wrong, either way.")
	descConflict   = gauge("store_conflict", "1 while nothing is deleted because the block store has another copy of the namespace.")
	descUnswept    = gauge("unswept_blocks", "Blocks without a file that the last search left for leasefs admin gc.")
	descPressure   = gauge("space_short", "1 while disk or memory is short: nothing new is made, or would be if this namenode were active, or there is no room for an image, or its own disk cannot be written.")
	descPuts       = gauge("blocks_put_total", "Blocks written to the local store.")
	descGets       = gauge("blocks_get_total", "Reads from the local store.")
	descImageTxID  = gauge("image_txid", "Last record in the newest image.")
	descImagesBad  = gauge("images_damaged", "Published images that were found damaged or gone. While one of the latest two is, nothing older is removed.")
	descGranted    = gauge("granted_leases", "Granted leases, those that are ending included.")
	descAttached   = gauge("attached_files", "Files attached to granted leases.")
	descGrantedEnd = gauge("granted_leases_expired_total", "Granted leases whose time to live was over.")
	descGrantedDue = gauge("granted_lease_oldest_overdue_seconds", "How long the oldest granted lease past its time waits for its end.")
	descCacheSess  = gauge("cache_sessions", "Sessions that may cache what they read.")
	descCacheKeys  = gauge("cache_keys", "Names, attributes and entries that sessions may have cached, one held by two counted twice.")
	descCacheGrant = gauge("cache_grants_total", "Answers that sessions were allowed to keep.")
	descCacheNo    = gauge("cache_refused_total", "Answers that sessions were not allowed to keep.")
	descRevoked    = gauge("cache_revocations_total", "Revocations sent to sessions.")
	descCacheWaits = gauge("cache_waits_total", "Changes that waited for readers.")
	descCacheTerm  = gauge("cache_waits_by_term_total", "Of them, those that waited for the term of a reader that did not answer.")
	descCacheLost  = gauge("cache_lost_total", "Leases of sessions that did not acknowledge a revocation within their term.")
	descWatchers   = gauge("watchers", "Watches under way.")
	descEvents     = gauge("watch_events", "Events kept for watches.")
	descWatchLate  = gauge("watchers_too_slow_total", "Watches that fell behind what is kept.")
	descS3Requests = prometheus.NewDesc("leasefs_s3_requests_total", "Requests of this namenode to the S3 store, each try counted; outcome is ok, refused, trouble (5xx), none (no answer).", []string{"outcome"}, nil)
	descS3Retries  = prometheus.NewDesc("leasefs_s3_retries_total", "Requests to the S3 store that were tried again.", nil, nil)
	descS3Errors   = prometheus.NewDesc("leasefs_s3_errors_total", "Calls to the S3 store that failed in the end, by kind; NOT_FOUND and EXISTS may be as they should.", []string{"kind"}, nil)
	descS3Skew     = prometheus.NewDesc("leasefs_s3_clock_skew_seconds", "How far the S3 store's clock is ahead.", nil, nil)
	descConns      = gauge("connections", "Connections of clients, on both addresses.")
	descConnsNo    = gauge("connections_refused_total", "Connections closed at once because there was no room for more.")
	descConnsEnded = gauge("connections_idle_ended_total", "Idle connections closed to make room for others.")
	descConnsOver  = gauge("connections_overload_ended_total", "Connections closed because they held most of too many bytes of incomplete messages.")
	descUnfinished = gauge("unfinished_bytes", "Bytes of messages that are not complete.")
	descStandby    = gauge("standby", "1 while this one of several namenodes follows the active one.")
	descKept       = gauge("zookeeper_journal_bytes", "Bytes of each ZooKeeper server's memory that the journal takes, its nodes included: images free them.")
	descKeptNodes  = gauge("zookeeper_journal_nodes", "Nodes of the journal that ZooKeeper holds.")
	allDescriptors = []*prometheus.Desc{
		descConns, descConnsNo, descConnsEnded, descConnsOver, descUnfinished,
		descStandby, descKept, descKeptNodes, descSkew, descSkewBound,
		descS3Requests, descS3Retries, descS3Errors, descS3Skew,
		descGranted, descAttached, descGrantedEnd, descGrantedDue, descCacheSess, descCacheKeys, descCacheGrant, descCacheNo, descRevoked,
		descCacheWaits, descCacheTerm, descCacheLost, descWatchers, descEvents, descWatchLate,
		descReady, descTerm, descTxID, descDurable, descBacklog, descJournal, descInodes, descBlocks, descOpen, descStored, descTail,
		descGarbage, descGarbageB, descDetached, descSessions, descAllocated, descLeases, descConnected, descOverdue, descExpired, descRenewals,
		descSafeMode, descConflict, descUnswept, descPressure, descPuts, descGets, descImageTxID, descImagesBad,
	}
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allDescriptors {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.s
	set := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	role := s.role.Status()
	set(descReady, flag(s.role.Ready()))
	set(descPressure, flag(s.calls.shortOf(role) != ""))
	cn := s.front.Conns()
	set(descConns, float64(cn.Open))
	set(descConnsNo, float64(cn.Refused))
	set(descConnsEnded, float64(cn.Ended))
	set(descConnsOver, float64(cn.Overloaded))
	set(descUnfinished, float64(cn.Unfinished))
	if role.Role == "starting" {
		return // there may be no more of it yet
	}
	if st, ok := s.store.(*s3.Store); ok {
		collectS3(ch, st.Stats())
	}
	if role.Several {
		set(descStandby, flag(role.Role == "standby"))
		set(descKept, float64(role.Kept))
		set(descKeptNodes, float64(role.KeptNodes))
	}
	s.clocks.All(func(than string, skew clock.Skew) {
		if than == "zookeeper" {
			set(descSkew, skew.Ahead.Seconds())
			set(descSkewBound, skew.Bound.Seconds())
		}
	})
	if !s.role.Ready() {
		if role.Several && s.engine.Opened() { // how far behind it is
			last := s.engine.Facts().Last
			set(descTxID, float64(last))
			set(descDurable, float64(max(role.Newest, last)))
		}
		return
	}
	n := s.engine.Facts()
	ls := s.leases.Stats()
	total, _ := s.journal.Size()
	set(descTerm, float64(s.role.Term()))
	set(descTxID, float64(n.Last))
	set(descDurable, float64(s.journal.Durable()))
	set(descBacklog, float64(s.journal.Backlog()))
	set(descJournal, float64(total))
	set(descInodes, float64(n.Inodes))
	set(descBlocks, float64(n.Blocks))
	set(descOpen, float64(n.Open))
	set(descStored, float64(n.StoredBytes))
	set(descTail, float64(n.TailBytes))
	set(descGarbage, float64(n.Garbage))
	set(descGarbageB, float64(n.GarbageBytes))
	set(descDetached, float64(n.Detached))
	set(descSessions, float64(n.Sessions))
	set(descAllocated, float64(s.blocks.Allocated()))
	set(descLeases, float64(ls.Leases))
	set(descConnected, float64(ls.Connected))
	set(descOverdue, ls.OldestOverdue.Seconds())
	set(descExpired, float64(ls.Expired))
	set(descRenewals, float64(ls.Renewals))
	set(descGranted, float64(n.Leases))
	set(descAttached, float64(n.Attached))
	set(descGrantedEnd, float64(ls.GrantedExpired))
	set(descGrantedDue, ls.GrantedOverdue.Seconds())
	cs := s.engine.Caches().Stats()
	set(descCacheSess, float64(cs.Sessions))
	set(descCacheKeys, float64(cs.Holdings))
	set(descCacheGrant, float64(cs.Grants))
	set(descCacheNo, float64(cs.Refused))
	set(descRevoked, float64(cs.Revocations))
	set(descCacheWaits, float64(cs.Waits))
	set(descCacheTerm, float64(cs.WaitsByTerm))
	set(descCacheLost, float64(cs.Lost))
	ev := s.events.Stats()
	set(descWatchers, float64(ev.Watchers))
	set(descEvents, float64(ev.Events))
	set(descWatchLate, float64(ev.Dropped))
	set(descSafeMode, flag(n.SafeMode))
	set(descConflict, flag(s.owner.Conflict() != ""))
	set(descUnswept, float64(s.blocks.Unswept()))
	if len(n.Images) > 0 {
		set(descImageTxID, float64(n.Images[len(n.Images)-1].TxID))
	}
	set(descImagesBad, float64(s.images.Bad()))
	if st, ok := s.store.(*local.Store); ok {
		stats := st.Stats()
		set(descPuts, float64(stats.Puts))
		set(descGets, float64(stats.Gets))
	}
}

func collectS3(ch chan<- prometheus.Metric, st s3.Stats) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for outcome, n := range st.Requests {
		count(descS3Requests, n, string(outcome))
	}
	if len(st.Errors) == 0 { // so that the first one is an increase
		count(descS3Errors, 0, fserror.Unavailable.String())
	}
	for kind, n := range st.Errors {
		count(descS3Errors, n, kind.String())
	}
	count(descS3Retries, st.Retries)
	ch <- prometheus.MustNewConstMetric(descS3Skew, prometheus.GaugeValue, st.Skew.Seconds())
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
