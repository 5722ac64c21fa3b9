package namenode

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// clocksEvery is how often clocks are compared.
	clocksEvery = 15 * time.Second
	// clocksAgree is up to where they agree: more is told in the log.
	clocksAgree = 2 * time.Second
)

// compared is what is known of this machine's clock and another.
type compared struct {
	skew atomic.Pointer[clock.Skew] // as last seen; nil: not known
	off  bool                       // the log was told that they differ
}

// clocks are this machine's compared with others'. Wrong ones decide nothing: they
// give files wrong times, and a block store refuses requests when they are minutes
// off. So nothing waits for what is known of them, and an operator is told.
type clocks struct {
	zookeeper, store compared
}

func (c *clocks) proto() (all []*pb.ClockSkew) {
	for _, one := range []struct {
		than string
		*compared
	}{{"zookeeper", &c.zookeeper}, {"store", &c.store}} {
		if skew := one.skew.Load(); skew != nil {
			const ms = time.Millisecond
			all = append(all, &pb.ClockSkew{Than: one.than, AheadMs: skew.Ahead.Round(ms).Milliseconds(), BoundMs: (skew.Bound + ms).Milliseconds()})
		}
	}
	return all
}

// watchClocks compares clocks, at once and then all the time.
func (s *Server) watchClocks() {
	s.wake(&s.clocksWake)
	s.loops.Every("clocks", clocksEvery, s.clocksWake, s.compareClocks)
}

func (s *Server) compareClocks(ctx context.Context) error {
	skew, err := s.role.CompareClock(ctx)
	if ctx.Err() != nil {
		return nil
	}
	s.noteSkew(&s.clocks.zookeeper, "ZooKeeper's leader", skew, err == nil)
	if st, ok := s.store.(*s3.Store); ok {
		skew, known := st.Skew()
		s.noteSkew(&s.clocks.store, "the block store", skew, known)
	}
	return nil
}

// noteSkew remembers a comparison, and tells the log when the clocks begin to
// differ and when they agree again.
func (s *Server) noteSkew(c *compared, than string, skew clock.Skew, known bool) {
	if !known {
		c.skew.Store(nil)
		return
	}
	c.skew.Store(&skew)
	about := []any{"than", than, "ahead", skew.Ahead.Round(time.Millisecond), "within", skew.Bound.Round(time.Millisecond)}
	switch {
	case !c.off && skew.Beyond(clocksAgree):
		c.off = true
		s.log.Warn("this machine's time of day differs from another's: set the time of both (NTP); meanwhile files can get wrong times", about...)
	case c.off && skew.Within(clocksAgree):
		c.off = false
		s.log.Info("this machine's time of day agrees with the other's again", about...)
	}
}
