package fuse

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
)

// kernelCache is the book of what the kernel may use of this mount without asking.
// Each time-out, each flag of an OPEN and each notification comes from it:
//
//	what                 is given with           for how long            is taken back by
//	attributes           GETATTR, LOOKUP         at most maxAttrTime     a notification about the inode
//	  of a draft         GETATTR, CREATE         1/20 of draftTime       the same, before it is made
//	pages                OPEN to read            until they are revoked  a notification about the inode
//	names of directories LOOKUP, with epochs     at most maxAttrTime     a new epoch, for all of them
//	other names, absent names, listings,
//	what was just made or changed: nothing
//
// No time-out is longer than what remains of the cache lease. What a Reader has
// read is in the same book: it is valid while its glance is.
//
// Whoever looks at something takes a glance first, and afterwards asks the book what
// may be said of it. A revocation in between makes the glance invalid, and one that
// comes later is notified, so nothing is given that cannot be taken back. The book
// also knows which size the kernel believes a file to have: see length.
//
// Its methods are safe for concurrent use.
type kernelCache struct {
	ctx       context.Context      // of the mount
	remaining func() time.Duration // of the cache lease
	run       func(func()) bool    // in the background; false: the mount ends
	names     names

	mu sync.Mutex
	of map[uint64]*cached
	// all counts the revocations of everything.
	all uint64
	// struck counts those of single inodes, whichever. A new entry begins with it, so
	// that none has a glance of the one before it if there was a revocation in between.
	struck uint64
}

// kernelInode is an inode as the kernel knows it.
type kernelInode interface {
	number() uint64
	// drop makes the kernel drop attributes, and with pages the pages. ENOENT: it
	// does not know the inode (yet).
	drop(pages bool) syscall.Errno
	// grow makes the kernel believe that the file has at least that size; false if
	// that cannot be.
	grow(ctx context.Context, size int64) bool
	// forgotten tells whether the kernel has forgotten it, or the whole mount.
	forgotten() bool
}

// cached is what the book has of one inode.
type cached struct {
	n       kernelInode // nil until it is asked about
	revoked uint64      // how often
	attrs   bool        // the kernel may use attributes
	pages   bool        // it may keep pages for the next opening
	length
}

// glance says when somebody looked: how many revocations there were.
type glance uint64

const (
	// maxAttrTime is the longest that the kernel may keep attributes and names.
	maxAttrTime = time.Second
	// notifiers is how many notifications are under way at once.
	notifiers = 8
	// unknownAgain is when the kernel is told again of an inode that it does not
	// know yet.
	unknownAgain = time.Millisecond
)

func newKernelCache(ctx context.Context, remaining func() time.Duration, run func(func()) bool) *kernelCache {
	return &kernelCache{ctx: ctx, remaining: remaining, run: run, of: make(map[uint64]*cached), names: names{ctx: ctx}}
}

// get: the caller holds mu.
func (k *kernelCache) get(ino uint64) *cached {
	e := k.of[ino]
	if e == nil {
		e = &cached{revoked: k.struck}
		k.of[ino] = e
	}
	return e
}

// glance is called before anybody looks at an inode. The book keeps its count as
// long as the kernel knows the inode.
func (k *kernelCache) glance(n kernelInode) glance {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(n.number())
	e.n = n
	return k.seen(e)
}

// seen: the caller holds mu.
func (k *kernelCache) seen(e *cached) glance { return glance(e.revoked + k.all) }

// attrs returns for how long the kernel may use the attributes that were seen.
func (k *kernelCache) attrs(n kernelInode, g glance, most time.Duration) time.Duration {
	valid := min(most, maxAttrTime, k.remaining())
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(n.number())
	if valid <= 0 || e.n == nil || k.seen(e) != g {
		return 0
	}
	e.attrs = true
	return valid
}

// pages returns how a file is opened that is read through pages from now on: with
// those that the kernel has, or without. kept: what was seen is held under the lease.
func (k *kernelCache) pages(n kernelInode, g glance, kept bool) (flags uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.get(n.number())
	if !kept || e.n == nil || k.seen(e) != g {
		return 0
	}
	if e.pages {
		flags = fuse.FOPEN_KEEP_CACHE
	}
	e.pages = true
	return flags
}

// name returns for how long the kernel may believe a name of a directory. holds is
// called when the name is in the book: it tells whether the name still stands for
// that directory, and is held under the lease.
func (k *kernelCache) name(name client.RevokedName, holds func() bool) time.Duration {
	if !k.names.give(name) || !holds() {
		return 0
	}
	return max(0, min(maxAttrTime, k.remaining()))
}

// forget is called when the kernel does not know an inode any more, unless it has
// asked for it again by now.
func (k *kernelCache) forget(n kernelInode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[n.number()]; e != nil && (e.n == nil || e.n == n) && n.forgotten() {
		delete(k.of, n.number())
	}
}

// revoked takes back what is revoked. When it returns the kernel has dropped it, or
// does not believe it any more: it asks again at the end of the term anyway.
func (k *kernelCache) revoked(r client.Revocation) {
	tell := k.strike(r)
	k.names.revoked(r)
	if len(tell) == 0 {
		return
	}
	done := make(chan struct{})
	if !k.run(func() {
		defer close(done)
		var g errgroup.Group
		g.SetLimit(notifiers)
		for _, n := range tell {
			g.Go(func() error {
				k.tell(n, true)
				return nil
			})
		}
		_ = g.Wait() // none fails
	}) {
		return
	}
	over := time.NewTimer(k.term())
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	}
}

// strike notes a revocation, and returns of which inodes the kernel has to be told.
func (k *kernelCache) strike(r client.Revocation) (tell []kernelInode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.All || r.Lease {
		k.all++
		for _, e := range k.of {
			tell = e.take(tell)
		}
		return tell
	}
	k.struck++
	for _, ino := range r.Inodes {
		if e := k.of[ino]; e != nil {
			e.revoked++
			tell = e.take(tell)
		}
	}
	return tell
}

// mayHavePages tells whether the kernel may have pages: those that it keeps from one
// opening to the next, or those that a handle, or a mapping of it, has read since they
// were revoked last.
func (e *cached) mayHavePages() bool { return e.pages || e.opens > 0 }

// take takes back what was given, and adds the inode to those whom that concerns.
func (e *cached) take(tell []kernelInode) []kernelInode {
	if e.n != nil && (e.attrs || e.mayHavePages()) {
		tell = append(tell, e.n)
	}
	e.attrs, e.pages = false, false
	return tell
}

// givesUp takes back what a call of this mount is about to change; false if the
// kernel would have to be told what a handler cannot tell it, since that may wait
// for handlers: pages and names. Attributes are dropped at once.
func (k *kernelCache) givesUp(r client.Revocation) bool {
	return !k.names.believed(r) && k.takeAttrs(r.Inodes...)
}

// takeAttrs makes the kernel drop attributes that this mount is about to change, or
// that others may change from now on, without waiting; false, with nothing noted, if the
// kernel has pages of one of the inodes.
func (k *kernelCache) takeAttrs(inodes ...uint64) bool {
	tell, ok := k.strikeAttrs(inodes)
	for _, n := range tell {
		k.tell(n, false)
	}
	return ok
}

func (k *kernelCache) strikeAttrs(inodes []uint64) (tell []kernelInode, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ino := range inodes {
		if e := k.of[ino]; e != nil && e.mayHavePages() {
			return nil, false
		}
	}
	k.struck++
	for _, ino := range inodes {
		if e := k.of[ino]; e != nil {
			e.revoked++
			tell = e.take(tell)
		}
	}
	return tell, true
}

// term is for how long at the most the kernel believes what it has.
func (k *kernelCache) term() time.Duration { return max(k.remaining(), maxAttrTime) }

// tell makes the kernel drop attributes of an inode, and with pages its pages.
// Should it not know the inode, the answer by which it gets to know it may still be
// under way: then it is told again, until it knows it, or has forgotten it, or would
// not believe the answer any more.
func (k *kernelCache) tell(n kernelInode, pages bool) {
	asks := k.asked(n)
	for end := time.Now().Add(k.term()); ; {
		// Other errors: the mount is gone, and so is what it had.
		if n.drop(pages) != syscall.ENOENT || n.forgotten() || time.Now().After(end) || k.ctx.Err() != nil {
			break
		}
		_ = clock.Pause(k.ctx, unknownAgain) // the loop looks whether it is over
	}
	if pages { // else it is a directory, or the thread that changes the file holds it
		k.voided(k.ctx, n, asks)
	}
}

const (
	// maxGiven is how many names of directories the kernel may believe at once;
	// further ones get no time-out.
	maxGiven = 100_000
	// givenGrace is for how long an answer may take to reach the kernel, whose
	// time-out begins only then. A mount that is stopped for longer has lost its lease.
	givenGrace = 10 * time.Second
	// epochQuiet is how long the kernel gets no names to believe after it had to
	// forget all of them: with them it forgets what it has of the files below that
	// nobody has open.
	epochQuiet = 30 * time.Second
)

// names are the part of the book that is about names of directories. One notification
// takes back all of them: the kernel's names have the epoch in which it asked for
// them, and it asks again for those of an older one. It takes no lock, so it waits
// for nobody; when it has returned it has happened.
type names struct {
	next   func() error    // begins one; nil: this kernel has none
	inside func() bool     // something else is mounted inside the mount
	ctx    context.Context // of the mount
	quiet  time.Duration

	mu sync.Mutex
	// given is until when the kernel may believe a name, at the latest.
	given map[client.RevokedName]time.Time
	any   bool      // since the last epoch began
	from  time.Time // none is given before
}

// start lets names be given: next begins an epoch, inside tells whether something
// else is mounted in the mount.
func (s *names) start(next func() error, inside func() bool, quiet time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = make(map[client.RevokedName]time.Time)
	s.next, s.inside, s.quiet = next, inside, quiet
}

// give notes that the kernel may be told to believe a name from now on, if what
// it stands for is found in the cache after this; false: it must not be.
func (s *names) give(name client.RevokedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.next == nil || now.Before(s.from) {
		return false
	}
	if len(s.given) >= maxGiven {
		for k, until := range s.given {
			if now.After(until) {
				delete(s.given, k)
			}
		}
		if len(s.given) >= maxGiven {
			return false
		}
	}
	s.given[name], s.any = now.Add(maxAttrTime+givenGrace), true
	return true
}

// believed tells whether the kernel may believe something of what is revoked.
func (s *names) believed(r client.Revocation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit(r)
}

// hit: the caller holds mu.
func (s *names) hit(r client.Revocation) bool {
	if r.All || r.Lease {
		return s.any
	}
	now := time.Now()
	for _, name := range r.Names {
		if until, ok := s.given[name]; ok && now.Before(until) {
			return true
		}
	}
	return false
}

// revoked makes the kernel forget all names if it may believe one that is revoked.
// When it returns, none of them is believed.
func (s *names) revoked(r client.Revocation) {
	s.mu.Lock()
	if !s.hit(r) {
		s.mu.Unlock()
		return
	}
	s.from = time.Now().Add(s.quiet)
	s.mu.Unlock()
	// The kernel would take away what is mounted on the folders that it forgets.
	// Then it is left to forget by itself, answers under way included.
	if s.inside() || !s.newEpoch() {
		_ = clock.Pause(s.ctx, 2*maxAttrTime) // or the mount has ended
	}
}

// newEpoch begins an epoch. Whatever was given before is of one that is over: who
// asked for it had asked before.
func (s *names) newEpoch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next() != nil {
		return false
	}
	clear(s.given)
	s.any = false
	return true
}
