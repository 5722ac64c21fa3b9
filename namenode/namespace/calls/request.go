package calls

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// Writer is what a writer identifies itself with in each call.
type Writer struct {
	Inode tables.InodeID
	Epoch uint64
	Token tables.Token
}

// CreateRequest asks for a new file.
type CreateRequest struct {
	At   Ref
	Mode uint16 // permission bits of the file
	// KeepMode makes a file that replaces one take its mode over instead.
	KeepMode  bool
	DirMode   uint16 // of directories made on the way
	Overwrite bool   // replace an existing file
	Parents   bool   // make missing directories
	Close     bool   // the file is complete and closed: Holder and Token do not count
	Holder    tables.Holder
	Token     tables.Token
	Data      []byte
	Xattrs    []Xattr        // of the new file
	MTime     int64          // Unix milliseconds; 0: now
	Lease     tables.LeaseID // granted, to attach the file to; 0: none
}

// Hide says that a file that loses its name gets another one in its directory,
// attached to a granted lease of the caller's. If it is not this inode any more
// that loses the name, it is deleted as usual.
type Hide struct {
	Inode tables.InodeID
	Name  string
	Lease tables.LeaseID
}

// Xattr is one extended attribute. Its value is shared with the tree: it is
// valid for ever, and not to be changed.
type Xattr struct {
	Name  string
	Value []byte
}

// XattrAction is what is to be done with an extended attribute.
type XattrAction = tables.XattrAction

// The actions.
const (
	XattrSet     = tables.XattrSet
	XattrCreate  = tables.XattrCreate
	XattrReplace = tables.XattrReplace
	XattrRemove  = tables.XattrRemove
)
