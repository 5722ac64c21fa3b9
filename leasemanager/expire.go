package leasemanager

import (
	"time"

	"github.com/google/btree"
)

const (
	// endFiles is how many files of a lease one Ending has at most.
	endFiles = 1000
	// lookPerLease is how many leases a call of Expire looks at for each that
	// it may return (looked at and put back, because renewed meanwhile), and
	// lookAtLeast is the least.
	lookPerLease = 4
	lookAtLeast  = 64

	maxSleep = time.Second
	// failedSleep is the pause before leases are tried again whose records
	// could not be written, endingSleep before those that are being ended are
	// looked at again.
	failedSleep = time.Second
	endingSleep = 100 * time.Millisecond
)

// Sleep is how long the monitor may sleep before it calls Expire and
// ExpireGranted: until the next lease can be past its hard limit or TTL. 0 if
// there is something to do at once; at most a second and at most the hard limit,
// so that a lease that comes meanwhile is not overslept for long; a second if
// all that is to do is to try again what failed.
func (m *Manager) Sleep() time.Duration {
	now := m.now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	sleep := min(maxSleep, m.cfg.Hard)
	if m.safeMode {
		return sleep + 1
	}
	if len(m.portions) > 0 {
		return 0
	}
	if m.ending.Len() > 0 || m.over.Len() > 0 {
		sleep = min(sleep, endingSleep)
	}
	sleep = min(sleep, m.order.due(now, m.cfg.Hard), m.deadlines.due(now, 0))
	return sleep + 1 // strictly later than the limit
}

// Expire begins the end of leases that are past their hard limit: at most n of
// them, and for at most the slice of lock time, the oldest first, from where
// the call before stopped. From then on they cannot be renewed. For each one
// returned the caller closes the files by a record, calls Close for them when it
// is applied, and then Ended; or NotEnded if that could not be done. Nil if there
// is nothing to do. Granted leases are for ExpireGranted.
func (w *writers) Expire(n int) []Ending {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.safeMode {
		return nil
	}
	begin := w.now()
	var out []Ending

	// Half of the room for the next files of leases that have many.
	for len(w.portions) > 0 && len(out) < (n+1)/2 && w.inTime(begin) {
		l := w.portions[0]
		w.portions[0] = nil
		w.portions = w.portions[1:]
		if l.id != 0 { // else all its files went otherwise
			out = append(out, handOut(l))
		}
	}
	w.order.walk(w.timing, begin, w.cfg.Hard, n-len(out), func(it item) bool {
		if !w.order.markEnding(w.timing, it, 0, w.ending) {
			return false
		}
		it.l.s.endings++
		w.settle(it.l.s)
		out = append(out, handOut(it.l))
		return true
	})
	return out
}

// order is a tree of leases, with a walk through it from pass to pass.
type order struct {
	*btree.BTreeG[item]
	cursor item // the last lease tried
	walked bool // the walk came to the end: the next starts over
}

func newOrder() order { return order{BTreeG: btree.NewG(32, byStamp)} }

// next returns the first lease behind the cursor.
func (o *order) next() (next item, ok bool) {
	pivot := item{stamp: o.cursor.stamp, id: o.cursor.id + 1}
	o.AscendGreaterOrEqual(pivot, func(it item) bool {
		next, ok = it, true
		return false
	})
	return next, ok
}

// due is how long until a lease can be past the limit; below 0 if one can be now.
func (o *order) due(now, limit time.Duration) time.Duration {
	sleep := maxSleep
	until := func(it item) time.Duration { return max(limit-(now-it.stamp), -1) }
	if it, ok := o.next(); ok {
		sleep = min(sleep, until(it))
	}
	if it, ok := o.Min(); ok && !byStamp(o.cursor, it) {
		// Behind the cursor: tried in this walk, and put back.
		if d := until(it); d < 0 {
			sleep = min(sleep, failedSleep)
		} else {
			sleep = min(sleep, d)
		}
	}
	return sleep
}

// walk continues its way through the leases that may be past the limit, until n of them
// could be ended.
func (o *order) walk(tm *timing, begin, limit time.Duration, n int, end func(item) bool) {
	if o.walked {
		o.cursor, o.walked = item{}, false
	}
	for looks := 0; n > 0 && looks < lookAtLeast+lookPerLease*n && tm.inTime(begin); looks++ {
		it, ok := o.next()
		if !ok || begin-it.stamp <= limit {
			o.walked = true // the call that finds no more says so: one that failed comes in the next walk
			break
		}
		o.cursor = item{stamp: it.stamp, id: it.id}
		if end(it) {
			n--
		}
	}
}

// markEnding sets the ending bit of a lease whose key is past its limit, or puts the lease
// back under its true key, if that is later; it comes again if that is past, too.
func (o *order) markEnding(tm *timing, it item, ttl time.Duration, ending *btree.BTreeG[item]) bool {
	l := it.l
	for {
		w := l.word.Load()
		key := max(stampOf(w), tm.floor) + ttl
		late := key <= it.stamp
		if late && !l.word.CompareAndSwap(w, w|flagEnding) {
			continue
		}
		o.Delete(it)
		if !late {
			l.key = key
			o.ReplaceOrInsert(item{key, l.id, l})
			return false
		}
		ending.ReplaceOrInsert(it)
		return true
	}
}

// handOut returns the next files of an ending lease.
func handOut(l *lease) Ending {
	l.out = true
	n := min(len(l.files), endFiles)
	e := Ending{LeaseID: l.id, Holder: l.s.holder, Files: make([]Ref, 0, n)}
	for _, f := range l.files[len(l.files)-n:] {
		e.Files = append(e.Files, f.ref())
	}
	return e
}

// handedOut returns the lease that Expire gave to the caller, or nil.
func (w *writers) handedOut(leaseID uint64) *lease {
	it, ok := w.ids.Get(item{id: leaseID})
	if !ok || !it.l.out {
		return nil
	}
	return it.l
}

// Ended is called when the records of an Ending are durable and its files were
// Closed, all of them or the first ones. If the lease has more files, they come in
// a later call of Expire; else it is forgotten.
func (w *writers) Ended(leaseID uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.handedOut(leaseID)
	if l == nil {
		return
	}
	l.out = false
	if len(l.files) > 0 {
		w.portions = append(w.portions, l)
		return
	}
	w.finish(l)
	w.settle(l.s)
}

// NotEnded is called when the records of an Ending could not be written: the
// lease is as it was before, and is tried again in a later walk through the
// order. Files of it that were Closed stay closed.
func (w *writers) NotEnded(leaseID uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.handedOut(leaseID)
	if l == nil {
		return
	}
	l.out = false
	s := l.s
	if len(l.files) == 0 {
		w.finish(l)
		w.settle(s)
		return
	}
	w.ending.Delete(item{stamp: l.key, id: l.id})
	w.order.ReplaceOrInsert(item{l.key, l.id, l})
	s.endings--
	l.setFlag(flagEnding, false)
	w.settle(s)
}
