// Package webhdfs serves a namespace to clients of WebHDFS, Hadoop's own above all, over
// package client. It knows of Hadoop what nothing else of leasefs knows.
//
// A Server has a session of the library for each user that asks (package users). A request
// becomes an operation by its method and its parameter op (ops.go): a lookup, a change, or
// a transfer of bytes. A file is written by two requests. The first opens it and leaves
// the writer with the openings; the second, which names it, brings the bytes. Reading
// takes two, as well: the first leads to the inode.
//
// Errors have the Java class and the HTTP status that HDFS would give them (errors.go).
// What differs from HDFS is in docs/HADOOP.md.
//
// # Limits
//
// Connections are bounded by package conns, files that are read and written at once by
// Config.Streams, with fair shares by user and address (package gate), the silence of a client by
// Config.Idle, and the size of heads, queries and answers by constants.
package webhdfs
