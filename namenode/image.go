package namenode

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/leasefs/leasefs/blockstore/local"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/journal"
	localjournal "github.com/leasefs/leasefs/journal/local"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/watch"
	"github.com/leasefs/leasefs/vfs"
)

const imageSuffix = ".img"

// images is where checkpoints of the tree are kept, by the last txid in them.
type images interface {
	// list returns the txids of the images there are, the newest first.
	list(ctx context.Context) ([]uint64, error)
	read(ctx context.Context, txid uint64) (*namespace.Tree, error)
	// write makes an image of t, whole and durable or not at all.
	write(ctx context.Context, t *namespace.Tree) (size int64, err error)
	// room refuses to write so many bytes if there is no room for them.
	room(bytes int64) error
	// prune removes all images but those to keep. None may be under way.
	prune(ctx context.Context, keep []uint64) error
	// removeLeftovers removes what a crash left of images that were being
	// written. None may be under way.
	removeLeftovers()
	// where names the image to people.
	where(txid uint64) string
}

// imageFolder keeps images in a folder.
type imageFolder struct {
	fs      vfs.FS
	dir     string
	log     *slog.Logger
	reserve int64 // bytes kept free; an image leaves half of them
}

// usedImages is what a start has shown of the images.
type usedImages struct {
	found    []uint64 // the images at the start
	later    []uint64 // those that came while the journal was read
	unusable []uint64 // of those published then, the ones that are gone or damaged
}

func imageName(txid uint64) string { return fmt.Sprintf("%020d%s", txid, imageSuffix) }

func imageTxID(name string) (uint64, bool) {
	base, ok := strings.CutSuffix(name, imageSuffix)
	id, err := strconv.ParseUint(base, 10, 64)
	return id, ok && err == nil
}

func (f *imageFolder) list(context.Context) ([]uint64, error) {
	names, err := f.fs.List(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for _, n := range names {
		if id, ok := imageTxID(n); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

func (f *imageFolder) where(txid uint64) string { return filepath.Join(f.dir, imageName(txid)) }

func (f *imageFolder) read(_ context.Context, txid uint64) (*namespace.Tree, error) {
	file, err := f.fs.Open(f.where(txid))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readImage(file, txid)
}

// readImage reads an image that must hold everything up to txid.
func readImage(r io.Reader, txid uint64) (*namespace.Tree, error) {
	t, err := namespace.ReadImage(r)
	if err != nil {
		return nil, err
	}
	if last, _ := t.Last(); last != txid {
		return nil, fmt.Errorf("holds txid %d, not %d as its name says", last, txid)
	}
	return t, nil
}

// write makes an image of t, whole and durable or not at all. NoSpace if it
// would go into the half of the reserve that is left for deleting.
func (f *imageFolder) write(_ context.Context, t *namespace.Tree) (size int64, err error) {
	last, _ := t.Last()
	return writeAtomic(f.fs, f.where(last), func(w io.Writer) error {
		return t.WriteImage(&sparing{w, f})
	})
}

// room refuses to write so many bytes if less than half of the reserve would
// be left: deleting needs it for the journal.
func (f *imageFolder) room(bytes int64) error {
	free, _, err := f.fs.Usage(f.dir)
	if err == nil && free-bytes < f.reserve/2 {
		err = fserror.New(fserror.NoSpace, "", "", "no room for an image (%d MiB free, %d MiB of the reserve are left for deleting); delete files or add space", free>>20, f.reserve>>21)
	}
	return err
}

// sparing writes an image as long as there is room.
type sparing struct {
	w io.Writer
	f *imageFolder
}

func (s *sparing) Write(p []byte) (int, error) {
	if err := s.f.room(int64(len(p))); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

// removeLeftovers removes what a crash left of images that were being written.
// None may be under way.
func (f *imageFolder) removeLeftovers() {
	names, _ := f.fs.List(f.dir) // no folder, no leftovers
	for _, name := range names {
		if strings.HasSuffix(name, imageSuffix+tempSuffix) {
			if err := f.fs.Remove(filepath.Join(f.dir, name)); err != nil {
				f.log.Warn("what is left of an unfinished image could not be removed", "file", name, "cause", err)
			}
		}
	}
}

// judge remembers which published images a start from the image from has shown
// to be unusable: those newer, which it passed over, and those missing (a
// backup brings one image only).
func (f *usedImages) judge(published []namespace.OpImage, from uint64) {
	for _, img := range published {
		if slices.Contains(f.later, img.TxID) {
			continue
		}
		if img.TxID > from || !slices.Contains(f.found, img.TxID) {
			f.unusable = append(f.unusable, img.TxID)
		}
	}
}

// prune removes all images but the published ones, and what a crash left of one
// that was being written. No image may be under way.
func (f *imageFolder) prune(_ context.Context, keep []uint64) error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, tempSuffix)
		id, ok := imageTxID(base)
		if ok && (base != name || !slices.Contains(keep, id)) {
			if err := f.fs.Remove(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	return f.fs.SyncDir(f.dir)
}

// recover brings the tree back: the newest image that can be read, then the
// journal from there on. An older image gives the same tree, since journal
// segments are kept from the older of the two published images on; so a damaged
// newest image is a warning, not an end.
func (s *Server) recover(ctx context.Context) (*namespace.Tree, error) {
	ids, err := s.images.list(ctx)
	if err != nil {
		return nil, err
	}
	s.used.found = ids
	var problems []error
	for _, id := range ids {
		t, err := s.images.read(ctx, id)
		if errors.Is(err, fserror.Unavailable) || errors.Is(err, fserror.Permission) || ctx.Err() != nil {
			return nil, err // nothing is known about the image
		}
		if err != nil {
			err = fmt.Errorf("image %s: %w", s.images.where(id), err)
			s.log.Error("an image cannot be read; going on with an older one", "cause", err)
			problems = append(problems, err)
			continue
		}
		return s.replay(ctx, t, problems)
	}
	return s.replay(ctx, namespace.New(), problems)
}

// openJournal opens the journal behind the image that was loaded. A folder with
// an image always has a journal, but for one that was restored from a backup.
func (s *Server) openJournal(ctx context.Context, image uint64) error {
	if s.cfg.HA != nil {
		return s.openSharedJournal(ctx, image)
	}
	dir := s.dir.file(journalDir)
	names, err := s.cfg.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	segments := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, localjournal.SegmentSuffix) })
	if !segments && !s.dir.fresh && (s.dir.backup == 0 || image != s.dir.backup) {
		return fserror.New(fserror.Damaged, "", "", "%s has no journal segments: all changes after record %d would be lost; put the journal's files back, or restore the folder from a backup", dir, image)
	}
	j, err := localjournal.Open(localjournal.Config{FS: s.cfg.FS, Dir: dir, First: image + 1, Logger: s.log})
	if err != nil {
		return err // and s.journal stays nil
	}
	s.journal = j
	return nil
}

func (s *Server) replay(ctx context.Context, t *namespace.Tree, problems []error) (*namespace.Tree, error) {
	from, _ := t.Last()
	s.events = watch.New(watch.Config{MaxEvents: s.cfg.WatchEvents, MaxBytes: s.cfg.WatchBytes}, from)
	t.Events(true)
	if err := s.openJournal(ctx, from); err != nil {
		return nil, err
	}
	n := 0
	began := s.cfg.Clock.Mono()
	last, err := s.journal.Replay(ctx, from+1, func(r journal.Record) error {
		n++
		return s.applyRecord(t, r)
	})
	if errors.Is(err, journal.ErrPurged) && len(problems) > 0 {
		return nil, fserror.New(fserror.Damaged, "", "", "no usable image: %v; restore the image from a backup", errors.Join(problems...))
	}
	if err != nil {
		return nil, err
	}
	if last < from {
		return nil, fserror.New(fserror.Damaged, "", "", "the journal in %s ends at record %d, the image holds record %d: the journal's last segments are missing; put them back, or restore the folder from a backup", s.dir.path, last, from)
	}
	if id := t.NamespaceID(); id != s.dir.id && id != ([16]byte{}) {
		return nil, fmt.Errorf("the journal in %s is of namespace %x, the folder of %x; the folder was mixed up with another one's", s.dir.path, id, s.dir.id)
	}
	s.images.removeLeftovers()
	if s.cfg.HA != nil { // the active one may have published one since we looked
		now, err := s.images.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, id := range now {
			if id > from && !slices.Contains(s.used.found, id) {
				s.used.later = append(s.used.later, id)
			}
		}
	}
	s.used.judge(t.Images(), from)
	s.log.Info("namespace loaded", "image_txid", from, "records", n, "took", s.cfg.Clock.Mono()-began)
	s.lastImage.at = s.cfg.Clock.Mono()
	s.lastImage.txid = from
	return t, nil
}

// applyRecord applies a record of the journal. The caller has the tree alone.
func (s *Server) applyRecord(t *namespace.Tree, r journal.Record) error {
	call, op, err := namespace.DecodeOp(r.Type, r.Body)
	if err == nil {
		e := namespace.Entry{TxID: r.TxID, Time: r.Time, Call: call, Op: op}
		var done namespace.Result
		if done, err = t.Apply(e); err == nil {
			s.keepEvents(e, done.Events)
			return nil
		}
	}
	return fserror.New(fserror.Damaged, "", "", "journal record %d does not fit the namespace: %v; the journal or image is damaged, restore the folder from a backup", r.TxID, err)
}

// imageState is what decides when the next image is due.
type imageState struct {
	mu   sync.Mutex // one checkpoint at a time
	at   time.Duration
	txid uint64
}

// checkpoint writes an image of this moment from a clone, while writes go on.
// It is given its name only when its txid is durable, so an image never holds
// what a crash could take back; then a record publishes it, and what only older
// images need is removed.
func (s *Server) checkpoint(ctx context.Context) (*namespace.OpImage, error) {
	s.lastImage.mu.Lock()
	defer s.lastImage.mu.Unlock()
	began := s.cfg.Clock.Mono()
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	size := int64(0) // of the newest one: about what this one takes
	for _, img := range t.Images() {
		size = img.Size
	}
	if err := s.images.room(size); err != nil {
		return nil, err
	}
	last, _ := t.Last()
	if err := s.journal.Roll(); err != nil {
		return nil, err
	}
	if size, err = s.images.write(ctx, t); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	op := &namespace.OpImage{TxID: last, Name: imageName(last), Size: size}
	if _, err := s.own(ctx, func() (namespace.Op, error) { return op, nil }); err != nil {
		return nil, err
	}
	s.lastImage.at, s.lastImage.txid = s.cfg.Clock.Mono(), last
	s.log.Info("image written", "txid", last, "bytes", size, "took", s.cfg.Clock.Mono()-began)
	return op, s.prune(ctx)
}

// prune keeps the two published images and the journal from the older one on.
// While one of the two cannot be used it removes nothing: what the last start
// read instead is still needed.
func (s *Server) prune(ctx context.Context) error {
	s.mu.RLock()
	published := s.tree.Images()
	s.mu.RUnlock()
	if len(published) < 2 {
		return nil
	}
	keep := make([]uint64, len(published))
	for i, img := range published {
		if slices.Contains(s.used.unusable, img.TxID) {
			return nil
		}
		keep[i] = img.TxID
	}
	if err := s.images.prune(ctx, keep); err != nil {
		return err
	}
	return s.journal.Purge(ctx, slices.Min(keep)+1)
}

// checkpointPass writes an image when one is due. After a failure (a full disk)
// it waits a minute.
func (s *Server) checkpointPass() func(context.Context) error {
	var notBefore time.Duration
	return func(ctx context.Context) error {
		now := s.cfg.Clock.Mono()
		if now < notBefore || s.checkpointDue() == "" {
			return nil
		}
		_, err := s.checkpoint(ctx)
		if err != nil {
			notBefore = now + time.Minute
		}
		return err
	}
}

// checkpointDue says why an image should be written now, or "".
func (s *Server) checkpointDue() string {
	s.mu.RLock()
	last, _ := s.tree.Last()
	s.mu.RUnlock()
	s.lastImage.mu.Lock()
	at, txid := s.lastImage.at, s.lastImage.txid
	s.lastImage.mu.Unlock()
	_, bytes := s.journal.Size()
	switch {
	case last-txid >= uint64(s.cfg.CheckpointRecords): //nolint:gosec // positive
		return "records"
	case bytes >= s.cfg.CheckpointBytes:
		return "bytes"
	case s.keptDue() && last > txid+2:
		return "kept"
	case s.cfg.Clock.Mono()-at >= s.cfg.CheckpointEvery && last > txid+2:
		return "age" // more than the image's own record and an activation
	}
	return ""
}

// backup sends VERSION and an image of this moment, and the blocks that it
// refers to. They are immutable, so they can be copied while writes go on; the
// collector leaves those of files deleted meanwhile until it is done.
func (s *Server) backup(ctx context.Context, send func(*backupMessage) error) error {
	defer s.holdGarbage()()
	t, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	last, _ := t.Last()
	img := &backupWriter{name: filepath.Join(imageDir, imageName(last)), send: send}
	if err := t.WriteImage(img); err != nil {
		return err
	}
	if err := img.end(); err != nil {
		return err
	}
	if err := s.backupBlocks(ctx, t, send); err != nil {
		return err
	}
	raw, err := toml.Marshal(versionInfo{
		Format: FormatVersion, Namespace: hex.EncodeToString(s.dir.id[:]), By: "leasefs " + s.cfg.Version,
		Created: s.cfg.Clock.Wall().UTC().Format(time.RFC3339), BackupTxID: last,
	})
	if err != nil {
		return err
	}
	v := &backupWriter{name: versionFile, send: send}
	if _, err := v.Write(raw); err != nil {
		return err
	}
	if err := v.end(); err != nil {
		return err
	}
	return send(&backupMessage{Txid: last})
}

// blockFolder is a store that keeps a block in a file: a backup holds it under
// the same name, and the folder's marker.
type blockFolder interface {
	FileName(key blockKey) string
	Marker() (name string, content []byte)
}

var _ blockFolder = (*local.Store)(nil)

func (s *Server) backupBlocks(ctx context.Context, t *namespace.Tree, send func(*backupMessage) error) error {
	namer, ok := s.store.(blockFolder)
	if !ok {
		return nil // not kept in a folder of ours
	}
	name, content := namer.Marker()
	m := &backupWriter{name: filepath.Join(blocksDir, name), send: send}
	_, err := m.Write(content)
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return err
	}
	t.Referenced(func(_ namespace.InodeID, b namespace.Block) bool {
		err = s.backupBlock(ctx, filepath.Join(blocksDir, namer.FileName(b.Key)), b, send)
		return err == nil && ctx.Err() == nil
	})
	return errors.Join(err, ctx.Err())
}

func (s *Server) backupBlock(ctx context.Context, name string, b namespace.Block, send func(*backupMessage) error) error {
	rc, err := s.store.Get(ctx, b.Key, 0, -1)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	w := &backupWriter{name: name, send: send}
	if _, err := io.Copy(w, rc); err != nil {
		return err
	}
	if w.crc != b.CRC {
		return fmt.Errorf("block %d/%d is damaged in the store; leasefs admin fsck --blocks names its file", b.Key.Term, b.Key.Seq)
	}
	return w.end()
}
