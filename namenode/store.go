package namenode

import (
	"cmp"
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/ensemble"
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

// newOwner makes the owner of the open store. known is the token of the incarnation as
// it was found.
func (s *Server) newOwner() *owner.Owner {
	cfg := owner.Config{
		Clock: s.cfg.Clock, Log: s.log, Engine: s.engine, Store: s.store, Objects: s.objects, ID: s.dir.ID, Name: s.storeName(),
		Private: s.private(), Marked: s.cfg.HA == nil && s.cfg.s3 == nil, Formatted: s.cfg.HA != nil, Fresh: s.dir.Fresh,
		Token: s.token, Keep: s.keepToken, Incarnation: s.cfg.incarnation, TakeOver: s.cfg.TakeOver, DeleteAfter: s.cfg.DeleteAfter, Fail: s.stepDown,
	}
	if s.cfg.HA == nil {
		cfg.Token = cmp.Or(s.dir.Info.Incarnation, marker.NewToken())
		return owner.New(cfg)
	}
	cfg.Reigning = func(ctx context.Context) error { return s.shared.journal.Beat(ctx) }
	cfg.Known = func(ctx context.Context) (token string, err error) {
		err = s.onSession(ctx, func(sess *zkconn.Session) (err error) {
			token, err = ensemble.ReadToken(ctx, sess, s.cfg.HA)
			return err
		})
		return token, err
	}
	return owner.New(cfg)
}

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

// keepToken writes the token of a new incarnation where starts look for it.
func (s *Server) keepToken(ctx context.Context, token string) error {
	if s.cfg.HA == nil {
		if s.dir.Info.Incarnation == token {
			return nil
		}
		if s.dir.Info.Incarnation = token; s.dir.Fresh {
			return nil // it is written at the end of the format
		}
		return s.dir.WriteVersion()
	}
	return s.onSession(ctx, func(sess *zkconn.Session) error {
		_, err := sess.Set(ctx, s.cfg.HA.Path("incarnation"), []byte(token), -1)
		return err
	})
}

// onSession does something with a ZooKeeper session of its own.
func (s *Server) onSession(ctx context.Context, do func(*zkconn.Session) error) error {
	sess, err := zkconn.Dial(ctx, s.zookeeper())
	if err != nil {
		return err
	}
	defer func() { _ = sess.Close() }()
	return sess.Retry(ctx, func() error { return do(sess) })
}
