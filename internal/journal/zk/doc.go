// Package zk is the journal of several namenodes: batches of records in nodes of
// a ZooKeeper ensemble, which one namenode at a time writes and the others
// follow.
//
// # Nodes
//
//	PATH/term                  who may write; its version is the epoch
//	PATH/first                 which batch is the oldest that counts
//	PATH/beat                  written by each reign at its start, by Beat, and with each batch
//	PATH/batches/F/N           a batch, from 0 on: N is the last 3 decimal digits of its
//	                           number, F the 17 before them
//
// Batch 0 has no records and is made with the journal. A batch is created once
// and never changed; it is addressed by its number. A folder F comes with the
// first of its 1,000 batches and goes with the last: any number of batches can be
// listed, in answers below ZooKeeper's limit.
//
// A batch is written by one transaction: check the version of PATH/term, check
// that the batch before exists, create the folder if this batch is the first in it,
// create the batch, write PATH/beat, which standbys watch. So a writer whose
// term is over changes nothing, wherever it was held up; and there is no hole,
// whatever was lost. Several are under way at a time, in order, on one session.
// The first that fails makes all behind it fail, because of the second check.
//
// # Outcomes that are not known
//
// When the connection or session is lost, each batch under way may be there,
// may come, or may never. The writer waits until none is on the wire, reads the
// oldest back, and takes it as durable if it holds the same bytes; then the next;
// the first that is not there, and all behind it, are sent again: the same bytes
// under the same numbers. If an early copy arrives after all, creating the other
// fails with NodeExists, and reading back decides. Nobody is answered for a
// batch before all batches before it are known to be there.
//
// # Reigns
//
// A new writer sets PATH/term (with a check of the version it read), which ends
// all earlier reigns, and then reads to the end on the same session: TakeOver. A
// record in several parts whose last part is not there then was never
// acknowledged; the new writer's first batch takes its txid. Whether the end is
// the end is asked of the whole ensemble, by a transaction that looks at the next
// batch: one server may be behind, or have lost what the others have.
//
// No two reigns have the same term: who comes second with one is fenced, though
// he was elected when he chose it. Release writes to PATH/term too, so it fences
// the process that releases.
//
// # Format
//
// Integers are little endian, CRC is CRC-32C (Castagnoli). A batch node:
//
//	offset size field
//	     0    4 magic: 'L' 'Z' 'J' 0x97
//	     4    4 version: 1
//	     8    2 parts: nodes that hold this record, if it is too large for one; else 1
//	    10    2 part: which of them this is, from 0 on
//	    12    4 count of records that end in this node (0 in all parts but the last)
//	    16    8 number of the batch, as in the name
//	    24    8 txid of the first record that is in it, whole or in part
//	    32    8 term of the writer
//	    40    8 segment: number of the batch that began this segment (Purge's unit)
//	    48    8 bytes of all batches before this one, those purged included
//	    56    4 epoch: the version of PATH/term that the transaction checked
//	    60    4 CRC of the batch before (field at 68 there)
//	    64    4 length of the node
//	    68    4 CRC of the whole node without these 4 bytes
//	    72      records
//
// A record is 1 byte type; a zigzag varint of its time in Unix milliseconds less
// that of the record before in this batch (of the first: less 0); a uvarint of
// the length of its body; the body. Its txid is that of the batch plus its
// place. A record over MaxNode−72 bytes is cut into parts, which are batches
// one behind the other; put together their payloads are that one record. The
// largest body, 4 MiB, is in 65 parts.
//
// The small nodes are a line of text each: the kind ("leasefs-term"), the format
// (1), key=value pairs, and crc= of all before it, in hexadecimal.
//
//	term   term, lease_ms (how long after a write its writer may answer, or one
//	       before it that had not released and whose lease is longer), token
//	       (random, of the attempt that wrote it), released, holder (URL-escaped)
//	first  number, txid and offset of the oldest batch that counts; low: the
//	       oldest that may still be there, while a Purge is under way
//	beat   term, txid (the last that is durable with it; 0 if that is not known:
//	       then standbys read to the end)
//
// # Limits
//
// A node is at most 64 KiB, or what MaxNode says: up to 960 KiB, below ZooKeeper's
// default jute.maxbuffer of 1,048,575 bytes, with room for paths, ACLs and what
// servers add among themselves. ZooKeeper holds all batches in memory, its last 500
// transactions besides, and sends all batches to a server that joins. A node takes
// some 400 bytes of memory besides its own, and most are smaller: see Kept.
//
// # Damage
//
// ZooKeeper keeps checksums of its own log, and none of what is in its memory. A
// batch that does not fit its CRC, its number, its place or the batch before it
// is a *journal.DamageError with the node's path, the offset in it, and what to
// do. It changes nothing.
package zk
