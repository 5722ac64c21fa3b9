// Package offline is what is done to a namespace without a namenode: [Format] makes
// that of several, [Restore] brings it back to another ensemble, from a backup or from
// its block store, and the rest looks into a data folder and changes nothing.
package offline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	localjournal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// restoreAtOnce is how many blocks a restore copies at a time; it holds as many
// in memory.
const (
	restoreAtOnce = 4
	restorePause  = 100 * time.Millisecond
)

// Settle is how long a restore waits, once it has taken over a store, for deletions of
// the incarnation before that are under way: longer than marker.RemoveWithin. Tests
// change it before they begin.
var Settle = marker.RemoveWithin + 10*time.Second

// Config says which namespace, and where: what namenode.Config.Offline returns.
type Config struct {
	HA        *ensemble.HA
	Blocks    string                      // the block store, for people
	BlocksDir string                      // its folder
	S3        func(id [16]byte) s3.Config // or how the namespace's part of a bucket is opened
	Reserve   int64                       // bytes of disk kept free in a folder
	FS        vfs.FS
	Clock     clock.Clock
	Logger    *slog.Logger
	By        string // the program and its version
	Release   string // the version of the program
	// Incarnation is what is put into the store of one with that token.
	Incarnation func(token string) marker.Incarnation
}

// Restoring says from where and to where a namespace is brought back.
type Restoring struct {
	Config Config // its ensemble does not have the namespace
	// Backup is the folder of a backup. Empty: ZooKeeper is lost and the block
	// store is there; the newest image in it is taken.
	Backup string
	// ID is the namespace's, 32 hexadecimal digits; needed without a Backup if
	// the block store has several.
	ID string
	// Progress is called often with the bytes of blocks that are in place.
	Progress func(bytes int64)
}

// Restored says what a restore has brought back.
type Restored struct {
	ID          [16]byte
	TxID        uint64    // of the last record in it; all later ones are lost
	Time        time.Time // when that was
	Files       int
	Blocks      int
	BlockBytes  int64
	Copied      int // blocks that were not in the store yet
	CopiedBytes int64
}

// restore is a restore, or a format, under way.
type restore struct {
	Restoring
	cfg     Config
	store   blockstore.Store
	objects blockstore.Objects
	close   func() error
	token   string          // of the incarnation that comes to life
	tree    *namespace.Tree // that comes back; nil: a new one is made
}

// Restore makes a namespace known to a ZooKeeper ensemble that does not have it,
// so that namenodes can be started on it: from a backup, whose blocks and image
// are copied into the block store, or from what the store has. No namenode of
// the namespace may run. It can be repeated until it succeeds.
//
// Exists if the ensemble has a namespace of that name, another restore of it is
// under way, the block store has newer images of it than the backup, or it is
// that of another incarnation of the namespace than the one to take over. Damaged if something in the backup, or
// each image in the store, is.
func Restore(ctx context.Context, r Restoring) (Restored, error) {
	w, sess, err := connect(ctx, r.Config)
	if err != nil {
		return Restored{}, err
	}
	w.Restoring = r
	defer func() { _ = sess.Close() }()
	if err := w.unknown(ctx, sess); err != nil {
		return Restored{}, err
	}
	bring := w.fromStore
	if r.Backup != "" {
		bring = w.fromBackup
	}
	id, do, err := bring(ctx) // nothing is changed before do
	if err == nil {
		err = w.begin(ctx, sess)
	}
	if err != nil {
		return Restored{}, errors.Join(err, w.close())
	}
	done, err := do(ctx)
	err = errors.Join(err, w.close(), w.giveAway(id))
	if err != nil {
		return Restored{}, err
	}
	return done, w.announce(ctx, sess, id)
}

// connect opens a session with the ensemble.
func connect(ctx context.Context, cfg Config) (*restore, *zkconn.Session, error) {
	if cfg.HA == nil {
		return nil, nil, fserror.New(fserror.Internal, "", "", "no ZooKeeper server is named: a namenode alone needs none of this, start it on its folder").Because(fserror.ReasonZooKeeper)
	}
	sess, err := cfg.HA.DialOnce(ctx, cfg.Logger)
	return &restore{cfg: cfg, close: func() error { return nil }}, sess, err
}

// giveAway makes what a restore by root has made in a folder that of the folder's
// owner: namenodes need not run as root.
func (w *restore) giveAway(id [16]byte) error {
	if w.cfg.S3 != nil || w.cfg.FS != vfs.OS() || os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(w.cfg.BlocksDir)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok || of.Uid == 0 {
		return nil
	}
	err = filepath.WalkDir(filepath.Join(w.cfg.BlocksDir, hex.EncodeToString(id[:])), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(of.Uid), int(of.Gid))
	})
	if errors.Is(err, fs.ErrNotExist) { // it did not come so far
		return nil
	}
	return err
}

// open opens the block store for a namespace.
func (w *restore) open(ctx context.Context, id [16]byte, format bool) error {
	if w.cfg.S3 != nil {
		st, err := s3.Open(ctx, w.cfg.S3(id))
		if err != nil {
			return err
		}
		w.store, w.objects, w.close = st, st, st.Close
		if format {
			return st.Probe(ctx)
		}
		return st.Check(ctx)
	}
	if format {
		if err := local.Format(w.cfg.FS, w.cfg.BlocksDir, id); err != nil {
			return err
		}
	}
	secret := make([]byte, datadir.SecretBytes)
	_, _ = rand.Read(secret) // no URL is signed
	st, err := local.Open(local.Config{
		FS: w.cfg.FS, Dir: w.cfg.BlocksDir, NamespaceID: id, Secret: secret, BaseURL: func() string { return "" },
		Clock: w.cfg.Clock, Reserve: w.cfg.Reserve, Logger: w.cfg.Logger, MaxObject: blockstore.StoredLength(blockstore.MaxBlockSize), Shared: true,
	})
	if err != nil {
		return err
	}
	w.store, w.objects, w.close = st, st, st.Close
	return nil
}

// claim makes the store that of the new incarnation. Reigns up to term were before.
func (w *restore) claim(ctx context.Context, id [16]byte, term uint64) (marker.Incarnation, error) {
	of := &marker.Incarnations{Objects: w.objects, Store: w.cfg.Blocks, ID: id}
	mine, taken, err := of.Claim(ctx, w.cfg.Incarnation(w.token), func(ctx context.Context) (uint64, error) {
		return marker.TopTerm(ctx, w.store, term)
	})
	if err == nil && taken {
		w.cfg.Logger.Warn("the block store was taken over", "store", w.cfg.Blocks, "from", mine.Replaces, "incarnation", mine.Token)
	}
	return mine, err
}

// fromBackup reads a backup. What it returns copies it into the store: blocks
// first, the image last.
func (w *restore) fromBackup(context.Context) (id [16]byte, do func(context.Context) (Restored, error), err error) {
	id, t, file, err := readBackup(w.cfg.FS, w.Backup, w.cfg.Logger)
	w.tree = t
	return id, func(ctx context.Context) (Restored, error) { return w.copyBackup(ctx, id, t, file) }, err
}

func (w *restore) copyBackup(ctx context.Context, id [16]byte, t *namespace.Tree, file string) (Restored, error) {
	if err := w.open(ctx, id, true); err != nil {
		return Restored{}, err
	}
	last, ms := t.Last()
	o := &images.Objects{Objects: w.objects}
	there, err := o.List(ctx)
	if err != nil {
		return Restored{}, err
	}
	if len(there) > 0 && there[0].TxID != last {
		return Restored{}, fserror.New(fserror.Exists, "", "", "the block store has images of this namespace (%s): name an empty prefix, or restore what the store has, without a backup's folder", there[0].Name).Because(fserror.ReasonBlocks)
	}
	mine, err := w.claim(ctx, id, t.Term())
	if err == nil && mine.Replaces != "" { // what is there is relied on
		w.cfg.Logger.Warn("waiting for deletions that may be under way", "for", Settle)
		err = clock.Pause(ctx, Settle)
	}
	if err != nil {
		return Restored{}, err
	}
	done := Restored{ID: id, TxID: last, Time: time.UnixMilli(ms), Files: t.CountReachable().Files}
	if err := w.copyBlocks(ctx, t, &done); err != nil {
		return Restored{}, err
	}
	if err := w.mark(ctx, id); err != nil {
		return Restored{}, err
	}
	if len(there) > 0 { // by an earlier try: it is the same if it can be read
		if _, err := images.Read(ctx, o, there[0]); err != nil {
			return Restored{}, fmt.Errorf("image %s: %w", o.Where(there[0]), err)
		}
		return done, nil
	}
	_, _, err = o.Put(ctx, w.cfg.FS, file, last, t.Term())
	return done, err
}

// readBackup reads VERSION and the image.
func readBackup(fsys vfs.FS, dir string, log *slog.Logger) (id [16]byte, t *namespace.Tree, file string, err error) {
	fail := func(reason, format string, args ...any) ([16]byte, *namespace.Tree, string, error) {
		return id, nil, "", fserror.New(fserror.InvalidArgument, "", dir, format, args...).Because(reason)
	}
	raw, err := vfs.ReadFile(fsys, filepath.Join(dir, datadir.VersionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fail(fserror.ReasonNoBackup, "no backup: there is no %s; give the folder of a backup", datadir.VersionFile)
	}
	if err != nil {
		return id, nil, "", err
	}
	v, id, err := datadir.ParseVersion(raw)
	switch {
	case err != nil:
		return id, nil, "", fserror.Wrap(fserror.Damaged, "", dir, fmt.Errorf("%s: %w", datadir.VersionFile, err))
	case v.At().Known("the backup") != nil:
		return id, nil, "", fserror.With(v.At().Known("the backup"), "", dir)
	case v.BackupTxID == 0:
		return fail(fserror.ReasonNoBackup, "a namenode's data folder, no backup: start a namenode on it, and take a backup of that")
	}
	names, err := fsys.List(filepath.Join(dir, datadir.JournalDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, nil, "", err
	}
	if v.BackupUsed || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, localjournal.SegmentSuffix) }) {
		return fail(fserror.ReasonNoBackup, "a namenode was started on this backup, and it may have changed since: start it again, and take a backup of that")
	}
	folder := images.Folder{FS: fsys, Dir: filepath.Join(dir, datadir.ImageDir), Log: log}
	img := images.Image{TxID: v.BackupTxID, Name: images.FileName(v.BackupTxID)}
	if t, err = images.Read(context.Background(), &folder, img); err != nil { // a folder: no network
		return id, nil, "", fserror.Wrap(fserror.Damaged, "", folder.Where(img), err)
	}
	if got := t.NamespaceID(); got != id {
		return id, nil, "", fserror.New(fserror.Damaged, "", folder.Where(img), "it is of namespace %x, the backup of %x", got, id)
	}
	return id, t, folder.Where(img), nil
}

// copyBlocks puts all blocks of the tree that the store does not have. Each is
// verified, also those that are there.
func (w *restore) copyBlocks(ctx context.Context, t *namespace.Tree, done *Restored) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(restoreAtOnce)
	var counting sync.Mutex
	t.Referenced(0, func(_ namespace.InodeID, b namespace.Block) bool {
		g.Go(func() error {
			copied, err := w.copyBlock(gctx, t.NamespaceID(), b)
			if err != nil {
				return err
			}
			counting.Lock()
			defer counting.Unlock()
			done.Blocks++
			done.BlockBytes += int64(b.Stored)
			if copied {
				done.Copied++
				done.CopiedBytes += int64(b.Stored)
			}
			if w.Progress != nil {
				w.Progress(done.BlockBytes)
			}
			return nil
		})
		return gctx.Err() == nil
	})
	return errors.Join(g.Wait(), ctx.Err())
}

func (w *restore) copyBlock(ctx context.Context, id [16]byte, b namespace.Block) (copied bool, err error) {
	name := filepath.Join(w.Backup, datadir.BlocksDir, local.FileName(id, b.Key))
	data, err := vfs.ReadFile(w.cfg.FS, name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a backup of the tree only
		return false, w.inStore(ctx, b, "neither in the backup nor ")
	case err != nil:
		return false, err
	case int64(len(data)) != int64(b.Stored) || blockstore.CRC(data) != b.CRC:
		return false, fserror.New(fserror.Damaged, "", name, "the block is damaged: %d bytes with checksum %08x, not %d with %08x; use another backup", len(data), blockstore.CRC(data), b.Stored, b.CRC)
	}
	err = w.store.Put(ctx, b.Key, data, b.CRC)
	if errors.Is(err, fserror.Exists) {
		return false, w.inStore(ctx, b, "")
	}
	return err == nil, err
}

// inStore makes sure that the store has the very block.
func (w *restore) inStore(ctx context.Context, b namespace.Block, nor string) error {
	r, err := w.store.Get(ctx, b.Key, 0, -1)
	if errors.Is(err, fserror.NotFound) {
		return fserror.New(fserror.NotFound, "", "", "block %s is %sin the block store", b.Key, nor)
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	crc, size, err := blockstore.SumCRC(r)
	if err != nil {
		return err
	}
	if size != int64(b.Stored) || crc != b.CRC {
		return fserror.New(fserror.Damaged, "", "", "the block store has another block %s than the backup: name an empty prefix", b.Key).Because(fserror.ReasonBlocks)
	}
	return nil
}

// mark puts the object that says whose the store is.
func (w *restore) mark(ctx context.Context, id [16]byte) error {
	text := fmt.Sprintf("leasefs namespace %s %x\n", w.cfg.HA.Name, id)
	err := blockstore.PutBytes(ctx, w.objects, marker.Object, []byte(text))
	if errors.Is(err, fserror.Exists) {
		return nil
	}
	return err
}

// fromStore finds the newest image that can be read in a store that outlived
// ZooKeeper. What it returns makes the store that of the new incarnation.
func (w *restore) fromStore(ctx context.Context) (id [16]byte, do func(context.Context) (Restored, error), err error) {
	if id, err = w.findID(ctx); err == nil {
		err = w.open(ctx, id, false)
	}
	if err != nil {
		return id, nil, err
	}
	t, image, err := w.newestTree(ctx, id)
	if err != nil {
		return id, nil, err
	}
	w.tree = t
	return id, func(ctx context.Context) (Restored, error) {
		last, ms := t.Last()
		c := t.CountReachable()
		done := Restored{ID: id, TxID: last, Time: time.UnixMilli(ms), Files: c.Files, Blocks: c.Blocks, BlockBytes: c.StoredBytes}
		if _, err := w.claim(ctx, id, t.Term()); err != nil {
			return Restored{}, err
		}
		if last > image {
			if err := w.putImage(ctx, t); err != nil {
				return Restored{}, err
			}
		}
		return done, w.mark(ctx, id)
	}, nil
}

func (w *restore) newestImage(ctx context.Context, id [16]byte) (*namespace.Tree, error) {
	o := &images.Objects{Objects: w.objects}
	all, err := o.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fserror.New(fserror.NotFound, "", "", "the block store has no image of namespace %x: restore a backup", id)
	}
	var problems []error
	for _, img := range all {
		t, err := images.Read(ctx, o, img)
		if err == nil {
			return t, nil
		}
		if newer := images.Newer(err); newer != nil { // an older image would not do
			return nil, newer
		}
		if images.Unknown(err) || ctx.Err() != nil {
			return nil, err
		}
		w.cfg.Logger.Error("an image cannot be read; continuing with an older one", "image", img.Name, "cause", err)
		problems = append(problems, fmt.Errorf("%s: %w", img.Name, err))
	}
	return nil, fserror.New(fserror.Damaged, "", "", "no usable image: %v; restore a backup", errors.Join(problems...))
}

// findID is the namespace whose things the store has.
func (w *restore) findID(ctx context.Context) (id [16]byte, err error) {
	text := w.ID
	if text == "" {
		all, err := w.storedIDs(ctx)
		if err != nil {
			return id, err
		}
		if len(all) > 1 { // what a format that failed has left is none to bring back
			if all, err = w.withImages(ctx, all); err != nil {
				return id, err
			}
		}
		switch len(all) {
		case 0:
			return id, fserror.New(fserror.NotFound, "", "", "the block store %s has no namespace: name the right bucket and prefix", w.cfg.Blocks).Because(fserror.ReasonBlocks)
		case 1:
			text = all[0]
		default:
			return id, fserror.New(fserror.InvalidArgument, "", "", "the block store has %d namespaces: say which one: %s", len(all), strings.Join(all, ", ")).Because(fserror.ReasonNamespaceID)
		}
	}
	id, ok := marker.ParseID(text)
	if !ok {
		return id, fserror.New(fserror.InvalidArgument, "", "", "%q is no id of a namespace (32 hexadecimal digits)", text)
	}
	return id, nil
}

// storedIDs are the ids of the namespaces whose things the store has.
func (w *restore) storedIDs(ctx context.Context) (all []string, err error) {
	if w.cfg.S3 != nil {
		all, err = s3.Namespaces(ctx, w.cfg.S3([16]byte{}))
	} else if all, err = w.cfg.FS.List(w.cfg.BlocksDir); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return slices.DeleteFunc(all, func(name string) bool { _, ok := marker.ParseID(name); return !ok }), err
}

// withImages keeps the ids of which the store has an image.
func (w *restore) withImages(ctx context.Context, ids []string) (some []string, err error) {
	for _, text := range ids {
		id, _ := marker.ParseID(text)
		if err := w.open(ctx, id, false); err != nil {
			return nil, err
		}
		there, err := w.objects.ListNamed(ctx, images.Prefix, "", 1)
		if err == nil && len(there) == 0 {
			there, err = w.objects.ListNamed(ctx, archive.BasePrefix, "", 1)
		}
		if err = errors.Join(err, w.close()); err != nil {
			return nil, err
		}
		if w.close = func() error { return nil }; len(there) > 0 {
			some = append(some, text)
		}
	}
	return some, nil
}
