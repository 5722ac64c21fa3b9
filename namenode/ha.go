package namenode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	localjournal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/share"
)

func (s *Server) zookeeper() zkconn.Config { return s.cfg.HA.Connection(s.log) }

// HA says how several namenodes serve one namespace, one of them at a time.
type HA = ensemble.HA

// DefaultSessionTimeout is what HA.SessionTimeout is unless told otherwise.
const DefaultSessionTimeout = ensemble.DefaultSessionTimeout

// shared is what a namenode of several has besides.
type shared struct {
	journal   *zk.Journal
	window    *election.Window
	candidacy *election.Candidacy
	handing   share.Turn  // one hand-over at a time
	away      atomic.Bool // ZooKeeper did not answer a standby

	joinedAs  election.Report
	known     atomic.Uint64          // the last change that any of them has reported
	short     atomic.Pointer[string] // why growth would be refused here; empty: it would not
	diskError atomic.Pointer[string] // why that is not known; empty: it is
}

// namespaceID reads the namespace's id from ZooKeeper, where its format has put it.
func (s *Server) namespaceID(ctx context.Context) (id [16]byte, err error) {
	for {
		sess, err := s.firstSession(ctx)
		if err != nil {
			return id, err
		}
		id, err = s.askNamespace(ctx, sess)
		_ = sess.Close()
		if !errors.Is(err, zkconn.ErrLost) {
			return id, err
		}
		s.log.Warn("the ZooKeeper session ended; asking again", "cause", err)
		if err := clock.Pause(ctx, storePause); err != nil {
			return id, err
		}
	}
}

func (s *Server) askNamespace(ctx context.Context, sess *zkconn.Session) (id [16]byte, err error) {
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
			"name those with which it was made by --zookeeper-auth USER:PASSWORD or LEASEFS_ZOOKEEPER_AUTH (%s may not be read)", s.cfg.HA.Name, path)
	case errors.Is(err, zookeeper.ErrNoNode):
		return id, s.notFormatted(ctx, sess)
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
	if err == nil && f.Format > datadir.FormatVersion {
		err = fmt.Errorf("namespace %s has format %d, this program knows up to %d; use the newer leasefs", s.cfg.HA.Name, f.Format, datadir.FormatVersion)
	}
	return id, err
}

// notFormatted refuses to serve a namespace that ZooKeeper does not have: nothing
// is ever made by a start.
func (s *Server) notFormatted(ctx context.Context, sess *zkconn.Session) error {
	others := ""
	if names, err := sess.Children(ctx, "/leasefs"); err == nil { // a help against typing errors
		names = slices.DeleteFunc(names, func(n string) bool { return n == s.cfg.HA.Name })
		if slices.Sort(names); len(names) > 5 {
			names = append(names[:5], "...")
		}
		if len(names) > 0 {
			others = " (it has " + strings.Join(names, ", ") + ")"
		}
	}
	return fserror.New(fserror.NotFound, "", "", "ZooKeeper at %s has no namespace %s%s: check --zookeeper and --namespace; "+
		"a new one is made, once, by leasefs admin format; one whose ZooKeeper was lost is brought back by leasefs admin restore",
		strings.Join(s.cfg.HA.ZooKeeper, ","), s.cfg.HA.Name, others)
}

// firstSession waits for ZooKeeper, and says so. It does not wait for what
// waiting does not mend (zkconn.ErrUnfit).
func (s *Server) firstSession(ctx context.Context) (*zkconn.Session, error) {
	cfg := s.zookeeper()
	cfg.FirstTime = true
	for {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		sess, err := zkconn.Dial(short, cfg)
		cancel()
		switch {
		case errors.Is(err, zkconn.ErrUnfit):
			return nil, ensemble.Unfit(err)
		case err == nil || ctx.Err() != nil:
			return sess, err
		}
		s.log.Warn("waiting for ZooKeeper", "cause", err)
		if err := clock.Pause(ctx, storePause); err != nil {
			return nil, err
		}
	}
}

// openJournal opens the journal behind the image that was loaded. A folder with
// an image always has a journal, but for one that was restored from a backup.
func (s *Server) openJournal(ctx context.Context, image uint64) (journal.Journal, error) {
	if s.cfg.HA != nil {
		return s.openSharedJournal(ctx, image)
	}
	dir := s.dir.File(datadir.JournalDir)
	names, err := s.cfg.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	segments := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, localjournal.SegmentSuffix) })
	if !segments && !s.dir.Fresh && (s.dir.Backup == 0 || image != s.dir.Backup) {
		return nil, fserror.New(fserror.Damaged, "", "", "%s has no journal segments: all changes after record %d would be lost; put the journal's files back, or restore the folder from a backup", dir, image)
	}
	j, err := localjournal.Open(localjournal.Config{FS: s.cfg.FS, Dir: dir, First: image + 1, Ahead: s.cfg.JournalAhead, Logger: s.log})
	if err != nil {
		return nil, err
	}
	s.journal, s.begun = j, j.Term
	return j, nil
}

// openSharedJournal opens the journal in ZooKeeper behind the image that was
// loaded.
func (s *Server) openSharedJournal(ctx context.Context, image uint64) (journal.Journal, error) {
	lease, margin := s.cfg.HA.Lease()
	window, err := election.NewWindow(s.cfg.Clock, lease, margin)
	if err != nil {
		return nil, err
	}
	j, err := zk.Open(ctx, zk.Config{
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.Path("journal"), First: image + 1, Holder: s.advertised(),
		Lease: lease, Written: window.Write, StallAfter: s.cfg.HA.StallAfter(), Clock: s.cfg.Clock, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.shared.journal, s.shared.window = j, window
	s.journal = j
	return j, nil
}

// advertised is the address that clients are sent to.
func (s *Server) advertised() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return s.Addr()
	}
	if host, err = os.Hostname(); err != nil {
		return s.Addr()
	}
	return net.JoinHostPort(host, port)
}

// join enters the election. The namenode is a standby from then on; standBy has
// to follow.
func (s *Server) join(ctx context.Context) error {
	host, _ := os.Hostname() // for people
	s.shared.joinedAs = s.standing()
	c, err := election.Join(ctx, election.Config{
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.Path("election"), Logger: s.log,
		Self: election.Member{Address: s.advertised(), HTTP: s.HTTPAddr(), Host: host, Pid: os.Getpid(), Version: s.cfg.Version, Report: &s.shared.joinedAs},
	})
	if err != nil {
		return err
	}
	s.shared.candidacy = c
	s.joined.Store(true)
	return nil
}

// Role is "active", "standby" or "starting"; "isolated" is one that was active
// and does not know whether it still is.
func (s *Server) Role() string {
	switch {
	case s.ready.Load() && s.checkWindow() != nil:
		return "isolated"
	case s.ready.Load():
		return "active"
	case s.joined.Load():
		return "standby"
	}
	return "starting"
}
