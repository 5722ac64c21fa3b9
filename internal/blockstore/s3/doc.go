// Package s3 keeps blocks, and the namenode's images, in a bucket of any
// S3-compatible store that enforces checksums and If-None-Match.
//
// # Names
//
//	PREFIX/<namespace id, 32 hex>/blocks/<term, 16 hex>/<seq, 16 hex>   blocks
//	PREFIX/<namespace id, 32 hex>/named/<name>                          see Objects
//
// Numbers have a fixed width, so that the order of names is the order of keys
// and a page of List starts where the last one ended. Other names are never
// listed, and never deleted.
//
// # What is signed
//
// A PUT is one part, signed (AWS signature 4, in the query) for exactly one
// name, with host, Content-Length, X-Amz-Checksum-Crc32c and If-None-Match: *
// as signed headers: leaving one out, or changing it, is refused by the store,
// and so are other bytes and a second PUT. Probe tries all of that. A GET is
// signed for its name; Range is not signed.
//
// A store looks at a URL's time when a request begins: a PUT that began in time
// may end late. It can make an orphan of a collected key, for the next sweep,
// and nothing else.
//
// A named object larger than Config.PartSize is put in parts, each with its
// checksum, and appears whole at the end, if the name is free by then. What a
// failure leaves is given up at once, and what a crash leaves after a day.
//
// # Retries
//
// Network errors, time-outs, 5xx and "slow down" are tried again, with
// exponential back-off and jitter, a bounded number of times and within the
// caller's context. A PUT of which a try ended without an answer, and that then
// finds its name taken, succeeds only if the store's checksum and length are
// those of the object. A try ends when nothing moves for Config.TryTimeout.
//
// # The library
//
// aws-sdk-go-v2 (Apache-2.0) makes the calls and finds the credentials. Its
// signer takes the time as an argument and can keep headers out of the query,
// as this package needs; its credentials are those that operators know
// (environment, ~/.aws, web identity, container and instance roles); it has
// releases every week. minio-go v7 is smaller, but signs by the machine's clock,
// and its makers have archived the server it was written for.
//
// Design: docs/design/blocks.md.
package s3
