// Package door lets package client hand its calls of internal/lowlevel, which
// imports it, to nobody but that: an import of client by this package would be a
// cycle, and an exported method of client.FS would be everybody's.
package door

// Calls is set by package client: it returns the lowlevel.Calls of a *client.FS.
var Calls func(fs any) any

// Taken says from what RenameOver and RemoveTaken take a name, and what becomes of it.
type Taken struct {
	Inode  uint64 // NotFound, and no change, if another has the name by then; 0: whatever has it
	Hidden string // the name that it gets, in the directory where it is; empty: it is deleted
	Lease  uint64 // with Hidden: the granted lease that it is attached to
}
