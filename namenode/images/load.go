package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/record"
)

// Load brings the tree back: the newest image that can be read, then the
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
func (k *Keeper) Load(ctx context.Context) (*namespace.Tree, error) {
	for {
		t, err := k.loadOnce(ctx)
		if err == nil || k.cfg.Shared == nil {
			return t, err
		}
		now, lerr := k.cfg.Store.List(ctx)
		if Unknown(lerr) { // and so whether this namenode was overtaken, which is no end
			return nil, lerr
		}
		had := k.found
		i := slices.IndexFunc(now, func(img Image) bool { return !slices.Contains(had, img) })
		if lerr != nil || i < 0 || ctx.Err() != nil {
			return nil, err
		}
		k.cfg.Log.Warn("images were published while the namespace was loaded; beginning again", "image", k.cfg.Store.Where(now[i]), "cause", err)
	}
}

func (k *Keeper) loadOnce(ctx context.Context) (t *namespace.Tree, err error) {
	all, err := k.cfg.Store.List(ctx)
	if err != nil {
		return nil, err
	}
	k.found = all
	var problems []error
	var newer error // of an image of a newer release
	defer func() {
		if err != nil && newer != nil { // what the journal has behind an older one is not for this program, either
			err = newer
			return
		}
		if !errors.Is(err, journal.ErrPurged) { // the journal alone is not enough
			return
		}
		why := strings.ReplaceAll(errors.Join(append(problems, err)...).Error(), "\n", "; ")
		switch {
		case k.cfg.Shared != nil:
			err = fserror.New(fserror.Damaged, "", "", "no usable image: %s; put back the image that the journal continues, or if it is lost, remove %s from ZooKeeper and restore the namespace", why, k.cfg.Shared.Path).Because(fserror.ReasonRestore)
		case len(problems) > 0:
			err = fserror.New(fserror.Damaged, "", "", "no usable image: %s; restore the image from a backup", why)
		}
	}()
	var spare *Image // the oldest that no record names
	for _, img := range all {
		t, err := Read(ctx, k.cfg.Store, img)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // also when it could be read
		}
		if Unknown(err) {
			return nil, err
		}
		if err != nil {
			err = fmt.Errorf("image %s: %w", k.cfg.Store.Where(img), err)
			k.cfg.Log.Error("an image cannot be read; continuing with an older one", "cause", err)
			problems = append(problems, err)
			newer = cmp.Or(newer, Newer(err))
			continue
		}
		err = k.replay(ctx, t, img)
		switch {
		case err == nil && k.trusted():
			return t, k.loaded(ctx, t)
		case err == nil:
			k.cfg.Log.Warn("no record names an image; continuing with an older one", "image", k.cfg.Store.Where(img))
			spare = &img
		case errors.Is(err, errMisfit) && !k.trusted():
			k.cfg.Log.Warn("an image that no record names does not fit the journal; continuing with an older one", "image", k.cfg.Store.Where(img), "cause", err)
			problems = append(problems, fmt.Errorf("image %s: %w", k.cfg.Store.Where(img), err))
		case spare != nil && errors.Is(err, journal.ErrPurged):
			return k.loadSpare(ctx, *spare)
		default:
			return nil, err
		}
	}
	t = namespace.New()
	err = k.replay(ctx, t, Image{})
	if spare != nil && errors.Is(err, journal.ErrPurged) {
		return k.loadSpare(ctx, *spare)
	}
	if err != nil {
		return nil, err
	}
	return t, k.loaded(ctx, t)
}

// loadSpare loads an image that no record names, but without which the
// journal does not tell everything: it begins there.
func (k *Keeper) loadSpare(ctx context.Context, img Image) (*namespace.Tree, error) {
	t, err := Read(ctx, k.cfg.Store, img)
	if err == nil {
		err = k.replay(ctx, t, img)
	}
	if err != nil {
		return nil, err
	}
	return t, k.loaded(ctx, t)
}

// trusted reports whether the image that was just replayed may be used: it is
// this namenode's alone, or a record names it, or the journal was made behind it.
func (k *Keeper) trusted() bool {
	return k.cfg.Shared == nil || k.named || k.cfg.Shared.Fresh()
}

// replay brings the tree of an image up to the end of the journal, which it opens
// behind the first.
func (k *Keeper) replay(ctx context.Context, t *namespace.Tree, img Image) (err error) {
	from, _ := t.Last()
	k.from, k.named = img, false
	k.cfg.Begin(t)
	if img == (Image{}) {
		k.publishes(math.MaxInt64, 0)
	} else {
		k.publishes(t.Reigned(), t.Reigned())
		k.atLevel(t.Level().Level, true)
	}
	t.Events(true)
	if k.journal == nil {
		if k.journal, err = k.cfg.Open(ctx, from); err != nil {
			return err
		}
	}
	n := 0
	began := k.cfg.Clock.Mono()
	last, err := k.journal.Replay(ctx, from+1, func(r journal.Record) error {
		n++
		return k.Apply(t, r)
	})
	if err != nil {
		return err
	}
	if last < from {
		return k.beyondJournal(last, img)
	}
	if id := t.NamespaceID(); id != k.cfg.ID && id != ([16]byte{}) {
		return fmt.Errorf("the journal in %s is of namespace %x, the folder of %x; the folder was mixed up with another one's", k.cfg.Folder, id, k.cfg.ID)
	}
	k.cfg.Log.Info("namespace loaded", "image_txid", from, "records", n, "took", k.cfg.Clock.Mono()-began)
	return nil
}

// beyondJournal refuses an image that holds more than the journal: continuing
// without it could lose what was acknowledged.
func (k *Keeper) beyondJournal(last uint64, img Image) error {
	if k.cfg.Shared != nil {
		return fserror.New(fserror.Damaged, "", "", "the journal in ZooKeeper ends at record %d, %s holds record %d: ZooKeeper has lost records, or the image is of a namespace that went on elsewhere; put ZooKeeper's data back, or remove %s and restore the namespace",
			last, k.cfg.Store.Where(img), img.TxID, k.cfg.Shared.Path).Because(fserror.ReasonRestore)
	}
	return fserror.New(fserror.Damaged, "", "", "the journal in %s ends at record %d, the image holds record %d: the journal's last segments are missing; put them back, or restore the folder from a backup", k.cfg.Folder, last, img.TxID)
}

// loaded notes what the start has shown of the images. Of the published ones those
// are bad that are newer than what was loaded, since it passed over them, those
// missing (a backup brings one image only), and those that the journal does not continue.
func (k *Keeper) loaded(ctx context.Context, t *namespace.Tree) error {
	k.cfg.Store.removeLeftovers()
	var now []Image
	if k.cfg.Shared != nil { // the active one may have published one since we looked
		var err error
		if now, err = k.cfg.Store.List(ctx); err != nil {
			return err
		}
	}
	for _, op := range t.Images() {
		img := published(op)
		newer, found := img.TxID > k.from.TxID, slices.Contains(k.found, img)
		if later := newer && !found && slices.Contains(now, img); !later && (newer || !found || !k.continues(ctx, img)) {
			k.markBad(img)
		}
	}
	k.written(k.from.TxID)
	return nil
}

// continues reports whether the journal has what follows an image. Behind a restore it begins with what
// follows the image that was brought back.
func (k *Keeper) continues(ctx context.Context, img Image) bool {
	enough := errors.New("enough")
	_, err := k.journal.Replay(ctx, img.TxID+1, func(journal.Record) error { return enough })
	return !errors.Is(err, journal.ErrPurged)
}

// errMisfit: a record and the state that it is to be applied to are of different
// histories, or one of them is damaged.
var errMisfit = errors.New("does not fit the namespace")

// Apply applies a record of the journal that another process wrote. The caller has
// the tree alone.
func (k *Keeper) Apply(t *namespace.Tree, r journal.Record) error {
	e, done, err := Apply(t, r)
	if err != nil {
		return err
	}
	k.cfg.Applied(e, done)
	if img, ok := e.Op.(*namespace.OpImage); ok {
		k.named = k.named || published(*img) == k.from
		k.mu.Lock()
		k.since, k.next = k.next, t.Reigned() // images are written one after another
		k.mu.Unlock()
		if img.TxID >= k.raised {
			k.atLevel(t.Level().Level, true)
		}
	}
	if _, ok := e.Op.(*namespace.OpLevel); ok {
		k.raised = e.TxID
	}
	return nil
}

// Apply applies a record of the journal to a tree that ends with the record before it.
func Apply(t *namespace.Tree, r journal.Record) (e namespace.Entry, done namespace.Result, err error) {
	by, call, op, err := record.Decode(r.Type, r.Body)
	if err == nil {
		e = namespace.Entry{TxID: r.TxID, Time: r.Time, Call: call, By: by, Op: op}
		if done, err = t.Apply(e); err == nil {
			return e, done, nil
		}
	}
	if newer := Newer(err); newer != nil {
		return e, done, newer
	}
	return e, done, fserror.Wrap(fserror.Damaged, "", "", fmt.Errorf("journal record %d %w: %w; the journal or image is damaged, restore the folder from a backup", r.TxID, errMisfit, err))
}
