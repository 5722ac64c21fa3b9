package client

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Who fills a new directory is asked for each name first, by the kernel for one,
// whether it is there. So of a directory that was seen empty the names are noted
// that may have come into it since: those that this client was about to make.
// Others' are told of by a revocation of the directory's entries, which ends it.

// mayHave is a set of names, and maybe more: a Bloom filter. It only grows, and is
// safe for concurrent use. With 10,000 names in it one in a hundred others seems
// to be there.
type mayHave struct {
	seed maphash.Seed
	bits [mayHaveBits / 64]atomic.Uint64
}

const mayHaveBits = 1 << 17 // 16 KiB

func newMayHave() *mayHave { return &mayHave{seed: maphash.MakeSeed()} }

// places are the three bits of a name.
func (m *mayHave) places(name string) [3]uint64 {
	h := maphash.String(m.seed, name)
	return [3]uint64{h % mayHaveBits, (h >> 20) % mayHaveBits, (h >> 40) % mayHaveBits}
}

func (m *mayHave) add(name string) {
	for _, p := range m.places(name) {
		m.bits[p/64].Or(1 << (p % 64))
	}
}

func (m *mayHave) has(name string) bool {
	for _, p := range m.places(name) {
		if m.bits[p/64].Load()&(1<<(p%64)) == 0 {
			return false
		}
	}
	return true
}

// absent tells whether there is surely nothing at a path, by what is known of
// its directory.
func (a *answers) absent(path string) bool {
	if a.cache == nil {
		return false
	}
	dir, name := fspath.Split(path)
	d, ok := a.kept(readKey{kind: readLstat, path: dir})
	if !ok || d.attr.GetType() != pb.FileType_FILE_TYPE_DIRECTORY {
		return false
	}
	v, ok := a.kept(readKey{kind: readNames, inode: d.attr.GetInode()})
	return ok && !v.names.has(name)
}

func errAbsent(op, path string) error {
	return fserror.New(fserror.NotFound, op, path, "no such file or directory")
}

// seenAbsent notes, when the namenode has said that there is nothing at a path,
// that its directory is empty, if it is. The ticket is from before that was asked.
func (a *answers) seenAbsent(ticket readcache.Ticket, path string) {
	dir, _ := fspath.Split(path)
	v, ok := a.kept(readKey{kind: readLstat, path: dir})
	if !ok || v.attr.GetType() != pb.FileType_FILE_TYPE_DIRECTORY || v.attr.GetEntries() != 0 {
		return
	}
	id := v.attr.GetInode()
	// By inode: a directory may be known by several paths. Its attributes say who
	// may search it.
	a.cache.Put(ticket, readKey{kind: readNames, inode: id}, kept{names: newMayHave()},
		[]readcache.Key{{Kind: keyEntries, Inode: id}, {Kind: keyAttr, Inode: id}})
}

// willMake notes a name that a call is about to make. The directory's entries
// were given up for it, so that no set without the name can come in its place;
// that no term runs just now is no reason, since the next one may count for the
// set again.
func (a *answers) willMake(dir uint64, name string) {
	if v, ok := a.cache.Peek(readKey{kind: readNames, inode: dir}); ok {
		v.names.add(name)
	}
}
