// Package conns bounds what connections take before anything of them was
// checked: descriptors, and the bytes of messages that are not
// complete, or were not taken.
//
// # Descriptors
//
// A [Table] has room for so many connections, of all the listeners together. When
// it is full, a new connection ends the one that has been idle for longest: one
// with no request under way. Who holds many ends one of his own, see package
// share. If all have requests under way, the new one is closed.
//
// A [Table]'s listener accepts only so many at once of those whose first request is still to
// come, so that clients that all come back after a failure do not slow those down that are
// there already.
//
// # Bytes
//
// gRPC keeps the bytes of a message until it is complete, whoever sends it, and
// its flow control bounds them by stream only. [Table.Creds] puts a meter around
// a connection, which follows the frames of HTTP/2 in both directions: it
// knows of each stream how many bytes of an incomplete message were read. When
// there are too many in all, the largest connection of the address that has most of them is closed.
//
// gRPC also keeps the bytes of an answer until its client grants room for them, and so
// after the handler has returned: the first message of a stream whatever its size. [Codec]
// counts what [To] has bound to a connection until gRPC gives its buffer back, or drops it, and
// closes one of too many in the same way.
package conns
