package transfer

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
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
	Bytes      int64 // copied
	TotalBytes int64 // found so far
}

// Result is what a copy did.
type Result struct {
	Files, Directories, Symlinks, Skipped, Bytes int64
}

// counters are the numbers of a copy under way.
type counters struct {
	files, bytes, totalBytes       atomic.Int64
	directories, symlinks, skipped atomic.Int64
	progress                       func(Progress)
}

func (c *counters) found(bytes int64) { c.totalBytes.Add(bytes) }

func (c *counters) done(files, bytes int64) {
	c.files.Add(files)
	c.moved(bytes)
}

func (c *counters) moved(bytes int64) {
	c.bytes.Add(bytes)
	if c.progress != nil {
		c.progress(Progress{Bytes: c.bytes.Load(), TotalBytes: c.totalBytes.Load()})
	}
}

func (c *counters) result() Result {
	return Result{
		Files: c.files.Load(), Bytes: c.bytes.Load(), Directories: c.directories.Load(),
		Symlinks: c.symlinks.Load(), Skipped: c.skipped.Load(),
	}
}

// share hands the jobs that walk sends to so many workers, each of which does one at a
// time. The first error ends all.
func share[J any](ctx context.Context, workers, waiting int, walk func(ctx context.Context, send func(J) error) error, do func(context.Context, J) error) error {
	g, ctx := errgroup.WithContext(ctx)
	jobs := make(chan J, waiting)
	g.Go(func() error {
		defer close(jobs)
		return walk(ctx, func(j J) error {
			select {
			case jobs <- j:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	for range workers {
		g.Go(func() error {
			for j := range jobs {
				if err := do(ctx, j); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// While runs what reads r, and has it end with the context: the methods that make a Reader an
// io.Reader know none, and would wait as long as the store is silent.
func While(ctx context.Context, r *client.Reader, read func() error) error {
	defer context.AfterFunc(ctx, func() { _ = r.Close() })()
	err := read()
	if errors.Is(err, fserror.Closed) && ctx.Err() != nil {
		return fserror.Ended(ctx, "read", r.Path())
	}
	return err
}

// countingReader tells of each piece read, and stops when the copy does.
type countingReader struct {
	r     io.Reader
	count func(int64)
	stop  func() error
}

func (r *countingReader) Read(p []byte) (int, error) {
	if err := r.stop(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.count(int64(n))
	return n, err
}
