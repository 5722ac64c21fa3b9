// Package data serves Hadoop's DataTransferProtocol, by which clients of HDFS move the
// bytes of blocks, over package files.
//
// # Acknowledgements
//
// hflush sends no mark: it sends what there is and waits for the acknowledgement. So a
// packet is acknowledged when it is durable and readers see it, except one that is full
// and behind which the next one has arrived already: that one is acknowledged as received.
// A client that waits does not wait for such a one, unless its flush ends just where the packet
// does and another thread writes on. So is a short packet that begins a file and behind which the
// block ends: the client closes the file, and it is one call to the namenode that makes it
// durable. What was only received is made durable, too, when the connection ends before the block.
//
// # Limits
//
// A connection has one packet in memory, in pieces. Both sides are given up when they are
// silent. What a client may read or write is said by the token that came with the block.
package data
