// Package local keeps blocks as files in a folder, and serves them over HTTP by
// URLs that are signed with a secret (HMAC-SHA256).
//
// # Layout
//
//	<dir>/<namespace id, 32 hex>/
//	    NAMESPACE                                              made by Format; without it Open with Exclusive refuses
//	    owner.lock                                             held while an Exclusive store is open
//	    <term, 16 hex>/<seq>>10, 14 hex>/<seq, 16 hex>.blk    blocks
//	    tmp/<store id>.lock                                    held while that store is open
//	    tmp/<store id>-<n>.tmp                                 PUTs under way
//	    tmp/sweep.lock                                         held while tmp is swept
//
// A file whose name ends in .blk is complete and never changes: it got that name
// by link(2), which does not replace, after its content was synced. So the first
// PUT wins without a lock, also between processes that share the folder; and
// whatever a crash leaves under tmp is garbage, which Open removes once the
// store that made it is gone. Folders of other namespaces, and files with other
// names, are never touched.
//
// # When a PUT is answered
//
// bytes written → length and checksum compared → fdatasync of the file → signed
// time not over yet → link to the final name → fsync of the folder → 200.
// Concurrent PUTs overlap in all of it, but that those which wait for the same
// folder share one fsync. A second PUT is answered 412 only when the first one
// is durable, so a client whose answer was lost may take 412 for a success: a
// URL is signed for one object, and no other bytes can be under its key.
//
// If the fsync of a file fails, it never gets its final name. If that of a
// folder fails, the block stays as it is, unacknowledged: whole, and for the
// collector to remove; and a later PUT to its key is an error, not 412, for as
// long as the process lives, since a second fsync proves nothing.
//
// Design and formats: docs/design/blocks.md.
package local
