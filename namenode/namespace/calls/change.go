package calls

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// ChangeKind is what of an inode, or of a name, changes.
type ChangeKind uint8

// The kinds of changes.
const (
	// ChangeAttr: what stat shows of an inode and is not in ChangeEntries; also
	// that there is such an inode, and where it hangs.
	ChangeAttr ChangeKind = iota
	// ChangeEntries: which entries a directory has, how many, and its mtime.
	ChangeEntries
	// ChangeName: which inode, if any, has this name in this directory.
	ChangeName
	_ // of what no record changes: engine.KeyDelegation
	// ChangeLease: what there is to know of a granted lease, such as that it has
	// ended; its id is in Inode.
	ChangeLease
)

// Change names something that can change.
type Change struct {
	Kind  ChangeKind
	Inode tables.InodeID
	Name  string // of ChangeName
}
