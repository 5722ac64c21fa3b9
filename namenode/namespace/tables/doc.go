// Package tables has what a namespace's state is besides its inodes: results of
// calls, granted leases and the files attached to them, ages of leases, sessions that
// may cache, garbage blocks, extended attributes, owners, reigns. Package slots has the
// inodes.
//
// A table knows nothing of the tree, nor of the others. It is changed by the tree
// alone, as a record says. Each has
//
//   - Clone, which takes a snapshot in constant time: what the two share is copied
//     before it is changed;
//   - Code, its layout in an image. One that reads checks all that it can by itself,
//     and asks the tree, by a function, what it cannot know;
//   - Check, which finds where its indexes disagree.
package tables
