// Package proto holds the wire contract; the messages are in leasefs/v1.
// `make generate` makes the Go code from leasefs.proto; it is committed.
package proto
