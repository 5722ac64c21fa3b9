package namenode

import (
	"cmp"
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/owner"
)

// incarnation is this namenode's, as it would be put into a store.
func (c *Config) incarnation(token string) marker.Incarnation {
	name := c.Data
	if c.HA != nil {
		name = c.HA.Name
	}
	return marker.New(c.Clock, c.Version, name, token, c.TakeOver)
}

func (s *Server) storeName() string { return cmp.Or(s.cfg.Blocks, s.cfg.BlocksDir) }

// private reports whether the blocks are in the data folder, where nobody else
// can get at them.
func (s *Server) private() bool { return s.cfg.s3 == nil && s.cfg.BlocksDir == "" }

// newOwner makes the owner of the open store.
func (s *Server) newOwner() *owner.Owner {
	cfg := owner.Config{
		Clock: s.cfg.Clock, Log: s.log, Engine: s.engine, Store: s.store, Objects: s.objects, ID: s.dir.ID, Name: s.storeName(),
		Private: s.private(), Marked: s.cfg.HA == nil && s.cfg.s3 == nil, Fresh: s.dir.Fresh,
		Incarnation: s.cfg.incarnation, TakeOver: s.cfg.TakeOver, DeleteAfter: s.cfg.DeleteAfter, Fail: s.role.Fail,
	}
	s.role.Own(&cfg)
	return owner.New(cfg)
}

// storePause is between two questions to a block store that does not answer.
const storePause = time.Second

// askWithin is how long the store has to take a reign's object; one that refuses most
// requests needs many.
const askWithin = 30 * time.Second

// tellStore tells the store of this reign as soon as it answers.
func (s *Server) tellStore(ctx context.Context) error {
	for warned := false; ; warned = true {
		short, cancel := context.WithTimeout(ctx, askWithin)
		err := s.owner.Check(short)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			if warned {
				s.log.Info("the block store answers again", "store", s.storeName())
			}
			return nil
		case !warned:
			s.log.Warn("the block store does not take this reign's object; until it does, nothing is written there, and nothing deleted", "store", s.storeName(), "cause", err)
		}
		if clock.Pause(ctx, storePause) != nil {
			return nil
		}
	}
}
