// Package conns bounds what connections take before anything of them was
// checked: descriptors, and the bytes of messages that are not complete.
//
// # Descriptors
//
// A [Table] has room for so many connections, of all the listeners together. When
// it is full, a new connection ends the one that has been idle for longest: one
// with no request under way. Who holds many ends one of his own, see package
// share. If all have requests under way, the new one is closed.
//
// # Bytes
//
// gRPC keeps the bytes of a message until it is complete, whoever sends it, and
// its flow control bounds them by stream only. [Table.Creds] puts a meter around
// a connection, which follows the frames of HTTP/2 in both directions: it
// knows of each stream how many bytes of an incomplete message were read. When
// there are too many in all, the connection that has most of them is closed.
package conns
