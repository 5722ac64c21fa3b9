// Package readlease is the namenode's table of read-cache leases: which session
// may still answer from what it has read, so that a change waits for it.
//
// # The promise
//
// A [Key] is something that can change: an inode's attributes, the entries of a
// directory, a name in a directory. A session has one term for all that it has
// read, and renews it as a whole ([Table.Renew]). When an answer is granted
// ([Table.Grant]) nothing of the keys it depends on changes while the term runs,
// unless the session has acknowledged the revocation of that key before.
//
// A change goes through these steps; "lock" is the server's namespace lock:
//
//  1. With the lock held exclusively: [Table.Revoke] marks the keys uncachable,
//     withdraws them from everybody and pushes the revocations.
//  2. If [Change.Pending]: without the lock, [Change.Wait] waits until each
//     session has acknowledged or its term is over. Then, with the lock held
//     exclusively again, the change is planned again and [Change.More] told of
//     the keys; back to 2 while it says so.
//  3. Under the same hold of the lock the change is applied.
//  4. When it is durable, or has failed: [Change.Done] unmarks.
//
// A caller may give up keys ahead ([GivenUp]): it promises to answer from nothing
// that depends on them, and to keep no such answer, until its call is over. Then
// its own holdings end with step 1, without a word. The promise counts only while
// the session has the stream that it is of: a client that does not know what
// became of a call, which may thus still be carried out, begins a new one.
//
// Grant is called with the lock held for reading, together with the read that it
// is about. So no grant runs while Revoke looks, and a grant that sees a mark
// gone has read what the change made.
//
// # Time
//
// Only [clock.Clock.Mono] counts. A holder counts Term from the moment before it
// sent its renewal; the grantor's end is Margin later than Term from the moment
// it took the renewal in. The holder's clock may lag by Margin a term. Nothing is
// renewed while a revocation is unacknowledged, so that a Wait ends after Term
// and Margin at the latest. A holder that is answered 0 should ask again soon
// (a tenth of a second), not after half a term: where changes are frequent a
// revocation is often just under way.
//
// A session that did not acknowledge within its term has lost its lease: all it
// held is dropped, it is told to drop everything, and it gets no lease for
// Penalty after it has acknowledged that or has come back with a new stream. It
// costs others one term at most, then gets none for a while. Nor does a session
// that its owner begins within Penalty, so that a new id is no way around it; if
// another session of the owner loses its lease in that time, none of them does.
//
// A session whose term ended without anything being asked of it keeps what it
// has: it is still told of revocations (nobody waits for them), and gets no new
// term before it has acknowledged them.
//
// # Limits
//
// A session that comes over MaxKeys is told to drop everything, and what it held
// is free when it acknowledges. The other way, to refuse, would leave a
// long-running reader with the first 100,000 keys it ever read and no way to
// cache what it reads now; the table cannot know which of them the reader still
// has. Starting over costs it one read each of what it still uses. Over
// MaxKeysTotal the grant is refused and the session that holds most is told to
// drop everything.
//
// # Restart
//
// The sessions that may cache are journalled by the server. After an activation
// [Table.Recover] makes every change wait until each of them has come back, with
// its cache dropped, or a term is over.
//
// # Concurrency
//
// All methods are safe for concurrent use, under the conditions said with Grant
// and Revoke. There is no goroutine; a timer runs during a Wait only. Locks are
// taken in the order session, then one of: directory, slots, a shard of the
// keys, a Change. Push functions are called with the session's lock held: they
// must not block and must not call the Table. What a session drops as a whole is
// taken out of the table by the next Ack, Renew, Wait, Gone or Stats, which should
// not be called with a lock of the server's held; 100,000 keys take some 15 ms.
//
// # Memory
//
// A key is one map slot and one small struct that lists its holders; a holding
// is 8 bytes there and 8 in its session's list (see TestMemory for the figures).
package readlease
