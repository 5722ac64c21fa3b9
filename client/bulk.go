package client

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// filesAtOnce is how many small files WriteFiles makes at once.
	filesAtOnce = 128
	// largeAtOnce is how many files that go to the block store.
	largeAtOnce = 4
)

// WriteFiles makes many whole files, each as WriteFile does, up to 128 at once: their
// calls travel together. They are made in no particular order. The first result has an
// error (or nil) for each file; the second is not nil if the rest was not even tried,
// those files then have it too.
func (f *FS) WriteFiles(ctx context.Context, files []FileData) ([]error, error) {
	errs := make([]error, len(files))
	large := semaphore.NewWeighted(largeAtOnce)
	var next atomic.Int64
	var g errgroup.Group
	gctx, stop := context.WithCancel(ctx) // without a cause: that would be another file's error
	defer stop()
	write := func(file *FileData) error {
		if int64(len(file.Data)) > f.Info().MaxWholeFile {
			if large.Acquire(gctx, 1) != nil {
				return fserror.Ended(gctx, "create", file.Path)
			}
			defer large.Release(1)
		}
		return f.WriteFile(gctx, file.Path, file.Data, file.Options...)
	}
	for range min(filesAtOnce, len(files)) {
		g.Go(func() error {
			for gctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					break
				}
				errs[i] = write(&files[i])
				if err := stops(errs[i]); err != nil {
					stop()
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	untried := errs[min(int(next.Load()), len(errs)):]
	if ctx.Err() != nil && (err != nil || len(untried) > 0) {
		err = fserror.Ended(ctx, "create", "")
	}
	for i := range untried {
		untried[i] = fserror.Under(err, "create", files[len(files)-len(untried)+i].Path)
	}
	return errs, err
}

// stops returns errors after which no other file has a chance.
func stops(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fserror.Unavailable), errors.Is(err, fserror.Canceled), errors.Is(err, fserror.Deadline), errors.Is(err, fserror.Closed):
		return err
	}
	return nil
}
