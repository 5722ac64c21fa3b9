package client

import (
	"time"
)

// WithSlowCloses is for how long a call that closes drafts counts.
func (f *FS) WithSlowCloses(d time.Duration) {
	f.closes.mu.Lock()
	defer f.closes.mu.Unlock()
	f.closes.slow = d
}

// ClosesWaiting is how many closes wait for the end of another.
func (f *FS) ClosesWaiting() int {
	f.closes.mu.Lock()
	defer f.closes.mu.Unlock()
	return len(f.closes.waiting)
}

// Calls is how many call ids are in use, or kept behind one that is.
func (f *FS) Calls() uint64 {
	return f.ids.Under()
}
