package snapshots

import (
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// ID is the number of a snapshot: from 1 to MaxID. The greatest is followed by the least that is
// free again: what had it was deleted, and holds nothing.
type ID uint64

const (
	// DirName is the name of the directory in which a directory shows its snapshots.
	DirName = ".snapshot"
	// Bits is how many bits of a number are the inode's: those of the tree are below 1<<Bits.
	Bits = 44
	// ListID is in the place of a snapshot's number in that of a directory DirName.
	ListID ID = 1<<19 - 1
	// MaxID is the greatest number of a snapshot.
	MaxID = ListID - 1
)

// CheckNames refuses (InvalidArgument) DirName as a name of something that is made.
func CheckNames(names ...string) error {
	if slices.Contains(names, DirName) {
		return fserror.New(fserror.InvalidArgument, "", "", "%s is the name under which a directory shows its snapshots, and nothing else can have it; choose another name", DirName)
	}
	return nil
}

// Number is the number that an inode has in a snapshot.
func (id ID) Number(inode tables.InodeID) tables.InodeID { return tables.InodeID(id)<<Bits | inode }

// Split takes a number apart: into that of a snapshot, 0 for none, and that of an inode.
func Split(number tables.InodeID) (ID, tables.InodeID) {
	return ID(number >> Bits), number & (1<<Bits - 1)
}

// FileOf is the same for the numbers of a file in all snapshots, and no other's.
func FileOf(number tables.InodeID) tables.InodeID {
	if id, inode := Split(number); id != 0 {
		return ListID.Number(inode)
	}
	return number
}

// In is a tree as it was once: its inodes with all that belongs to them.
type In struct {
	Inodes node.Table
	Xattrs tables.Xattrs
	ACLs   acl.Table
	Leases tables.Leases // what is attached to a dead lease was deleted
}

// Clone returns a snapshot, in constant time.
func (in *In) Clone() In {
	return In{in.Inodes.Clone(), in.Xattrs.Clone(), in.ACLs.Clone(), in.Leases.Clone()}
}

// Snapshot is a directory with all below it as it was once. It is replaced, never changed, and
// may be read by anybody.
type Snapshot struct {
	ID   ID
	Dir  tables.InodeID // the directory
	Name string         // among its snapshots
	Time int64          // of the record that made it, in Unix milliseconds
	Next tables.InodeID // no inode in it has this number or a greater one
	In   In

	age uint64 // greater of those made later; 0: it is the tree
}

// isNewer reports whether a snapshot, or the tree, is newer than another one.
func (s *Snapshot) isNewer(other *Snapshot) bool {
	return other.age != 0 && (s.age == 0 || s.age > other.age)
}

// Number is the number of the snapshot's directory.
func (s *Snapshot) Number() tables.InodeID { return s.ID.Number(s.Dir) }

// Has reports whether an inode is in the snapshot: it is the directory, or was below it.
func (s *Snapshot) Has(id tables.InodeID) bool {
	for below := id < s.Next; below; {
		n, _ := s.In.Inodes.Get(id)
		switch {
		case n == nil || s.In.Leases.IsDead(id):
			return false
		case id == s.Dir:
			return true
		}
		id = n.Parent
	}
	return false
}

// Path is the path of an inode in the snapshot, relative to the directory: "" for that itself.
func (s *Snapshot) Path(id tables.InodeID) string {
	var names []string
	var n node.Inode
	for ; id != s.Dir && s.In.Inodes.Read(id, &n); id = n.Parent {
		names = append(names, n.Name())
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}
