package calls

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// ChangeKind says which aspect of an inode or a name changes.
type ChangeKind uint8

// The kinds of changes.
const (
	// ChangeAttr: what stat shows of an inode, except for what ChangeEntries covers; also
	// whether the inode exists, and its place in the tree.
	ChangeAttr ChangeKind = iota
	// ChangeEntries: which entries a directory has, how many, and its mtime.
	ChangeEntries
	// ChangeName: which inode, if any, has this name in this directory.
	ChangeName
	_ // engine.KeyDelegation, which no record changes
	// ChangeLease: the state of a granted lease, such as whether it has ended; Inode is
	// its id.
	ChangeLease
	// ChangeLeaseName: which granted lease, if any, has this name.
	ChangeLeaseName
	// ChangePasses: which delegation tokens there are, and until when.
	ChangePasses
	// ChangeTrash: what there is in the trash.
	ChangeTrash
	// ChangeQuota: which quotas there are, and how much of them is used.
	ChangeQuota
)

// Change names something that can change.
type Change struct {
	Kind  ChangeKind
	Inode tables.InodeID
	Name  string // of ChangeName and ChangeLeaseName
}
