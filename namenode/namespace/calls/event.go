package calls

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// EventType is what happened to a file, directory or link.
type EventType uint8

// The types of events.
const (
	EventCreate EventType = iota + 1 // it was made
	EventClose                       // its writing ended: by its writer, by recovery, or with a directory that was deleted
	EventDelete                      // it, and all below it, was deleted or replaced
	EventRename                      // it, and all below it, moved
	EventLength                      // its length changed
	EventAttr                        // owner, group, mode or mtime were set
	EventLease                       // it was opened for write, attached or detached
)

// Event is what a record did to one name.
type Event struct {
	Type   EventType
	Inode  tables.InodeID
	Dir    tables.InodeID // the directory of Path
	NewDir tables.InodeID // of a rename: that of NewPath
	// Path is where it is, or was before the record if that deletes or renames it; empty of a file
	// that a record closes with very many others. What is too long to be named, fspath.Begin cuts.
	Path    string
	NewPath string // where a rename leads
	Length  int64  // bytes, of a file after the record
	IsDir   bool
	Trashed bool   // of EventDelete: it went to the trash
	Holder  string // of EventLease: the client name of its writer; empty: it has none
}
