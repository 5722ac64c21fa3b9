package local

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// slots is the HTTP PUTs under way, of which there may be only so many. When all
// are taken, one of a block that has several makes room for a new one, or else
// one that brings too little. The last quarter is for addresses that have few.
type slots struct {
	most     int
	now      func() time.Duration
	underWay chan struct{} // has an element for each PUT that may hang in the file system
	patience time.Duration // for one that was cut off to end

	mu   sync.Mutex
	puts map[*slot]struct{}
	of   map[blockstore.Key]int // how many a block has
	from map[string]int         // how many an address has
}

// slot is a PUT under way.
type slot struct {
	key    blockstore.Key
	from   string
	got    atomic.Int64
	cutOff func()        // ends its reading; called once at most
	isOut  chan struct{} // closed when it was cut off

	// Guarded by the lock of all: since when, and from how many bytes on, it is
	// looked at, and whether it was cut off.
	since time.Duration
	seen  int64
	out   bool
}

// cutPatience is for how long a PUT waits for one that makes room for it. That takes a moment, or a
// sync of the disk.
const cutPatience = 5 * time.Second

// newSlots makes room for most PUTs.
func newSlots(most int, now func() time.Duration) *slots {
	return &slots{most: most, now: now, underWay: make(chan struct{}, most), patience: cutPatience, puts: map[*slot]struct{}{}, of: map[blockstore.Key]int{}, from: map[string]int{}}
}

// sourceOf is whose places the PUTs from a remote address take: of IPv6 a network's, since one
// machine has a network of addresses. The namenode counts connections the same way.
func sourceOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	a := at.Addr().Unmap().WithZone("")
	if net, err := a.Prefix(64); err == nil && a.Is6() {
		return net.String()
	}
	return a.String()
}

// take begins a PUT. ok is false if there is no room.
func (s *slots) take(key blockstore.Key, from string, cutOff func()) (p *slot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	few := s.from[from] < max(s.most/8, 1)
	for len(s.puts) >= s.most || !few && len(s.puts) >= s.most*3/4 {
		victim := s.victim(key, now)
		if victim == nil {
			return nil, false
		}
		s.cut(victim)
	}
	p = &slot{key: key, from: from, cutOff: cutOff, isOut: make(chan struct{}), since: now}
	s.puts[p] = struct{}{}
	s.of[key]++
	s.from[from]++
	return p, true
}

// victim is a PUT that makes room for one of key: of the same block, of one that
// has several, or one that brings less than blockstore.PutRate, the slowest. How
// fast it is it shows in a second.
func (s *slots) victim(key blockstore.Key, now time.Duration) (slow *slot) {
	least := int64(blockstore.PutRate)
	for p := range s.puts {
		if p.key == key || s.of[p.key] > 1 {
			return p
		}
		took := now - p.since
		if took < time.Second {
			continue
		}
		got := p.got.Load()
		if rate := int64(float64(got-p.seen) / took.Seconds()); rate < least {
			slow, least = p, rate
		} else if rate >= blockstore.PutRate {
			p.since, p.seen = now, got
		}
	}
	return slow
}

// cut ends a PUT that has to make room.
func (s *slots) cut(p *slot) {
	p.out = true
	close(p.isOut)
	s.remove(p)
	p.cutOff()
}

func (s *slots) remove(p *slot) {
	delete(s.puts, p)
	if s.of[p.key]--; s.of[p.key] == 0 {
		delete(s.of, p.key)
	}
	if s.from[p.from]--; s.from[p.from] == 0 {
		delete(s.from, p.from)
	}
}

// give ends a PUT; cut reports whether it had to make room.
func (s *slots) give(p *slot) (cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.out {
		s.remove(p)
	}
	return p.out
}

// stay calls fn unless the PUT was cut off.
func (s *slots) stay(p *slot, fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.out {
		fn()
	}
}

// enter waits until one that was cut off for p has ended: in a disk that hangs it does not. ok is
// false if it has not ended in time, or p was cut off itself.
func (s *slots) enter(p *slot) (ok bool) {
	late := time.NewTimer(s.patience)
	defer late.Stop()
	select {
	case s.underWay <- struct{}{}:
		return true
	case <-p.isOut:
	case <-late.C:
	}
	return false
}

// leave ends what enter has begun.
func (s *slots) leave() { <-s.underWay }

// counted counts what a PUT has brought.
type counted struct {
	io.Reader
	p *slot
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.p.got.Add(int64(n))
	return n, err
}
