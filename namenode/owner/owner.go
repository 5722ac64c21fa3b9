// Package owner decides whose a block store is, and so whether a reign may hand out
// keys and remove blocks.
//
// One incarnation can run twice, unknown to itself: over copies of ZooKeeper's or
// a namenode's folders. So each reign tells the store of itself, before it hands
// out the first key and before it removes anything, though not before it serves:
// a take-over must not need the store. The object reign-INCARNATION-TERM is put if
// the name is free, and bears a nonce that is also in ZooKeeper's node of the term
// and in the record of the activation. So two reigns of one term cannot both mint
// keys, and every namenode knows the reigns of its own history (Tree.Reigns) from
// those of another.
//
// Whoever finds another history's puts the object reign-INCARNATION-conflict. While
// that is there, nobody removes anything. A reign that continues in a copy of the process, which
// was copied with its memory, is found by a chain of such objects. Nor does a reign that has just told of
// itself: others look every CollectEvery, and have DeleteAfter to object. An
// operator ends the conflict by a new incarnation (Resolve).
package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// reignObject tells the store of a reign.
type reignObject struct {
	Term   uint64 `json:"term"`
	Nonce  string `json:"nonce"`            // 32 hexadecimal digits
	Before *reign `json:"before,omitempty"` // the reign before, of its history
	// Archive is how far back the archive of the journal has every moment; 0: there is none.
	Archive time.Duration `json:"archive_ns,omitempty"`
	Made    string        `json:"made"`
	By      string        `json:"by"` // for people
}

type reign struct {
	Term  uint64 `json:"term"`
	Nonce string `json:"nonce"`
}

// conflictObject says which reign was found, and by which.
type conflictObject struct {
	Found reignObject `json:"found"`
	By    reignObject `json:"by"`
}

const (
	reignPrefix  = "reign-"
	conflictName = "conflict"
	// tellWithin is how long who wants a key waits for the store to take a reign's
	// object.
	tellWithin = 5 * time.Second
)

// Config is what an Owner works with.
type Config struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Engine  *engine.Engine
	Store   blockstore.Store
	Objects blockstore.Objects
	ID      [16]byte // of the namespace
	Name    string   // of the store, for people
	// Private says that nobody else can get at the store: nothing is asked.
	Private bool
	// Formatted says that the namespace is that of several namenodes, whose format
	// has marked the store; Fresh, that it is being made by this start.
	Formatted, Fresh bool
	// Marked says that the store has a marker of its own kind, see local.Format.
	Marked bool
	// Token is that of the incarnation as it was found; Keep writes another one to
	// where starts look for it, and Known, if several namenodes share it, reads it.
	Token string
	Keep  func(ctx context.Context, token string) error
	Known func(ctx context.Context) (string, error)
	// Incarnation is this namenode's, with a token; TakeOver is the token of one
	// whose store may be taken.
	Incarnation func(token string) marker.Incarnation
	TakeOver    string
	// DeleteAfter is how long nothing is deleted after a reign has begun.
	DeleteAfter time.Duration
	// Archive is how far back the archive of the journal is to have every moment; 0: this
	// namenode was not told, and does as the reign before; below 0: nothing is archived.
	Archive time.Duration
	// Reigning returns an error if the reign has ended; nil: a namenode alone.
	Reigning func(context.Context) error
	// Fail ends the reign for good.
	Fail func(error)
}

// Owner knows whose a block store is. Its methods are safe for concurrent use, but
// for Begin.
type Owner struct {
	Config
	term  uint64 // of the reign
	nonce string

	turn      turn.Turn                          // held while the store is asked; guards the fields without a lock of their own
	mine      atomic.Pointer[marker.Incarnation] // as the store has it; nil: a private one
	told      atomic.Bool                        // the store has this reign's object
	since     atomic.Int64                       // when it was told, by the clock's Mono
	searched  bool                               // the store has no keys of later reigns, or had none in this reign
	conflict  atomic.Pointer[string]             // why nothing is removed; nil: there is none
	ours      map[string]bool                    // names of objects that were read, and are of this history
	archive   atomic.Int64                       // Kept
	inherited bool                               // that is certain
	chain     chain                              // tells this process from copies of it
}

// New returns the owner of a store that was not asked yet.
func New(cfg Config) *Owner {
	o := &Owner{Config: cfg, turn: turn.New()}
	o.archive.Store(int64(max(0, cfg.Archive)))
	return o
}

// Begin is called when a reign begins.
func (o *Owner) Begin(term uint64, nonce string) { o.term, o.nonce = term, nonce }

// Conflict says why nothing is removed from the store: two copies of the namespace use
// it. It is empty if that is not so.
func (o *Owner) Conflict() string {
	if why := o.conflict.Load(); why != nil {
		return *why
	}
	return ""
}

// Overrules is the term in which this history puts what other histories must not: it is above
// those of all incarnations before this one, also in the reign that has ended a conflict
// (Resolve). An error while there is a conflict.
func (o *Owner) Overrules() (uint64, error) {
	if why := o.Conflict(); why != "" {
		return 0, fserror.New(fserror.Exists, "", "", "%s; end all but one of them, then give the store to that one", why).Because(fserror.ReasonStoreConflict)
	}
	return max(o.term, o.Floor()), nil
}

// Kept is how far back the archive of the journal has every moment, and for how long blocks
// that no file has stay for it; 0: there is no archive. It is certain once the store knows of
// this reign.
func (o *Owner) Kept() time.Duration { return time.Duration(o.archive.Load()) }

// KeptForSure is Kept, after the store was told of this reign.
func (o *Owner) KeptForSure(ctx context.Context) (time.Duration, error) {
	err := o.tellOnce(ctx)
	return o.Kept(), err
}

// inherit makes Kept certain. A namenode that was told nothing does as the reign before: one
// of several that lacks the setting destroys nothing that the others keep.
func (o *Owner) inherit(ctx context.Context) error {
	if o.inherited {
		return nil
	}
	before, err := o.archiveBefore(ctx)
	if err != nil {
		return err
	}
	o.inherited = true
	switch {
	case o.Archive == 0 && before > 0:
		o.archive.Store(int64(before))
		o.Log.Warn("this namenode was not told how long to keep the archive of the journal; it does as the reign before", "reason", fserror.ReasonArchive, "keep", before)
	case o.Archive != 0 && o.Kept() < before:
		o.Log.Warn("the archive of the journal is kept for a shorter time than in the reign before; what is older is deleted", "reason", fserror.ReasonArchive, "keep", o.Kept(), "before", before)
	}
	return nil
}

// archiveBefore is how long the last reign of this history that told the store of itself kept
// the archive. That may have been a reign of an earlier incarnation: after a restore or a
// take-over nobody has told of this one yet.
func (o *Owner) archiveBefore(ctx context.Context) (time.Duration, error) {
	names, err := blockstore.Names(ctx, o.Objects, reignPrefix)
	if err != nil {
		return 0, err
	}
	for _, r := range slices.Backward(o.reigns()) {
		if r.Term >= o.term {
			continue
		}
		for _, name := range slices.Backward(names) { // the newest incarnation first
			if !strings.HasSuffix(name, fmt.Sprintf("-%016x", r.Term)) {
				continue
			}
			var of reignObject
			err := o.getObject(ctx, name, &of)
			if err != nil && !errors.Is(err, fserror.NotFound) {
				return 0, err
			}
			if err == nil && of.Nonce == r.NonceText() {
				return max(0, of.Archive), nil
			}
		}
	}
	return 0, nil
}

// ErrTermTaken says that this reign's keys may be another's, or are below those of others.
var ErrTermTaken = errors.New("the block store has blocks of later reigns, or of this one's term from another (was ZooKeeper, or the data folder, put back from a backup, or copied?)")

// ErrHeldBack says that nothing is removed from the store now.
var ErrHeldBack = errors.New("nothing is deleted from the block store")

func (o *Owner) reignName(what string) string {
	return fmt.Sprintf("%s%08d-%s", reignPrefix, o.mine.Load().Number, what)
}

// reignNames lists the objects that reigns of this incarnation have put, without
// what all their names begin with.
func (o *Owner) reignNames(ctx context.Context) ([]string, error) {
	prefix := o.reignName("")
	names, err := blockstore.Names(ctx, o.Objects, prefix)
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, prefix)
	}
	return names, err
}

// reignTerm is the term in a name of reignNames.
func reignTerm(name string) (uint64, bool) { return blockstore.ParseDigits(name, 16) }

// topReign is the highest term of a reign that has told of itself, or least.
func (o *Owner) topReign(ctx context.Context, least uint64) (uint64, error) {
	if o.mine.Load() == nil {
		return least, nil
	}
	names, err := o.reignNames(ctx)
	for _, name := range names {
		if term, ok := reignTerm(name); ok {
			least = max(least, term)
		}
	}
	return least, err
}

// getObject reads a small object of JSON.
func (o *Owner) getObject(ctx context.Context, name string, into any) error {
	raw, err := blockstore.GetBytes(ctx, o.Objects, name, marker.MaxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fserror.New(fserror.Damaged, "", "", "the object %s of namespace %x in the block store %s is damaged: put it back as it was, or if no other namenode uses the store, remove it", name, o.ID, o.Name)
	}
	return nil
}

// putObject puts a small object of JSON.
func putObject(ctx context.Context, objects blockstore.Objects, name string, of any) error {
	raw, err := json.Marshal(of)
	if err != nil {
		return err
	}
	return blockstore.PutBytes(ctx, objects, name, raw)
}

// reignObject is this reign's.
func (o *Owner) reignObject() reignObject {
	me := o.Incarnation("")
	out := reignObject{Term: o.term, Nonce: o.nonce, Made: me.Made, By: me.By, Archive: o.Kept()}
	for _, r := range o.reigns() {
		if r.Term < o.term {
			out.Before = &reign{r.Term, r.NonceText()}
		}
	}
	return out
}

// reigns are those of this history, the oldest first.
func (o *Owner) reigns() []tables.Reign {
	var all []tables.Reign
	o.Engine.Look(func(t *namespace.Tree) { all = t.Reigns() })
	return all
}

// inTurn calls do if the store is still this incarnation's: else the reign ends for
// good. One caller at a time asks the store whose it is. Nobody asks a store that
// only this namenode can use.
func (o *Owner) inTurn(ctx context.Context, do func(context.Context) error) error {
	if o.Private {
		return nil
	}
	unlock, err := o.turn.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := o.checkIncarnation(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// StillOurs makes sure that the store is still this incarnation's.
func (o *Owner) StillOurs(ctx context.Context) error {
	return o.inTurn(ctx, func(context.Context) error { return nil })
}

// tellOnce tells the store of this reign, once. A reign that cannot have its term to
// itself ends.
func (o *Owner) tellOnce(ctx context.Context) error {
	if o.told.Load() {
		return nil
	}
	return o.inTurn(ctx, o.tellLocked)
}

func (o *Owner) tellLocked(ctx context.Context) error {
	if o.told.Load() {
		return nil
	}
	if err := o.inherit(ctx); err != nil {
		return err
	}
	top, err := o.term, error(nil)
	if !o.searched { // once in a reign: what comes later is of who was told of this one
		if top, err = marker.TopTerm(ctx, o.Store, o.term); err != nil {
			return err
		}
		o.searched = top == o.term
	}
	name, mine := o.reignName(fmt.Sprintf("%016x", o.term)), o.reignObject()
	if top == o.term {
		err = putObject(ctx, o.Objects, name, mine)
	}
	if errors.Is(err, fserror.Exists) {
		var there reignObject
		if err = o.getObject(ctx, name, &there); err == nil && there.Nonce != mine.Nonce { // else an answer was lost
			top++
		}
	}
	if err != nil {
		return err
	}
	if top > o.term {
		o.Fail(ErrTermTaken)
		return ErrTermTaken
	}
	o.since.Store(int64(o.Clock.Mono()))
	o.told.Store(true)
	return nil
}

// MayMint refuses to hand out keys before the store knows of this reign.
func (o *Owner) MayMint(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	err := o.tellOnce(short)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrTermTaken) {
		return err
	}
	return &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("the block store does not answer this namenode, which has just become active: %v", err), RetryAfter: time.Second}
}

// Check makes sure that the store is still this incarnation's, and looks for
// reigns of another history. If the store is another incarnation's, the reign ends
// for good; a conflict is no error.
func (o *Owner) Check(ctx context.Context) error { return o.inTurn(ctx, o.findOthers) }

// findOthers looks for reigns of another history, and remembers what it found.
func (o *Owner) findOthers(ctx context.Context) error {
	if err := o.tellLocked(ctx); err != nil {
		return err
	}
	names, err := o.reignNames(ctx)
	if err != nil {
		return err
	}
	known := o.reigns()
	for _, name := range names {
		if name == conflictName {
			return o.noteConflict(ctx)
		}
		found, err := o.foreign(ctx, known, name)
		if err != nil {
			return err
		}
		if found != nil {
			return o.object(ctx, *found)
		}
	}
	found, err := o.chain.link(ctx, o, names)
	if err != nil {
		return err
	}
	if found != nil {
		return o.object(ctx, *found)
	}
	o.conflict.Store(nil)
	return nil
}

// object tells all who use the store that there is a conflict.
func (o *Owner) object(ctx context.Context, found reignObject) error {
	err := putObject(ctx, o.Objects, o.reignName(conflictName), conflictObject{found, o.reignObject()})
	if err != nil && !errors.Is(err, fserror.Exists) {
		return err
	}
	return o.noteConflict(ctx)
}

// foreign reads the object of a reign and returns it if it is of another history.
func (o *Owner) foreign(ctx context.Context, known []tables.Reign, name string) (*reignObject, error) {
	term, ok := reignTerm(name)
	if !ok || term == o.term || o.ours[name] {
		return nil, nil
	}
	var of reignObject
	if err := o.getObject(ctx, o.reignName(name), &of); err != nil {
		if errors.Is(err, fserror.NotFound) { // removed meanwhile, see ForgetReigns
			return nil, nil
		}
		return nil, err
	}
	ours := forgotten(known, term)
	for _, r := range known {
		ours = ours || r.Term == term && r.NonceText() == of.Nonce
	}
	switch {
	case ours:
		if o.ours == nil {
			o.ours = map[string]bool{}
		}
		o.ours[name] = true
		return nil, nil
	case term > o.term && o.Reigning != nil:
		// It may be a successor's. Then this reign has ended, and finds that now.
		if err := o.Reigning(ctx); err != nil {
			return nil, err
		}
	}
	return &of, nil
}

// noteConflict reads the object that says that there is a conflict.
func (o *Owner) noteConflict(ctx context.Context) error {
	var c conflictObject
	if err := o.getObject(ctx, o.reignName(conflictName), &c); err != nil {
		return err
	}
	why := fmt.Sprintf("the block store %s is used by two copies of the namespace: reign %d of %s (since %s) is not of the same history as reign %d of %s",
		o.Name, c.Found.Term, c.Found.By, c.Found.Made, c.By.Term, c.By.By)
	if c.Found.Nonce == c.By.Nonce {
		why = fmt.Sprintf("the block store %s is used by two copies of the namespace: reign %d of %s (since %s) continues in two processes, one of which is a copy of the other, made with its memory",
			o.Name, c.Found.Term, c.Found.By, c.Found.Made)
	}
	if was := o.conflict.Swap(&why); was == nil {
		o.Log.Error("nothing is deleted until an operator has ended all but one of them, and has given the block store to that one", "reason", fserror.ReasonStoreConflict, "conflict", why)
	}
	return nil
}

// HeldBack is why nothing may be removed from the store now.
func (o *Owner) HeldBack() error {
	if why := o.Conflict(); why != "" {
		return fserror.Wrap(fserror.Exists, "", "", fmt.Errorf("%w: %s; end all but one of them, then give the store to that one", ErrHeldBack, why)).Because(fserror.ReasonStoreConflict)
	}
	rest := time.Duration(o.since.Load()) + o.DeleteAfter - o.Clock.Mono()
	if rest <= 0 {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Err: ErrHeldBack, RetryAfter: rest, Message: fmt.Sprintf("nothing is deleted from the block store for %s after a namenode has become active: others may object", o.DeleteAfter)}
}

// While does what removes objects from the store, if the store is this
// history's, and ends it before one that takes over relies on what is there.
func (o *Owner) While(ctx context.Context, remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, marker.RemoveWithin)
	defer cancel()
	if !o.Private {
		if err := o.Check(ctx); err != nil {
			return err
		}
		if err := o.HeldBack(); err != nil {
			return err
		}
	}
	return remove(ctx)
}

// Remove is While, but that nothing is removed now is no error: the next time removes it.
func (o *Owner) Remove(ctx context.Context, remove func(context.Context) error) error {
	err := o.While(ctx, remove)
	if errors.Is(err, ErrHeldBack) {
		return nil
	}
	return err
}

// forgotten reports whether a term is of so long ago that the tree does not know
// whose it was.
func forgotten(known []tables.Reign, term uint64) bool {
	return len(known) == tables.MaxReigns && term < known[0].Term
}

// Vouched reports whether a key of an earlier reign was surely minted by this
// history: it is among the reign's numbers, and not above the highest one that a
// record of that reign names. What is above may have been minted by a copy of the
// machine that continued with that reign.
func (o *Owner) Vouched(reigns []tables.Reign, k blockstore.Key) bool {
	for _, r := range reigns {
		if r.Term == k.Term {
			return o.Private || k.Seq > r.Base() && k.Seq <= r.Top // nobody has a copy of a folder's own blocks
		}
	}
	return false
}

// ForgetReigns removes the objects of reigns so long ago that the tree does not
// know them any more.
func (o *Owner) ForgetReigns(ctx context.Context) error {
	names, err := o.reignNames(ctx)
	if err != nil {
		return err
	}
	known := o.reigns()
	var gone []string
	for _, name := range names {
		term, ok := reignTerm(name)
		if !ok {
			term, _, ok = linkOf(name)
		}
		if ok && forgotten(known, term) {
			gone = append(gone, o.reignName(name))
		}
	}
	return o.Objects.DeleteNamed(ctx, gone...)
}

// Resolve ends a conflict: the store becomes that of a new incarnation, which
// only this history knows of. The others find that out before they remove anything,
// and end. It reports whether there was a conflict.
func (o *Owner) Resolve(ctx context.Context) (bool, error) {
	if o.Private {
		return false, nil
	}
	if err := o.Check(ctx); err != nil || o.conflict.Load() == nil {
		return false, err
	}
	unlock, err := o.turn.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	// Who knows the token comes first: should the store not take it, this can be
	// repeated, and a start says whom to take the store over from.
	token := marker.NewToken()
	if err := o.Keep(ctx, token); err != nil {
		return false, err
	}
	me := o.Incarnation(token)
	me.Replaces = o.Token
	mine, _, err := o.incarnations().Claim(ctx, me, o.floorNow)
	if err != nil {
		return false, err
	}
	o.Token = token
	o.mine.Store(&mine)
	o.told.Store(false)
	o.conflict.Store(nil)
	o.ours = nil
	o.Log.Warn("the block store was given to a new incarnation, which only this namenode's history knows of", "store", o.Name, "from", mine.Replaces, "incarnation", token)
	return true, o.tellLocked(ctx)
}

// floorNow is what the terms of a new incarnation have to be above.
func (o *Owner) floorNow(ctx context.Context) (uint64, error) {
	return o.topTerm(ctx, o.Engine.Facts().Term)
}

// storePause is between two questions to a block store that does not answer.
const storePause = time.Second

// askWithin is how long the store has to take a reign's object; one that refuses most
// requests needs many.
const askWithin = 30 * time.Second

// Tell tells the store of this reign as soon as it answers.
func (o *Owner) Tell(ctx context.Context) error {
	if o.Private {
		return nil
	}
	for warned := false; ; warned = true {
		short, cancel := context.WithTimeout(ctx, askWithin)
		err := o.Check(short)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			if warned {
				o.Log.Info("the block store answers again", "store", o.Name)
			}
			return nil
		case !warned:
			o.Log.Warn("the block store does not take this reign's object; until it does, nothing is written there, and nothing deleted", "store", o.Name, "cause", err)
		}
		if clock.Pause(ctx, storePause) != nil {
			return nil
		}
	}
}
