// Package snapshots has the snapshots of directories: which there are, what is in each, how
// they differ, and which blocks only they keep.
//
// A snapshot is a clone of the tables of inodes, attributes and ACLs, which is kept, and the
// number of a directory: what was below that is the snapshot. To make one takes constant time;
// what the tree changes later it copies first. What a clone has besides, of the rest of the
// namespace, nobody can reach, and no block is kept for it.
//
// # Numbers
//
// An inode in a snapshot has a number of its own: that of the snapshot in the bits from Bits
// on, that of the inode below. So all that takes a number of an inode takes one of a snapshot,
// too. The directory .snapshot of a directory has ListID in the place of a snapshot's.
//
// # Blocks
//
// A block that the tree has no longer, but a snapshot has, is Held by the newest snapshot that
// has it. Newest means made last; numbers say nothing, since they are used again. When that is
// deleted, its held blocks go, a slice at a time, to the newest other one
// that has them, or become garbage. So a deletion takes constant time, and what it frees takes
// time for the blocks that only snapshots have of the same files.
//
// A block is in files of one inode number only, whatever snapshots there are, and at one place in
// their lists: the tree moves no blocks of a file that a snapshot has.
//
// A Table is changed by the tree alone, as a record says; a Snapshot never changes.
// See docs/adr/0037-snapshots.md.
package snapshots
