// Package slots has the inodes of a tree by number, and as entries of their
// directories, with no pointer for each.
//
// A Table has two indexes. Pages of up to 64 adjacent numbers have the inodes
// themselves, as Nodes of 48 bytes; what only some inodes have, X, is beside them
// and the only thing that the garbage collector follows. Leaves of up to 128
// entries, in the order of directories and names, have the numbers of inodes: names
// are compared where they are, in the Nodes.
//
// A clone shares both. Each page, leaf and branch knows the generation of the table
// that made it, and is copied before a table of another generation changes it.
//
// Tables are not safe for concurrent use, but a clone may be read, by anyone, while
// the table that it came from changes. See docs/adr/0023-inode-store.md.
package slots
