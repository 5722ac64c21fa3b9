// Package namespace is the tree of files that a journal describes: inodes,
// directories, block lists, tails, who has a file open, the results of calls,
// and which blocks are garbage. It is pure: it does no I/O but to write and
// read an image, it has no clock and no randomness, and it knows nothing of
// leases, of the wire or of who is the active namenode.
//
// # State is a function of the journal
//
// [Tree.Apply] is the only way to change state. It depends on the state and the
// record alone: an active namenode, a standby, a restart and a test that apply
// the same records have the same tree, and its image the same bytes. Records
// name inodes by number, so their meaning does not depend on names; numbers are
// given by Apply, in order, and never reused. All that is duplicate-sensitive
// is checked where it is applied: that a name is free, what an inode is, that a
// file is open, where its end is, that a block is in no other file and no
// garbage. A record that does not fit changes nothing.
//
// A request becomes a record by a Plan function: it reads, checks paths, types
// and permissions, and returns the record that would carry the request out, or
// why it cannot be. Between plan and Apply the caller keeps its lock, so that
// what was planned still fits. A nil record without an error means that there
// is nothing to do.
//
//	op, err := namespace.PlanRename(tree, call, from, to, false, false) // request → checked
//	typ, body := namespace.EncodeOp(nil, id, op)                        // → record
//	res, err := tree.Apply(namespace.Entry{…, Op: op})                  // → state
//
// # Locks
//
// A Tree has no lock of its own. What only reads (Stat, List, File, the
// Plans, CallResult, …) may run at the same time; Apply, Clone, SetDurable and
// Track need the tree alone. [Tree.Clone] takes a snapshot in constant time; it
// is read-only and read without any lock, for images, fsck, find and du. What
// reads return is never changed later: slices are shared, so do not write to
// them.
//
// # How it is kept
//
// Package slots keeps the inodes, by number and by (directory, name), without a
// pointer for each; what only some need (a name of more than 24 bytes, blocks, a
// tail, the open state, how many entries) is in an extension of its own. An empty
// file with a name of 13 bytes takes about 61 bytes of heap in all. What reads it
// gets a copy, an inode of 64 bytes.
//
// What a clone shares is copied before it is changed. Block lists and
// tails share their arrays between versions of an inode: a new version appends
// behind what older ones see, and one that is cut gets an array of its own, so
// no byte that anyone may look at is ever overwritten.
//
// # Invariants
//
// [Tree.Check] compares all parts with each other. Among what it checks:
//   - every inode but the root and the tops of deleted subtrees is the entry of
//     exactly one directory, and going up from it ends;
//   - a directory counts its entries, a file the bytes of its blocks;
//   - a file that is open can be reached from the root, so a writer that is
//     current need not be asked where its file is;
//   - a block is in at most one file at one place, held for a snapshot, or garbage.
//
// # Files and writers
//
// A file's bytes are those of its blocks (the first Used of each), then its
// tail. A file open for write has an epoch, the number of the record that
// granted it, and a token; a [Writer] that does not show both gets LeaseLost.
// Closing, recovery, a new open, deletion and replacement each end an epoch in
// one record, and [Result.Closed] lists every epoch that a record ended.
//
//   - OpAppendTail adds bytes at the end. It and OpCommit are idempotent: a plan
//     for what was done already returns nil. The last append is remembered with
//     its checksum, so its repetition is known also after the tail was sealed.
//   - OpCommit makes a block the last one. Its first bytes are the tail's first;
//     it may go beyond the tail only if it covers all of it, and only for the
//     writer. So a block never changes bytes that a reader may have seen.
//   - OpCommit with ReplaceLast, and one that covers tail bytes only, keep the
//     file's bytes and mtime as they are: the namenode may seal any file so.
//   - OpRecover, and the end of an epoch by deletion or take-over, keep every
//     byte that was appended or committed.
//
// # Directories
//
// Deleting a directory with entries detaches it: one entry goes, open files
// below are closed in the same record, and all the rest is unreachable at once.
// OpReclaim frees what was detached, a bounded number of inodes a record, in an
// order that depends on the state alone. Nothing here recurses, so no depth is
// too much. Until then its blocks count as part of files; then they are
// garbage, as those of a single deleted file are at once.
//
// The record that ends a granted lease makes everything attached to it dead
// (docs/adr/0021): lookup and children skip dead entries, reachable stops at them, and
// no count of entries includes them. OpReap removes them, or a record that gives the name
// to something else.
//
// Garbage is kept until OpCollected says that the store does not have it any
// more; till then a commit of such a block is refused. Afterwards the tree has
// forgotten the key: the caller must not collect a block that a writer may
// still commit.
//
// # Permissions
//
// They are those of POSIX: the one class of the mode that applies (owner, group
// or others) decides. Searching takes x on every directory on the way, listing
// r, reading a file r, appending and truncating w, making, deleting and
// renaming w and x on the directory; in one with the sticky bit only the owner
// of the entry or of the directory may take it away. Moving a directory to
// another one takes w on itself, as on Linux. What is new has its maker as
// owner and its directory's group (BSD, HDFS). A [Call] with Super set, and a
// nil *Call, may everything.
//
// Access by inode number checks the directories above it as access by path
// does: a number is no way around a closed directory.
//
// # What is not durable yet
//
// With [Tree.Track] on, the tree remembers for each change that is not durable
// which record made it; a [Call] collects the newest record of all that it has
// looked at. An answer, also an error, must wait until that record is durable.
// Attributes of an inode, the entries of a directory and a single name are told
// apart: making a file lets nobody wait who looks at its neighbour. A call to a
// clone counts as having seen all that was not durable when it was taken.
//
// # Results of calls
//
// A record may carry a [CallID]; then its result is part of the state, found by
// [Tree.CallResult] until a later record of the session acknowledges it or the
// session has had no record for [SessionTTL] of [Tree.Reigned].
//
// # Files of this package
//
// op_NAME.go has all of one kind of record: fields and layout, plan, how it is
// applied, whom it affects, its events. A new kind is such a file and a line of
// the table in record.go. layout.go has what layouts have in common, over package
// codec.
//
// A [Tree] consists of parts: inodes (inodes.go, over packages node and slots; hierarchy.go is what is
// above and below, openfiles.go who writes what) with their owners (owners.go) and
// extended attributes (xattr.go), the space of blocks and garbage (garbage.go), granted
// leases (granted.go), the trash (op_trash.go), snapshots (past.go and op_snapshot.go, over package snapshots), what is remembered of clients (clients.go) and of the namespace
// as a whole (history.go). What they keep in tables is in package tables, and what a
// file's bytes are made of in package content.
//
// apply.go, entries.go, file.go, garbage.go, lease.go are how a record changes them, by
// an applier; view.go and resolve.go what a call sees, and paths and permissions;
// plan.go, writer.go, read.go, walk.go the operations that callers ask for, in the types of
// package calls; affects.go and event.go who hears of a change; track.go durability; image.go
// the image, imageparts.go the layouts of its parts, over package imaging; check.go, over package checks.
// The byte formats are in docs/design/records-and-image.md.
package namespace
