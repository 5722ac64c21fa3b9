// Package simnet is a network in memory for tests of several machines in one
// process. It takes its time from package time, so in a testing/synctest bubble a
// slow line costs nothing.
//
// Machines are Hosts with names; a Host listens and dials by "host:port" as package
// net does. What happens on the way from one Host to another is set by Line, one
// way at a time:
//
//   - Delay: each write arrives so much later, in the order of the writes.
//   - Cut: nothing arrives, and nobody is told, as when a cable is pulled. What was
//     written arrives when the line is mended, as TCP's repetitions would.
//   - Reset breaks the connections that are open now, at once, on both sides.
//   - Forget breaks them for good without telling anybody, as a firewall does that
//     has lost its table: both sides wait for an answer that never comes.
//
// A Host that is paused holds all of its lines, as Cut does, until it resumes.
//
// A connection holds at most window bytes that the other side has not read; then
// Write waits, as it does on a full socket. A Host that crashes falls silent: its
// connections are forgotten, its listeners are gone, and who dials it waits until
// it is back.
package simnet
