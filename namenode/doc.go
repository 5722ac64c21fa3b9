// Package namenode puts the parts of leasefs together into one server: the
// tree (namenode/namespace), the leases (leasemanager), the journal and the
// block store.
//
// Server is the wiring, from the start to the end. Calls are answered by service, whose
// parts have the rooms that they need, and no way to Server.
//
// # How a change happens
//
//	request → plan (validate) → record → apply → journal → durable → reply
//
// Plan, apply and the append to the journal's buffer happen under one lock, so
// the order of records is the order of effects; the wait for the disk does not,
// so one fsync serves all who wait (group commit). Package engine is this path,
// and every change takes it.
//
// # What an answer shows
//
// No answer, of a write or of a read, an error included, shows a change that a
// crash could take back. The tree notes the txid of each change that is not yet
// durable; a call gathers the highest among what it looked at and waits for it.
//
// # Who may write a file
//
// The inode says who holds it: holder, epoch, token. The lease table is an index
// of that, rebuilt at every start and repaired when it differs. Each call of a
// writer shows epoch and token; one that is not current gets LEASE_LOST.
//
// # When the disk fails
//
// A journal that cannot be written ends the namenode: what is in memory is then
// ahead of the disk, and nothing may be answered from it.
package namenode
