// Package meters measures what takes time in a namenode, and what its block store does.
package meters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/leasemanager/readlease"
)

// Set sets a gauge, or a counter if the name ends in _total.
type Set func(name string, v float64, help string)

// Meters are the histograms of a namenode. They are safe for concurrent use.
type Meters struct {
	cacheWait, passLock, journal prometheus.Histogram
	journalBytes                 prometheus.Counter
	store                        *prometheus.HistogramVec
}

// New makes them, and registers them with r.
func New(r prometheus.Registerer) *Meters {
	m := &Meters{
		cacheWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leasefs_cache_wait_seconds", Help: "Time that a change waited for readers to give up what they had cached.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 4, 10),
		}),
		passLock: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leasefs_lease_pass_lock_seconds", Help: "Time under the namespace lock of a pass of the lease monitor that ended leases; it releases the lock between records.",
			Buckets: []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1},
		}),
		journal: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leasefs_journal_write_seconds", Help: "Time from the beginning of the write of a batch of records until it was durable.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18),
		}),
		journalBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "leasefs_journal_written_bytes_total", Help: "Bytes of batches that became durable.",
		}),
		store: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leasefs_store_seconds", Help: "Time of a request to the block store: in a folder, of clients' puts and gets; on S3, where clients ask the store themselves, of each try of this namenode until its answer began.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 18),
		}, []string{"op"}),
	}
	r.MustRegister(m.cacheWait, m.passLock, m.journal, m.journalBytes, m.store)
	return m
}

// Waited counts a change that waited for readers.
func (m *Meters) Waited(d time.Duration) { m.cacheWait.Observe(d.Seconds()) }

// Passed counts a pass of the lease monitor by how long it held the lock.
func (m *Meters) Passed(d time.Duration) { m.passLock.Observe(d.Seconds()) }

// Wrote counts a batch of the journal.
func (m *Meters) Wrote(d time.Duration, bytes int) {
	m.journal.Observe(d.Seconds())
	m.journalBytes.Add(float64(bytes))
}

// Asked counts a request to the block store.
func (m *Meters) Asked(op string, d time.Duration) { m.store.WithLabelValues(op).Observe(d.Seconds()) }

var (
	descRequests = prometheus.NewDesc("leasefs_s3_requests_total", "Requests of this namenode to the S3 store, each try counted; outcome is ok, refused, trouble (5xx), none (no answer).", []string{"outcome"}, nil)
	descErrors   = prometheus.NewDesc("leasefs_s3_errors_total", "Calls to the S3 store that failed in the end, by kind; NOT_FOUND and EXISTS may be as they should.", []string{"kind"}, nil)
	descRejected = prometheus.NewDesc("leasefs_blocks_rejected_total", "Requests to the block folder that were refused or failed, by reason.", []string{"reason"}, nil)
)

// Store collects what a block store has counted.
func Store(ch chan<- prometheus.Metric, set Set, store blockstore.Store) {
	count := func(d *prometheus.Desc, n uint64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	switch store := store.(type) {
	case *s3.Store:
		st := store.Stats()
		for outcome, n := range st.Requests {
			count(descRequests, n, string(outcome))
		}
		if len(st.Errors) == 0 { // so that the first one is an increase
			count(descErrors, 0, fserror.Unavailable.String())
		}
		for kind, n := range st.Errors {
			count(descErrors, n, kind.String())
		}
		set("s3_retries_total", float64(st.Retries), "Requests to the S3 store that were tried again.")
		set("s3_clock_skew_seconds", st.Skew.Seconds(), "How far the S3 store's clock is ahead.")
	case *local.Store:
		st := store.Stats()
		for reason, n := range st.Rejected {
			count(descRejected, n, string(reason))
		}
		set("blocks_put_total", float64(st.Puts), "Blocks written to the block folder.")
		set("blocks_put_bytes_total", float64(st.PutBytes), "Bytes of blocks written to the block folder.")
		set("blocks_get_total", float64(st.Gets), "Reads from the block folder.")
		set("blocks_get_bytes_total", float64(st.GetBytes), "Bytes read from the block folder.")
		set("blocks_puts_under_way", float64(st.PutsInFlight), "Blocks that are being written to the block folder.")
	}
}

// Leases shows what the lease table has counted.
func Leases(set Set, st leasemanager.Stats) {
	set("leases", float64(st.Leases), "Leases that hold files.")
	set("sessions_connected", float64(st.Connected), "Client processes that have a stream.")
	set("lease_oldest_overdue_seconds", st.OldestOverdue.Seconds(), "How long the oldest lease past its hard limit waits for the monitor.")
	set("leases_expired_total", float64(st.Expired), "Leases ended at their hard limit.")
	set("lease_renewals_total", float64(st.Renewals), "Renewals.")
	set("granted_leases_expired_total", float64(st.GrantedExpired), "Granted leases whose time to live was over.")
	set("granted_lease_oldest_overdue_seconds", st.GrantedOverdue.Seconds(), "How long the oldest granted lease past its time waits for its end.")
}

// Caches shows what sessions may have cached, and what that has cost.
func Caches(set Set, st readlease.Stats) {
	set("cache_sessions", float64(st.Sessions), "Sessions that may cache what they read.")
	set("cache_sessions_refused_total", float64(st.Full), "Streams of sessions that may not cache, since too many others do.")
	set("cache_keys", float64(st.Holdings), "Names, attributes and entries that sessions may have cached, one held by two counted twice.")
	set("cache_grants_total", float64(st.Grants), "Answers that sessions were allowed to keep.")
	set("cache_refused_total", float64(st.Refused), "Answers that sessions were not allowed to keep.")
	set("cache_revocations_total", float64(st.Revocations), "Revocations sent to sessions.")
	set("cache_waits_total", float64(st.Waits), "Changes that waited for readers.")
	set("cache_waits_by_term_total", float64(st.WaitsByTerm), "Of them, those that waited for the term of a reader that did not answer.")
	set("cache_lost_total", float64(st.Lost), "Leases of sessions that did not acknowledge a revocation within their term.")
}
