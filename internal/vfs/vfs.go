// Package vfs is the small file system interface behind which all disk I/O of
// the namenode lies, so that a crash, a full disk or a failing fsync is a test
// of milliseconds. OS is the machine's; test/env/crashfs keeps only what was synced.
package vfs

import (
	"io"
	"io/fs"
)

// FS is a file system. Paths are as in package os. Errors satisfy errors.Is
// with fs.ErrNotExist, fs.ErrExist and syscall numbers such as ENOSPC.
// It is safe for concurrent use.
type FS interface {
	// Create makes or truncates a file for reading and writing.
	Create(name string) (File, error)
	// CreateExclusive makes a file; fs.ErrExist if there is one.
	CreateExclusive(name string) (File, error)
	// Open opens for reading.
	Open(name string) (File, error)
	// OpenWrite opens an existing file, as it is, for reading and writing.
	OpenWrite(name string) (File, error)
	// Rename replaces atomically; durable after SyncDir.
	Rename(from, to string) error
	// Link makes a second name; fs.ErrExist if to exists; durable after SyncDir.
	Link(from, to string) error
	Remove(name string) error
	MkdirAll(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive advisory lock that ends with the process;
	// the error of a lock that another holds satisfies errors.Is(err, ErrLocked).
	Lock(name string) (io.Closer, error)
	// Usage returns the bytes free (to this user) and in all of the disk of dir.
	Usage(dir string) (free, total int64, err error)
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	// Write writes behind the last Read or Write, at first at the beginning.
	io.Writer
	// WriteAt leaves that place alone. What a write beyond the end leaves out
	// reads as zeros.
	io.WriterAt
	io.Closer
	// Sync makes content (and the length) durable; as fdatasync where there is one.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Name() string
}
