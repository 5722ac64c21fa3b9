// Package node has the inodes of a tree as they are in memory ([Inode], [Table]) and in an
// image ([Coder]): what one has, not what it means for others.
//
// The tree knows which inodes may be seen, who owns how much, and which blocks there are: of
// these this package knows nothing. Its checks ([Inode.Check]) are of one inode by itself.
// Tables are as safe for concurrent use as those of package slots.
package node
