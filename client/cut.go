package client

import (
	"context"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Cut makes all that was written durable and then cuts the file to length bytes
// (not more than it has: Unsupported) without letting go of its lease: nobody
// gets in between. It returns the Writer with which writing continues, under a new
// Token; w is closed. After an error w continues as before, or has lost its lease.
func (w *Writer) Cut(ctx context.Context, length int64) (next *Writer, err error) {
	defer func() { // after the unlock
		if err != nil && w.fs.mayOpen("", "") != nil {
			_ = w.Close() // Close of the FS has met w while it was ending, and waits for that
		}
	}()
	const op = "truncate"
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	if err := w.Flush(ctx); err != nil {
		return nil, fserror.With(err, op, w.path)
	}
	// Its renewals may be told from now on that it is not known: it is replaced.
	if err := w.beginEnd(op); err != nil {
		return nil, err
	}
	next, err = w.fs.append(ctx, w.path, &openOptions{inode: w.key.Inode, writer: w.id, cut: true, length: length})
	if err != nil {
		w.closing.Store(false)
		return nil, w.seen(err)
	}
	w.release()
	return next, nil
}
