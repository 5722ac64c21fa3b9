// Package bench measures a running namenode: namespace operations by one
// unary call each, renewals over the session stream, durable small files,
// flushes, throughput, recovery and bulk work, and beside them what bare gRPC
// to the same server reaches, which is the ceiling.
//
// Everything happens below one new directory, which is removed at the end,
// also after an error or a cancelled context. Numbers are of this client and
// this server together: on one machine they share its processors.
package bench
