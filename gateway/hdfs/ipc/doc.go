// Package ipc is a server of Hadoop's IPC, version 9: remote calls of protocol buffers
// over a connection, as Hadoop's clients make them. What the calls are about is their
// handler's.
//
// # A connection
//
// It begins with the bytes "hrpc", the version, a service class and how the client proves
// who it is: not at all (0), or by SASL (0xDF), of which the server offers SIMPLE only, which
// proves nothing either. Then come frames: four bytes of length, a header, and what
// the header's call number says, the first a context with the name of the user. Calls
// of one connection are answered in the order in which they end.
//
// # Calls that are sent again
//
// A client whose connection broke sends a call again, under the same number. Config.Once
// names the calls that must not happen twice: their answers are kept for ten minutes by user,
// client and number, and a call does not end with its
// connection. Answers are this server's: another one makes the call again.
//
// Such a call does not begin when its client has ended the connection, or after the process stood
// still: the client may have made it by another server.
//
// # Limits
//
// Connections are bounded by package conns, the calls under way by package gate with fair
// shares by user and address, and on one connection by maxCalls; then it is not read. A
// message has at most Config.Message bytes; what is more than a few KiB of messages that
// are not complete or not answered is bounded for all connections together, with
// fair shares. A connection that says nothing for Config.Idle and waits for nothing is
// closed, so is one that takes longer than twenty seconds for a message once it has begun,
// or reads no answer for a minute.
package ipc
