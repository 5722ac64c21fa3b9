package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// WorkConfig is what a Work needs to know of the fleet that it is done on.
type WorkConfig struct {
	Seed      uint64
	S3        bool // blocks are in a store
	Sparse    bool // clients think longer between calls: see think
	Clients   int
	Namenodes []string               // addresses
	Host      func(name string) Host // the machine of a client
	Machines  []string               // of the fleet, as the trace has lanes for them

	Soft, Hard time.Duration // lease limits of the namenodes
	// Settled is how long after the last fault all that waits for a limit is over,
	// besides that limit: a namenode takes over, holders come back, its monitor runs.
	Settled time.Duration
	Largest int          // size of a file in bytes
	Broken  func(string) // is told of each broken promise; nil: nobody is
	// KeepLevel: no operator raises the feature level, as namenodes of the release before are there.
	KeepLevel bool
}

// Host is the machine of a client.
type Host interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Crash() // breaks all connections, and makes no other until Restart
	Restart()
}

// Work is what clients do on a fleet, what they know together, and the history of
// both. Every World has one. Nothing of it depends on simulated time, so a fleet of
// processes can have one, too.
type Work struct {
	with     WorkConfig
	clients  []*worker
	follow   *follower
	operator *worker
	truth    *truth
	began    time.Time
	log      *history
	running  sync.WaitGroup
	calls    atomic.Int64 // of clients, answered or not
}

// NewWork makes the work of a fleet of processes.
func NewWork(cfg WorkConfig) *Work {
	w := new(Work)
	w.set(cfg)
	return w
}

// set makes everybody; they connect when they begin.
func (w *Work) set(cfg WorkConfig) {
	w.with, w.began = cfg, time.Now()
	w.log = &history{began: w.began, warns: map[string]*warnings{}}
	w.truth = newTruth(w)
	for i := range cfg.Clients {
		w.clients = append(w.clients, newWorker(w, i))
	}
	w.follow = newFollower(w)
	w.operator = newWorker(w, len(w.clients))
}

// rand is a source of chance for one part of the work.
func (w *Work) rand(part string, number int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(fmt.Sprintf("%s %d", part, number)) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.with.Seed, h)) //nolint:gosec // reproducible
}

// think is how long a client waits between two calls: up to most, or in a sparse fleet
// between a tenth and a hundred times of that. The logarithm of the wait is uniform
// then, so there are bursts as well as long silences.
func (w *Work) think(r *rand.Rand, most time.Duration) time.Duration {
	if !w.with.Sparse {
		return time.Duration(r.Int64N(int64(most)))
	}
	return time.Duration(float64(most) * math.Pow(1000, r.Float64()) / 10)
}

// everybody is all who work.
func (w *Work) everybody() []*worker {
	return append(append([]*worker{}, w.clients...), w.operator, w.follow.c)
}

// Begin waits until a namenode serves, and watches all that changes from then on.
func (w *Work) Begin(ctx context.Context) error { return w.follow.begin(ctx) }

// Do lets everybody work until ctx ends, and calls beside meanwhile. It returns when
// both have ended.
func (w *Work) Do(ctx context.Context, beside func()) {
	var all sync.WaitGroup
	for _, c := range w.clients {
		all.Go(func() { c.work(ctx) })
	}
	all.Go(func() { w.operate(ctx) })
	beside()
	all.Wait()
}

// Leave closes all clients but the one that watches.
func (w *Work) Leave() {
	for _, c := range append(w.clients, w.operator) {
		c.end()
		c.fs = nil
	}
}

// End closes all clients.
func (w *Work) End() {
	for _, c := range w.everybody() {
		c.end()
	}
}

// Note adds a line about somebody to the history.
func (w *Work) Note(who, format string, args ...any) { w.log.note(who, format, args...) }

// Logged adds a line that somebody has logged.
func (w *Work) Logged(who, line string, warning bool) {
	kind := logEvent
	if warning {
		kind = warnEvent
	}
	w.log.add(&event{Who: who, Kind: kind, What: line})
}

// Fault notes that something begins to fail, and whom that hits. It has healed when
// over is called.
func (w *Work) Fault(what string, hits ...string) (over func()) {
	w.log.note("fault", "%s: %v", what, hits)
	done := w.log.begin(&event{Who: "fault", Kind: faultEvent, What: what, Hits: hits})
	return func() {
		w.log.note("fault", "heal: %s: %v", what, hits)
		done(nil)
	}
}

// Break notes that a promise was broken that the work itself does not look at.
func (w *Work) Break(format string, args ...any) { w.truth.broken(format, args...) }
