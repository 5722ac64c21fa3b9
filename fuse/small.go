package fuse

import (
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
)

// nameSet is a set of names.
type nameSet struct {
	mu sync.RWMutex
	of map[string]struct{}
}

func (s *nameSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]struct{})
	}
	s.of[name] = struct{}{}
}

func (s *nameSet) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, name)
}

func (s *nameSet) has(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.of[name]
	return ok
}

// statusTime is for how long statfs tells the same.
const statusTime = time.Second

// statusCache keeps what the namenode says of its room.
type statusCache struct {
	mu sync.Mutex
	at time.Time
	s  client.NamenodeStatus
}

func (c *statusCache) get(ctx context.Context, f *client.FS) (client.NamenodeStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < statusTime {
		return c.s, nil
	}
	all, err := f.Status(ctx)
	if err != nil {
		return c.s, err
	}
	for _, s := range all {
		if s.Err == nil && s.Role == "active" {
			c.s, c.at = s, time.Now()
			return s, nil
		}
	}
	return c.s, fserror.New(fserror.Unavailable, "statfs", "", "no active namenode answered")
}

const (
	// scratchTTL is for how long files that were unlinked while open outlive a
	// mount that was killed.
	scratchTTL = time.Minute
	// scratchEnd is how long revoking their lease is tried.
	scratchEnd = 2 * time.Second
)

// scratchLease is the granted lease of files that were unlinked while open.
type scratchLease struct {
	m    *Mounted
	mu   sync.Mutex
	kept *client.KeptLease
}

func (s *scratchLease) get(ctx context.Context) (client.LeaseID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept != nil && s.kept.Context().Err() == nil {
		return s.kept.ID(), nil
	}
	g, err := s.m.fs.Grant(ctx, scratchTTL, 0)
	if err != nil {
		return 0, err
	}
	s.kept, err = s.m.fs.KeepAlive(s.m.ctx, g.ID)
	if err != nil {
		s.kept = nil
		return 0, err
	}
	return g.ID, nil
}

// end deletes what is left of them; if no namenode answers it happens later.
func (s *scratchLease) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), scratchEnd)
	defer cancel()
	_, _ = s.m.fs.Revoke(ctx, s.kept.ID())
}
