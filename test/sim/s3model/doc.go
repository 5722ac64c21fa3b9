// Package s3model is a model of an S3-compatible store with one bucket. It is an
// http.Handler that keeps its objects in memory and takes its time from package
// time, so in a testing/synctest bubble an expired URL costs nothing.
//
// What it models, because the block store rests on it:
//
//   - PUT of one part, with If-None-Match and a CRC32C; GET and HEAD, with ranges
//     and the checksum; ListObjectsV2; DeleteObjects.
//   - Presigned URLs: the signature, the signed headers, and the time from which
//     and until which they are good. It looks at the time when a request begins.
//   - Failures: lost requests and replies, trouble (500, 503), requests carried out
//     that are answered with trouble, PUTs that take effect long after their sender
//     has given up, lists that lag behind, a store that is full.
//
// It trusts who sends an Authorization header, has no uploads in parts, keeps no
// versions, and never loses an object.
//
// The suites of test/env/blocktest run against it as they do against real
// servers: see this package's test.
package s3model
