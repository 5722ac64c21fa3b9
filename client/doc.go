// Package client is what a Go program imports to use leasefs: a file
// namespace in which every file has at most one writer, and that is enforced.
package client
