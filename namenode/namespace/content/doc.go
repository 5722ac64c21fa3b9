// Package content has the content of a file: blocks in the block store, then a
// tail in memory ([File]). It knows which block may follow, what is left when a file is
// cut, and whether an append is a repetition ([Append]).
//
// The versions of a file share the memory of their block lists and tails: a new version
// appends behind what older ones see, and one that is cut gets lists of its own, so no
// byte that anyone may look at is ever overwritten. Only the newest version may append.
package content
