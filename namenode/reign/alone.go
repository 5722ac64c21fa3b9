package reign

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/owner"
)

// DefaultMinLeaseTTL is the shortest time to live of a lease of a namenode alone.
const DefaultMinLeaseTTL = time.Second

// starting is what a namenode is before it knows more.
const starting = "starting"

// alone is the role of a namenode whose namespace is in its data folder.
type alone struct {
	*Role
	begun   func() uint64        // the last term in the journal
	stalled func() time.Duration // for how long the journal's disk has not answered
}

func (*alone) namespace(context.Context) (*[16]byte, error) { return nil, nil }

// openJournal opens the journal in the data folder. One with an image always has a
// journal, but for a backup on which no namenode has started.
func (a *alone) openJournal(_ context.Context, image uint64) (journal.Journal, error) {
	dir := a.dir.File(datadir.JournalDir)
	names, err := a.cfg.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	segments := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, local.SegmentSuffix) })
	if !segments && !a.dir.Fresh && (a.dir.Backup == 0 || a.dir.Version().BackupUsed || image != a.dir.Backup) {
		return nil, fserror.New(fserror.Damaged, "", "", "%s has no journal segments: all changes after record %d would be lost; put the journal's files back, or restore the folder from a backup", dir, image)
	}
	j, err := local.Open(local.Config{FS: a.cfg.FS, Dir: dir, First: image + 1, Ahead: a.cfg.JournalAhead, Logger: a.log, Mono: a.cfg.Clock.Mono, Wrote: a.cfg.Wrote})
	if err != nil {
		return nil, err
	}
	a.begun, a.stalled = j.Term, j.Stalled
	return j, nil
}

// own: the token of the incarnation is in VERSION.
func (a *alone) own(cfg *owner.Config) {
	cfg.Token = cmp.Or(a.dir.Version().Incarnation, marker.NewToken())
	cfg.Keep = func(_ context.Context, token string) error {
		if a.dir.Version().Incarnation == token {
			return nil
		}
		if a.dir.Fresh {
			a.dir.Info.Incarnation = token
			return nil // it is written at the end of the format
		}
		return a.dir.Update(func(v *datadir.Version) { v.Incarnation = token })
	}
}

func (*alone) images(*owner.Owner) *images.Shared { return nil }

func (a *alone) begin(ctx context.Context) error {
	// A reign that ended before its activation was durable is only in the journal.
	term, err := a.rooms.Owner.NextTerm(ctx, max(a.rooms.Engine.Facts().Term, a.begun()))
	if err != nil {
		return err
	}
	a.warnOfSilence()
	began := a.cfg.Clock.Mono()
	if err := a.journal.BeginTerm(ctx, term); err != nil {
		return err
	}
	a.noteBackupUsed()
	if err := a.activate(ctx, term, marker.NewToken(), began); err != nil {
		return err
	}
	fresh := a.dir.Fresh
	if err := a.finishFolder(); err != nil {
		return err
	}
	if fresh {
		a.log.Warn("made a new, empty namespace: the data folder was new; if there should be one, check the folder and whether its disk is mounted", "folder", a.cfg.Data, "reason", fserror.ReasonData)
	}
	a.answer()
	return nil
}

// noteBackupUsed has the next start demand the journal of a folder that came from a backup:
// without it, that start would lose all changes since. A full disk does not keep the namenode
// from starting.
func (a *alone) noteBackupUsed() {
	if a.dir.Backup == 0 || a.dir.Version().BackupUsed {
		return
	}
	if err := a.dir.Update(func(v *datadir.Version) { v.BackupUsed = true }); err != nil {
		a.log.Warn("the data folder does not say yet that its backup is in use; the next start tries again", "folder", a.cfg.Data, "cause", err)
	}
}

func (*alone) confirmed() error { return nil }

func (*alone) waits() (role, why, active string) { return starting, "the namenode is starting", "" }

func (*alone) follows() bool { return false }

// stuck: nobody can take over from a namenode alone, so it lets its disk take as long as that
// wants, and reads are answered meanwhile.
func (a *alone) stuck() error {
	if a.ready.Load() && a.stalled() > datadir.Patience {
		return datadir.ErrSilent
	}
	return nil
}

func (a *alone) tell(to *Status) {
	if err := a.stuck(); err != nil {
		to.DiskError = err.Error()
	}
}

// warnOfSilence has the log say when the journal's disk stops to answer, and when it does again.
func (a *alone) warnOfSilence() {
	silent := false
	a.cfg.Loops.Every("look at the journal's disk", time.Second, nil, func(context.Context) error {
		stalled := a.stalled()
		switch now := stalled > datadir.Patience; {
		case now == silent:
			return nil
		case now:
			a.log.Warn("changes wait, and are not answered: the disk of the journal takes nothing; look for its errors in the kernel's log", "folder", a.cfg.Data, "for", stalled)
		default:
			a.log.Info("the disk of the journal answers again", "folder", a.cfg.Data)
		}
		silent = !silent
		return nil
	})
}

func (*alone) compareClock(context.Context) (clock.Skew, error) {
	return clock.Skew{}, errors.ErrUnsupported
}

func (*alone) failover(context.Context, uint64) (string, error) {
	return "", fserror.New(fserror.Unsupported, "failover", "", "this namenode serves alone, and no other can take over").Because(fserror.ReasonAlone)
}

func (*alone) release(context.Context, bool) error { return nil }

func (a *alone) close() error {
	if a.journal == nil {
		return nil
	}
	return a.journal.Close()
}

func (*alone) leastTTL() time.Duration                      { return DefaultMinLeaseTTL }
func (*alone) renewWithin(soft time.Duration) time.Duration { return soft }
func (*alone) sessionTTL(asked time.Duration) time.Duration { return asked }
