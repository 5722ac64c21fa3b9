package files

import (
	"context"
	"errors"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// held is the error that somebody writes a file.
func held(op, path string, i *client.FileInfo) error {
	h := i.Open.Holder
	e := fserror.New(fserror.Held, op, path, "")
	e.Holder, e.TakeableIn = &h, i.Open.TakeableIn
	return e
}

// Create makes a file and opens it for write. Exists, NotFound, IsDirectory.
func (t *Table) Create(ctx context.Context, u *users.User, name, path string, c Create) (Opened, error) {
	const op = "create"
	c.Attr = c.Attr.Or(hadoop.DefaultAttr)
	if !c.Create {
		if _, err := u.FS.Stat(ctx, path); err != nil {
			return Opened{}, err
		}
	}
	p, err := t.place(ctx, op, path, users.Key{User: u.User, Client: name})
	if err != nil {
		return Opened{}, err
	}
	opts := []client.OpenOption{client.WithMode(c.Mode), client.WithUmask(c.Umask)}
	if c.Overwrite { // as HDFS: whoever is writing the old one loses it
		opts = append(opts, client.WithOverwrite(), client.WithSteal())
	}
	if c.CreateParent {
		opts = append(opts, client.WithParents())
	}
	// The call does not end when the client goes: the namenode might have made the file,
	// and nobody here would know.
	ctx = context.WithoutCancel(ctx)
	w, i, err := hadoop.FS{FS: p.u.FS, User: p.u.User, Log: t.cfg.Logger}.Make(ctx, path, c.Attr, opts...)
	if err != nil {
		p.leave()
		if fserror.KindOf(err) == fserror.Exists {
			if i, serr := u.FS.Stat(ctx, path); serr == nil && i.Open != nil && !i.Open.SoftExpired {
				err = held(op, path, i)
			}
		}
		return Opened{}, err
	}
	f, err := t.add(p, w, path, c.Attr, false)
	if err != nil {
		p.leave()
		return Opened{}, err
	}
	f.mu.Lock()
	f.unkept = hadoop.AttrOf(i) != c.Attr
	f.mu.Unlock()
	return Opened{Info: i, Attr: c.Attr}, nil
}

// repeatTime is for how long a client that repeats a call by this gateway may have to wait
// until the namenode takes note that the other one is gone.
const repeatTime = 5 * time.Second

// Created returns the file that a Create made for this client by another gateway, which is
// gone, if it is as that left it: empty, with the Attr, and the client's. It is for a call
// that the client repeats. LeaseLost: there is none. Retry: that gateway lives.
func (t *Table) Created(ctx context.Context, u *users.User, name, path string, want hadoop.Attr) (Opened, error) {
	const op = "create"
	none := lost(op, path, "no other gateway has made the file for client %s", name)
	i, err := u.FS.Stat(ctx, path)
	if err != nil || i.Open == nil || i.Length > 0 || t.open(i.Inode) != nil { // else its answer is here
		return Opened{}, none
	}
	want = want.Or(hadoop.DefaultAttr)
	if hadoop.AttrOf(i) != want {
		return Opened{}, none
	}
	if _, err := t.find(ctx, op, u, name, path, i.Inode); err != nil {
		return Opened{}, err
	}
	i, _, err = u.FS.LstatKept(ctx, lowlevel.Inode(i.Inode))
	if err == nil && i.Length > 0 {
		err = none
	}
	return Opened{Info: i, Attr: want}, err
}

// Append opens a file for write at its end. A holder past its soft limit is replaced.
// NotFound, IsDirectory.
//
// repeated: the client may have made the call by another gateway, which is gone.
func (t *Table) Append(ctx context.Context, u *users.User, name, path string, newBlock, repeated bool) (Opened, error) {
	const op = "append"
	p, err := t.place(ctx, op, path, users.Key{User: u.User, Client: name})
	if err != nil {
		return Opened{}, err
	}
	ctx = context.WithoutCancel(ctx) // see Create
	var wait time.Duration
	if repeated {
		if i, err := u.FS.Stat(ctx, path); err == nil && i.Open != nil && i.Open.Holder.Client == name && i.Open.Holder.User == u.User {
			wait = repeatTime
		}
	}
	w, err := p.u.FS.Append(ctx, path, client.WithWait(wait))
	if err != nil {
		p.leave()
		if repeated {
			err = elsewhere(err, op, path, p.u.Key)
		}
		return Opened{}, err
	}
	i, a, err := t.attr(ctx, p.u, w.Inode())
	if err != nil {
		err = errors.Join(err, w.AbortContext(ctx))
		p.leave()
		return Opened{}, err
	}
	f, err := t.add(p, w, path, a, false)
	if err != nil {
		p.leave()
		return Opened{}, err
	}
	o := Opened{Info: i, Attr: a}
	if rest := w.Length() % a.BlockSize; rest != 0 && !newBlock {
		f.mu.Lock()
		f.block = &place{w.Length() / a.BlockSize, w.Length() - rest}
		b := f.view(f.block)
		f.mu.Unlock()
		o.Last = &b
	}
	return o, nil
}

// attr describes a file by inode.
func (t *Table) attr(ctx context.Context, u *users.User, inode uint64) (*client.FileInfo, hadoop.Attr, error) {
	i, _, err := u.FS.LstatKept(ctx, lowlevel.Inode(inode))
	if err != nil {
		return nil, hadoop.Attr{}, err
	}
	return i, hadoop.AttrOf(i), nil
}

// recoverFlush is for how long bytes are made durable that have arrived of a file that is
// about to be recovered.
const recoverFlush = closeTime / 6

// Recover closes a file, whoever writes it, with what has arrived. NotFound, also for a
// directory. It is done when it returns.
func (t *Table) Recover(ctx context.Context, u *users.User, path string) (done bool, err error) {
	h := hadoop.FS{FS: u.FS}
	here := func(i *client.FileInfo) *file { // nil: another has it
		if f := t.open(i.Inode); f != nil && f.w.Token() == i.Open.Epoch {
			return f
		}
		return nil
	}
	err = h.RecoverLease(ctx, path, func(i *client.FileInfo) error {
		f := here(i)
		if f == nil {
			return nil
		}
		if err := h.MayFlush(ctx, i.Inode); err != nil {
			return err
		}
		fctx, cancel := context.WithTimeout(ctx, recoverFlush)
		defer cancel()
		_ = f.w.Flush(fctx) // what cannot be kept was not acknowledged as kept
		return nil
	}, func(i *client.FileInfo) {
		if f := here(i); f != nil {
			t.dropLost(f)
		}
	})
	return err == nil, err
}

// Truncate cuts a closed file. It is done when it returns. InvalidArgument: the file is
// shorter already.
func (t *Table) Truncate(ctx context.Context, u *users.User, _, path string, size int64) (done bool, err error) {
	const op = "truncate"
	i, err := hadoop.FS{FS: u.FS}.File(ctx, op, path)
	if err != nil {
		return false, err
	}
	if size > i.Length && i.Open == nil {
		return false, fserror.New(fserror.InvalidArgument, op, path, "Cannot truncate to a larger file size. Current size: %d, truncate size: %d", i.Length, size)
	}
	err = u.FS.TruncateInode(ctx, i.Inode, path, size)
	return err == nil, err
}

// IsClosed tells whether nobody writes the file. NotFound, also for a directory.
func (t *Table) IsClosed(ctx context.Context, u *users.User, path string) (bool, error) {
	i, err := hadoop.FS{FS: u.FS}.File(ctx, "is file closed", path)
	return err == nil && i.Open == nil, err
}

// Locate tells where the bytes of a range are. NotFound; IsDirectory.
func (t *Table) Locate(ctx context.Context, u *users.User, path string, offset, length int64) (Located, error) {
	const op = "locate"
	if offset < 0 || length < 0 {
		return Located{}, fserror.New(fserror.InvalidArgument, op, path, "a negative offset %d or length %d", offset, length)
	}
	r, err := u.FS.Open(ctx, path)
	if err != nil {
		return Located{}, err
	}
	i, err := r.Stat()
	cut := r.Cut()
	_ = r.Close() // it was only looked at
	if err != nil {
		return Located{}, err
	}
	a := hadoop.AttrOf(i)
	l := Located{Info: i, Attr: a, Length: i.Length, Open: i.Open != nil}
	stamp := int64(cut) << stampShift //nolint:gosec // a transaction's number is far from that
	if i.Open != nil {
		stamp = int64(i.Open.Epoch) << stampShift //nolint:gosec // as above
	}
	end := i.Length
	if length < end-min(offset, end) {
		end = offset + length
	}
	l.Blocks = ranges(i.Inode, stamp, cut, offset, end, i.Length, a.BlockSize)
	if i.Length > 0 {
		if last := ranges(i.Inode, stamp, cut, i.Length-1, i.Length, i.Length, a.BlockSize); last.Len() == 1 {
			b := last.At(0)
			l.Last = &b
		}
	}
	return l, nil
}
