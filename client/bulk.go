package client

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// filesAtOnce is how many small files WriteFiles makes at once.
	filesAtOnce = 256
	// largeAtOnce is how many of those that go to the block store.
	largeAtOnce = 4
)

// WriteFiles makes many whole files, each as WriteFile does, up to 256 at once: their
// calls travel together. They are made in no particular order. The first result has an
// error (or nil) for each file; the second is not nil if the rest was not even tried,
// those files then have it too.
func (f *FS) WriteFiles(ctx context.Context, files []FileData) ([]error, error) {
	errs := make([]error, len(files))
	room := semaphore.NewWeighted(filesAtOnce)
	g, gctx := errgroup.WithContext(ctx)
	tried := 0
	for ; tried < len(files); tried++ {
		i, file := tried, &files[tried]
		weight := int64(1)
		if int64(len(file.Data)) > f.Info().MaxWholeFile {
			weight = filesAtOnce / largeAtOnce
		}
		if room.Acquire(gctx, weight) != nil {
			break
		}
		g.Go(func() error {
			defer room.Release(weight)
			errs[i] = f.WriteFile(gctx, file.Path, file.Data, file.Options...)
			return stops(errs[i])
		})
	}
	err := g.Wait()
	if ctx.Err() != nil && (err != nil || tried < len(files)) {
		err = fserror.Ended(ctx, "create", "")
	}
	for ; tried < len(files); tried++ {
		errs[tried] = fserror.With(err, "create", files[tried].Path)
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
