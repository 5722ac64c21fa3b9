package transfer

import (
	"io"
	"sync/atomic"

	"github.com/leasefs/leasefs/client"
)

// Options are those of Put and Get; the zero value copies one file and refuses
// to replace.
type Options struct {
	Recursive   bool // copy trees
	Overwrite   bool // replace files that exist
	Parents     bool // make missing parent directories of the target
	SkipSpecial bool // leave sockets, devices and pipes out instead of failing
	Xattrs      bool // keep extended attributes user.* of files, and of directories that are made
	Workers     int  // copies under way at once; 0: 8
	// Lease is a granted lease that Put attaches the files to; 0: none.
	Lease client.LeaseID
	// Progress, if set, is called often, by several goroutines at once.
	Progress func(Progress)
}

func (o Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return 8
}

// Progress is how far a copy is.
type Progress struct {
	Files, Bytes           int64 // done
	TotalFiles, TotalBytes int64 // found so far
}

// Result is what a copy did.
type Result struct {
	Files, Directories, Symlinks, Skipped, Bytes int64
}

// counters are the numbers of a copy under way.
type counters struct {
	files, bytes, totalFiles, totalBytes atomic.Int64
	directories, symlinks, skipped       atomic.Int64
	progress                             func(Progress)
}

func (c *counters) found(bytes int64) {
	c.totalFiles.Add(1)
	c.totalBytes.Add(bytes)
}

func (c *counters) done(files, bytes int64) {
	c.files.Add(files)
	c.moved(bytes)
}

func (c *counters) moved(bytes int64) {
	c.bytes.Add(bytes)
	if c.progress != nil {
		c.progress(Progress{Files: c.files.Load(), Bytes: c.bytes.Load(), TotalFiles: c.totalFiles.Load(), TotalBytes: c.totalBytes.Load()})
	}
}

func (c *counters) result() Result {
	return Result{
		Files: c.files.Load(), Bytes: c.bytes.Load(), Directories: c.directories.Load(),
		Symlinks: c.symlinks.Load(), Skipped: c.skipped.Load(),
	}
}

// countingReader tells of each piece read, and stops when the copy does.
type countingReader struct {
	r     io.Reader
	count func(int64)
	stop  func() error
	total int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	if err := r.stop(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.total += int64(n)
	r.count(int64(n))
	return n, err
}
