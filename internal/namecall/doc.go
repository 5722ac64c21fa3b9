// Package namecall sends calls to whichever namenode of a namespace is active.
//
// Namenodes knows their addresses and which one is believed to be active. Do
// sends a call, again and again under the same call id, until it is answered:
// after a lost connection to the next address of the list, to the address that
// a standby names, and with growing pauses to one that is overloaded. Receive
// does the same for a stream of answers. A namenode that leaves a call without
// an answer is left as soon as another says that it is active.
//
// IDs numbers calls, so that each change happens at most once. Waits tells a
// person what a call waits for.
//
// The package knows nothing of files, leases or sessions.
package namecall
