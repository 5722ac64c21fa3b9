// Package fuse mounts a namespace as a folder of this machine: go-fuse nodes
// over package client.
//
//	m, err := fuse.Mount(ctx, client.Config{Namenodes: …}, "/mnt/logs", fuse.Options{})
//	err = m.Wait() // until somebody unmounts it
//
// What a program can rely on through the kernel, and what it cannot, is in
// docs/POSIX.md. This is how it is done.
//
// # Who may
//
// A mount for one user makes all calls as the client's user, and the kernel checks, too. One
// that lets others in ([callers]) makes each for who asks, in the one session that it has:
// the context of a request ([Mounted.op]) says for whom, and the client keeps its answers for
// each by himself. There the kernel checks nothing, so it must keep no name, and every
// request that opens something asks first ([may]): the mount may have it open already,
// for another. A handle is its opener's.
//
// # Who knows what
//
// A [node] is an inode of the namespace that the kernel knows; go-fuse keeps
// the tree of them. It has no state of a file but its number. What the kernel names
// by a directory and a name goes to the library, and to its leased cache, as just
// that: the number of the directory, and the name. So it does not matter where
// another host has moved the directory; if that is gone the answer is ESTALE, and
// the kernel walks the path again from the root.
//
// A [file] is what this mount has of an inode while it is open: the handles,
// the one Writer that they all share, the Reader, flocks. It is found by number
// ([Mounted.file]) and gone with the last handle.
//
// # What the kernel may remember
//
// Whatever the kernel may use without asking is in one book, [kernelCache]: what is
// given, for how long, and what takes it back. Each time-out, each flag of an OPEN and
// each notification comes from it.
//
// Attributes: in answers to GETATTR and LOOKUP, for at most what remains of the
// cache lease. A notification that overtakes an answer under way does no harm: for
// an inode that the kernel knows it remembers the notification, and for one that it
// does not know yet the notification is repeated until it does. What was just made
// is answered without a time-out, and so is SETATTR: the kernel takes these answers in
// whatever it was told meanwhile.
//
// Lengths: of two answers under way the kernel may keep the older, so the book knows
// which length the kernel was told, and when it may believe a smaller one ([length]).
//
// Names: only of directories, only where the kernel checks, and only if it has epochs ([names]): no
// notification is about a name, so none takes the lock of a directory. Names in
// listings have no time-out: the kernel gives them the epoch in which their answer
// came, not that in which it asked. Names of files and absent names: nothing.
//
// Pages: of files that nobody has open for write. The kernel asks for attributes
// before it reads from a page, and drops all pages when size or time are others.
//
// # Revocations
//
// Before the library acknowledges that it has given something up, it calls
// the book, in a goroutine of its own, which tells the kernel to drop
// attributes and pages and waits for that. The kernel waits for READs of the
// pages that are under way. So a READ must never wait for a change by this
// mount of the same inode: it flushes a Writer at the most, and what is open for
// write is cached by nobody. Handlers send two kinds of notifications only: to drop
// attributes, which waits for nothing, and that a file has grown, which also waits for
// READs; answers to GETATTR, and to requests that change no contents, may wait for those.
//
// Of creates, flushes and closes of its own a mount is not told, if the kernel has
// no pages of what they change ([kernelCache.givesUp]): it gives that up before, and
// the answer says what is there now.
//
// # Writers
//
// Opening for write opens the Writer, or joins the one that is there. A handle
// has the generation of the file's hold on its lease; when the lease is lost,
// or was given back and is not got again as it was, the generation changes and
// all older handles get ESTALE. Files open for write are read and written with
// direct I/O: the offsets of appends that the kernel computed from a stale size
// would end up in its pages.
//
// FLUSH comes at each close(2), also of a duplicate, and by a child that a
// holder starts and that closes what it inherited. Giving the lease up with
// every one of them would let it go while its holder has the file open; with
// RELEASE it would be late for the next opener. So a FLUSH by another process
// than the one that opened makes durable only; one by that process gives the
// lease back, unless /proc shows another descriptor of the file there
// ([file.mayClose], docs/adr/0020-the-last-close.md). Should one be left elsewhere after all, its next write takes
// the lease again, if the file is known to be as it was. /proc must not be waited for: in
// exec the kernel sends FLUSH under a lock that reading /proc takes.
//
// # Interrupts
//
// Signals reach handlers as a closed channel, for any signal that the process
// handles (Go programs get many). A call that is under way is given a second to
// be answered ([opContext]): it is, unless the namenode is away. Waiting for a
// lease or a lock ends at once. A FLUSH is interrupted for the closer only: the close is
// finished ([handle.close]), and the end of the mount waits for it. The sync of a write
// is not interrupted at all: who gets EINTR would write the same bytes again.
package fuse
