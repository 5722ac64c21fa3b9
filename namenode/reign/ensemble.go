package reign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/owner"
)

func (s *several) zookeeper() zkconn.Config { return s.cfg.HA.Connection(s.log) }

// askPause is between two questions to a ZooKeeper that does not answer.
const askPause = time.Second

// namespace reads the namespace's id from ZooKeeper, where its format has put it.
func (s *several) namespace(ctx context.Context) (*[16]byte, error) {
	for {
		sess, err := firstSession(ctx, s.zookeeper())
		if err != nil {
			return nil, err
		}
		id, err := s.askNamespace(ctx, sess)
		_ = sess.Close()
		switch {
		case err == nil:
			s.warnOfShortLeases()
			return &id, nil
		case !errors.Is(err, zkconn.ErrLost):
			return nil, err
		}
		s.log.Warn("the ZooKeeper session ended; asking again", "cause", err)
		if err := clock.Pause(ctx, askPause); err != nil {
			return nil, err
		}
	}
}

func (s *several) askNamespace(ctx context.Context, sess *zkconn.Session) (id [16]byte, err error) {
	if granted := sess.Timeout(); granted != s.cfg.HA.SessionTimeout {
		s.log.Warn("ZooKeeper grants another session time-out than asked for (2 to 20 of its ticks); that one counts", "asked", s.cfg.HA.SessionTimeout, "granted", granted)
		s.cfg.HA.SessionTimeout = granted
	}
	path := s.cfg.HA.Path("format")
	var raw []byte
	err = sess.Retry(ctx, func() (err error) {
		if err = sess.Sync(ctx, path); err == nil {
			raw, _, err = sess.Get(ctx, path)
		}
		return err
	})
	switch {
	case errors.Is(err, zookeeper.ErrNoAuth):
		return id, fserror.New(fserror.Permission, "", "", "namespace %s in ZooKeeper belongs to another user, or the password is wrong: "+
			"name those with which it was made (%s may not be read)", s.cfg.HA.Name, path).Because(fserror.ReasonZooKeeperUser)
	case errors.Is(err, zookeeper.ErrNoNode):
		return id, notFormatted(ctx, sess, s.cfg.HA)
	case err != nil:
		return id, fmt.Errorf("%s in ZooKeeper: %w", path, err)
	}
	f, id, err := ensemble.ParseFormat(path, raw)
	if err != nil {
		return id, err
	}
	err = sess.Retry(ctx, func() (err error) {
		s.token, err = ensemble.ReadToken(ctx, sess, s.cfg.HA)
		return err
	})
	s.marked.Store(f.At().Level)
	s.restored = f.Image
	if err == nil {
		err = f.At().Known("namespace " + s.cfg.HA.Name)
	}
	return id, err
}

// notFormatted refuses to serve a namespace that ZooKeeper does not have: nothing
// is ever made by a start.
func notFormatted(ctx context.Context, sess *zkconn.Session, ha *ensemble.HA) error {
	others := ""
	if names, err := sess.Children(ctx, "/leasefs"); err == nil { // a help against typing errors
		names = slices.DeleteFunc(names, func(n string) bool { return n == ha.Name })
		if slices.Sort(names); len(names) > 5 {
			names = append(names[:5], "...")
		}
		if len(names) > 0 {
			others = " (it has " + strings.Join(names, ", ") + ")"
		}
	}
	return fserror.New(fserror.NotFound, "", "", "ZooKeeper at %s has no namespace %s%s: check both names; a new one is made, once, by a format; one whose ZooKeeper was lost is brought back by a restore",
		strings.Join(ha.ZooKeeper, ","), ha.Name, others).Because(fserror.ReasonNoNamespace)
}

// firstSession waits for ZooKeeper, but not for what waiting does not mend
// (zkconn.ErrUnfit).
func firstSession(ctx context.Context, cfg zkconn.Config) (*zkconn.Session, error) {
	cfg.FirstTime = true
	sess, err := zkconn.Dial(ctx, cfg)
	if errors.Is(err, zkconn.ErrUnfit) {
		err = ensemble.Unfit(err)
	}
	return sess, err
}

// openJournal opens the journal in ZooKeeper behind the image that was
// loaded. The first one that does so makes it; behind a restore that is behind the image that was brought
// back, whatever was loaded: what an older image, or none, would continue is not what was restored.
func (s *several) openJournal(ctx context.Context, image uint64) (journal.Journal, error) {
	lease, margin := s.cfg.HA.Lease()
	window, err := election.NewWindow(s.cfg.Clock, lease, margin)
	if err != nil {
		return nil, err
	}
	if s.restored > 0 {
		image = s.restored
	}
	j, err := zk.Open(ctx, zk.Config{
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.Path("journal"), First: image + 1, Holder: s.cfg.Address,
		Lease: lease, Written: window.Write, Wrote: s.cfg.Wrote, StallAfter: s.cfg.HA.StallAfter(), Clock: s.cfg.Clock, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.shared, s.window = j, window
	return j, nil
}

// join enters the election. The namenode is a standby from then on; it follows once begin
// has started that.
func (s *several) join(ctx context.Context) error {
	host, _ := os.Hostname() // for people
	s.joinedAs = s.standing()
	c, err := election.Join(ctx, election.Config{
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.Path("election"), Logger: s.log,
		Self: election.Member{Address: s.cfg.Address, HTTP: s.cfg.Page, Host: host, Pid: os.Getpid(), Version: s.cfg.Version, Level: levels.Newest(), Report: &s.joinedAs},
	})
	if err != nil {
		return err
	}
	s.candidacy = c
	s.joined.Store(true)
	return nil
}

// own: the token of the incarnation is in ZooKeeper, and a reign has ended whose journal
// takes nothing more.
func (s *several) own(cfg *owner.Config) {
	cfg.Formatted, cfg.Token = true, s.token
	cfg.Reigning = func(ctx context.Context) error { return s.shared.Beat(ctx) }
	cfg.Known = func(ctx context.Context) (token string, err error) {
		err = s.onSession(ctx, func(sess *zkconn.Session) (err error) {
			token, err = ensemble.ReadToken(ctx, sess, s.cfg.HA)
			return err
		})
		return token, err
	}
	cfg.Keep = func(ctx context.Context, token string) error {
		return s.onSession(ctx, func(sess *zkconn.Session) error {
			_, err := sess.Set(ctx, s.cfg.HA.Path("incarnation"), []byte(token), -1)
			return err
		})
	}
}

// onSession does something with a ZooKeeper session of its own.
func (s *several) onSession(ctx context.Context, do func(*zkconn.Session) error) error {
	sess, err := zkconn.Dial(ctx, s.zookeeper())
	if err != nil {
		return err
	}
	defer func() { _ = sess.Close() }()
	return sess.Retry(ctx, func() error { return do(sess) })
}

func (s *several) images(o *owner.Owner) *images.Shared {
	return &images.Shared{
		Path:   s.cfg.HA.Top(),
		Fresh:  func() bool { return s.shared.Fresh() },
		Kept:   func() int64 { return s.shared.Kept() },
		Check:  o.Check,
		Remove: o.Remove,
	}
}

// close ends the journal. What could not be written when the reign ended is the
// successor's to tell.
func (s *several) close() error {
	if s.candidacy != nil {
		_ = s.candidacy.Resign() // no error if it was done before; else ZooKeeper ends it
	}
	if s.shared == nil {
		return nil
	}
	err := s.shared.Close()
	if errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrFenced) {
		return nil
	}
	return err
}
