package namenode

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/backups"
)

// backupURLLife is how long a URL of a block is good that a backup is to fetch:
// a slow one has some way to go until it comes to a URL that it was sent.
const backupURLLife = 12 * time.Hour

// backup sends VERSION and an image of this moment and, unless the tree is all that is
// wanted, where the blocks that it refers to are to be had. Blocks are immutable,
// so they can be copied while writes continue; the collector leaves those of files
// deleted meanwhile until it is done.
func (s *operators) backup(ctx context.Context, treeOnly bool, send func(*backups.Message) error) error {
	defer s.blocks.Hold()()
	t, err := s.engine.Snapshot(ctx)
	if err != nil {
		return err
	}
	c := &backups.Contents{Tree: t, ID: s.dir.ID, By: "leasefs " + s.cfg.Version, Made: s.cfg.Clock.Wall(), TreeOnly: treeOnly}
	c.Sign = func(k blockstore.Key) (string, map[string]string, error) {
		signed, err := s.store.SignGet(k, s.cfg.Clock.Wall().Add(s.urlLife))
		return signed.URL, flatten(signed.Header), err
	}
	if err := c.Send(ctx, send); err != nil || treeOnly {
		return err
	}
	return backups.Await(ctx, s.urlLife)
}
