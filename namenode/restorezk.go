package namenode

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/ensemble"
)

// unknown makes sure that ZooKeeper does not have the namespace.
func (w *restore) unknown(ctx context.Context, sess *zkconn.Session) error {
	there := false
	err := sess.Retry(ctx, func() (err error) {
		there, err = sess.Exists(ctx, w.cfg.HA.Path("format"))
		return err
	})
	if err == nil && there {
		err = fserror.New(fserror.Exists, "", "", "ZooKeeper has a namespace %s: it need not be restored; or choose another name with --namespace", w.cfg.HA.Name)
	}
	return err
}

// begin makes sure that one restore at a time makes the namespace known, and
// finds the token of what comes to life: that of an earlier try, or a new one.
func (w *restore) begin(ctx context.Context, sess *zkconn.Session) error {
	err := sess.Retry(ctx, func() error {
		err := sess.EnsureShared(ctx, "/leasefs")
		if err == nil {
			err = sess.EnsurePath(ctx, w.cfg.HA.Top())
		}
		return err
	})
	if err == nil {
		err = sess.Retry(ctx, func() error { return w.lock(ctx, sess) })
	}
	if err == nil {
		err = w.unknown(ctx, sess) // it may have been restored meanwhile
	}
	if err == nil {
		w.token, err = ensemble.MakeToken(ctx, sess, w.cfg.HA)
	}
	return w.ofAnother(err)
}

// lock makes a node that goes with the session. That of a restore that was
// killed is waited for.
func (w *restore) lock(ctx context.Context, sess *zkconn.Session) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*sess.Timeout(), fserror.New(fserror.Exists, "", "", "another restore of namespace %s is under way", w.cfg.HA.Name))
	defer cancel()
	path := w.cfg.HA.Path("restoring")
	for {
		_, err := sess.Create(ctx, path, nil, zookeeper.FlagEphemeral)
		if !errors.Is(err, zookeeper.ErrNodeExists) {
			return err
		}
		_, stat, err := sess.Get(ctx, path)
		if err == nil && stat.EphemeralOwner == sess.ID() {
			return nil // ours, whose answer was lost
		}
		if err != nil && !errors.Is(err, zookeeper.ErrNoNode) {
			return err
		}
		if err := pause(ctx, restorePause); err != nil {
			return err
		}
	}
}

// announce makes the node that says what the namespace is.
func (w *restore) announce(ctx context.Context, sess *zkconn.Session, id [16]byte) error {
	path := w.cfg.HA.Path("format")
	raw, err := w.formatNode(id)
	if err != nil {
		return err
	}
	var there []byte
	err = sess.Retry(ctx, func() (err error) {
		there, err = ensemble.MakeOnce(ctx, sess, path, raw)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s in ZooKeeper: %w", path, err)
	case !bytes.Equal(there, raw):
		return fserror.New(fserror.Exists, "", "", "ZooKeeper has got a namespace %s meanwhile, from somebody else: the one of the backup is in the block store, and not known to ZooKeeper", w.cfg.HA.Name)
	}
	return nil
}
