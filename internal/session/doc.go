// Package session is a client's session with the namenodes of a namespace.
//
// A Session holds a stream open to the active namenode, by which others see that
// the process lives. Over it, or by calls while there is none, one renewal at a
// time renews the leases of all files that the client has open for write (File).
// A watchdog finds leases that are past their limits by the client's own clocks.
//
// What the namenode says on the stream about what a client keeps of what it has
// read is handed to Cache.
//
// # Locks
//
// Session.mu guards the set of open files, its version, and what the namenode
// knows of it; a renewal moves the stamps of files and the limits under it, too.
// It is the innermost lock but for those of stamps: no method of a File but Stamp
// and Key is called under it. The stream is read by one goroutine alone.
package session
