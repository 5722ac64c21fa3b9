package files

import (
	"sync"

	"github.com/leasefs/leasefs/gateway/users"
)

// maxEndings is how many ends of files are remembered.
const maxEndings = 4096

// ending is what a client says when it has a file closed.
type ending struct {
	key           users.Key
	inode         uint64
	index, length int64 // of the last block; -1: it told of none
}

func endingOf(key users.Key, inode uint64, last *Block) ending {
	if last == nil {
		return ending{key, inode, -1, -1}
	}
	return ending{key, inode, last.Index(), last.Length}
}

// endings remember a number of each file that a client closed or lost last: how long it was, of one whose
// last block does not tell, since a block began elsewhere than at a multiple of the block size; or the
// epoch under which it was lost. The oldest are forgotten. The zero value is empty. It is safe for
// concurrent use.
type endings struct {
	mu    sync.Mutex
	ends  map[ending]int64
	order []ending // a ring once it is full
	next  int
}

func (e *endings) add(what ending, length int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ends == nil {
		e.ends = map[ending]int64{}
	}
	_, known := e.ends[what]
	e.ends[what] = length
	switch {
	case known:
	case len(e.order) < maxEndings:
		e.order = append(e.order, what)
	default:
		delete(e.ends, e.order[e.next])
		e.order[e.next] = what
		e.next = (e.next + 1) % maxEndings
	}
}

func (e *endings) of(what ending) (length int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	length, ok = e.ends[what]
	return length, ok
}

// noteDropped notes of a file that was lost whether its client wrote bytes that are not in it: another
// may have made it as long since then.
func (t *Table) noteDropped(f *file) {
	if f.w.Durable() < f.w.Length() {
		t.dropped.add(ending{key: f.holder, inode: f.w.Inode()}, int64(f.w.Token())) //nolint:gosec // see add
	}
}

// hasDropped tells whether bytes of a client were dropped who believes that last is a file's last block.
func (t *Table) hasDropped(key users.Key, inode uint64, last *Block) bool {
	epoch, ok := t.dropped.of(ending{key: key, inode: inode})
	return ok && last != nil && last.epoch() <= epoch // else he has opened the file again since then
}
