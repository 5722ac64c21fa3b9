package fuse

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
)

// armed knows of which inodes the kernel may have attributes or pages that it
// uses without asking, and counts what was revoked of each, so that whoever looked at
// one, the kernel or a Reader, can tell whether it still is as it looked.
type armed struct {
	mu sync.Mutex
	of map[uint64]*arm
	// all is how often everything was revoked.
	all uint64
}

type arm struct {
	n       *node
	revoked uint64 // how often
	attrs   bool   // the kernel may use attributes
	pages   bool   // it may have pages
}

// begin is called before anybody looks at a node, and returns what tells whether
// anything was revoked since: good and opened compare with it. The count lives as long
// as the kernel knows the node.
func (a *armed) begin(n *node) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.get(n).revoked + a.all
}

// get: the caller holds mu.
func (a *armed) get(n *node) *arm {
	e := a.of[n.ino]
	if e == nil {
		e = &arm{}
		a.of[n.ino] = e
	}
	e.n = n
	return e
}

// good notes that the kernel gets attributes to keep, unless there was a
// revocation since begin. One that comes later is notified.
func (a *armed) good(n *node, seen uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.get(n)
	if e.revoked+a.all != seen {
		return false
	}
	e.attrs = true
	return true
}

// opened notes that the file is read through pages from now on, and tells
// whether those that the kernel has are good.
func (a *armed) opened(n *node, seen uint64) (keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.get(n)
	if e.revoked+a.all != seen {
		return false
	}
	keep = e.pages
	e.pages = true
	return keep
}

// forget is called when the kernel does not know a node any more, unless it has
// asked for it again by now.
func (a *armed) forget(n *node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.of[n.ino]; e != nil && e.n == n && n.forgotten() {
		delete(a.of, n.ino)
	}
}

// revoked returns which nodes the kernel has to be told of.
func (a *armed) revoked(r client.Revocation) (tell []*node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	take := func(e *arm) {
		if e.attrs || e.pages {
			tell = append(tell, e.n)
		}
		e.attrs, e.pages = false, false
	}
	if r.All {
		a.all++
		for _, e := range a.of {
			take(e)
		}
		return tell
	}
	for _, ino := range r.Inodes {
		if e := a.of[ino]; e != nil {
			e.revoked++
			take(e)
		}
	}
	return tell
}

// giveUp notes a revocation, if the kernel has no pages of the inodes, and returns
// of which it may use attributes; else ok is false, and nothing is noted.
func (a *armed) giveUp(inodes []uint64) (tell []*node, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ino := range inodes {
		if e := a.of[ino]; e != nil && e.pages {
			return nil, false
		}
	}
	for _, ino := range inodes {
		if e := a.of[ino]; e != nil {
			e.revoked++
			if e.attrs {
				tell = append(tell, e.n)
			}
			e.attrs = false
		}
	}
	return tell, true
}

// givesUp drops what this mount, and the kernel, made of what a call of its own is
// about to change; false if the kernel would have to be told what a handler cannot
// tell it, since that may wait for handlers: attributes are dropped at once.
func (m *Mounted) givesUp(r client.Revocation) bool {
	if m.epochs.believed(r) {
		return false
	}
	tell, ok := m.armed.giveUp(r.Inodes)
	if !ok {
		return false
	}
	for _, n := range tell {
		m.tell(n, attrsOnly)
	}
	return true
}

const (
	// notifiers is how many notifications are under way at once.
	notifiers = 8
	// unknownAgain is when the kernel is told again of an inode that it does not
	// know yet.
	unknownAgain = time.Millisecond
	// attrsOnly is the offset of a notification that leaves the pages alone.
	attrsOnly = -1
)

// revoked drops what this mount, and the kernel, made of what is revoked. The
// library acknowledges the revocation when it returns: when the kernel has
// dropped it, or at the end of the term, after which it asks again anyway.
func (m *Mounted) revoked(r client.Revocation) {
	tell := m.armed.revoked(r)
	m.epochs.revoked(r)
	if len(tell) == 0 {
		return
	}
	done := make(chan struct{})
	if !m.goRun(func() {
		defer close(done)
		var g errgroup.Group
		g.SetLimit(notifiers)
		for _, n := range tell {
			g.Go(func() error {
				m.tell(n, 0)
				return nil
			})
		}
		_ = g.Wait() // none fails
	}) {
		return
	}
	over := time.NewTimer(m.term())
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	}
}

// tell makes the kernel drop attributes of a node, and with an offset of 0 its
// pages. Should it not know the inode, the answer by which it gets to know it may
// still be under way: then it is told again, until it knows it, or has forgotten
// it, or would not believe the answer any more.
func (m *Mounted) tell(n *node, off int64) {
	for end := time.Now().Add(m.term()); ; {
		// Other errors: the mount is gone, and so is what it had. So it is if the kernel
		// does not know the root: it forgets what it had without telling this process.
		if n.NotifyContent(off, 0) != syscall.ENOENT || n.forgotten() || time.Now().After(end) || m.ctx.Err() != nil ||
			n.Root().NotifyContent(attrsOnly, 0) == syscall.ENOENT {
			return
		}
		m.pause(unknownAgain)
	}
}
