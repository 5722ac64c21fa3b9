package client

import (
	"context"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
)

// content is what a Writer has written and how far it has come: from the buffer,
// through blocks and pieces of tail under way, into the file. The tenure's mu guards it.
type content struct {
	*tenure
	full int64 // data bytes of a full block

	// cur holds the bytes of the file from start on: first what is in the
	// tail already, then what is not flushed. The first hole bytes are in the
	// tail and not known here (the file was opened for append).
	cur   *blockio.Buffer
	start int64
	hole  int
	// durable is the end of what the namenode has; length that of what was
	// written.
	durable int64
	length  int64
	pending []*pendingBlock // blocks under way, in order
	leave   blockio.Room    // what the next of them has of Config.Ahead
	// blockErr is why the first of them failed. Who meets it starts them again.
	blockErr error
	round    *flushRound // the flush under way
	// unsure is a piece of tail whose reply was lost. It must be sent again
	// just so, before anything else.
	unsure *tailPiece
}

// fill copies into the current buffer as much of p as it has room for, waiting
// for room first.
func (ct *content) fill(ctx context.Context, p []byte) (int, error) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	if err := ct.makeRoom(ctx); err != nil {
		return 0, err
	}
	n := int(min(int64(len(p)), ct.full-int64(len(ct.cur.B))))
	ct.reserve(n)
	ct.cur.B = append(ct.cur.B, p[:n]...)
	ct.length += int64(n)
	if int64(len(ct.cur.B)) == ct.full && ct.mayDispatch() {
		ct.dispatch()
	}
	return n, nil
}

// makeRoom waits until the current buffer has room. The caller holds mu.
func (ct *content) makeRoom(ctx context.Context) error {
	for {
		if err := ct.usable(); err != nil {
			return err
		}
		if err := ct.blockErr; err != nil {
			ct.restart()
			return err
		}
		if ct.cur == nil {
			if ct.hole == 0 || int64(ct.hole) < ct.full {
				ct.cur = &blockio.Buffer{}
				ct.reserve(ct.hole)
				ct.cur.B = ct.cur.B[:ct.hole]
				return nil
			}
			if err := ct.splitTail(ctx); err != nil {
				return err
			}
			continue
		}
		if int64(len(ct.cur.B)) < ct.full {
			return nil
		}
		switch {
		case ct.mayDispatch():
			ct.dispatch()
		case ct.unsure != nil && ct.round == nil:
			r := ct.startRound(ctx, false)
			for ct.round == r {
				if err := ct.wait(ctx); err != nil {
					return err
				}
			}
			if r.err != nil {
				return r.err
			}
		default:
			if err := ct.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// reserve makes room in the current buffer's memory for n more bytes: little
// for little files, then one block from the pool. The caller holds mu.
func (ct *content) reserve(n int) {
	const small, medium = 4 << 10, 128 << 10
	need := len(ct.cur.B) + n
	if need <= cap(ct.cur.B) {
		return
	}
	var b *blockio.Buffer
	switch {
	case need <= small && small < ct.full:
		b = &blockio.Buffer{B: make([]byte, 0, small)}
	case need <= medium && medium < ct.full:
		b = &blockio.Buffer{B: make([]byte, 0, medium)}
	default:
		b = blockio.NewBuffer(blockstore.StoredLength(ct.full))
	}
	// A flush under way may still read the old memory: it goes to the
	// garbage collector.
	b.B = append(b.B, ct.cur.B...)
	ct.cur = b
}

// quiet stops blocks and flushes under way and waits for their goroutines.
func (ct *content) quiet(why error) {
	ct.stopWork(why)
	ct.mu.Lock()
	defer ct.mu.Unlock()
	ct.cond.Broadcast()
	for ct.round != nil {
		ct.cond.Wait()
	}
	for _, b := range ct.pending {
		run := b.run
		ct.mu.Unlock()
		<-run.done
		ct.mu.Lock()
	}
}
