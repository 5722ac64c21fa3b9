// Package client is what a Go program imports to use leasefs: a file namespace
// in which every file has at most one writer, and that is enforced.
//
//	fs, err := client.New(ctx, client.Config{Namenodes: []string{"nn1:8020", "nn2:8020"}})
//	w, err := fs.Append(ctx, "/logs/a", client.WithCreate(), client.WithParents())
//	w.Write(line)
//	err = w.Flush(ctx) // durable, and seen by readers
//	err = w.Close()
//
// # An FS is a session
//
// A program makes one FS and shares it; everything is safe for concurrent use.
// It holds a stream open to the active namenode, by which others see that the
// process lives, and over which one message renews the leases of all open
// files at about half the soft limit.
//
// Calls are sent again, under the same call id, while no active namenode
// answers: after a lost connection, to another address of the list, to the
// address that a standby names. Each change happens at most once. When
// Config.Timeout is over the error is of kind Unavailable; if the reply to a
// change was lost for good, it says that the outcome is not known.
//
// # Leases
//
// A Writer is the only one of its file for as long as its Context lives. A
// renewal that fails ends nothing: it is repeated. Past the soft limit the
// lease is in jeopardy (a log line, Stats), since others that want the file
// now get it. At the hard limit, less 5 % or a second, whichever is smaller,
// it is over by the holder's own clock, the one of boot time and time of day
// that ran further: so a process that was suspended finds out before it
// writes. A namenode that tells that the file is gone, or has another holder,
// has the same effect at once. Then Context ends with the cause, an error of
// kind LeaseLost, and each later Write, Flush and Close returns it; the other
// files of the FS are not affected.
//
// Writer.Token is the epoch of the opening. It only ever grows, so it fences
// other systems too: let them refuse a smaller one.
//
// # Bytes
//
// A file is a list of immutable blocks (8 MiB) and a tail. Write fills a block
// in memory; a full one is sealed with its checksums and stored in the
// background, by a URL that the namenode signed, while the next is filled;
// commits are in order. Flush sends few bytes straight to the namenode, which
// puts them into its journal with those of others: one call, durable when it
// returns. When a tail would grow too long, tail and new bytes become a block.
//
// A Reader sees the file as of Open, Refresh or WaitBeyond. It verifies every
// chunk of 64 KiB before it hands out a byte of it; what does not match, is
// truncated or missing is an error of kind Damaged naming file, block and
// offset.
//
// # Errors
//
// All are *Error with operation and path. Match them by kind:
// errors.Is(err, ErrHeld). IOFS gives errors of io/fs as well.
package client
