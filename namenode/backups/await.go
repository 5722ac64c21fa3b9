package backups

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Await waits until a client has the blocks of a backup: it ends the stream then, which ends ctx.
// It waits no longer than the URLs of the blocks are good, by this machine's clock: the error is
// of kind Deadline then.
func Await(ctx context.Context, urlLife time.Duration) error {
	if err := clock.Pause(ctx, urlLife); err != nil {
		return err
	}
	return fserror.New(fserror.Deadline, "backup", "",
		"the stream was not ended within %s after all was sent, when the URLs of blocks expire; blocks of deleted files are kept no longer for it. Make another backup, by a machine that copies faster", urlLife)
}
