// Package blockio moves blocks between this process and a block store, by the
// URLs that the namenode signed. A [Transport] makes one transfer and breaks off
// one that stalls; a [Buffer] is the memory of one object.
//
// It knows nothing of files, writers or readers, and makes no call to a namenode.
package blockio
