package namenode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	localjournal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
	"github.com/leasefs/leasefs/namenode/watch"
)

// usedImages is what a start has shown of the images.
type usedImages struct {
	from  image   // what the tree was loaded from; none: the journal alone
	named bool    // a record behind from names it
	found []image // the images at the start
	later []image // those that came while the journal was read
}

// badImages are the published images of which a start or a check has shown that they
// are gone or damaged. While one of them is to be kept, nothing older is removed.
type badImages struct {
	mu  sync.Mutex
	all []image
}

func (b *badImages) add(imgs ...image) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, imgs...)
}

// among are those that are bad, which it remembers; the others it forgets.
func (b *badImages) among(imgs []image) []image {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(imgs, func(img image) bool { return !slices.Contains(b.all, img) })
	return b.all
}

func (b *badImages) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}

// judge returns which published images a start from the image from has shown
// to be unusable: those newer, which it passed over, and those missing (a
// backup brings one image only).
func (f *usedImages) judge(all []namespace.OpImage) (bad []image) {
	for _, op := range all {
		img := published(op)
		if slices.Contains(f.later, img) {
			continue
		}
		if img.txid > f.from.txid || !slices.Contains(f.found, img) {
			bad = append(bad, img)
		}
	}
	return bad
}

// recover brings the tree back: the newest image that can be read, then the
// journal from there on. An older image gives the same tree, since journal
// segments are kept from the older of the two published images on; so a damaged
// newest image is a warning, not an end.
//
// In a store that several namenodes share there may be images that no record
// names: of a reign that ended before the record, or of another history (one
// that went on after ZooKeeper was lost). They are passed over as long as the
// journal behind an older one, or the journal alone, tells everything. An image
// that the journal begins behind needs no record.
//
// The active one may publish images meanwhile, and remove what is needed here:
// then it begins again with those.
func (s *Server) recover(ctx context.Context) (*namespace.Tree, error) {
	for {
		t, err := s.recoverOnce(ctx)
		if err == nil || s.cfg.HA == nil {
			return t, err
		}
		now, lerr := s.images.list(ctx)
		had := s.used.found
		i := slices.IndexFunc(now, func(img image) bool { return !slices.Contains(had, img) })
		if lerr != nil || i < 0 || ctx.Err() != nil {
			return nil, err
		}
		s.log.Warn("images were published while the namespace was loaded; beginning again", "image", s.images.where(now[i]), "cause", err)
	}
}

func (s *Server) recoverOnce(ctx context.Context) (*namespace.Tree, error) {
	all, err := s.images.list(ctx)
	if err != nil {
		return nil, err
	}
	s.used.found = all
	var problems []error
	var spare *image // the oldest that no record names
	for _, img := range all {
		t, err := readImage(ctx, s.images, img)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // also when it could be read
		}
		if imageUnknown(err) {
			return nil, err
		}
		if err != nil {
			err = fmt.Errorf("image %s: %w", s.images.where(img), err)
			s.log.Error("an image cannot be read; going on with an older one", "cause", err)
			problems = append(problems, err)
			continue
		}
		t, err = s.replay(ctx, t, img)
		switch {
		case err == nil && s.trusted():
			return t, s.loaded(ctx, t)
		case err == nil:
			s.log.Warn("no record names an image; going on with an older one", "image", s.images.where(img))
			spare = &img
		case errors.Is(err, errMisfit) && !s.trusted():
			s.log.Warn("an image that no record names does not fit the journal; going on with an older one", "image", s.images.where(img), "cause", err)
			problems = append(problems, fmt.Errorf("image %s: %w", s.images.where(img), err))
		case spare != nil && errors.Is(err, journal.ErrPurged):
			return s.recoverFrom(ctx, *spare, problems)
		default:
			return nil, s.noImage(err, problems)
		}
	}
	t, err := s.replay(ctx, namespace.New(), image{})
	switch {
	case err == nil:
		return t, s.loaded(ctx, t)
	case spare != nil && errors.Is(err, journal.ErrPurged):
		return s.recoverFrom(ctx, *spare, problems)
	}
	return nil, s.noImage(err, problems)
}

// recoverFrom loads an image that no record names, but without which the
// journal does not tell everything: it begins there.
func (s *Server) recoverFrom(ctx context.Context, img image, problems []error) (*namespace.Tree, error) {
	t, err := readImage(ctx, s.images, img)
	if err == nil {
		t, err = s.replay(ctx, t, img)
	}
	if err != nil {
		return nil, s.noImage(err, problems)
	}
	return t, s.loaded(ctx, t)
}

// trusted reports whether the image that was just replayed may be used: it is
// this namenode's alone, or a record names it, or the journal was made behind it.
func (s *Server) trusted() bool {
	return s.cfg.HA == nil || s.used.named || s.shared.journal.Fresh()
}

// noImage makes clear that the journal is not enough, where that is so.
func (s *Server) noImage(err error, problems []error) error {
	if errors.Is(err, journal.ErrPurged) && len(problems) > 0 {
		return fserror.New(fserror.Damaged, "", "", "no usable image: %v; restore the image from a backup", errors.Join(problems...))
	}
	return err
}

// openJournal opens the journal behind the image that was loaded. A folder with
// an image always has a journal, but for one that was restored from a backup.
func (s *Server) openJournal(ctx context.Context, image uint64) error {
	if s.cfg.HA != nil {
		return s.openSharedJournal(ctx, image)
	}
	dir := s.dir.File(datadir.JournalDir)
	names, err := s.cfg.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	segments := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, localjournal.SegmentSuffix) })
	if !segments && !s.dir.Fresh && (s.dir.Backup == 0 || image != s.dir.Backup) {
		return fserror.New(fserror.Damaged, "", "", "%s has no journal segments: all changes after record %d would be lost; put the journal's files back, or restore the folder from a backup", dir, image)
	}
	j, err := localjournal.Open(localjournal.Config{FS: s.cfg.FS, Dir: dir, First: image + 1, Ahead: s.cfg.JournalAhead, Logger: s.log})
	if err != nil {
		return err // and s.journal stays nil
	}
	s.journal, s.begun = j, j.Term
	return nil
}

// replay brings the tree of an image up to the end of the journal.
func (s *Server) replay(ctx context.Context, t *namespace.Tree, img image) (*namespace.Tree, error) {
	from, _ := t.Last()
	s.used.from, s.used.named = img, false
	s.events = watch.New(watch.Config{MaxEvents: s.cfg.WatchEvents, MaxBytes: s.cfg.WatchBytes}, from)
	t.Events(true)
	if s.journal == nil {
		if err := s.openJournal(ctx, from); err != nil {
			return nil, err
		}
	}
	n := 0
	began := s.cfg.Clock.Mono()
	last, err := s.journal.Replay(ctx, from+1, func(r journal.Record) error {
		n++
		return s.applyRecord(t, r)
	})
	if err != nil {
		return nil, err
	}
	if last < from {
		return nil, s.beyondJournal(last, img)
	}
	if id := t.NamespaceID(); id != s.dir.ID && id != ([16]byte{}) {
		return nil, fmt.Errorf("the journal in %s is of namespace %x, the folder of %x; the folder was mixed up with another one's", s.dir.path, id, s.dir.ID)
	}
	s.log.Info("namespace loaded", "image_txid", from, "records", n, "took", s.cfg.Clock.Mono()-began)
	return t, nil
}

// beyondJournal refuses an image that holds more than the journal: going on
// without it could lose what was acknowledged.
func (s *Server) beyondJournal(last uint64, img image) error {
	if s.cfg.HA != nil {
		return fserror.New(fserror.Damaged, "", "", "the journal in ZooKeeper ends at record %d, %s holds record %d: ZooKeeper has lost records, or the image is of a namespace that went on elsewhere; put ZooKeeper's data back, or remove %s and restore the namespace: leasefs admin restore --help",
			last, s.images.where(img), img.txid, s.cfg.HA.Path(""))
	}
	return fserror.New(fserror.Damaged, "", "", "the journal in %s ends at record %d, the image holds record %d: the journal's last segments are missing; put them back, or restore the folder from a backup", s.dir.path, last, img.txid)
}

// loaded notes what the start has shown of the images.
func (s *Server) loaded(ctx context.Context, t *namespace.Tree) error {
	s.images.removeLeftovers()
	if s.cfg.HA != nil { // the active one may have published one since we looked
		now, err := s.images.list(ctx)
		if err != nil {
			return err
		}
		for _, img := range now {
			if img.txid > s.used.from.txid && !slices.Contains(s.used.found, img) {
				s.used.later = append(s.used.later, img)
			}
		}
	}
	s.badImages.add(s.used.judge(t.Images())...)
	s.lastImage.written(s.cfg.Clock.Mono(), s.used.from.txid)
	return nil
}

// errMisfit: a record and the state that it is to be applied to are of different
// histories, or one of them is damaged.
var errMisfit = errors.New("does not fit the namespace")

// applyRecord applies a record of the journal. The caller has the tree alone.
func (s *Server) applyRecord(t *namespace.Tree, r journal.Record) error {
	call, op, err := namespace.DecodeOp(r.Type, r.Body)
	if err == nil {
		e := namespace.Entry{TxID: r.TxID, Time: r.Time, Call: call, Op: op}
		var done namespace.Result
		if done, err = t.Apply(e); err == nil {
			s.keepEvents(e, done.Events)
			if img, ok := op.(*namespace.OpImage); ok && published(*img) == s.used.from {
				s.used.named = true
			}
			return nil
		}
	}
	return fserror.Wrap(fserror.Damaged, "", "", fmt.Errorf("journal record %d %w: %w; the journal or image is damaged, restore the folder from a backup", r.TxID, errMisfit, err))
}

// imageState is what decides when the next image is due.
type imageState struct {
	turn turn // who has it may write an image, which takes as long as the store does

	mu   sync.Mutex
	at   time.Duration
	txid uint64
}

func (i *imageState) last() (at time.Duration, txid uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at, i.txid
}

func (i *imageState) written(at time.Duration, txid uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.txid = at, txid
}

// imageSize is about what another image takes, in bytes: what the newest one has.
func imageSize(images []namespace.OpImage) (size int64) {
	for _, img := range images {
		size = img.Size
	}
	return size
}

// checkpoint writes an image of this moment from a clone, while writes go on.
// It is given its name only when its txid is durable, so an image never holds
// what a crash could take back; then a record publishes it, and what only older
// images need is removed.
func (s *Server) checkpoint(ctx context.Context) (*namespace.OpImage, error) {
	unlock, err := s.lastImage.turn.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	began := s.cfg.Clock.Mono()
	t, err := s.engine.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.images.room(imageSize(t.Images())); err != nil {
		return nil, err
	}
	if s.cfg.HA != nil { // it goes into the store
		if err := s.owner.Check(ctx); err != nil {
			return nil, err
		}
	}
	last, _ := t.Last()
	if err := s.journal.Roll(); err != nil {
		return nil, err
	}
	img, size, err := s.images.write(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	op := &namespace.OpImage{TxID: last, Name: img.name, Size: size}
	if _, err := s.engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return op, nil }}); err != nil {
		return nil, err
	}
	s.lastImage.written(s.cfg.Clock.Mono(), last)
	s.log.Info("image written", "txid", last, "bytes", size, "took", s.cfg.Clock.Mono()-began)
	return op, s.prune(ctx)
}

// prune keeps the two published images and the journal from the older one on.
// The older one may have been damaged since it was written, so it is read before
// what it takes the place of is removed. While one of the two cannot be used nothing
// is removed: what a start would read instead is still needed.
func (s *Server) prune(ctx context.Context) error {
	all := s.engine.Facts().Images
	if len(all) < 2 {
		return nil
	}
	keep := make([]image, len(all))
	for i, op := range all {
		keep[i] = published(op)
	}
	if len(s.badImages.among(slices.Clone(keep))) > 0 {
		return nil
	}
	switch err := checkImage(ctx, s.images, keep[0]); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case imageUnknown(err):
		return err
	case err != nil:
		s.badImages.add(keep[0])
		s.log.Error("the older of the two images is damaged or gone; what comes before it is kept until there are two newer ones: leasefs admin checkpoint makes one", "image", s.images.where(keep[0]), "cause", err)
		return nil
	}
	remove := func(ctx context.Context) error { return s.images.prune(ctx, keep) }
	if s.cfg.HA != nil { // they are in the store
		remove = func(ctx context.Context) error {
			return s.owner.While(ctx, func(ctx context.Context) error { return s.images.prune(ctx, keep) })
		}
	}
	if err := remove(ctx); err != nil && !errors.Is(err, owner.ErrHeldBack) { // the next one removes these, too
		return err
	}
	return s.journal.Purge(ctx, keep[0].txid+1) // the older one
}

// checkpointPass writes an image when one is due. After a failure (a full disk)
// it waits a minute, or if writes wait for the image, a tenth of that.
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
			if s.overKept() != nil {
				notBefore = now + 6*time.Second
			}
		}
		return err
	}
}

// checkpointDue says why an image should be written now, or "".
func (s *Server) checkpointDue() string {
	var last uint64
	var unnamed bool
	s.engine.Look(func(t *namespace.Tree) {
		last, _ = t.Last()
		unnamed = s.cfg.HA != nil && s.used.from.txid > 0 && !s.used.named
	})
	at, txid := s.lastImage.last()
	_, bytes := s.journal.Size()
	switch {
	case last-txid >= uint64(s.cfg.CheckpointRecords): //nolint:gosec // positive
		return "records"
	case bytes >= s.cfg.CheckpointBytes:
		return "bytes"
	case unnamed && txid == s.used.from.txid:
		return "unnamed" // the next start would look for another image first
	case s.overKept() != nil && last > txid:
		// Writes wait. The journal goes from the older of two images on, so one
		// more is needed even if nothing was written since the last.
		return "kept"
	case s.keptDue() && last > txid+2:
		return "kept"
	case s.cfg.Clock.Mono()-at >= s.cfg.CheckpointEvery && last > txid+2:
		return "age" // more than the image's own record and an activation
	}
	return ""
}
