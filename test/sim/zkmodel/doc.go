// Package zkmodel is a model of a ZooKeeper ensemble that runs inside a test's own
// process and speaks ZooKeeper's client protocol on connections handed to it. It
// takes its time from package time, so in a testing/synctest bubble a session
// time-out costs nothing.
//
// What it models, because election, fencing and journal rest on it:
//
//   - One history: every change gets a zxid, in one order. A multi happens as a
//     whole or not at all.
//   - Several servers, each with its own state, which trails the history by a lag
//     that the test sets, or stands still. A read sees the state of the server
//     that answers it; sync waits until that server has what was committed. A
//     session never connects to a server that is behind what it has seen.
//   - The requests of one session take effect and are answered in their order.
//     A watch's event is sent before anything that shows what it tells of.
//   - Sessions with time-outs that the ensemble alone decides about; their
//     ephemeral nodes; moving from server to server.
//   - Access lists with the schemes world, digest and auth.
//   - Failures: see Server. Without a majority of servers nothing is served.
//
// It keeps nothing on disk, holds no real election of its leader, and knows no
// containers, no nodes with a time to live, no quotas and no observers: a request
// for one of them fails with ZooKeeper's "unimplemented".
//
// The suites of zkconn, election and internal/journal/zk run against this model and against
// real servers; that is how it is known to be like them.
package zkmodel
