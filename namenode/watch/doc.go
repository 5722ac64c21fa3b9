// Package watch keeps the latest changes of the namespace and hands each watcher
// those that match its filter: in the order of txids, with no gap, or with a plain
// "too old, list again".
//
// # From the change to the watcher
//
// [Hub.Add] takes the events of a change when it is applied, under the
// namespace's lock. Nobody sees them yet: a crash may still take them back.
// [Hub.Publish] shows all of them up to a txid that is durable and puts those that
// have something to read into a queue. [Hub.Wake] wakes some of them at a time, at a
// pace that the caller chooses. [Watcher.Next] reads.
//
// All watchers get the same [Kept] of an event, and so it is encoded once.
//
// # Bounded, however slow a watcher is
//
// Events are kept in one ring, bounded in number and in bytes. A watcher holds
// no queue, only its position in the ring. What is over the limits is dropped,
// the oldest first and a txid always as a whole, also what is not shown yet. A
// watcher has fallen behind when an event after its [Watcher.UpTo] was dropped,
// whether it would have matched or not; it gets a [TooOldError] and is
// over. Nobody waits for a slow watcher.
//
// # Which watchers are woken
//
// A watcher that has read all there is for it is idle and stands in an index: a
// tree of path components, or a map of inodes. Publish walks down the tree with
// the path of each event, one step a component, and stops where nobody watches
// below. A watcher that it finds is taken out of the index, put right at the event,
// and into the queue; it is not looked at again until it has caught up. So an idle watcher
// never looks at what is not its own, and with no watcher Publish looks at no
// event.
//
// # Locks
//
// There are two: the hub's, for who watches and how far each one is, and the
// ring's, inside it, held for tens of nanoseconds. Because watchers are woken a few
// at a time they do not queue for the hub's. Add takes only the ring's, so
// that the namespace never waits for Publish or a watcher. Events are read with
// no lock: they never change, and a chunk of the ring that was dropped is not
// used again but left to the garbage collector. That is why up to 255 dropped
// events may still be in memory.
package watch
