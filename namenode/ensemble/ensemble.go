package ensemble

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
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

// dialWithin is how long ZooKeeper has to answer a command: it may have been
// started just before, and is a Java process.
const dialWithin = 30 * time.Second

var haName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Check refuses what cannot be right.
func (h *HA) Check() error {
	wrong := func(field, format string, args ...any) error {
		return fserror.New(fserror.InvalidArgument, "", "", format, args...).Because(field)
	}
	if err := zkconn.CheckServers(h.ZooKeeper); err != nil {
		return wrong(fserror.ReasonZooKeeper, "ZooKeeper's servers: %v", err)
	}
	switch {
	case !haName.MatchString(h.Name):
		return wrong(fserror.ReasonNamespaceName, "namespace name %q: give letters, digits, dot, hyphen and underscore, at most 63", h.Name)
	case h.SessionTimeout < 500*time.Millisecond:
		return wrong(fserror.ReasonSessionTimeout, "session timeout %s is too short; at least 500ms", h.SessionTimeout)
	case h.SessionTimeout > time.Hour:
		return wrong(fserror.ReasonSessionTimeout, "session timeout %s is too long; at most 1h", h.SessionTimeout)
	}
	return nil
}

// Lease is how long after a term-checked write the active one answers: less
// than the session lasts, so that whoever is elected after its end need not wait
// longer. margin is what clocks may differ by in that time.
func (h *HA) Lease() (lease, margin time.Duration) {
	lease = h.SessionTimeout * 7 / 10
	return lease, lease / 10
}

// StallAfter is how long a reign lasts in which nothing can be written.
func (h *HA) StallAfter() time.Duration { return 4 * h.SessionTimeout }

// Top is the node that has all others of the namespace.
func (h *HA) Top() string { return "/leasefs/" + h.Name }

// Path is the node of that name below Top.
func (h *HA) Path(sub string) string { return h.Top() + "/" + sub }

// Connection is how a session with ZooKeeper is opened.
func (h *HA) Connection(log *slog.Logger) zkconn.Config {
	return zkconn.Config{
		Servers: h.ZooKeeper, SessionTimeout: h.SessionTimeout, User: h.User, Password: h.Password,
		AlsoUser: h.AlsoUser, AlsoPassword: h.AlsoPassword, TLS: h.TLS, Dial: h.Dial, Logger: log,
	}
}

// Format is the node that says what the namespace is.
type Format struct {
	Format    int    `json:"format"`    // the feature level (package levels): raising that changes it
	Namespace string `json:"namespace"` // id, hexadecimal
	Created   string `json:"created"`
	By        string `json:"by"`
	Release   string `json:"release,omitempty"` // which raised the level
	// Image is the txid of the image behind which the journal begins, of a namespace that was restored.
	Image uint64 `json:"image,omitempty"`
}

// At is at which feature level the namespace is.
func (f *Format) At() levels.State {
	return levels.State{Level: uint64(max(f.Format, 0)), Release: f.Release} //nolint:gosec // not below 0
}

// ParseFormat reads what is in the node format, and the id in it.
func ParseFormat(path string, raw []byte) (f Format, id [16]byte, err error) {
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, id, fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (%v); put it back from a backup of ZooKeeper", path, err)
	}
	b, err := hex.DecodeString(f.Namespace)
	if err != nil || len(b) != len(id) {
		return f, id, fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (namespace %q); put it back from a backup of ZooKeeper", path, f.Namespace)
	}
	return f, [16]byte(b), nil
}

// MakeOnce makes a node, and returns what is in it: of another, who was faster,
// or of an earlier try, whose answer was lost.
func MakeOnce(ctx context.Context, sess *zkconn.Session, path string, data []byte) ([]byte, error) {
	_, err := sess.Create(ctx, path, data, 0)
	if errors.Is(err, zookeeper.ErrNodeExists) {
		data, _, err = sess.Get(ctx, path)
	}
	return data, err
}

// Unfit is the error of a connection that no waiting mends (zkconn.ErrUnfit).
func Unfit(err error) error {
	return fserror.New(fserror.Unavailable, "", "", "%v", err).Because(fserror.ReasonZooKeeper)
}

// DialOnce connects a command of an operator's, who waits, and is told so.
func (h *HA) DialOnce(ctx context.Context, log *slog.Logger) (*zkconn.Session, error) {
	short, cancel := context.WithTimeout(ctx, max(2*h.SessionTimeout, dialWithin))
	defer cancel()
	cfg := h.Connection(log)
	cfg.FirstTime = true
	sess, err := zkconn.Dial(short, cfg)
	switch {
	case err == nil || ctx.Err() != nil:
		return sess, err
	case errors.Is(err, zkconn.ErrUnfit): // waiting does not mend it
		return nil, Unfit(err)
	}
	return nil, fserror.New(fserror.Unavailable, "", "", "ZooKeeper at %s does not answer (%v): start the ensemble first, or correct the addresses", strings.Join(h.ZooKeeper, ","), err).Because(fserror.ReasonZooKeeper)
}

// ReadToken reads the token of the incarnation that ZooKeeper has.
func ReadToken(ctx context.Context, sess *zkconn.Session, h *HA) (string, error) {
	path := h.Path("incarnation")
	raw, _, err := sess.Get(ctx, path)
	if err == nil && !marker.IsID(string(raw)) || errors.Is(err, zookeeper.ErrNoNode) {
		return "", fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (%.40q); put it back from a backup of ZooKeeper", path, raw)
	}
	return string(raw), err
}

// MakeToken is ReadToken, and makes one where there is none yet.
func MakeToken(ctx context.Context, sess *zkconn.Session, h *HA) (token string, err error) {
	err = sess.Retry(ctx, func() error {
		if _, err := MakeOnce(ctx, sess, h.Path("incarnation"), []byte(marker.NewToken())); err != nil {
			return err
		}
		token, err = ReadToken(ctx, sess, h)
		return err
	})
	return token, err
}
