package trash

import (
	"context"
	"sync"

	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// budget is how many inodes, or entries of the trash, are counted while the namespace is locked.
const budget = 1000

// sizes knows what each entry has. Nothing in the trash changes, so that each is counted once:
// when it comes, or by a namenode when it becomes active.
type sizes struct {
	mu   sync.Mutex
	of   map[namespace.InodeID]sized
	by   map[string]int64 // bytes, by who has deleted them
	all  Sizes
	part namespace.TrashSize // of the entry partOf, which is being counted
	next namespace.InodeID   // the next look begins behind it

	partOf namespace.InodeID
}

type sized struct {
	Sizes
	user string
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

// size is how much an entry has; nil: it is not counted yet.
func (s *sizes) size(id namespace.InodeID) *Sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.of[id]; ok {
		return &e.Sizes
	}
	return nil
}

// most is who has deleted most bytes; empty if nothing is counted.
func (s *sizes) most() (user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for u, n := range s.by {
		if user == "" || n > s.by[user] || n == s.by[user] && u < user {
			user = u
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
			s.all.Files -= e.Files
			s.all.Bytes -= e.Bytes
			if s.by[e.user] -= e.Bytes; s.by[e.user] == 0 {
				delete(s.by, e.user)
			}
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
		s.of, s.by, s.all = map[namespace.InodeID]sized{}, map[string]int64{}, Sizes{}
	}
	left := budget
	ended = true
	trash.List("", &tables.Trashed{Inode: s.next}, func(e *tables.Trashed) bool {
		if left--; left < 0 {
			ended = false
			return false
		}
		if _, known := s.of[e.Inode]; !known {
			if s.partOf != e.Inode {
				s.part, s.partOf = namespace.TrashSize{}, e.Inode
			}
			if ended = t.SizeInTrash(e.Inode, &s.part, left+1); !ended {
				return false
			}
			left -= int(s.part.Inodes) //nolint:gosec // SizeInTrash counts about left
			s.add(e, s.part)
		}
		s.partOf, s.next = 0, e.Inode
		return true
	})
	if ended {
		s.next = 0
	}
	return ended
}

func (s *sizes) add(e *tables.Trashed, n namespace.TrashSize) {
	s.of[e.Inode] = sized{Sizes{n.Files, n.Length}, e.User}
	s.all.Files += n.Files
	s.all.Bytes += n.Length
	s.by[e.User] += n.Length
}
