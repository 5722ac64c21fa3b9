// Package zkconn is one session with a ZooKeeper ensemble, over
// github.com/go-zookeeper/zk. It adds what that client does not do, and what
// election and journal rest on:
//
//   - A Session is one ZooKeeper session for all its life. When ZooKeeper has
//     expired it, Done is closed and nothing more is sent. (The client alone
//     opens a new session without a word, and sends on it what was queued for
//     the old one.)
//   - Every call takes a context. A call that is given up may still happen:
//     see Unknown.
//   - What is asked while there is no connection waits here, for it, for its
//     context or for the end of the session. (The client queues sixteen
//     requests, which nobody can take back, and keeps a goroutine of ours for
//     each of the others, for as long as the connection is gone.)
//   - A write that fails costs the connection. (The client answers such a
//     request two or three times, and stands still for ever when nobody takes
//     the last answer.)
//   - Multis reach ZooKeeper in the order of the calls of Start, though many
//     are under way. (The client's Multi blocks, and calls from several
//     goroutines overtake each other.) See wire.go for how.
//   - A server that takes connections and does not answer (stopped, out of
//     memory) is left after a third of the session's time-out. (The client
//     waits for the answer to its greeting ten times longer than the session
//     lives.)
//   - Session events come through the client's callback. (Its channel drops
//     them when six are unread.)
//
// Reconnecting within the session, pings and setting the watches again are the
// client's. ZooKeeper never connects a session to a server that is behind what
// the session has seen, so reads on one Session never go back.
package zkconn
