package fuse

import (
	"context"
	"syscall"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// listPage is how many entries are asked for at once.
const listPage = 1000

// maxMarks bounds how many page borders a listing remembers for seekdir: every
// listPage entries one.
const maxMarks = 1 << 20

// listing is an opened directory. The kernel reads it in order, but may go back
// to where it was. go-fuse has one request at a time for it.
type listing struct {
	n  *node
	as *lowlevel.Caller // who opened it
	// at is the offset of the next entry; 0 and 1 are "." and "..".
	at    uint64
	page  []*client.FileInfo
	first uint64 // offset of page's first entry
	more  bool
	// marks are the names after which pages begin; the first is of offset 2.
	marks []mark
	last  *client.FileInfo // what Readdirent returned last
}

type mark struct {
	off   uint64
	after string
}

var (
	_ gofs.FileReaddirenter = (*listing)(nil)
	_ gofs.FileSeekdirer    = (*listing)(nil)
	_ gofs.FileLookuper     = (*listing)(nil)
	_ gofs.FileFsyncdirer   = (*listing)(nil)
)

// OpendirHandle opens a directory.
func (n *node) OpendirHandle(ctx context.Context, _ uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	raw := ctx
	ctx, end := n.m.op(ctx)
	defer end()
	if e := may(ctx, n, lowlevel.MayRead); e != 0 {
		return nil, 0, e
	}
	return &listing{n: n, as: n.m.callers.of(raw), first: 2, more: true, marks: []mark{{off: 2}}}, 0, 0
}

// Readdirent is the next entry. Hidden names of this mount are left out; their
// offsets are not used.
func (l *listing) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	for {
		e, errno := l.next(ctx)
		if e == nil || errno != 0 || !l.n.m.hidden.has(e.Name) {
			return e, errno
		}
	}
}

func (l *listing) next(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	if l.at < 2 {
		name := [...]string{".", ".."}[l.at]
		ino := l.n.ino
		if _, parent := l.n.Parent(); l.at == 1 && parent != nil {
			ino = parent.StableAttr().Ino
		}
		l.at++
		return &fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: ino, Off: l.at}, 0
	}
	for l.at >= l.first+uint64(len(l.page)) {
		if !l.more {
			return nil, 0
		}
		if e := l.fetch(ctx); e != 0 {
			return nil, e
		}
	}
	i := l.page[l.at-l.first]
	l.at++
	l.last = i
	return &fuse.DirEntry{Name: i.Name(), Mode: typeOf(i.Mode()), Ino: i.Inode, Off: l.at}, 0
}

// fetch gets the page after the one that is there.
func (l *listing) fetch(ctx context.Context) syscall.Errno {
	ctx, end := l.n.m.opAs(ctx, l.as)
	defer end()
	if e := l.n.m.settleIn(ctx, l.n.ino, ""); e != 0 {
		return e
	}
	after := l.marks[len(l.marks)-1].after
	off := l.first + uint64(len(l.page))
	if n := len(l.page); n > 0 {
		after = l.page[n-1].Name()
		if last := l.marks[len(l.marks)-1].off; off > last && len(l.marks) < maxMarks {
			l.marks = append(l.marks, mark{off, after})
		}
	}
	page, more, err := l.n.m.fs.ListAt(ctx, lowlevel.Inode(l.n.ino), after, listPage)
	if err != nil {
		return errno(err)
	}
	l.page, l.first, l.more = page, off, more
	return 0
}

// Seekdir goes to an offset that an entry had: the page that it is in is got
// again.
func (l *listing) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	l.last = nil
	if off >= l.first && off <= l.first+uint64(len(l.page)) && len(l.page) > 0 || off < 2 {
		l.at = off
		if off < 2 {
			l.restart(0)
		}
		return 0
	}
	k := len(l.marks) - 1
	for k > 0 && l.marks[k].off > off {
		k--
	}
	l.restart(k)
	for l.at = l.first; l.at < off; {
		e, errno := l.next(ctx)
		if errno != 0 || e == nil {
			return errno
		}
	}
	return 0
}

// restart forgets the page and begins at a mark.
func (l *listing) restart(k int) {
	l.marks = l.marks[:k+1]
	l.page, l.first, l.more = nil, l.marks[k].off, true
}

// Lookup gives the attributes that came with the entry.
func (l *listing) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	if i := l.last; i != nil && i.Name() == name {
		if !l.n.m.notes(threadOf(ctx), i) {
			return nil, syscall.EAGAIN // the kernel asks if it wants to know
		}
		return l.n.child(ctx, i, out), 0
	}
	return l.n.Lookup(ctx, name, out)
}

// Fsyncdir makes the drafts of the directory. Other names are durable when the
// call that made them returns.
func (l *listing) Fsyncdir(ctx context.Context, _ uint32) syscall.Errno {
	ctx, end := l.n.m.op(ctx)
	defer end()
	return l.n.m.settleIn(ctx, l.n.ino, "")
}
