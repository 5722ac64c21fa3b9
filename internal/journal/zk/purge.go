package zk

import (
	"context"
	"errors"
	"fmt"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/zkconn"
)

const (
	purgeBatches = 200 // nodes that one transaction deletes
	purgeCalls   = 4   // such transactions under way
)

// Purge implements journal.Journal. The last segment is always kept. All that it
// writes checks the term: a namenode that was deposed deletes nothing. First the
// first node says what counts from now on; then the batches before are deleted,
// oldest first, some hundreds a transaction, and each folder with its last batch.
// Each transaction also says in the first node how far it came. So a Purge that was cut short is finished by the next
// one, and never leaves a node behind.
func (j *Journal) Purge(ctx context.Context, before uint64) error {
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	unlock, err := j.lockReading(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.group.MayWrite("Purge"); err != nil {
		return err
	}
	j.mu.Lock()
	epoch := j.epoch
	j.mu.Unlock()
	before = min(before, j.Durable())
	p := purge{j: j, epoch: int32(epoch)} //nolint:gosec // it was one
	return j.retry(ctx, func(s *zkconn.Session) error { return p.on(ctx, s, before) })
}

type purge struct {
	j     *Journal
	epoch int32
}

func (p *purge) on(ctx context.Context, s *zkconn.Session, before uint64) error {
	if err := s.Sync(ctx, p.j.cfg.Path); err != nil {
		return err
	}
	first, version, err := p.j.readFirst(ctx, s)
	if err != nil {
		return err
	}
	if before > first.txid {
		if first, version, err = p.move(ctx, s, first, version, before); err != nil {
			return err
		}
	}
	return p.deleteTo(ctx, s, first, version)
}

// move makes the first node point to the segment that holds record before.
func (p *purge) move(ctx context.Context, s *zkconn.Session, first firstInfo, version int32, before uint64) (firstInfo, int32, error) {
	h, err := p.j.search(ctx, s, first.number, before)
	if err != nil || h.segment <= first.number {
		return first, version, err
	}
	if h, err = p.j.readHeader(ctx, s, h.segment); err != nil {
		return first, version, err
	}
	first.number, first.txid, first.offset = h.number, h.first, h.offset
	res, err := s.Multi(ctx, p.check(), p.set(first, version))
	if err != nil {
		return first, version, p.explain(res, err)
	}
	p.j.purgedTo(first)
	return first, res[1].Stat.Version, nil
}

func (p *purge) check() any {
	return &zookeeper.CheckVersionRequest{Path: p.j.path(termNode), Version: p.epoch}
}

func (p *purge) set(first firstInfo, version int32) any {
	return &zookeeper.SetDataRequest{Path: p.j.path(firstNode), Data: first.encode(), Version: version}
}

// deleteTo deletes what is before the first batch that counts. Each transaction
// names the version of the first node that the one before it leaves, so if one
// fails all behind it do.
func (p *purge) deleteTo(ctx context.Context, s *zkconn.Session, first firstInfo, version int32) error {
	var under []*zkconn.Call
	for first.low < first.number || len(under) > 0 {
		if first.low < first.number && len(under) < purgeCalls {
			end := min(first.low+purgeBatches, first.number)
			ops := []any{p.check(), nil}
			for n := first.low; n < end; n++ {
				ops = append(ops, &zookeeper.DeleteRequest{Path: p.j.batchPath(n), Version: -1})
				if n%folderSize == folderSize-1 {
					ops = append(ops, &zookeeper.DeleteRequest{Path: p.j.folderPath(n), Version: -1})
				}
			}
			first.low = end
			ops[1] = p.set(first, version)
			version++
			under = append(under, s.Start(ops...))
			continue
		}
		select {
		case <-under[0].Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		res, err := under[0].Result()
		if err != nil {
			for _, c := range under[1:] { // they fail too, and none may come late
				select {
				case <-c.Done():
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return p.explain(res, err)
		}
		under = under[1:]
	}
	return nil
}

// explain names what was refused. A first node that is not as it was read, by an
// answer that was lost, is read again.
func (p *purge) explain(res []zookeeper.MultiResponse, err error) error {
	switch at := zkconn.FailedOp(res); {
	case at == opCheckTerm:
		err = p.j.deposed()
		p.j.group.Fail(err)
		return err
	case at == 1 && errors.Is(err, zookeeper.ErrBadVersion):
		return zkconn.ErrLost
	case at > 1 && errors.Is(err, zookeeper.ErrNoNode):
		return damaged(p.j.path(firstNode), 0, 0, "batches that it says to be there are missing")
	}
	return fmt.Errorf("purge journal: %w", err)
}
