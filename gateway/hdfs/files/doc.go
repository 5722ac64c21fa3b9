// Package files is what clients of HDFS have open, in plain Go types: files that they
// write, the blocks of which files seem to consist, and the tokens with which a client
// asks for a block's bytes. Package hdfs shows it by RPC, package data moves the bytes.
//
// # Blocks
//
// A file has no blocks of HDFS's kind. What a client takes for one is a range of the file:
// a Block's ID says which inode it is of and which of its ranges. Nothing of it is kept
// anywhere, so any gateway of the namespace understands it. Stamp says which opening of the
// file it is of, so a writer that was replaced has an older one.
//
// # Leases
//
// A file is held by a session of the library with the Hadoop client's name, so that HDFS
// clients, mounts and Go programs exclude and replace each other. The session renews its
// lease only when the client was heard of since it did so last (Renew, or bytes).
package files
