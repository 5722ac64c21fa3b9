// Package crash holds the namenode against disks that die, lie, fill up and
// tear. It is tests only: a real namenode, real gRPC and HTTP, on a
// test/env/crashfs that keeps only what was synced.
//
// # How a sweep works
//
// A day is a script of calls. It runs once whole, which counts the points: every
// write, sync, rename, link, removal and new folder on the disk. Then it runs
// again for each point n, or, unless in full size, for every forty-seventh one, on a disk
// that dies there. The script does not know: a call that fails because the machine
// died is taken up by the harness, which
//
//  1. boots another namenode on what the crash left (it must start),
//  2. reads the whole tree and holds it against the model,
//  3. sends the call again, under its own call id, and wants success,
//
// and lets the day continue to its end on the new machine. There the garbage is
// collected, and the block store must have exactly the blocks that files have;
// then the power fails once more without a warning.
//
// The same death is also looked at under other modes (Torn by several seeds,
// Kill), each on a branch of its own that ends after those steps.
//
// # The model
//
// A map from paths to what was acknowledged: type, mode, bytes, inode, who has
// it open; what a snapshot has is at its paths below .snapshot. A call that was
// under way at the crash may be there wholly or not at all, each such call by
// itself. What a reader was shown counts as acknowledged.
//
// Nothing here sleeps: time is a clock.Fake, and the namenode's own work is
// called for by Checkpoint and Collect, or waited for by its effect.
package crash
