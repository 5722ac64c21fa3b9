package scrub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	prefix     = "scrub-" // of the names of objects
	mostObject = 16 << 20 // bytes of one, and more than any has
)

// inherit takes over what the active ones before have found, and how far the last
// of them was. What they found may have been mended since: it is read again soon.
func (s *Scrub) inherit(ctx context.Context) error {
	names, err := blockstore.Names(ctx, s.cfg.Objects, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		var before state
		b, err := blockstore.GetBytes(ctx, s.cfg.Objects, name, mostObject)
		if kind := fserror.KindOf(err); ctx.Err() != nil || kind == fserror.Unavailable || kind == fserror.Retry {
			return err
		}
		if err == nil {
			err = json.Unmarshal(b, &before)
		}
		if err != nil {
			s.cfg.Log.Warn("what a scrub has found cannot be read; the next pass finds it", "object", name, "cause", err)
			continue
		}
		s.merge(before)
	}
	s.names = names
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Term, s.changed = s.cfg.Term(), len(s.state.Found) > 0
	return nil
}

// merge adds what another reign knew.
func (s *Scrub) merge(before state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.state.Found
	for _, f := range before.Found {
		if len(found) < MostFound && !slices.ContainsFunc(found, func(g Finding) bool { return g.Block.Key == f.Block.Key }) {
			found = append(found, f)
		}
	}
	if before.Term > s.state.Term { // else the file has it, and is newer
		s.state, s.queue = before, nil
	}
	s.state.Found = found
}

// share puts what was found, and how far the pass is, into the store. What cannot be put is put later.
func (s *Scrub) share(ctx context.Context) {
	now := s.cfg.Clock.Mono()
	s.mu.Lock()
	due := s.cfg.Several && now >= s.shared && (s.changed || s.state.Began != 0 && now-s.shared >= shareEvery)
	if !due {
		s.mu.Unlock()
		return
	}
	b, err := json.Marshal(&s.state)
	s.changed = false
	s.mu.Unlock()
	s.shared = now
	name := fmt.Sprintf("%s%016x-%016x", prefix, s.cfg.Term(), s.cfg.Clock.Wall().UnixNano())
	if err == nil {
		err = blockstore.PutBytes(ctx, s.cfg.Objects, name, b)
	}
	if err == nil {
		err = s.cfg.Remove(ctx, func(ctx context.Context) error {
			err := s.cfg.Objects.DeleteNamed(ctx, s.names...)
			if err == nil {
				s.names = nil
			}
			return err
		})
	}
	s.names = append(s.names, name) // even after an error: it may be there
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
		s.shared = now + pause
		s.cfg.Log.Warn("what the scrub has found cannot be put into the block store; until it is, another namenode that becomes active does not know it", "cause", err)
	}
}

// Suspect has a block of a file read soon, which a listing of the store lacks. It returns false once
// there are too many to be kept.
func (s *Scrub) Suspect(id namespace.InodeID, b namespace.Block) (more bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.ContainsFunc(s.state.Found, func(f Finding) bool { return f.Block.Key == b.Key }) ||
		slices.ContainsFunc(s.suspects, func(it item) bool { return it.block.Key == b.Key })
	if len(s.state.Found)+len(s.suspects) >= MostFound {
		return false
	}
	if !known {
		s.suspects = append(s.suspects, item{id: id, block: b})
		select {
		case s.suspected <- struct{}{}:
		default:
		}
	}
	return true
}

// suspect is the first block that Suspect was told of.
func (s *Scrub) suspect() (it item, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.suspects) == 0 {
		return it, false
	}
	return s.suspects[0], true
}

// cleared takes the first suspect away, which was read.
func (s *Scrub) cleared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects = s.suspects[1:]
}
