package trash

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// budget is how many inodes, or entries of the trash, are counted while the namespace is locked.
const budget = 1000

// sizes knows what each entry has. Nothing in the trash changes, so that each is counted once:
// when it comes, or by a namenode when it becomes active.
type sizes struct {
	mu   sync.Mutex
	of   map[namespace.InodeID]*sized
	at   tables.Set[*sized]
	by   map[string]use // by who has deleted it
	all  Sizes
	part node.Size         // of partOf, which is being counted
	next namespace.InodeID // the next look begins behind it
	once bool              // all was counted once

	partOf *tables.Trashed
}

type sized struct {
	Sizes
	inodes int64
	id     namespace.InodeID
	path   string // that it had
	user   string
	at     int64 // when it was deleted
}

// before orders entries by the paths that they had.
func (e *sized) before(f *sized) bool {
	return cmp.Or(strings.Compare(e.path, f.path), cmp.Compare(e.id, f.id)) < 0
}

// use is how much somebody has deleted.
type use struct{ bytes, inodes int64 }

// add counts something that he has deleted, or if sign is -1 that is gone.
func (s *sizes) add(e *sized, sign int64) {
	u := s.by[e.user]
	u.bytes += sign * e.Bytes
	u.inodes += sign * e.inodes
	if s.by[e.user] = u; u.inodes == 0 {
		delete(s.by, e.user)
	}
	s.all.Files += uint64(sign) * e.Files //nolint:gosec // a difference
	s.all.Bytes += sign * e.Bytes
	if sign > 0 {
		s.at.ReplaceOrInsert(e)
	} else {
		s.at.Delete(e)
	}
}

// Sizes are how much is in the trash: files, and bytes of them.
type Sizes struct {
	Files uint64
	Bytes int64
}

// Sizes are how much is in the trash, as far as it is counted. What has just come follows within
// seconds; a million entries take minutes.
func (s *Room) Sizes() Sizes {
	s.sizes.mu.Lock()
	defer s.sizes.mu.Unlock()
	return s.sizes.all
}

// BytesBelow are those of Sizes that were deleted at a path, or below it. It takes time for each entry
// there, and keeps nobody waiting.
func (s *Room) BytesBelow(path string) (bytes int64) {
	s.sizes.mu.Lock()
	bytes = s.sizes.all.Bytes
	if path == "/" || bytes == 0 {
		s.sizes.mu.Unlock()
		return bytes
	}
	at := s.sizes.at.Clone()
	s.sizes.mu.Unlock()
	bytes = 0
	at.From(&sized{path: path}, func(e *sized) bool {
		if e.path == path {
			bytes += e.Bytes
		}
		return e.path == path
	})
	below := path + "/" // behind what has the path as the beginning of a name
	at.From(&sized{path: below}, func(e *sized) bool {
		is := strings.HasPrefix(e.path, below)
		if is {
			bytes += e.Bytes
		}
		return is
	})
	return bytes
}

// size is how much an entry has; nil: it is not counted yet.
func (s *sizes) size(id namespace.InodeID) *Sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.of[id]; ok {
		return &e.Sizes
	}
	return nil
}

// most is who has deleted most bytes, or inodes, which take memory, with what is counted of an
// entry so far; empty if it is not known yet.
func (s *sizes) most(inodes bool) (user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.once {
		return ""
	}
	by := s.by
	if p := s.partOf; p != nil {
		by = maps.Clone(s.by)
		u := by[p.User]
		by[p.User] = use{u.bytes + s.part.Length, u.inodes + int64(s.part.Inodes)} //nolint:gosec // it fits
	}
	most := int64(-1)
	for u, use := range by {
		n := use.bytes
		if inodes {
			n = use.inodes
		}
		if n > most || n == most && u < user {
			user, most = u, n
		}
	}
	return user
}

// forget takes out what the trash may have no more. What it has is counted again.
func (s *sizes) forget(ids ...namespace.InodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if e, ok := s.of[id]; ok {
			delete(s.of, id)
			s.add(e, -1)
		}
	}
}

// count counts some more: ten looks at most, and the rest the next time.
func (s *Room) count(ctx context.Context) {
	for range 10 {
		if ctx.Err() != nil {
			return
		}
		var ended bool
		s.Engine.Look(func(t *namespace.Tree) { ended = s.sizes.count(t) })
		if ended {
			return
		}
	}
}

// count takes a look at the entries from next on, and reports whether it came to the end.
func (s *sizes) count(t *namespace.Tree) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	trash := t.Trash(nil)
	if s.of == nil || s.next == 0 && len(s.of) > trash.Len() { // something has gone in another reign
		s.of, s.by, s.all, s.once = map[namespace.InodeID]*sized{}, map[string]use{}, Sizes{}, false
		s.at = tables.NewSet((*sized).before)
	}
	left := budget
	ended = true
	trash.List("", &tables.Trashed{Inode: s.next}, func(e *tables.Trashed) bool {
		if left--; left < 0 {
			ended = false
			return false
		}
		old, known := s.of[e.Inode]
		if known && old.at != e.At { // it was restored and deleted again in another reign
			s.add(old, -1)
			delete(s.of, e.Inode)
			known = false
		}
		if !known {
			if s.partOf != e { // which is another one when its inode was restored meanwhile
				s.part, s.partOf = node.Size{}, e
			}
			if ended = t.SizeInTrash(e.Inode, &s.part, left+1); !ended {
				return false
			}
			left -= int(s.part.Inodes)                                                                           //nolint:gosec // SizeInTrash counts about left
			n := &sized{Sizes{s.part.Files, s.part.Length}, int64(s.part.Inodes), e.Inode, e.Path, e.User, e.At} //nolint:gosec // it fits
			s.of[e.Inode] = n
			s.add(n, 1)
		}
		s.partOf, s.next = nil, e.Inode
		return true
	})
	if ended {
		s.next, s.once = 0, true
	}
	return ended
}
