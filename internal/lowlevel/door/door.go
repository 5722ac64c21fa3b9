// Package door lets package client hand its calls of internal/lowlevel, which
// imports it, to nobody but that: an import of client by this package would be a
// cycle, and an exported method of client.FS would be everybody's.
package door

import "github.com/leasefs/leasefs/internal/fspath"

// Calls is set by package client: it returns the lowlevel.Calls of a *client.FS.
var Calls func(fs any) any

// Taken says from what RenameAt and RemoveTaken take a name, and what becomes of it.
type Taken struct {
	Inode  uint64 // NotFound, and no change, if another has the name by then; 0: whatever has it
	Hidden string // the name that it gets, in the directory where it is; empty: it is deleted
	Lease  uint64 // with Hidden: the granted lease that it is attached to
	Was    string // what is hidden: the name that it had, under which the trash shows it
	Scrap  bool   // it is only its maker's, and the trash does not keep it
}

// Ref names what a call is about, as in the protocol: by a path from an inode.
type Ref struct {
	Base uint64 // 0: the root, and Path is absolute
	Path string // from Base: one name, or empty, which is Base itself
}

// At is what has an absolute path.
func At(path string) Ref { return Ref{Path: path} }

// Inode is an inode, wherever it is.
func Inode(inode uint64) Ref { return Ref{Base: inode} }

// Split returns the directory of what has a name, and the name.
func (r Ref) Split() (dir Ref, name string) {
	if r.Base != 0 {
		return Inode(r.Base), r.Path
	}
	r.Path, name = fspath.Split(r.Path)
	return r, name
}
