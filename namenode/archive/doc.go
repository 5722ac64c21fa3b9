// Package archive keeps the journal in the block store, so that the namespace can be
// brought back as it was at any moment of the last days, also when the journal itself is
// lost.
//
// The active namenode runs an [Archive]. It reads what is durable in the journal, as a
// standby does, and puts it into objects a few seconds later; nothing waits for that. Now
// and then it puts a base, too: an image of the tree. A [Catalog] finds what a store has,
// and makes the tree of a moment: that of the newest base before, and the records behind it.
//
// # Objects
//
// The names of both kinds say what is in them. Numbers are padded with zeros, so that names
// are in the order of what they hold:
//
//	archive-LAST-FIRST-TERM-TIME  records FIRST to LAST (20 decimal digits each), put in
//	                              reign TERM (16 hexadecimal digits); LAST is of TIME (Unix
//	                              milliseconds, 20 decimal digits)
//	base-TXID-TERM-CHANCE         an image with all records up to TXID, put in reign TERM
//
// Objects are put if the name is free, and never changed. So a namenode that was deposed,
// and archives what it still had, destroys nothing: what both have archived is the same, for
// a record that is durable is the same for every namenode.
//
// Two histories can differ only where an older copy of the journal was put back, or a
// namespace was brought back without its last records, and continued. Then the reign that
// continued has a higher term, looks for the last object that agrees with its own journal,
// and begins behind it. If its journal does not reach back to there, it makes a base and
// begins behind that, which leaves a hole. A reader follows the higher term from the first
// record on that was archived in it, or from its first base or image, and passes over what
// lower terms have from there on, bases included. Where a copy of the machine had a higher
// term, and the store is then given to this one, it archives in a term above that. A reign
// tells the store of itself before it archives, so no two archive in one term.
//
// # Format of archive-…
//
// All numbers are little-endian. Version 1:
//
//	 0  16 bytes  "leasefs archive\n"
//	16   4        version
//	20   4        CRC32C of the records
//	24  16        the namespace
//	40   8        term
//	48   8        FIRST
//	56   4        how many records
//	60   4        how many bytes they take
//	64   8        TIME
//	72   4        CRC32C of the 72 bytes before
//	76            records, framed as in the batches of the journal (package group)
//
// # What is kept
//
// Each moment of the last Config.Keep, and what it takes to make them: the newest base before,
// one to spare since that one can be damaged, and what is behind. Time counts only between two
// objects of one reign: the clock at the start of a reign may be wrong. Package blocks keeps the
// blocks of deleted files for as long.
//
// # Holes
//
// While the store is away the lag grows, and the journal keeps what is not archived, up to a
// limit. If it is purged all the same, records are missing in the archive: the next base
// closes the hole, and no moment between can be had. The log and Stats tell of it.
package archive
