// Package callstream carries unary calls over one stream a connection, for both sides.
//
// Most of what a small call costs is its HTTP/2 exchange: headers, a stream, wake-ups.
// So the calls that are waiting to be sent travel in one message, and so do the answers
// that are ready. There is no timer: a call that is alone leaves at once, and those that
// come while a message is being sent leave with the next one. Each call keeps what a
// unary call has: its own deadline, cancellation, error and size limit, and an answer as
// soon as it is done, whatever others do. The server carries out the calls of a message
// one after the other, but no call waits for another that waits or takes long. See
// docs/adr/0019-calls-travel-together.md.
//
// Conn is a grpc.ClientConn that does so by itself. While it has no stream (at the
// beginning, after a break, with a server that has no such service), and for messages of
// more than 64 KiB, calls are plain unary calls. Server serves the registered methods
// under the same interceptor as unary calls.
package callstream
