// Package leasemanager knows who holds which file open for write, since when,
// when each was last heard of, and whose time is over.
//
// # What it is, and what it is not
//
// The truth about who holds a file is on the file's inode, in the namespace:
// holder, epoch, token. The Manager is an index over that, rebuilt from the
// tree when a namenode becomes active ([Manager.Rebuild]). It decides nothing
// durable: it says who may take a file ([Manager.MayTake]) and whose lease is
// over ([Manager.Expire]); the caller writes the record, applies it, and tells
// the Manager ([Manager.Open], [Manager.Close]).
//
// A session (one client process) has one lease over all the files that it has
// open, as in HDFS: renewing it is one stamp, whatever the number of files. A
// file that its session lists no more and did not close is moved to a lease of
// its own (kind [KindLapsing]) that the session's renewals do not reach.
//
// Besides, anybody can be granted a lease with a TTL of its own (kind
// [KindGranted]), which files are attached to: see below.
//
// # Limits
//
// Only [clock.Clock.Mono] counts; the time of day may be moved at will.
// Strictly later than a limit is past it, equal is not. A stamp has room for 35
// years since the clock's beginning.
//
//   - Soft limit (60 s): past it another client that asks gets the file. A
//     session may have its own ([Holder].TTL), and with it its own renewal
//     period. The caller refuses one above the hard limit; one that comes all
//     the same is taken for the hard limit.
//   - Hard limit (20 min): past it the monitor ends the lease unasked. It is the
//     same for all sessions.
//   - Renewal period: half of the smaller limit, less jitter. A lease missed a
//     renewal when it is idle for more than 1.5 periods: then a new session of
//     the same user and client name need not wait for the soft limit.
//
// The stamp that counts is the later of the last renewal and the last end of
// safe mode; after an activation, see "Ages". In safe mode ([Manager.Suspend]) nothing is
// past a limit, nothing is takeable, and renewals continue. The holder's own
// deadline counts from before it sent, so it is always the earlier one.
//
// # Renewal
//
// A renewal never creates a lease. It carries the version of the client's set
// of open files; the set itself only when it changed. A version that was
// confirmed and nothing to tell: the fast path. It is one look-up in a sharded
// map and one compare-and-swap, takes no lock that expiry or opening holds,
// writes to no tree, allocates nothing. A set is compared with what the session
// has, 1,024 files at a time, the lock released between:
//
//   - A loss is told in each answer until a set comes without it. A thousand an
//     answer, 4,096 remembered; of what goes beyond that, a session hears when
//     its next set lists it (as lost to whoever has it now, or as unknown).
//   - An answer that leaves losses out, or to a set that was given up half-way
//     because another one came, asks for a set, and confirms none of the files.
//   - A version is confirmed when its set held nothing unknown.
//   - A file that no set has listed and that was granted more than one renewal
//     period ago (grants and renewals pass each other on the way) becomes a
//     lease of its own, with the stamp from before this renewal. A file that
//     was listed and is not any more: the same, but one granted within the
//     last period gets a period more. A record of its writer ([Manager.Touch]) or
//     a set that lists it brings it back.
//   - A set older than one that was taken is not taken.
//
// An answer with Lost or Unknown tells of changes that the caller may not have
// made durable yet: it is for the caller to wait for them before it sends it.
//
// # Order and expiry
//
// Leases are ordered in a B-tree by (stamp, id). A lease's true stamp is one
// atomic word, which holds its flags too; the key in the tree is a lower bound.
// When the monitor comes to a lease that was renewed meanwhile, it puts it back
// under its true stamp: one tree write a lease and hard limit, instead of two a
// renewal (see BenchmarkRenew and BenchmarkRenewDeleteInsert).
//
// One call of [Manager.Expire] holds the lock for at most the slice (25 ms) and
// looks at no more than a small multiple of the leases it may return. It continues
// behind a cursor, so that in a walk through the order each lease is tried once
// and a record that cannot be written does not hold up the others. It sets the
// lease's ending bit with a compare-and-swap: renewal and expiry of one lease
// exclude each other. From then on the lease is out of reach: it is handed out
// in portions of at most 1,000 files until [Manager.Ended] has left it none, or
// put back by [Manager.NotEnded]. While it is ending its files can be taken by
// others and closed; its session can open others under a new lease.
//
// # Granted leases
//
// They are etcd's kind: a TTL, kept alive by [Manager.KeepAlive], ended by a
// record because somebody revoked the lease or because its TTL passed. The tree
// has their ids, TTLs, holders and attached files; the Manager has deadlines.
// They are ordered as the others are, by a lower bound of the deadline, and a
// keep-alive is as cheap as a renewal. [Manager.ExpireGranted] begins the end of
// those past their TTL; the caller writes the record and calls
// [Manager.Revoke], or [Manager.NotExpired]. Their ids are below
// [FirstSessionLease], all others from there on, so that one list has both.
//
// # Ages
//
// A namenode that takes over must neither let a dead holder begin again (restarts
// in a row would keep it alive) nor evict a live one that could not renew
// meanwhile. So the active journals how long leases are idle that missed a
// renewal ([Manager.CheckAges], [Manager.AgesJournalled]), and 0 when such a
// lease was renewed, or is gone. After [Manager.Rebuild]
//
//	deadline = activation + max(limit - journalled age, a renewal period)
//
// for the hard limit, and nobody takes a file within that period by the soft one;
// the period of a granted lease is a third of its TTL, and it missed a renewal
// when it is idle for half of it.
//
// A reign may end before that period is over, and the next one, too: so the age of
// a lease that nothing is heard of keeps growing beyond its limit, and of one that is
// past it only that remains of the period which activations in a row have not used
// up, but a tenth of a session's period in any case, for its holder to connect
// again. For the same reason the age of such a lease is journalled first when the
// reign has lasted for that tenth, then whenever it has grown by half, and when it
// ends in good order ([Manager.LastAges]); and that it was renewed, within a third
// of that tenth. With the default limits these are 3 s and 1 s.
//
// So a dead holder's lease ends after at most twice its limit and the period, in
// time that namenodes were active, not counting reigns shorter than the tenth; of
// long reigns each costs one checkpoint interval at most (Config.AgeEvery, or a
// quarter of the limit). One that comes back in each reign within the tenth is
// never ended by them. TestRestartsEveryFewSeconds shows both.
//
// A renewal is not journalled, so a crash forgets it while the journal has an age:
// the answer then promises no more than a successor that finds that age would
// give (Soft, Hard and KeepAlive's answer are lowered to it), and asks for an early renewal. The
// limits are whole again when a record without the age is durable
// ([Manager.AgesDurable]). The record of a writer's call is a renewal for the tree
// too, which forgets the ages of its session and file when it applies it: so the
// caller calls Touch with each such record, and for no other call, and journals no
// age from before it ([Manager.AgesJournalled]). Here the age stays until the next
// look at it, which only makes promises smaller for a while.
//
// An age of a file or of a granted lease goes with it, here and in the tree. Of
// a session that is gone CheckAges gives 0, so that the tree forgets it.
//
// Which leases missed a renewal is not seen in the order, whose keys are old on
// purpose. Each lease has an entry in a second tree, by the time when its age is
// to be looked at: 1.5 renewal periods after the stamp that was seen last. So a
// lease that is renewed costs one look in that time and one after an activation,
// and nothing a renewal.
//
// # Concurrency
//
// All methods are safe for concurrent use. The caller must call Open, Close,
// Grant, Revoke and AgesJournalled in the order in which the records were
// applied, and CheckAges again only when AgesDurable was, or the record failed; with no lock of its own held it may call the rest at any time. The
// Manager calls nobody but its clock, its jitter, and what is given to Rebuild
// (which must not call back).
//
// # Memory
//
// About 680 bytes a lease with one file, 130 bytes each file more (the files
// index included), 470 bytes a granted lease. Nothing is kept of a session that
// has neither a stream nor a file, but for up to 1.5 renewal periods an entry of
// some 60 bytes of when to look at its age.
//
// Sources: HDFS LeaseManager (the two limits, one lease a holder, the bounded
// monitor), Chubby (sessions, jeopardy, a grantor's end later than a holder's),
// etcd lessor (lazy order, rate-limited expiry, extension after a change of
// leader).
package leasemanager
