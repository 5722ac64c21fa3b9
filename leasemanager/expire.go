package leasemanager

import "time"

const (
	// endFiles is how many files of a lease one Ending has at most.
	endFiles = 1000
	// lookPerLease is how many leases a call of Expire looks at for each that
	// it may return (looked at and put back, because renewed meanwhile), and
	// lookAtLeast is the least.
	lookPerLease = 4
	lookAtLeast  = 64

	maxSleep = time.Minute
	// failedSleep is the pause before leases are tried again whose records
	// could not be written, endingSleep before those that are being ended are
	// looked at again.
	failedSleep = time.Second
	endingSleep = 100 * time.Millisecond
)

// Sleep is how long the monitor may sleep before it calls Expire: until the next
// lease can be past its hard limit. 0 if there is something to do at once; at
// most a minute and at most the hard limit, so that a lease that comes
// meanwhile is not overslept; a second if all that is to do is to try again
// what failed.
func (m *Manager) Sleep() time.Duration {
	now := m.cfg.Clock.Mono()
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, hard := m.limits(nil)
	sleep := min(maxSleep, hard)
	if m.safeMode {
		return sleep + 1
	}
	if len(m.portions) > 0 {
		return 0
	}
	if m.ending.Len() > 0 {
		sleep = min(sleep, endingSleep)
	}
	due := func(key time.Duration) time.Duration { return max(hard-(now-key), -1) }
	if it, ok := m.after(m.cursor); ok {
		sleep = min(sleep, due(it.stamp))
	}
	if it, ok := m.order.Min(); ok && !byStamp(m.cursor, it) {
		// Behind the cursor: tried in this walk, and put back.
		if d := due(it.stamp); d < 0 {
			sleep = min(sleep, failedSleep)
		} else {
			sleep = min(sleep, d)
		}
	}
	return sleep + 1 // strictly later than the limit
}

// after returns the first lease in the order after the cursor.
func (m *Manager) after(cursor item) (next item, ok bool) {
	pivot := item{stamp: cursor.stamp, id: cursor.id + 1}
	m.order.AscendGreaterOrEqual(pivot, func(it item) bool {
		next, ok = it, true
		return false
	})
	return next, ok
}

// Expire begins the end of leases that are past their hard limit: at most n of
// them, and for at most the slice of lock time, the oldest first, going on where
// the call before stopped. From then on they cannot be renewed. For each one
// returned the caller closes the files by a record, calls Close for them when it
// is applied, and then Ended; or NotEnded if that could not be done. Nil if there
// is nothing to do.
func (m *Manager) Expire(n int) []Ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.safeMode {
		return nil
	}
	begin := m.cfg.Clock.Mono()
	inTime := func() bool { return m.cfg.Clock.Mono()-begin <= m.cfg.Slice }
	var out []Ending

	// Half of the room for the next files of leases that have many.
	for len(m.portions) > 0 && len(out) < (n+1)/2 && inTime() {
		l := m.portions[0]
		m.portions[0] = nil
		m.portions = m.portions[1:]
		if l.id != 0 { // else all its files went otherwise
			out = append(out, handOut(l))
		}
	}

	if m.walked {
		m.cursor, m.walked = item{}, false
	}
	for looks := 0; looks < lookAtLeast+lookPerLease*n && inTime(); looks++ {
		it, ok := m.after(m.cursor)
		if _, hard := m.limits(it.l); !ok || begin-it.stamp <= hard {
			m.walked = true
			break
		}
		if len(out) >= n {
			break
		}
		m.cursor = item{stamp: it.stamp, id: it.id}
		if m.end(it, begin) {
			out = append(out, handOut(it.l))
		}
	}
	return out
}

// end sets the lease's ending bit, or puts it back under its true stamp if it was
// renewed.
func (m *Manager) end(it item, now time.Duration) bool {
	l := it.l
	_, hard := m.limits(l)
	for {
		w := l.word.Load()
		stamp := max(time.Duration(w>>stampShift), m.floor) //nolint:gosec // was a duration
		expired := now-stamp > hard
		if expired && !l.word.CompareAndSwap(w, w|flagEnding) {
			continue
		}
		m.order.Delete(it)
		l.key = stamp
		moved := item{stamp, l.id, l}
		if !expired {
			m.order.ReplaceOrInsert(moved)
			return false
		}
		m.ending.ReplaceOrInsert(moved)
		l.s.endings++
		m.settle(l.s)
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
func (m *Manager) handedOut(leaseID uint64) *lease {
	it, ok := m.ids.Get(item{id: leaseID})
	if !ok || !it.l.out {
		return nil
	}
	return it.l
}

// Ended is called when the records of an Ending are durable and all its files
// were Closed. If the lease has more files, they come in a later call of Expire;
// else it is forgotten.
func (m *Manager) Ended(leaseID uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.handedOut(leaseID)
	if l == nil {
		return
	}
	l.out = false
	if len(l.files) > 0 {
		m.portions = append(m.portions, l)
		return
	}
	m.finish(l)
	m.settle(l.s)
}

// NotEnded is called when the records of an Ending could not be written: the
// lease is as it was before, and is tried again in a later walk through the
// order. Files of it that were Closed stay closed.
func (m *Manager) NotEnded(leaseID uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.handedOut(leaseID)
	if l == nil {
		return
	}
	m.notEnded++
	l.out = false
	s := l.s
	if len(l.files) == 0 {
		m.finish(l)
		m.settle(s)
		return
	}
	m.ending.Delete(item{stamp: l.key, id: l.id})
	m.order.ReplaceOrInsert(item{l.key, l.id, l})
	s.endings--
	l.setFlag(flagEnding, false)
	m.settle(s)
}
