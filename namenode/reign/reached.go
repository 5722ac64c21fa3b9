package reign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/loops"
)

// reached is how far the journal was for a namenode, of which incarnation of the
// namespace. It is in the data folder, so that a start, also that of a process which was
// deposed, or killed, does not go on without changes that ZooKeeper has lost since.
type reached struct {
	Incarnation string
	zk.Reached
}

// mark is the file that says it.
type mark struct {
	turn turn.Turn // one write at a time, also of a disk that hangs
	left reached   // what the file says
	told string    // why it could not be written
}

const (
	// reachedEvery is between two writes of it: that much is not noticed after a kill.
	reachedEvery = 10 * time.Second
	// reachedWithin is how long the disk may take to write it.
	reachedWithin = 2 * time.Second
)

// keepReached writes it in a loop, and at once when the namenode is to end: its process
// may be killed before all is closed.
func keepReached(s *several) {
	s.cfg.Loops.Run("how far the journal is", func(ctx context.Context) error {
		tick := time.NewTicker(reachedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				leaveReached(context.WithoutCancel(ctx), s)
				return nil
			case <-tick.C:
			}
			if s.candidacy.Connected() {
				learnToken(ctx, s)
			}
			if said(&s.short) != datadir.ErrSilent.Error() {
				leaveReached(ctx, s)
			}
		}
	})
}

// learnToken learns the token of the incarnation, which the active namenode changes when
// a conflict about the block store is resolved. This namenode's candidacy was there after
// the token was read, so it is of the history that this one knows.
func learnToken(ctx context.Context, s *several) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HA.SessionTimeout)
	defer cancel()
	token, err := ensemble.ReadToken(ctx, s.candidacy.Session(), s.cfg.HA)
	if err != nil {
		return // the next round tries again
	}
	members, _ := s.candidacy.Members(ctx)
	for _, m := range members {
		if m.Session == s.candidacy.SessionID() {
			s.token.Store(&token)
		}
	}
}

// leaveReached writes it, if it has changed. That it cannot be written keeps no namenode
// from working, nor from ending.
func leaveReached(ctx context.Context, s *several) {
	ctx, cancel := context.WithTimeout(ctx, reachedWithin)
	defer cancel()
	unlock, err := s.mark.turn.Lock(ctx)
	if err != nil {
		return // another write hangs
	}
	_, _ = loops.Within(ctx, func(context.Context) (none struct{}, _ error) {
		defer unlock()
		now := reached{said(&s.token), s.shared.Reached()}
		now.TxID = max(now.TxID, s.newest()) // what the others have said, too
		if now == s.mark.left {
			return none, nil
		}
		raw, err := json.Marshal(now)
		if err == nil {
			err = vfs.WriteFile(s.cfg.FS, s.dir.File(datadir.ReachedFile), raw)
		}
		if err == nil {
			s.mark.left, s.mark.told = now, ""
		} else if s.mark.told != err.Error() {
			s.mark.told = err.Error()
			s.log.Warn("the data folder does not say how far the journal is: the next start would not notice if ZooKeeper had lost changes", "folder", s.cfg.Data, "cause", err)
		}
		return none, nil
	})
}

// checkReached refuses a journal that lacks what this namenode knew of when it last said
// so. It was read to its end. One of another incarnation was restored, or given the block
// store, by an operator, who knew what was lost.
func checkReached(ctx context.Context, s *several) error {
	file := s.dir.File(datadir.ReachedFile)
	raw, err := vfs.ReadFile(s.cfg.FS, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var was reached
	if err := json.Unmarshal(raw, &was); err != nil {
		return fserror.New(fserror.Damaged, "", "", "%s, which says how far the journal was, is damaged (%v): remove it, and start again; "+
			"this start then does not notice if ZooKeeper has lost changes", file, err)
	}
	if was.Incarnation != said(&s.token) {
		return nil
	}
	if err := s.shared.Lacks(ctx, was.Reached); err != nil {
		return fmt.Errorf("%w; only to go on without them, remove %s, and that of all other namenodes, before any is started", err, file)
	}
	return nil
}
