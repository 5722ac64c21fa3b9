package files

import (
	"context"
	"errors"
	"sync"

	"github.com/leasefs/leasefs/client/leasehistory"
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

// noteDropped notes of a file that was lost, or that was closed without its last bytes, whether its client
// wrote bytes that are not in it for all that is known: another may have made it as long since then.
func (t *Table) noteDropped(f *file, lost bool) {
	if f.w.Durable() >= f.w.Length() {
		return
	}
	at := &t.cut
	if lost { // an earlier close may have been carried out, and not answered
		at = &t.dropped
	}
	at.add(ending{key: f.holder, inode: f.w.Inode()}, int64(f.w.Token())) //nolint:gosec // see add
}

// hasDropped tells whether bytes of a client were dropped who believes that last is a file's last block.
func (t *Table) hasDropped(ctx context.Context, u *users.User, key users.Key, inode uint64, last *Block) bool {
	noted := func(at *endings) (epoch int64, yes bool) {
		epoch, yes = at.of(ending{key: key, inode: inode})
		return epoch, yes && last != nil && last.epoch() <= epoch // else he has opened the file again since then
	}
	if _, yes := noted(&t.cut); yes {
		return true
	}
	epoch, yes := noted(&t.dropped)
	return yes && !wasClosed(ctx, u, key, inode, uint64(epoch)) //nolint:gosec // it was one
}

// wasClosed tells whether the namenode remembers that an opening of a file ended by a close of its
// client: with all bytes, since a file of which some do not get in is noted otherwise.
func wasClosed(ctx context.Context, u *users.User, key users.Key, inode, epoch uint64) (closed bool) {
	enough := errors.New("it is found")
	_, _ = leasehistory.Read(ctx, u.FS.FS, leasehistory.Filter{Holder: key.Client}, func(s *leasehistory.Span) error { // what is not known was not closed
		if s.Inode != inode || s.Epoch != epoch {
			return nil
		}
		closed = s.Why == "closed"
		return enough
	})
	return closed
}
