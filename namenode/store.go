package namenode

import (
	"cmp"

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

// private reports whether the blocks are in the data folder, where nobody else
// can get at them.
func (s *Server) private() bool { return s.cfg.s3 == nil && s.cfg.BlocksDir == "" }

// newOwner makes the owner of the open store.
func (s *Server) newOwner() *owner.Owner {
	cfg := owner.Config{
		Clock: s.cfg.Clock, Log: s.log, Engine: s.engine, Store: s.store, Objects: s.objects, ID: s.dir.ID, Name: cmp.Or(s.cfg.Blocks, s.cfg.BlocksDir),
		Private: s.private(), Marked: s.cfg.HA == nil && s.cfg.s3 == nil, Fresh: s.dir.Fresh,
		Incarnation: s.cfg.incarnation, TakeOver: s.cfg.TakeOver, DeleteAfter: s.cfg.DeleteAfter, Fail: s.role.Fail,
	}
	s.role.Own(&cfg)
	return owner.New(cfg)
}
