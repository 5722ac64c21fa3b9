package offline

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// Format makes the namespace of several namenodes: it claims the block store for
// a new id, and then makes the namespace known to ZooKeeper, in one transaction.
// This happens once; a namenode never does it.
//
// After a failure it can be repeated: what an earlier try left in the store is of
// an id that ZooKeeper does not know, and holds no file.
//
// Exists if ZooKeeper has a namespace of that name, or one that a restore has not
// finished, or if the store has files of one: its ZooKeeper may be lost.
func Format(ctx context.Context, cfg Config) (id [16]byte, err error) {
	w, sess, err := connect(ctx, cfg)
	if err != nil {
		return id, err
	}
	defer func() { _ = sess.Close() }()
	if err := w.unformatted(ctx, sess); err != nil {
		return id, err
	}
	if err := w.unused(ctx); err != nil {
		return id, err
	}
	_, _ = rand.Read(id[:]) // it never fails
	w.token = marker.NewToken()
	err = w.claimNew(ctx, id)
	if err = errors.Join(err, w.close(), w.giveAway(id)); err != nil {
		return id, err
	}
	return id, w.makeKnown(ctx, sess, id)
}

// unformatted makes sure that ZooKeeper has no namespace of the name, nor half of
// one.
func (w *restore) unformatted(ctx context.Context, sess *zkconn.Session) error {
	path := w.cfg.HA.Path("format")
	raw, unfinished := []byte(nil), false
	err := sess.Retry(ctx, func() (err error) {
		if raw, _, err = sess.Get(ctx, path); errors.Is(err, zookeeper.ErrNoNode) {
			unfinished, err = sess.Exists(ctx, w.cfg.HA.Path("incarnation"))
		}
		return err
	})
	switch {
	case err != nil:
		return w.ofAnother(err)
	case unfinished:
		return fserror.New(fserror.Exists, "", "", "a restore of namespace %s to this ensemble has not ended: repeat it; to give it up, remove %s from ZooKeeper first",
			w.cfg.HA.Name, w.cfg.HA.Top()).Because(fserror.ReasonRestore)
	case raw == nil:
		return nil
	}
	f, id, err := ensemble.ParseFormat(path, raw)
	if err != nil {
		return err
	}
	return fserror.New(fserror.Exists, "", "", "ZooKeeper has a namespace %s already (%x, made %s by %s): start namenodes on it, or choose another name", w.cfg.HA.Name, id, f.Created, f.By).Because(fserror.ReasonNamespaceTaken)
}

// unused makes sure that the store has no files of a namespace of the name. What a
// format that failed has left is none.
func (w *restore) unused(ctx context.Context) error {
	ids, err := w.storedIDs(ctx)
	if errors.Is(err, fserror.NotFound) {
		return nil
	}
	for _, text := range ids {
		if err == nil {
			err = w.unusedBy(ctx, text)
		}
	}
	return err
}

func (w *restore) unusedBy(ctx context.Context, text string) (err error) {
	id, _ := marker.ParseID(text)
	err = w.open(ctx, id, false)
	if errors.Is(err, fserror.NotFound) {
		return nil // a folder of that name, which no format has finished
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, w.close())
		w.close = func() error { return nil }
	}()
	name, err := w.markedFor(ctx)
	if err != nil || name != w.cfg.HA.Name {
		return err
	}
	stored, err := w.objects.ListNamed(ctx, images.Prefix, "", 1)
	if err != nil {
		return err
	}
	blocks, err := w.store.List(ctx, blockstore.Key{}, 1)
	if err != nil || len(stored)+len(blocks) == 0 {
		return err
	}
	return fserror.New(fserror.Exists, "", "", "the block store %s has files of a namespace %s (%s): if its ZooKeeper was lost, restore it; "+
		"for a new one name an empty prefix or folder, or choose another name", w.cfg.Blocks, w.cfg.HA.Name, text).Because(fserror.ReasonStoreTaken)
}

// markedFor is the name in the object that says whose the store is; empty if there
// is none.
func (w *restore) markedFor(ctx context.Context) (string, error) {
	raw, err := blockstore.GetBytes(ctx, w.objects, marker.Object, marker.MaxBytes)
	if errors.Is(err, fserror.NotFound) {
		return "", nil
	}
	words := strings.Fields(string(raw))
	if err != nil || len(words) != 4 { // a namenode alone has no name
		return "", err
	}
	return words[2], nil
}

// claimNew makes the store that of a new namespace.
func (w *restore) claimNew(ctx context.Context, id [16]byte) error {
	err := w.open(ctx, id, true)
	if err != nil {
		return fmt.Errorf("block store %s: %w", w.cfg.Blocks, err)
	}
	if w.cfg.S3 == nil {
		err = w.store.Probe(ctx) // one in a bucket was probed
	}
	if err == nil {
		_, err = w.claim(ctx, id, 0)
	}
	if err == nil {
		err = w.mark(ctx, id)
	}
	return err
}

// makeKnown makes the nodes of a namespace, all of them or none.
func (w *restore) makeKnown(ctx context.Context, sess *zkconn.Session, id [16]byte) error {
	raw, err := w.formatNode(id)
	if err != nil {
		return err
	}
	path := w.cfg.HA.Path("format")
	err = sess.Retry(ctx, func() error {
		err := sess.EnsureShared(ctx, "/leasefs")
		if err != nil {
			return err
		}
		top, err := sess.Exists(ctx, w.cfg.HA.Top())
		if err != nil {
			return err
		}
		ops := []any{
			&zookeeper.CreateRequest{Path: w.cfg.HA.Top(), Acl: sess.ACL()},
			&zookeeper.CreateRequest{Path: w.cfg.HA.Path("incarnation"), Data: []byte(w.token), Acl: sess.ACL()},
			&zookeeper.CreateRequest{Path: path, Data: raw, Acl: sess.ACL()},
		}
		if top {
			ops = ops[1:]
		}
		if _, err = sess.Multi(ctx, ops...); !errors.Is(err, zookeeper.ErrNodeExists) {
			return err
		}
		there, _, err := sess.Get(ctx, path)
		switch {
		case err == nil && bytes.Equal(there, raw):
			return nil // ours, whose answer was lost
		case err == nil || errors.Is(err, zookeeper.ErrNoNode):
			return fserror.New(fserror.Exists, "", "", "ZooKeeper has got a namespace %s meanwhile, from somebody else", w.cfg.HA.Name)
		}
		return err
	})
	return w.ofAnother(err)
}

// formatNode is the content of the node that says what the namespace is.
func (w *restore) formatNode(id [16]byte) ([]byte, error) {
	at, image := levels.State{Level: levels.Newest(), Release: w.cfg.Release}, uint64(0)
	if w.tree != nil {
		at = w.tree.Level()
		image, _ = w.tree.Last()
	}
	return json.Marshal(ensemble.Format{
		Format: int(at.Level), Release: at.Release, Namespace: hex.EncodeToString(id[:]), By: w.cfg.By,
		Created: w.cfg.Clock.Wall().UTC().Format(time.RFC3339), Image: image,
	})
}

// ofAnother explains that nodes belong to another user.
func (w *restore) ofAnother(err error) error {
	if errors.Is(err, zookeeper.ErrNoAuth) {
		return fserror.New(fserror.Permission, "", "", "%s in ZooKeeper belongs to another user (%v): name that one, or choose another name for the namespace", w.cfg.HA.Top(), err).Because(fserror.ReasonZooKeeperUser)
	}
	return err
}

// unknown makes sure that ZooKeeper does not have the namespace.
func (w *restore) unknown(ctx context.Context, sess *zkconn.Session) error {
	there := false
	err := sess.Retry(ctx, func() (err error) {
		there, err = sess.Exists(ctx, w.cfg.HA.Path("format"))
		return err
	})
	if err == nil && there {
		err = fserror.New(fserror.Exists, "", "", "ZooKeeper has a namespace %s: it need not be restored; or choose another name", w.cfg.HA.Name).Because(fserror.ReasonNamespaceTaken)
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
		if err := clock.Pause(ctx, restorePause); err != nil {
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
