package namenode

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/election"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/datadir"
)

// HA says how several namenodes serve one namespace, one of them at a time.
type HA struct {
	ZooKeeper []string // HOST:PORT of the ensemble's servers
	// Name of the namespace: its nodes are below /leasefs/NAME.
	Name string
	// User and Password for ZooKeeper's digest scheme; empty: none.
	User, Password string
	// AlsoUser and AlsoPassword are shown besides, and nodes are made for both:
	// while a password is being changed.
	AlsoUser, AlsoPassword string
	TLS                    *tls.Config
	// SessionTimeout is after how long without a sign of life another namenode
	// takes over; ZooKeeper grants 2 to 20 of its ticks.
	SessionTimeout time.Duration
	// Dial opens connections to ZooKeeper; nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultSessionTimeout is what HA.SessionTimeout is unless told otherwise.
const DefaultSessionTimeout = 5 * time.Second

var haName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (h *HA) check() error {
	wrong := func(format string, args ...any) error {
		return fserror.New(fserror.InvalidArgument, "", "", format, args...)
	}
	if err := zkconn.CheckServers(h.ZooKeeper); err != nil {
		return wrong("--zookeeper: %v", err)
	}
	switch {
	case !haName.MatchString(h.Name):
		return wrong("namespace name %q: give letters, digits, dot, hyphen and underscore, at most 63, with --namespace", h.Name)
	case h.SessionTimeout < 500*time.Millisecond:
		return wrong("--session-timeout %s is too short; at least 500ms", h.SessionTimeout)
	case h.SessionTimeout > time.Hour:
		return wrong("--session-timeout %s is too long; at most 1h", h.SessionTimeout)
	}
	return nil
}

// lease is how long after a term-checked write the active one answers: less
// than the session lasts, so that whoever is elected after its end need not wait
// longer. margin is what clocks may differ by in that time.
func (h *HA) lease() (lease, margin time.Duration) {
	lease = h.SessionTimeout * 7 / 10
	return lease, lease / 10
}

// stallAfter is how long a reign lasts in which nothing can be written.
func (h *HA) stallAfter() time.Duration { return 4 * h.SessionTimeout }

// top is the node that has all others of the namespace.
func (h *HA) top() string { return "/leasefs/" + h.Name }

func (h *HA) path(sub string) string { return h.top() + "/" + sub }

func (s *Server) zookeeper() zkconn.Config { return s.cfg.HA.connection(s.log) }

func (h *HA) connection(log *slog.Logger) zkconn.Config {
	return zkconn.Config{
		Servers: h.ZooKeeper, SessionTimeout: h.SessionTimeout, User: h.User, Password: h.Password,
		AlsoUser: h.AlsoUser, AlsoPassword: h.AlsoPassword, TLS: h.TLS, Dial: h.Dial, Logger: log,
	}
}

// shared is what a namenode of several has besides.
type shared struct {
	journal   *zk.Journal
	window    *election.Window
	candidacy *election.Candidacy
	handing   turn        // one hand-over at a time
	away      atomic.Bool // ZooKeeper did not answer a standby

	joinedAs  election.Report
	known     atomic.Uint64          // the last change that any of them has reported
	short     atomic.Pointer[string] // why growth would be refused here; empty: it would not
	diskError atomic.Pointer[string] // why that is not known; empty: it is
}

// haFormat is the node that says what the namespace is.
type haFormat struct {
	Format    int    `json:"format"`
	Namespace string `json:"namespace"` // id, hexadecimal
	Created   string `json:"created"`
	By        string `json:"by"`
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
		if err := pause(ctx, storePause); err != nil {
			return id, err
		}
	}
}

func (s *Server) askNamespace(ctx context.Context, sess *zkconn.Session) (id [16]byte, err error) {
	if granted := sess.Timeout(); granted != s.cfg.HA.SessionTimeout {
		s.log.Warn("ZooKeeper grants another session time-out than asked for (2 to 20 of its ticks); that one counts", "asked", s.cfg.HA.SessionTimeout, "granted", granted)
		s.cfg.HA.SessionTimeout = granted
	}
	path := s.cfg.HA.path("format")
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
	f, id, err := parseFormat(path, raw)
	if err != nil {
		return id, err
	}
	err = sess.Retry(ctx, func() (err error) {
		s.token, err = readToken(ctx, sess, s.cfg.HA)
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

func parseFormat(path string, raw []byte) (f haFormat, id [16]byte, err error) {
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, id, fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (%v); put it back from a backup of ZooKeeper", path, err)
	}
	b, err := hex.DecodeString(f.Namespace)
	if err != nil || len(b) != len(id) {
		return f, id, fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (namespace %q); put it back from a backup of ZooKeeper", path, f.Namespace)
	}
	return f, [16]byte(b), nil
}

// makeOnce makes a node, and returns what is in it: of another, who was faster,
// or of an earlier try, whose answer was lost.
func makeOnce(ctx context.Context, sess *zkconn.Session, path string, data []byte) ([]byte, error) {
	_, err := sess.Create(ctx, path, data, 0)
	if errors.Is(err, zookeeper.ErrNodeExists) {
		data, _, err = sess.Get(ctx, path)
	}
	return data, err
}

// unfit is the error of a connection that no waiting mends (zkconn.ErrUnfit).
func unfit(err error) error {
	return fserror.New(fserror.Unavailable, "", "", "%v; see --zookeeper and --zookeeper-tls", err)
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
			return nil, unfit(err)
		case err == nil || ctx.Err() != nil:
			return sess, err
		}
		s.log.Warn("waiting for ZooKeeper", "cause", err)
		if err := pause(ctx, storePause); err != nil {
			return nil, err
		}
	}
}

// openSharedJournal opens the journal in ZooKeeper behind the image that was
// loaded.
func (s *Server) openSharedJournal(ctx context.Context, image uint64) error {
	lease, margin := s.cfg.HA.lease()
	window, err := election.NewWindow(s.cfg.Clock, lease, margin)
	if err != nil {
		return err
	}
	j, err := zk.Open(ctx, zk.Config{
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.path("journal"), First: image + 1, Holder: s.advertised(),
		Lease: lease, Written: window.Write, StallAfter: s.cfg.HA.stallAfter(), Clock: s.cfg.Clock, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.shared.journal, s.shared.window = j, window
	s.journal = j
	return nil
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
		ZooKeeper: s.zookeeper(), Path: s.cfg.HA.path("election"), Logger: s.log,
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

// overKept refuses changes while ZooKeeper holds much more than an image should
// have freed: its memory is not ours to fill. Two images' worth is usual, since
// the journal is kept from the older of two on.
func (s *Server) overKept() error {
	if s.shared.journal == nil || s.shared.journal.Kept() < 3*s.cfg.CheckpointBytes {
		return nil
	}
	s.wake(&s.imageWake)
	return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: an image has to be written before ZooKeeper can take more", RetryAfter: 200 * time.Millisecond}
}

// keptDue reports whether ZooKeeper holds so much that an image is due. A
// standby that took over has not counted what came before.
func (s *Server) keptDue() bool {
	return s.shared.journal != nil && s.shared.journal.Kept() >= 2*s.cfg.CheckpointBytes
}
