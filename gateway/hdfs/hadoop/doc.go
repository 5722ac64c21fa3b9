// Package hadoop has the messages of Hadoop's protocols that a gateway for hdfs:// uses.
// `make generate` makes the Go code from the .proto files; it is committed.
package hadoop
