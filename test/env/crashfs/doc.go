// Package crashfs is a file system in memory for tests of what a crash leaves.
// It keeps only what was synced, as POSIX promises it and no kinder:
//
//   - a file's bytes up to the last Sync of that file;
//   - a directory's names (creation, link, rename, removal, of folders too) up
//     to the last SyncDir of that directory. Sync of a file does not make its
//     name durable, SyncDir does not make a file's bytes durable.
//
// Every operation that changes something, or makes it durable, is a point with
// a number, from 1: create, write, sync, syncdir, rename, link, remove, truncate
// and mkdir. A sweep counts them with Ops in one run that goes well, and then
// for each n runs again with CrashAt(n) and looks at what Crash returns:
//
//	base := run(crashfs.New())           // base.Ops() points
//	for n := 1; n <= base.Ops(); n++ {
//		fs := crashfs.New(seed)
//		fs.CrashAt(n)
//		run(fs)                          // fails with ErrCrashed at point n
//		check(fs.Crash(crashfs.Torn))    // the disk after the power came back
//	}
//
// What was under way or unsynced at a crash is lost whole (Strict), lost or
// kept at random by the seed (Torn), or kept whole, as when only the process
// died (Kill).
//
// Failures are injected with FailSync, FailWrite, Capacity, ReadOnly, Corrupt.
// A failed Sync behaves as on Linux: the pages are still read back, but count as
// clean. They never reach the disk, and the next Sync returns nil all the same.
//
// All methods are safe for concurrent use. With several goroutines the order of
// points is the order in which they came.
package crashfs
