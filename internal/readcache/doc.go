// Package readcache is the client library's half of the cache leases: it keeps
// what the namenode has promised not to change without saying so first, and
// answers from it while the promise holds.
//
// # The rules
//
// The namenode grants with an answer the [Key]s that it depends on, while the
// session's term runs. What is cached is answered only while the term runs by
// the holder's own clock, which is counted from the moment before the renewal
// was sent ([Cache.Now], [Cache.Extend]); of the clock that stands for suspended
// time too (Boot) and the time of day, the one that ran further counts.
//
// A revocation ([Cache.Revoke]) drops all that depends on its keys. The caller
// acknowledges it after the call has returned, never before.
//
// A reply may be overtaken by its own revocation. So a [Ticket] is taken before
// a read is sent ([Cache.Ticket]), and [Cache.Put] stores the reply only if
// nothing that it depends on was revoked since. The last 8,192 revoked keys are
// remembered for that; a read older than these is not stored. Such a reply may be
// used, it is not kept.
//
// A stream that has ended takes all with it ([Cache.Disconnected]), before
// another one is asked for: the namenode takes a new stream to mean that its
// client holds nothing. [Cache.Connected] is to be called when the namenode's
// first message on the new one has come, since only what is read after that is
// promised on it. A stream that is cut without anybody noticing is what the term
// is for.
//
// # Changes of one's own
//
// The namenode waits for the session whose call makes a change as for any other:
// so the revocation has been applied when the call returns, whatever became of
// its reply, and there is nothing for the caller to do.
//
// To save that round trip, who makes a change may give up what it is about to
// change before the call is sent ([Cache.GiveUp]) and say so with the call. From
// then until the reply ([GivenUp.Resume]) nothing that depends on it is answered or
// kept; what is read meanwhile is not kept afterwards either, but for what came
// with the reply. If the outcome of the call stays unknown the namenode may still
// carry it out: the stream has to be ended, since the promise is one of a stream.
//
// # Names
//
// What a name stands for and what is there change for different reasons, so they may
// be kept apart: an answer can lead to another ([Config.Leads]), and Get returns that,
// as of one moment, or nothing if only one of the two is there.
//
// # Size
//
// Entries are limited in number and in bytes. Out goes what was not used for
// longest, roughly: a use is one bit of an entry, and an entry with the bit has a
// second chance. That leaves Get without any write but that bit and a counter.
//
// # Concurrency
//
// All methods are safe for concurrent use. Get takes a read lock, allocates
// nothing, and reads the clock only for what it has found. There is no goroutine
// and no timer. Values are shared: what Get returns must not be changed.
package readcache
