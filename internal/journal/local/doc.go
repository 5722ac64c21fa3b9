// Package local is the journal of one namenode: segments in a folder of its
// disk. docs/design/journal.md has the format byte by byte, the assumptions
// about the disk and the steps of recovery.
//
// Append (package group) frames a record into a buffer and returns. One goroutine, which begins
// with BeginTerm and ends with Close, writes what has gathered as one batch,
// syncs it, and only then takes the next: what comes in meanwhile is the next
// batch (group commit, with no delay of its own). So at most one batch is ever
// not known to be durable, and it is the last one in the journal. All of
// recovery rests on that.
//
// A write or sync that fails is final. What is on the disk then is decided by
// the next start, which reads the disk and not a memory of it: the last batch,
// if it is whole, counts, and is written again where a successful sync means
// something.
//
// A journal that cannot begin its next segment ends its namenode. So it holds a
// few descriptors that it needs for nothing else, and gives them up for its own
// files when the process has no more.
package local
