package files

import (
	"context"
	"errors"
	"sync"

	"github.com/leasefs/leasefs/client/leasehistory"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
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
// last block does not tell, since a block began elsewhere than at a multiple of the block size; or
// what noteDropped noted. The oldest are forgotten. The zero value is empty. It is safe for
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

// closeTried marks the note of a file whose close was tried without an answer before it was lost. Above it
// is the epoch.
const closeTried = 1

// noteDropped notes of a file that was lost, or that was closed without its last bytes, whether its client
// wrote bytes that are not in it for all that is known: another may have made it as long since then.
func (t *Table) noteDropped(f *file, lost bool) {
	if f.w.Durable() >= f.w.Length() {
		return
	}
	note := int64(f.w.Token()) << 1 //nolint:gosec // see add
	at := &t.cut
	if lost { // an earlier close may have been carried out, and not answered
		at = &t.dropped
		if f.left.Load() != 0 {
			note |= closeTried
		}
	}
	at.add(ending{key: f.holder, inode: f.w.Inode()}, note)
}

// hasDropped tells whether bytes of a client were dropped who believes that last is a file's last block.
func (t *Table) hasDropped(ctx context.Context, u *users.User, key users.Key, inode uint64, last *Block) (bool, error) {
	noted := func(at *endings) (note int64, yes bool) {
		note, yes = at.of(ending{key: key, inode: inode})
		return note, yes && last != nil && last.epoch() <= note>>1 // else he has opened the file again since then
	}
	if _, yes := noted(&t.cut); yes {
		return true, nil
	}
	note, yes := noted(&t.dropped)
	if !yes {
		return false, nil
	}
	taken, known, err := wasTaken(ctx, u, key, inode, uint64(note>>1)) //nolint:gosec // it was one
	if err == nil && !known {
		taken = note&closeTried == 0 // else the length decides
	}
	return taken, err
}

// wasTaken tells whether the namenode remembers that an opening of a file ended by something else than its
// client's close, which leaves nothing out: a file of which some bytes do not get in is noted otherwise. It
// is not known if the history of leases is off, has a gap there or does not reach back so far. An error: it
// cannot be asked now.
func wasTaken(ctx context.Context, u *users.User, key users.Key, inode, epoch uint64) (taken, known bool, err error) {
	enough := errors.New("it is found, or would have been")
	about, err := leasehistory.Read(ctx, u.FS.FS, leasehistory.Filter{Holder: key.Client}, func(s *leasehistory.Span) error {
		if known = s.Inode == inode && s.Epoch == epoch; known {
			taken = s.Why != "closed"
			return enough
		}
		if s.TxID != 0 && s.TxID <= epoch { // it ended before the file was opened, as all after it did
			return enough
		}
		return nil
	})
	switch {
	case known:
		return taken, true, nil
	case err == nil, errors.Is(err, enough):
		if about.Problem != "" {
			return false, false, fserror.New(fserror.Retry, "complete", "", "the history of leases does not have the latest ends: %s", about.Problem)
		}
	case fserror.KindOf(err) != fserror.Unsupported:
		return false, false, err
	}
	return false, false, nil
}
