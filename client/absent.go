package client

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Before the kernel creates a file, it looks the name up, so filling a new directory
// takes a question a file. For a directory that was empty, the client notes each name
// that it creates there since; any other name is absent. Creations by others revoke
// the directory's entries, and with them what was noted.

// mayHave is a Bloom filter of names, safe for concurrent use. It only grows. With
// 10,000 names in it, it takes one other name in a hundred for present.
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

// dirOf is the directory of what a reference names, as far as it is known: that it is
// one, and may be searched.
func (a *answers) dirOf(r door.Ref) (dir *pb.Attr, name string, ok bool) {
	d, name := r.Split()
	v, ok := a.kept(stat(d))
	return v.attr, name, ok && name != "" && v.attr.GetType() == pb.FileType_FILE_TYPE_DIRECTORY
}

// absent reports whether a name is surely not there, by what is known of its directory.
func (a *answers) absent(r door.Ref) bool {
	d, name, ok := a.dirOf(r)
	if !ok {
		return false
	}
	v, ok := a.kept(readKey{readNames, door.Inode(d.GetInode())})
	return ok && !v.names.has(name)
}

// seenAbsent begins a filter for the directory of a name that the namenode has just
// called absent, if the directory is empty. The ticket is from before that call.
func (a *answers) seenAbsent(ticket readcache.Ticket, r door.Ref) {
	d, _, ok := a.dirOf(r)
	if !ok || d.GetEntries() != 0 {
		return
	}
	// By inode: a directory may be known by several paths. Its attributes say who
	// may search it.
	id := d.GetInode()
	a.cache.Put(ticket, readKey{readNames, door.Inode(id)}, kept{names: newMayHave()},
		[]readcache.Key{{Kind: keyEntries, Inode: id}, {Kind: keyAttr, Inode: id}})
}

// willMake notes a name that a call is about to create. The directory's entries are
// given up for that call, so no filter without the name can replace this one. The
// filter is found even while no term runs: the next term may make it valid again.
func (a *answers) willMake(dir uint64, name string) {
	if v, ok := a.cache.Peek(readKey{readNames, door.Inode(dir)}); ok {
		v.names.add(name)
	}
}
