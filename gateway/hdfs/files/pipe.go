package files

import (
	"cmp"
	"context"

	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Setup is how a client begins to send bytes of a block.
type Setup struct {
	Block Block // as the client names it; its Length is what it believes the block to have
	Stamp int64 // the newer one that it was given since then; 0: none
	// Empty says that the block has nothing yet. Else it has Min bytes at least, Max at most.
	Empty    bool
	Min, Max int64
}

// Pipe is the one connection by which the bytes of an open file's last block come. It is
// not safe for concurrent use but where it says so.
type Pipe struct {
	f      *file
	at     *place
	ctx    context.Context //nolint:containedctx // the pipe's life
	cancel context.CancelCauseFunc
}

// Pipe begins to take bytes for a block that a token allows to write; an earlier pipe
// ends. It has to be closed. LeaseLost: a stamp is not the newest.
func (t *Table) Pipe(ctx context.Context, g Grant, s Setup) (*Pipe, error) {
	const op = "write"
	f := t.open(s.Block.Inode())
	if f == nil || f.holder != (users.Key{User: g.User, Client: g.Client}) {
		u, err := t.cfg.Users.Get(ctx, users.Key{User: g.User})
		if err != nil {
			return nil, err
		}
		f, err = t.find(ctx, op, u, g.Client, "", max(s.Block.Inode(), 1))
		t.cfg.Users.Release(u)
		if err != nil {
			return nil, err
		}
	}
	f.left.Store(0) // its client continues
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.last(op, &s.Block); err != nil {
		return nil, err
	}
	if stamp := max(s.Block.Stamp, s.Stamp); stamp != f.stamp {
		return nil, lost(op, f.path, "the block's generation stamp is %d by now, not %d", f.stamp, stamp)
	}
	have := f.w.Length() - f.block.offset
	switch {
	case s.Empty && have != 0:
		return nil, fserror.New(fserror.InvalidArgument, op, f.path, "block %d has %d bytes already", s.Block.ID, have)
	case !s.Empty && (have < s.Min || have > s.Max):
		return nil, fserror.New(fserror.InvalidArgument, op, f.path, "block %d has %d bytes, and the client believes that it has %d to %d", s.Block.ID, have, s.Min, s.Max)
	}
	p := &Pipe{f: f, at: f.block}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	f.hangUp()
	f.pipe.Store(p)
	return p, nil
}

// Context ends when the pipe may not bring bytes any more, with the cause.
func (p *Pipe) Context() context.Context { return p.ctx }

// Path is for messages.
func (p *Pipe) Path() string { return p.f.path }

// Close ends the pipe. The file stays open. Safe for concurrent use.
func (p *Pipe) Close() {
	p.f.pipe.CompareAndSwap(p, nil)
	p.cancel(fserror.New(fserror.Closed, "write", p.f.path, "the connection is closed"))
}

// Write takes bytes at an offset in the block, which is at most its end: what it has of
// them already is passed over. It returns where they end in the file. It waits while the
// block store is behind.
func (p *Pipe) Write(offset int64, b []byte) (end int64, err error) {
	const op = "write"
	f := p.f
	f.hear()
	f.bytes.Lock()
	defer f.bytes.Unlock()
	if p.ctx.Err() != nil || f.pipe.Load() != p {
		return 0, cmp.Or(context.Cause(p.ctx), lost(op, f.path, "another connection brings the bytes now, or none does"))
	}
	at, length := p.at.offset+offset, f.w.Length()
	end = at + int64(len(b))
	switch {
	case offset < 0 || offset > f.attr.BlockSize || offset+int64(len(b)) > f.attr.BlockSize:
		return 0, fserror.New(fserror.InvalidArgument, op, f.path, "bytes %d to %d are not within a block of %d", offset, offset+int64(len(b)), f.attr.BlockSize)
	case at > length:
		return 0, fserror.New(fserror.NotAtEnd, op, f.path, "bytes at %d of a block that has %d: those between are missing", offset, length-p.at.offset)
	case end <= length:
		return end, nil
	}
	_, err = f.w.WriteContext(p.ctx, b[length-at:])
	return end, f.noted(err)
}

// Flush makes durable what was written. Safe for concurrent use.
func (p *Pipe) Flush() error {
	err := p.f.noted(p.f.w.Flush(p.ctx))
	if err == nil {
		p.f.trouble.Store(nil) // it has ended
	}
	return err
}

// End is where the bytes end that the file has, durable or not. Safe for concurrent use.
func (p *Pipe) End() int64 { return p.f.w.Length() }

// Durable is up to where the file is durable. Safe for concurrent use.
func (p *Pipe) Durable() int64 { return p.f.w.Durable() }

// Full tells whether a place in the file is the end of a full block.
func (p *Pipe) Full(end int64) bool { return end-p.at.offset >= p.f.attr.BlockSize }
