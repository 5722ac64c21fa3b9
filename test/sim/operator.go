package sim

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
)

// quotaEvery is of how many seeds one has a quota, of the root, which refuses nothing.
const quotaEvery = 8

// operate does, by chance, what operators do, until ctx ends.
func (w *Work) operate(ctx context.Context) {
	o := w.operator
	if o.fs == nil && o.connect(ctx) != nil {
		return
	}
	if w.with.Seed%quotaEvery == quotaEvery-1 { // in some worlds all counts, and no directory is delegated
		w.log.note(o.name, "quota: %v", quota.Set(ctx, o.fs, "/", 1<<40, 1<<50))
	}
	for ctx.Err() == nil {
		o.pause(ctx, 20*time.Second)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		var what string
		var err error
		switch o.rand.IntN(4) {
		case 0:
			what = "checkpoint"
			_, err = o.fs.Admin().Checkpoint(call)
		case 1:
			what = "gc"
			_, err = o.fs.Admin().Collect(call)
		case 2:
			what = "failover"
			_, err = o.fs.Admin().Failover(call)
		case 3:
			what = "fsck"
			_, err = o.fs.Admin().Fsck(call, "", true, func(p client.FsckProblem) error {
				if !p.Unchecked {
					w.truth.broken("fsck: %s: %s", p.Path, p.Problem)
				}
				return nil
			})
		}
		cancel()
		w.log.note(o.name, "%s: %v", what, err)
		if err == nil {
			w.truth.did(what)
		}
	}
}
