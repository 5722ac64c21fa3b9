package zkconn

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"
)

// ownAhead is how many nodes of one folder OwnAll asks about at a time.
const ownAhead = 16

// OwnAll gives a node and all below it to the users of the session, and to nobody
// else. It calls saw after each node with whether that had other owners before.
// What was made before the call is found, also on a server that lags. What is made
// meanwhile below a node has the owners that its maker gives it; what goes meanwhile
// is passed over. When it fails it can be repeated.
func (s *Session) OwnAll(ctx context.Context, path string, saw func(changed bool)) error {
	if err := s.Retry(ctx, func() error { return s.Sync(ctx, path) }); err != nil {
		return err
	}
	return ownBelow(ctx, s, path, saw)
}

func ownBelow(ctx context.Context, s *Session, path string, saw func(changed bool)) error {
	children, changed, err := s.own(ctx, path, s.acl)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	saw(changed)
	if children == 0 {
		return nil
	}
	var names []string
	err = s.Retry(ctx, func() (err error) {
		names, err = s.Children(ctx, path)
		return err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ownAhead)
	for _, name := range names {
		g.Go(func() error { return ownBelow(ctx, s, path+"/"+name, saw) })
	}
	return g.Wait()
}

// OwnShared does the same for a node that EnsureShared made, if it belongs to a
// user of the session: it stays open to everybody as before.
func (s *Session) OwnShared(ctx context.Context, path string) error {
	var acl []zk.ACL
	err := s.Retry(ctx, func() (err error) {
		if err = s.Sync(ctx, path); err != nil { // the server may lag
			return err
		}
		acl, _, err = s.getACL(ctx, path)
		return err
	})
	ours := func(a zk.ACL) bool { return slices.Contains(s.acl, a) }
	if err != nil || !slices.ContainsFunc(acl, ours) {
		return err
	}
	_, _, err = s.own(ctx, path, s.sharedACL())
	return err
}

// own gives a node the wanted owners, and returns how many nodes are in it.
func (s *Session) own(ctx context.Context, path string, want []zk.ACL) (children int32, changed bool, err error) {
	err = s.Retry(ctx, func() error {
		acl, stat, err := s.getACL(ctx, path)
		if err != nil {
			return err
		}
		children = stat.NumChildren
		if slices.Equal(acl, want) {
			return nil
		}
		changed = true
		_, err = do(ctx, s, func() (*zk.Stat, error) { return s.conn.SetACL(path, want, -1) })
		return about("change the owners of", path, err)
	})
	return children, changed, err
}

// getACL tells who may use a node.
func (s *Session) getACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	type found struct {
		acl  []zk.ACL
		stat *zk.Stat
	}
	f, err := do(ctx, s, func() (f found, err error) {
		f.acl, f.stat, err = s.conn.GetACL(path)
		return f, err
	})
	return f.acl, f.stat, about("look at the owners of", path, err)
}

// sharedACL is who may use what EnsureShared makes.
func (s *Session) sharedACL() []zk.ACL {
	if s.cfg.User == "" {
		return s.acl
	}
	return append(zk.WorldACL(zk.PermRead|zk.PermCreate), s.acl...)
}
