package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// Config is what a Keeper works with.
type Config struct {
	Store  Store
	Engine *engine.Engine // it gets the tree when that is loaded
	Clock  clock.Clock
	Log    *slog.Logger
	ID     [16]byte // of the namespace
	Folder string   // the data folder, for people

	// An image is due after so many records, bytes of the journal, or so long.
	Records, Bytes int64
	Every          time.Duration

	// Open opens the journal behind an image of that txid.
	Open func(ctx context.Context, image uint64) (journal.Journal, error)
	// Begin is told when another tree was read; Applied is told next of the records
	// behind its last.
	Begin   func(t *namespace.Tree)
	Applied func(e namespace.Entry, r namespace.Result)

	// Needs is the first record that is needed besides what is behind the older image,
	// 0: none. The journal of a namenode alone keeps it, but not more than some images' worth.
	Needs func() uint64

	Shared *Shared // nil: the images are this namenode's alone
}

// Shared is what there is besides where several namenodes share the store.
type Shared struct {
	Path string // of the namespace in ZooKeeper
	// Fresh reports whether the journal was made behind the image that it was
	// opened behind.
	Fresh func() bool
	// Kept is how many bytes ZooKeeper holds for the journal.
	Kept func() int64
	// Check makes sure that the store may be written.
	Check func(context.Context) error
	// Remove does what removes images, or nothing while that must not be.
	Remove func(ctx context.Context, remove func(context.Context) error) error
}

// Keeper keeps the images of one namenode. Its methods are safe for concurrent use
// once Load has returned.
type Keeper struct {
	cfg     Config
	journal journal.Journal
	wake    chan struct{}
	turn    turn.Turn // its holder may write an image, which takes as long as the store does

	found []Image // the images at the start
	from  Image   // what the tree was loaded from; none: the journal alone
	named bool    // a record behind from names it; under the namespace lock

	notBefore time.Duration // when CheckpointIfDue tries again

	mu   sync.Mutex
	at   time.Duration // when the newest image was written, or loaded
	txid uint64        // and what it holds
	// level is that of the newest image, or without one that of the namespace at the beginning; raised is
	// the record that raised that of the namespace last, if it is known.
	level, raised uint64
	// since is what Tree.Reigned was, at the least, when the newest published image was written, and
	// next the same for the one after it; math.MaxInt64: there is no image.
	since, next int64
	hurry       bool // blocks that the newest image names were deleted
	// bad are the published images of which a start or a check has shown that they are
	// gone or damaged. While one of them is to be kept, nothing older is removed.
	bad []Image
}

// New returns a Keeper that has loaded nothing yet.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), turn: turn.New()}
}

// Bad is how many published images are known to be of no use: damaged, gone, or such that the journal
// does not continue them.
func (k *Keeper) Bad() (n int) {
	all := k.cfg.Engine.Facts().Images
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range all {
		if slices.Contains(k.bad, published(op)) {
			n++
		}
	}
	return n
}

func (k *Keeper) markBad(img Image) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bad = append(k.bad, img)
}

func (k *Keeper) isBad(img Image) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.bad, img)
}

// stillPublished reports whether no two newer images have taken the place of one, which may
// be removed then.
func (k *Keeper) stillPublished(op namespace.OpImage) bool {
	return slices.Contains(k.cfg.Engine.Facts().Images, op)
}

// anyBad reports whether some of these are bad, and forgets about all others.
func (k *Keeper) anyBad(imgs []Image) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bad = slices.DeleteFunc(k.bad, func(img Image) bool { return !slices.Contains(imgs, img) })
	return len(k.bad) > 0
}

// Hold waits for an image that is being written, and keeps others from being written
// until release is called. Its error is that of the context.
func (k *Keeper) Hold(ctx context.Context) (release func(), err error) {
	return k.turn.Lock(ctx)
}

// Writing reports whether an image is being written.
func (k *Keeper) Writing() bool { return k.turn.Taken() }

func (k *Keeper) last() (at time.Duration, txid uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at, k.txid
}

// written notes that the newest image is of now, and what it holds.
func (k *Keeper) written(txid uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.txid = k.cfg.Clock.Mono(), txid
}

// Since is what Tree.Reigned was, at the least, when the newest published image was written. A block
// that became garbage then or later may be named by that image, which is all that is left where
// ZooKeeper is lost and there is no archive. It is math.MaxInt64 without an image, and where images are lost with the
// journal, since they are this namenode's alone.
func (k *Keeper) Since() int64 {
	if k.cfg.Shared == nil {
		return math.MaxInt64
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.since
}

// publishes notes what Tree.Reigned was, at the least, when the newest image was written, and what it
// will have been for the next one.
func (k *Keeper) publishes(since, next int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since, k.next = since, next
}

// Hurry has the next image written soon, since blocks that the newest one names were deleted.
func (k *Keeper) Hurry() { k.setHurry(true) }

func (k *Keeper) setHurry(hurry bool) (was bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, k.hurry = k.hurry, hurry
	return was
}

// holdsUp reports whether garbage has waited for an image for as long as images are apart, by the time of
// reigns, in which no take-over begins again; of that a twelfth if blocks were deleted that the newest image names.
func (k *Keeper) holdsUp(t *namespace.Tree) bool {
	newest, garbage := t.Garbage().Newest()
	since, every := k.Since(), k.cfg.Every
	k.mu.Lock()
	defer k.mu.Unlock()
	at := max(since, k.next) // a standby knows better when it saw the newest image than what that holds
	if k.hurry {
		every /= 12
	}
	_, last := t.Last()
	return (garbage && newest >= since || k.hurry) && t.Reigned()+max(0, k.cfg.Engine.Now()-last)-at >= every.Milliseconds()
}

// TakeOver brings what a standby knows of images up to the journal.
func (k *Keeper) TakeOver() {
	_, txid := k.last()
	if all := k.cfg.Engine.Facts().Images; len(all) > 0 {
		txid = max(txid, all[len(all)-1].TxID)
	}
	k.written(txid)
}

// sizeOf is about what another image takes, in bytes: what the newest one has.
func sizeOf(images []namespace.OpImage) (size int64) {
	for _, img := range images {
		size = img.Size
	}
	return size
}

// Shortage says why this namenode could not write an image for want of room; it is
// empty while there is room. An image that is being written has taken its room: what is
// left meanwhile says nothing.
func (k *Keeper) Shortage() (why string, err error) {
	size := sizeOf(k.cfg.Engine.Facts().Images)
	if k.Writing() {
		return "", nil
	}
	err = k.cfg.Store.room(size)
	var short *fserror.Error
	if errors.As(err, &short) && short.Kind == fserror.NoSpace {
		return short.Message, nil
	}
	return "", err
}

// Checkpoint writes an image of this moment from a clone, while writes continue.
// It is given its name only when its txid is durable, so an image never holds
// what a crash could take back; then a record publishes it, and what only older
// images need is removed.
func (k *Keeper) Checkpoint(ctx context.Context) (_ *namespace.OpImage, err error) {
	release, err := k.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if k.setHurry(false) { // what is deleted from here on, this image may name, too
		defer func() {
			if err != nil {
				k.setHurry(true)
			}
		}()
	}
	began, now := k.cfg.Clock.Mono(), k.cfg.Engine.Now()
	t, err := k.cfg.Engine.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := k.cfg.Store.room(sizeOf(t.Images())); err != nil {
		return nil, err
	}
	if k.cfg.Shared != nil {
		if err := k.cfg.Shared.Check(ctx); err != nil {
			return nil, err
		}
	}
	last, at := t.Last()
	since := t.Reigned() + max(0, now-at) // what comes behind the clone is not older
	if err := k.journal.Roll(); err != nil {
		return nil, err
	}
	img, size, err := k.cfg.Store.write(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	op := &namespace.OpImage{TxID: last, Name: img.Name, Size: size}
	if _, err := k.cfg.Engine.Do(ctx, engine.Request{Plan: func(*engine.Tx) (namespace.Op, error) { return op, nil }}); err != nil {
		return nil, err
	}
	k.written(last)
	k.publishes(since, since)
	k.atLevel(t.Level().Level, true)
	k.cfg.Log.Info("image written", "txid", last, "bytes", size, "took", k.cfg.Clock.Mono()-began)
	return op, k.prune(ctx)
}

// prune keeps the two published images and the journal from the older one on.
// The older one may have been damaged since it was written, so it is read before
// what it takes the place of is removed. While one of the two cannot be used nothing
// is removed: what a start would read instead is still needed.
func (k *Keeper) prune(ctx context.Context) error {
	all := k.cfg.Engine.Facts().Images
	if len(all) < 2 {
		return nil
	}
	keep := make([]Image, len(all))
	for i, op := range all {
		keep[i] = published(op)
	}
	if k.anyBad(keep) {
		return nil
	}
	if good, err := k.verify(ctx, keep[0]); !good {
		return err
	}
	remove := func(ctx context.Context) error { return k.cfg.Store.prune(ctx, keep) }
	var err error
	if k.cfg.Shared != nil {
		err = k.cfg.Shared.Remove(ctx, remove) // the next one removes what this one may not
	} else {
		err = remove(ctx)
	}
	if err != nil {
		return err
	}
	from := keep[0].TxID + 1 // behind the older one
	if total, _ := k.journal.Size(); k.cfg.Shared == nil && total < mostNeeded*k.cfg.Bytes {
		if needs := k.cfg.Needs(); needs > 0 {
			from = min(from, needs)
		}
	}
	return k.journal.Purge(ctx, from)
}

// verify reads a published image, and marks it if it is damaged or gone. The error says why
// that is not known.
func (k *Keeper) verify(ctx context.Context, img Image) (good bool, err error) {
	switch err := check(ctx, k.cfg.Store, img); {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case Unknown(err):
		return false, err
	case err != nil:
		k.markBad(img)
		k.cfg.Log.Error("an image is damaged or gone; what comes before it is kept until there are two newer ones", "reason", fserror.ReasonOneImage, "image", k.cfg.Store.Where(img), "cause", err)
		return false, nil
	}
	return true, nil
}

// Verify reads the published images. If one is damaged or gone, it marks it, and writes
// another image at once.
func (k *Keeper) Verify(ctx context.Context) error {
	for _, op := range k.cfg.Engine.Facts().Images {
		if img := published(op); k.isBad(img) || !k.stillPublished(op) {
			continue
		} else if good, err := k.verify(ctx, img); err != nil {
			return err
		} else if !good && k.stillPublished(op) {
			_, err := k.Checkpoint(ctx)
			return err
		}
	}
	return nil
}

// CheckpointIfDue writes an image if one is due. After a failure (a full disk) it waits
// a minute, or if writes wait for the image, a tenth of that. One caller at a time.
func (k *Keeper) CheckpointIfDue(ctx context.Context) error {
	now := k.cfg.Clock.Mono()
	if now < k.notBefore || !k.due() {
		return nil
	}
	_, err := k.Checkpoint(ctx)
	if err != nil {
		k.notBefore = now + time.Minute
		if k.keeps(tooMuch) {
			k.notBefore = now + 6*time.Second
		}
	}
	return err
}

// Wanted receives when an image is wanted at once.
func (k *Keeper) Wanted() <-chan struct{} { return k.wake }

// atLevel reports whether a level is above that of the newest image, as far as this is known. image:
// one was written at that level.
func (k *Keeper) atLevel(level uint64, image bool) (above bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if image || k.level == 0 {
		k.level = level
	}
	return level > k.level
}

// due reports whether an image should be written now.
func (k *Keeper) due() bool {
	var last, level uint64
	var unnamed, holds bool
	k.cfg.Engine.Look(func(t *namespace.Tree) {
		last, _ = t.Last()
		level = t.Level().Level
		unnamed = k.cfg.Shared != nil && k.from.TxID > 0 && !k.named
		holds = k.holdsUp(t)
	})
	at, txid := k.last()
	_, bytes := k.journal.Size()
	return last-txid >= uint64(k.cfg.Records) || bytes >= k.cfg.Bytes || //nolint:gosec // positive
		k.atLevel(level, false) || // an older program would take an image of before for the newest
		unnamed && txid == k.from.TxID || // the next start would look for another image first
		// Writes wait. The journal goes from the older of two images on, so one
		// more is needed even if nothing was written since the last.
		k.keeps(tooMuch) && last > txid ||
		holds ||
		// More than the image's own record and an activation.
		last > txid+2 && (k.keeps(2) || k.cfg.Clock.Mono()-at >= k.cfg.Every)
}

// keeps reports whether ZooKeeper holds as much as comes between so many images. A
// standby that took over has not counted what came before.
func (k *Keeper) keeps(images int64) bool {
	return k.cfg.Shared != nil && k.cfg.Shared.Kept() >= images*k.cfg.Bytes
}

// mostNeeded is how many images' worth the journal of a namenode alone keeps of what is
// needed besides. That of several has room for what comes between two images only, and
// images need the store, as whatever needs records does.
const mostNeeded = 8

// tooMuch is how many images' worth ZooKeeper holds when writes wait for an image:
// its memory is not ours to fill. Two are usual, since the journal is kept
// from the older of two on.
const tooMuch = 3

// Most is how many bytes ZooKeeper may hold.
func (k *Keeper) Most() int64 { return tooMuch * k.cfg.Bytes }

// Refuse refuses changes while ZooKeeper holds too much, and asks for an image.
func (k *Keeper) Refuse() error {
	if !k.keeps(tooMuch) {
		return nil
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return &fserror.Error{Kind: fserror.Retry, Message: "overloaded: an image has to be written before ZooKeeper can take more", RetryAfter: 200 * time.Millisecond}
}
