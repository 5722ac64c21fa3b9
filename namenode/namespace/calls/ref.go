package calls

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// How says how a Ref is followed.
type How uint32

// The ways, to be combined.
const (
	// FollowLast follows a symbolic link at the end of the path.
	FollowLast How = 1 << iota
	// NoLinks refuses (Loop) what would follow a symbolic link, wherever it is.
	NoLinks
)

// Ref names what a call is about, as openat(2) does: by a path from an inode. It is
// resolved within one attempt of the call, under the lock.
//
// Unlike a descriptor it gives no rights, since numbers of inodes can be guessed. So a
// caller that names a base must be allowed to search all directories above it.
type Ref struct {
	Base tables.InodeID // 0: the root, and Path is absolute
	Path string         // from Base, without a slash before it; empty: Base itself
	How  How
	// Expect is the inode that it has to lead to, else NotFound; 0: any, or none. It
	// protects whatever has taken the name since from a change by name.
	Expect tables.InodeID
}

// At is what a path names; a symbolic link at its end is not followed.
func At(path string) Ref { return Ref{Path: path} }

// Follow is what a path leads to, through a symbolic link at its end.
func Follow(path string) Ref { return Ref{Path: path, How: FollowLast} }

// Inode is an inode, wherever it is.
func Inode(id tables.InodeID) Ref { return Ref{Base: id} }

// Dir is the directory of what a Ref names, which must have a name in its path.
func (r Ref) Dir() Ref {
	if r.Base == 0 {
		r.Path, _ = fspath.Split(r.Path)
	} else {
		r.Path = r.Path[:max(strings.LastIndexByte(r.Path, '/'), 0)]
	}
	r.How, r.Expect = r.How|FollowLast, 0
	return r
}

// RefOf is what a request has, as the wire says it.
func RefOf(r interface {
	GetBase() uint64
	GetPath() string
	GetHow() uint32
	GetExpect() uint64
}) Ref {
	return Ref{Base: tables.InodeID(r.GetBase()), Path: r.GetPath(), How: How(r.GetHow()), Expect: tables.InodeID(r.GetExpect())}
}
