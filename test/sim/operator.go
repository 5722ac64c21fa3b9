package sim

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/client/upgrade"
)

// quotaEvery is of how many seeds one has a quota, of the root, which refuses nothing.
const quotaEvery = 8

// limit has, in some worlds, all be counted, and no directory be delegated.
func (w *Work) limit(ctx context.Context) {
	if w.with.Seed%quotaEvery == quotaEvery-1 {
		w.log.note(w.operator.name, "quota: %v", quota.Set(ctx, w.operator.fs, "/", 1<<40, 1<<50))
	}
}

// operate does, by chance, what operators do, until ctx ends.
func (w *Work) operate(ctx context.Context) {
	o := w.operator
	if o.fs == nil && o.connect(ctx) != nil {
		return
	}
	raised := w.with.KeepLevel
	for ctx.Err() == nil {
		o.pause(ctx, 20*time.Second)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		var what string
		var err error
		switch o.rand.IntN(4) {
		case 0:
			what = "checkpoint"
			if _, err = o.fs.Admin().Checkpoint(call); err == nil && !raised { // no chance decides: the worlds of seeds stay as they are
				_, refused := upgrade.Finish(call, o.fs)
				if raised = refused == nil; raised {
					w.truth.did("upgrade")
					w.limit(call)
				}
				w.log.note(o.name, "upgrade finish: %v", refused)
			}
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
