// Package blockstore keeps immutable blocks of bytes under keys that are never
// used twice. Clients write and read them directly, by signed URLs; the
// namenode decides which exist.
//
// A block is written by one PUT: its length and CRC32C are signed into the
// URL, and a second PUT to a key is refused, whatever it brings. So a late or
// repeated PUT by a fenced writer can leak an orphan, never change a byte.
//
// internal/blockstore/local keeps them in a folder; blockstore/s3 in any S3-compatible
// store. Both run the suite in test/env/blocktest.
package blockstore

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Key names a block within its namespace. The namenode mints it: term is its
// reign, and seq counts from 1 within it; so no key is ever minted twice, also
// not after a crash, and minting needs no journal record.
type Key struct {
	Term, Seq uint64
}

// Less orders keys as List does.
func (k Key) Less(o Key) bool {
	return k.Term < o.Term || (k.Term == o.Term && k.Seq < o.Seq)
}

// Info is what a store knows of a block.
type Info struct {
	Key    Key
	Length int64     // stored bytes
	Stored time.Time // when it was put, by the store's clock
}

// Signed is a request that anybody may send until Expires.
type Signed struct {
	URL     string
	Method  string
	Header  http.Header // to be sent exactly so
	Expires time.Time
}

// Store is one block store, of one namespace. It is safe for concurrent use.
// Errors are *fserror.Error: NotFound, Exists (a second Put), Damaged (bytes do
// not match the checksum), NoSpace, Unavailable.
type Store interface {
	// SignPut signs one PUT of an object of length stored bytes with the CRC32C
	// given, valid until expires.
	SignPut(key Key, length int64, crc32c uint32, expires time.Time) (Signed, error)
	// SignGet signs GETs (with or without a range) of the object.
	SignGet(key Key, expires time.Time) (Signed, error)
	// Put stores an object, durable when it returns. Exists if the key is taken.
	Put(ctx context.Context, key Key, object []byte, crc32c uint32) error
	// Get reads length bytes from offset on; length -1 reads to the end.
	Get(ctx context.Context, key Key, offset, length int64) (io.ReadCloser, error)
	// Stat returns NotFound if there is no complete object of the key.
	Stat(ctx context.Context, key Key) (Info, error)
	// Delete removes objects; one that is missing already is no error. A *KeptError names those
	// that could not be deleted, while all others were; after any other error nothing is known.
	Delete(ctx context.Context, keys ...Key) error
	// List returns up to limit complete objects with keys greater than after.
	List(ctx context.Context, after Key, limit int) ([]Info, error)
	// Usage returns free and total bytes of the store; both 0 if it has no limit.
	Usage(ctx context.Context) (free, total int64, err error)
	// Probe checks that the store enforces what leasefs relies on: length,
	// checksum, first PUT wins. Its error says which it does not.
	Probe(ctx context.Context) error
	Close() error
}

// KeptError says that some objects could not be deleted, and why the first of them could not.
type KeptError struct {
	Keys []Key
	Err  error
}

// Error implements error.
func (e *KeptError) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *KeptError) Unwrap() error { return e.Err }
