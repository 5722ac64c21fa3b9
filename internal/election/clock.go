package election

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
)

// CompareClock returns how far the time of day of clk is ahead of that of
// ZooKeeper's leader, which notes when a node was written last. It writes the node
// of the election itself, which is empty, stays so, and is watched by nobody. An
// answer that does not come within ctx, or is lost, is an error; the next call asks
// again.
func (c *Candidacy) CompareClock(ctx context.Context, clk clock.Clock) (clock.Skew, error) {
	answered := clock.Compare(clk)
	stat, err := c.s.Set(ctx, c.cfg.Path, nil, -1)
	if err != nil {
		return clock.Skew{}, err
	}
	return answered(time.UnixMilli(stat.Mtime), time.Millisecond), nil
}
