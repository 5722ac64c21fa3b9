package reign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/loops"
)

// reached is how far the journal was when a namenode ended, of which incarnation of the
// namespace. It is in the data folder, so that a start, also that of a process which was
// deposed, does not go on without changes that ZooKeeper has lost since.
type reached struct {
	Incarnation string
	zk.Reached
}

// reachedWithin is how long the disk may take to write it.
const reachedWithin = 2 * time.Second

// leaveReached writes it. That it cannot be written keeps no namenode from ending.
func leaveReached(s *several) {
	now := reached{s.token, s.shared.Reached()}
	now.TxID = max(now.TxID, s.newest()) // what the others have said, too
	ctx, cancel := context.WithTimeout(context.Background(), reachedWithin)
	defer cancel()
	_, err := loops.Within(ctx, func(context.Context) (none struct{}, err error) {
		raw, err := json.Marshal(now)
		if err == nil {
			err = vfs.WriteFile(s.cfg.FS, s.dir.File(datadir.ReachedFile), raw)
		}
		return none, err
	})
	if err != nil {
		s.log.Warn("the data folder does not say how far the journal is: the next start would not notice if ZooKeeper had lost changes", "folder", s.cfg.Data, "cause", err)
	}
}

// checkReached refuses a journal that lacks what this namenode knew of when it ended. It
// was read to its end. One of another incarnation was restored, or given the block store,
// by an operator, who knew what was lost.
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
		return fmt.Errorf("%s is damaged (%w): remove it", file, err)
	}
	if was.Incarnation != s.token {
		return nil
	}
	if err := s.shared.Lacks(ctx, was.Reached); err != nil {
		return fmt.Errorf("%w; only to go on without them, remove %s, and that of all other namenodes, before any is started", err, file)
	}
	return nil
}
