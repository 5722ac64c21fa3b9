// Package blockcache keeps blocks in a folder of this machine, near who reads them.
//
// A block never changes, so what the folder has of it is never out of date. A file
// of the folder is a block's object, by namespace, key, length and checksum, with
// holes where nothing is kept; its checksum table is always there. What is read is
// verified against the checksum in the block list, chunk by chunk, so no order of
// writes and no sync is needed: what a crash, a bad disk or another process left
// half written does not match, and counts as not kept.
//
// Processes share a folder without knowing of each other. Who writes or removes
// holds one lock, and keeps the sum of what the files take on disk next to it; who
// reads needs no lock. Files that were not used for the longest time go first.
package blockcache
