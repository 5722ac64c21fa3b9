// Package blockio moves blocks between this process and a block store, by the
// URLs that the namenode signed.
//
// A [Transport] makes one transfer and breaks off one that stalls; its Store
// repeats an upload under fresh keys. A [List] is what the namenode says of a
// file's blocks, checked, and a [Fetcher] reads these, verifies them, and fetches
// ahead. A [Buffer] is the memory of one object.
//
// It makes no call to a namenode itself: where an object goes, and where a block
// is now, it asks the one who called it.
package blockio
