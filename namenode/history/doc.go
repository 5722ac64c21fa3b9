// Package history keeps who held files and granted leases: from when to when, and why it
// ended.
//
// # From records, beside the journal
//
// Each namenode makes it from the records that it applies, and keeps it in files of its own,
// so it tells the same whichever of several is active, and after a restart. What a namenode
// has not seen, since it was away while records were purged or could not write, is a gap, and
// is shown as one ([Span.Gap]).
//
// Nothing waits for it. [Log.Applied] notes a few words under the namespace lock; a goroutine
// ([Log.Run]) writes what is durable in the journal, and no other record, so no crash can make
// it untrue. What could not be written yet is bounded; what is over that is a gap.
//
// # Files
//
// A file FROM.history is a header and frames; FROM is the record after which it begins. The
// header is "LEASEHIS", the version (4 bytes, little endian: 1), the id of the namespace (16),
// FROM (8), the time of that record (8), and the CRC32C of all that. A frame is a length (4),
// the CRC32C (4) and the payload, which has in the encoding of records (package codec): the
// record after which it begins and the last one that it tells of, their times, term and nonce
// of the last reign, the holders in it, and the spans, in the order of the records that ended
// them. A frame that begins later than the one before it ended leaves a gap. What follows a
// damaged frame in a file is not read: a gap, too; a start cuts it off the last file.
//
// Of reigns, a start compares the last one: files that another history of the namespace has
// made, as there are after a restore, are removed.
package history
