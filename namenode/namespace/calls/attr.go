package calls

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// RootID is the root directory.
const RootID tables.InodeID = 1

// Type is the type of an inode.
type Type uint8

// The types of inodes.
const (
	TypeFile Type = iota + 1
	TypeDir
	TypeSymlink
)

// Attr is what stat shows of an inode.
type Attr struct {
	ID, Parent tables.InodeID
	Name       string // empty for the root
	Type       Type
	Mode       uint16 // permission, sticky and set-id bits
	User       string
	Group      string
	MTime      int64 // Unix milliseconds
	// Length is that of a file, or of a link's target, in bytes.
	Length     int64
	LinkTarget string
	Open       *OpenFile      // nil unless it is a file open for write
	Entries    int            // of a directory
	Snapshots  bool           // it is a directory that may have snapshots
	Blocks     int            // of a file
	TailLength int64          // of a file, in bytes
	Lease      tables.LeaseID // the granted lease that it is attached to; 0: none
	Xattrs     int            // how many extended attributes it has
	Xattr      string         // the value of the one that the call wants, if it may read it
	// Access and Default are what its mode does not say of its ACLs; nil: nothing.
	Access, Default *acl.ACL
}

// FileView is all that a reader needs of a file. Its slices are shared with
// the tree: they are valid for ever, and not to be changed.
type FileView struct {
	Attr   Attr
	Blocks []content.Block
	Tail   []byte // begins in the file where the blocks' Used bytes end
	// Cut is the record that shortened the file last, 0 if none did. Two views of
	// a file with the same Cut have the same byte at each offset that both have.
	Cut uint64
}

// OpenFile is a file open for write, and its holder.
type OpenFile struct {
	Inode  tables.InodeID
	Epoch  uint64 // the number of the record that granted it
	Token  tables.Token
	Holder tables.Holder
	Since  int64 // Unix milliseconds by the journal
}

// ClosedFile is a file that is no longer open under an epoch.
type ClosedFile struct {
	Inode   tables.InodeID
	Epoch   uint64
	Session tables.SessionID
	Reason  string         // one of the Reason constants
	Holder  *tables.Holder // who had it open; not to be changed
	Since   int64          // Unix milliseconds by the journal
}

// Why a file is no longer open under an epoch.
const (
	ReasonClosed    = "closed"
	ReasonRecovered = "recovered"
	ReasonTakenOver = "taken over"
	ReasonDeleted   = "deleted"
	ReasonReplaced  = "replaced"
)

// Exists is the error of a call that would make something where something of a type is.
func Exists(op, path string, typ Type) error {
	switch typ {
	case TypeDir:
		return fserror.New(fserror.Exists, op, path, "a directory of this name exists")
	case TypeSymlink:
		return fserror.New(fserror.Exists, op, path, "a symbolic link of this name exists")
	}
	return fserror.New(fserror.Exists, op, path, "the file exists")
}

// NotOpen is the error of a call that resumes a file which no process of its client has open.
func NotOpen(c *Call, path string) error {
	return fserror.New(fserror.LeaseLost, "append", path, "lease lost: no earlier process of client %s has the file open any more", c.Client)
}
