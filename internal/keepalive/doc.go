// Package keepalive keeps granted leases alive: all of them over one stream to the
// active namenode, on which each is named three times in its time to live, and on
// which the namenode also tells at once when one ends.
//
// Keeper.mu guards which leases are kept; who uses the stream holds Keeper.turn.
package keepalive
