package files

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// file is one that a client writes.
type file struct {
	table  *Table
	holder users.Key
	u      *users.User // the session that holds it
	w      *client.Writer
	path   string
	attr   hadoop.Attr
	leave  func()
	gone   atomic.Bool
	heard  atomic.Int64 // when the client was heard of last: a Duration since table.began
	left   atomic.Int64 // when Complete said last that the file is not closed yet; 0: it did not

	pipe atomic.Pointer[Pipe] // that may bring bytes now
	// trouble is why bytes could not be kept, which a connection for bytes cannot say: the
	// client's next call is told.
	trouble atomic.Pointer[fserror.Error]
	// bytes is held over a write. It comes before mu.
	bytes sync.Mutex

	mu      sync.Mutex
	stamp   int64
	block   *place // the last block, if it was given to the client
	before  *place // the one before it, if it is known
	resumed bool   // by another gateway's client, who may name blocks of an older stamp
	unkept  bool   // the namenode does not have attr
}

// place is where a block is in its file.
type place struct{ index, offset int64 }

func (f *file) hangUp() {
	if p := f.pipe.Swap(nil); p != nil {
		p.cancel(lost("write", f.path, "the file or its pipeline has another writer now"))
	}
}

// noted keeps an error of bytes for the client's next call, unless it is one that ends by itself
// or that the call meets, too.
func (f *file) noted(err error) error {
	var e *fserror.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Kind {
	case fserror.Closed, fserror.Canceled, fserror.LeaseLost, fserror.LeaseLostGone:
	default:
		if !fserror.Transient(err) {
			f.trouble.Store(e)
		}
	}
	return err
}

// told returns, once, why bytes could not be kept.
func (f *file) told(op string) error {
	if e := f.trouble.Swap(nil); e != nil {
		return fserror.With(e, op, f.path)
	}
	return nil
}

// view is the block at a place, as the client is told of it. f.mu is held.
func (f *file) view(p *place) Block {
	return Block{ID: blockID(f.w.Inode(), p.index), Stamp: f.stamp, Offset: p.offset, Length: f.w.Length() - p.offset}
}

// last checks that a block is the file's last one. f.mu is held. A client whose file was
// resumed tells by it where it was.
func (f *file) last(op string, b *Block) error {
	if b.Inode() != f.w.Inode() {
		return fserror.New(fserror.InvalidArgument, op, f.path, "block %d is of another file", b.ID)
	}
	if f.block == nil && f.resumed {
		if b.isOdd() {
			return fserror.New(fserror.InvalidArgument, op, f.path, "block %d began at a place that only the gateway knows which gave it to the client; write the file again", b.ID)
		}
		f.block = &place{b.Index(), b.Index() * f.attr.BlockSize}
	}
	switch {
	case f.block == nil || b.Index() != f.block.index:
		return fserror.New(fserror.InvalidArgument, op, f.path, "block %d is not the last one of the file", b.ID)
	case b.epoch() != f.stamp>>stampShift && !f.resumed:
		return lost(op, f.path, "block %d has the generation stamp %d of an older writer; the present one has %d", b.ID, b.Stamp, f.stamp)
	}
	return nil
}

// whole checks that the last block has as many bytes as the client believes. f.mu is held.
func (f *file) whole(op string, b *Block) error {
	if err := f.last(op, b); err != nil {
		return err
	}
	if have := f.w.Length() - f.block.offset; b.Length != have {
		return fserror.New(fserror.InvalidArgument, op, f.path, "the client has written %d bytes of block %d, and the gateway has %d: what is missing was lost with a connection or another gateway; write the file again", b.Length, b.ID, have)
	}
	return nil
}

// AddBlock begins a block after previous, which is nil if the client knows of none. Asked
// again with the same previous, it answers the same block while that is empty.
func (t *Table) AddBlock(ctx context.Context, u *users.User, name, path string, inode uint64, previous *Block) (Block, error) {
	const op = "add block"
	f, err := t.find(ctx, op, u, name, path, inode)
	if err != nil {
		return Block{}, err
	}
	f.left.Store(0) // its client continues
	if err := f.told(op); err != nil {
		return Block{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	length := f.w.Length()
	if f.block != nil && f.block.offset == length && f.follows(previous) {
		return f.view(f.block), nil // the answer was lost
	}
	index := (length + f.attr.BlockSize - 1) / f.attr.BlockSize
	switch {
	case previous != nil && f.block == nil && previous.Inode() == f.w.Inode() && !f.resumed:
		index = max(index, previous.Index()+1) // Append gave none, and this is how the client knows the last
	case previous != nil:
		if err := f.whole(op, previous); err != nil {
			return Block{}, err
		}
		index = f.block.index + 1
	case f.block != nil:
		return Block{}, fserror.New(fserror.InvalidArgument, op, f.path, "the client does not say that it has written block %d", blockID(inode, f.block.index))
	}
	if index > maxIndex {
		return Block{}, fserror.New(fserror.TooLarge, op, f.path, "a file has at most %d blocks; write it with larger ones", maxIndex+1)
	}
	f.before, f.block = f.block, &place{index, length}
	if length != index*f.attr.BlockSize {
		f.stamp |= stampOdd // and so are all blocks after it
	}
	return f.view(f.block), nil
}

// follows tells whether the last block is the one after previous. f.mu is held.
func (f *file) follows(previous *Block) bool {
	if previous == nil {
		return f.before == nil
	}
	return previous.Inode() == f.w.Inode() && previous.Index() == f.block.index-1
}

// AbandonBlock gives up the last block, of which nothing was written.
func (t *Table) AbandonBlock(ctx context.Context, u *users.User, name, path string, inode uint64, b Block) error {
	const op = "abandon block"
	f, err := t.find(ctx, op, u, name, path, inode)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.block == nil && !f.resumed || f.block != nil && f.block.index != b.Index() {
		return nil // it is given up already
	}
	if err := f.last(op, &b); err != nil {
		return err
	}
	if n := f.w.Length() - f.block.offset; n > 0 {
		return fserror.New(fserror.InvalidArgument, op, f.path, "block %d has %d bytes already; continue with it", b.ID, n)
	}
	f.hangUp()
	f.block, f.before = f.before, nil
	return nil
}

// UpdateBlockForPipeline gives the last block a new Stamp. Older data connections to it
// end.
func (t *Table) UpdateBlockForPipeline(ctx context.Context, u *users.User, name string, b Block) (Block, error) {
	const op = "update block"
	f, err := t.find(ctx, op, u, name, "", max(b.Inode(), 1))
	if err != nil {
		return Block{}, err
	}
	f.left.Store(0) // its client continues
	if err := f.told(op); err != nil {
		return Block{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.last(op, &b); err != nil {
		return Block{}, err
	}
	if f.stamp&maxPipelines == maxPipelines {
		return Block{}, fserror.New(fserror.TooLarge, op, f.path, "the file's pipelines were set up %d times since it was opened; close it and append to it", maxPipelines)
	}
	f.hangUp()
	f.stamp++
	return f.view(f.block), nil
}

// UpdatePipeline takes note that the client continues with the block that
// UpdateBlockForPipeline has given it. LeaseLost if there was another one since then.
func (t *Table) UpdatePipeline(ctx context.Context, u *users.User, name string, _, updated Block) error {
	const op = "update pipeline"
	f, err := t.find(ctx, op, u, name, "", max(updated.Inode(), 1))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.last(op, &updated); err != nil {
		return err
	}
	if updated.Stamp != f.stamp {
		return lost(op, f.path, "the generation stamp is %d by now, not %d", f.stamp, updated.Stamp)
	}
	return nil
}

// Fsync makes durable what has arrived. lastLength is how many bytes of the last block the
// client has written, -1: it does not tell.
func (t *Table) Fsync(ctx context.Context, u *users.User, name, path string, inode uint64, lastLength int64) error {
	const op = "fsync"
	f, err := t.find(ctx, op, u, name, path, inode)
	if err != nil {
		return err
	}
	if err := f.w.Flush(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.block != nil && lastLength > f.w.Durable()-f.block.offset {
		return fserror.New(fserror.InvalidArgument, op, f.path, "the client has written %d bytes of its last block, and the gateway has %d", lastLength, f.w.Durable()-f.block.offset)
	}
	return nil
}

// Complete closes the file, with all that has arrived made durable. last is its last block
// as the client knows it; nil: it wrote none. InvalidArgument if that has another length
// here. Asked again after it succeeded, it succeeds. False without an error: the block store or
// the namenode does not take it yet. The file is as it was then, and the client asks again.
func (t *Table) Complete(ctx context.Context, u *users.User, name, path string, inode uint64, last *Block) (bool, error) {
	const op = "complete"
	key := users.Key{User: u.User, Client: name}
	f, err := t.find(ctx, op, u, name, path, inode)
	if err != nil {
		return t.unlessCompleted(ctx, u, key, path, inode, last, err)
	}
	f.mu.Lock()
	if last != nil {
		err = f.whole(op, last)
	}
	tells := !f.unkept && endOf(last, f.attr.BlockSize) == f.w.Length()
	f.mu.Unlock()
	if err != nil {
		return false, cmp.Or(f.told(op), err) // what is missing may have found no room
	}
	if !tells {
		t.endings.add(endingOf(key, f.w.Inode(), last), f.w.Length())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.closeTime)
	defer cancel()
	err = f.u.FS.CloseOrKeep(ctx, f.w)
	switch kind := fserror.KindOf(err); {
	case err == nil:
	case kind == fserror.Closed: // another call does it
		select {
		case <-f.w.Context().Done():
		case <-ctx.Done():
			return false, nil
		}
		if cause := context.Cause(f.w.Context()); fserror.KindOf(cause) != fserror.Closed {
			if isLost(f.w, cause) {
				t.noteDropped(f, true) // the other call has perhaps not come to it yet
			}
			return t.unlessCompleted(ctx, u, key, path, f.w.Inode(), last, cause)
		}
		ok, _ := t.wasCompleted(ctx, u, key, path, f.w.Inode(), last)
		return ok, nil // else it was let go of, and is open, or cannot be asked for now
	case fserror.Transient(err):
		f.left.Store(max(int64(t.age()), 1))
		t.cfg.Logger.Warn("a file cannot be closed yet; its client is told to ask again", "path", f.path, "client", name, "cause", err)
		return false, nil
	default:
		t.noteDropped(f, isLost(f.w, err))
	}
	t.forget(f)
	f.hangUp()
	if err != nil { // perhaps of a call that was carried out, and not answered
		return t.unlessCompleted(ctx, u, key, path, f.w.Inode(), last, err)
	}
	return true, nil
}

// unlessCompleted is Complete's answer if err is why the file is not closed now: true if it was closed
// before, and to ask again if the namenode does not say.
func (t *Table) unlessCompleted(ctx context.Context, u *users.User, key users.Key, path string, inode uint64, last *Block, err error) (bool, error) {
	if fserror.KindOf(err) != fserror.LeaseLost {
		return false, err
	}
	ok, unknown := t.wasCompleted(ctx, u, key, path, inode, last)
	if ok || fserror.Transient(unknown) {
		return ok, nil
	}
	return false, err
}

// isLost tells whether a Writer had lost its lease when its close failed.
func isLost(w *client.Writer, err error) bool {
	return err != nil && (errors.Is(err, fserror.LeaseLost) || errors.Is(context.Cause(w.Context()), fserror.LeaseLost))
}

// closeLeft closes those of a client's files that he has wanted to be closed, and gave up when that did
// not work: they would stay open for as long as he renews.
func (t *Table) closeLeft(ctx context.Context, all []*file) {
	// A client that hangs up does not cut short what it has written.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recoverFlush)
	defer cancel()
	each(all, func(f *file) {
		if at := f.left.Load(); at == 0 || !t.isSilent(f.u, at) {
			return
		}
		err := f.u.FS.CloseOrKeep(ctx, f.w)
		if err != nil && (fserror.Transient(err) || fserror.KindOf(err) == fserror.Closed) {
			return // a later renewal tries it, or another call does
		}
		if err != nil {
			t.noteDropped(f, isLost(f.w, err))
		}
		t.forget(f)
		f.hangUp()
		if err != nil {
			t.cfg.Logger.Warn("a file whose client had given up closing it ends without its last bytes", "path", f.path, "client", f.holder.Client, "durable", f.w.Durable(), "length", f.w.Length(), "cause", err)
			return
		}
		t.cfg.Logger.Info("a file was closed whose client had given up closing it", "path", f.path, "client", f.holder.Client)
	})
}

// wasCompleted tells whether a file is closed as Complete leaves it for a client who believes
// that last is its last block, nil if there is none. It has a time of its own, since the call's may have
// gone by with a close.
func (t *Table) wasCompleted(ctx context.Context, u *users.User, key users.Key, path string, inode uint64, last *Block) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.askTime)
	defer cancel()
	var (
		i   *client.FileInfo
		a   hadoop.Attr
		err error
	)
	switch {
	case last != nil:
		inode = last.Inode()
		fallthrough
	case inode != 0:
		i, a, err = t.attr(ctx, u, inode)
	default:
		i, err = u.FS.Stat(ctx, path)
	}
	if err != nil || i.Open != nil {
		return false, err
	}
	if end, ok := t.endings.of(endingOf(key, i.Inode, last)); (!ok || end != i.Length) && (last != nil && last.isOdd() || i.Length != endOf(last, a.BlockSize)) {
		return false, nil
	}
	dropped, err := t.hasDropped(ctx, u, key, i.Inode, last)
	return !dropped && err == nil, err
}

// endOf is where a file ends of which last is the last block, nil if it has none, and which has no
// shorter one.
func endOf(last *Block, blockSize int64) int64 {
	if last == nil {
		return 0
	}
	return last.Index()*blockSize + last.Length
}
