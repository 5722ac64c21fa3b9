package namenode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/marker"
)

// checkMarker makes sure that the block store is this namespace's. That of several
// namenodes was marked by its format; a namenode alone marks that of a new
// namespace. A folder that one namenode has for itself has a marker of its own
// kind: see local.Format.
func (s *Server) checkMarker(ctx context.Context, objects blockstore.Objects) error {
	if s.cfg.HA == nil && s.cfg.s3 == nil {
		return nil
	}
	_, _, err := objects.StatNamed(ctx, marker.Object)
	switch {
	case !errors.Is(err, fserror.NotFound):
		return err
	case s.cfg.HA != nil || !s.dir.Fresh:
		return s.notMarked(marker.Object)
	}
	text := fmt.Sprintf("leasefs namespace %x\n", s.dir.ID)
	err = objects.PutNamed(ctx, marker.Object, strings.NewReader(text), int64(len(text)), blockstore.CRC([]byte(text)))
	if errors.Is(err, fserror.Exists) {
		return nil
	}
	return err
}

// notMarked refuses a store that says nothing of the namespace.
func (s *Server) notMarked(object string) error {
	return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %q of namespace %x: its blocks are elsewhere; name the right store with --blocks", s.storeName(), object, s.dir.ID)
}

// settle is how long a restore waits, once it has taken over a store, for
// deletions of the incarnation before that are under way: longer than
// removeWithin. Changed by tests.
var settle = marker.RemoveWithin + 10*time.Second

// incarnation is this namenode's, as it would be put into a store.
func (c *Config) incarnation(token string) marker.Incarnation {
	name := c.Data
	if c.HA != nil {
		name = c.HA.Name
	}
	return marker.New(c.Clock, c.Version, name, token, c.TakeOver)
}

func (s *Server) incarnations() *marker.Incarnations {
	return &marker.Incarnations{Objects: s.objects, Store: s.storeName(), ID: s.dir.ID}
}

func (s *Server) storeName() string { return cmp.Or(s.cfg.Blocks, s.cfg.BlocksDir) }

// private reports whether the blocks are in the data folder, where nobody else
// can get at them.
func (s *Server) private() bool { return s.cfg.s3 == nil && s.cfg.BlocksDir == "" }

// meetStore refuses a store of another incarnation before anything is made of
// what is in it. Nothing is changed.
func (s *Server) meetStore(ctx context.Context) error {
	if s.private() {
		return nil
	}
	if s.cfg.HA == nil {
		if s.token = s.dir.Info.Incarnation; s.token == "" {
			s.token = marker.NewToken()
		}
	}
	top, err := s.incarnations().Check(ctx, s.token, s.cfg.TakeOver)
	if err == nil && top.Number == 0 && s.cfg.HA != nil { // else its format would have claimed it
		err = s.notMarked(marker.Name(1))
	}
	return err
}

// claimStore makes the store this incarnation's, where it is not yet.
func (s *Server) claimStore(ctx context.Context) error {
	if s.private() {
		return nil
	}
	if s.cfg.HA == nil && s.dir.Info.Incarnation != s.token {
		s.dir.Info.Incarnation = s.token
		if !s.dir.Fresh { // it is written at the end of the format
			if err := s.dir.WriteVersion(); err != nil {
				return err
			}
		}
	}
	mine, taken, err := s.incarnations().Claim(ctx, s.cfg.incarnation(s.token), s.floorNow)
	if err != nil {
		return err
	}
	if taken {
		s.log.Warn("the block store was taken over", "store", s.storeName(), "from", mine.Replaces, "incarnation", mine.Token)
	}
	s.mine.Store(&mine)
	return nil
}

// termFloor is what every term of this incarnation is above.
func (s *Server) termFloor() uint64 {
	if mine := s.mine.Load(); mine != nil {
		return mine.TermFloor
	}
	return 0
}

// checkIncarnation makes sure that the store is still this incarnation's. If it is
// not, the reign ends for good. A new incarnation that ZooKeeper knows of is this
// one's, too: see resolveStore. Under owner's lock.
func (s *Server) checkIncarnation(ctx context.Context) error {
	mine := s.mine.Load()
	if mine == nil {
		return nil
	}
	of := s.incarnations()
	n, err := of.Newest(ctx)
	if err != nil || n == mine.Number {
		return err
	}
	top, err := of.Read(ctx)
	switch {
	case err != nil:
		return err
	case top.Number == 0:
		return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %s of namespace %x any more: nothing is deleted there; put it back, or restart the namenode if the store is its own",
			of.Store, marker.Name(mine.Number), of.ID)
	}
	if top.Token != s.token && s.cfg.HA != nil {
		err := s.onSession(ctx, func(sess *zkconn.Session) error {
			token, err := ensemble.ReadToken(ctx, sess, s.cfg.HA)
			if err == nil && token == top.Token {
				s.token = token
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if top.Token != s.token {
		err = of.Refusal(top, s.token)
		s.stepDown(err)
		return err
	}
	s.mine.Store(&top)
	s.owner.told.Store(false) // it is of a reign of the incarnation before
	return nil
}
