package namenode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace"
)

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
// that is there, nobody removes anything. Nor does a reign that has just told of
// itself: others look every CollectEvery, and have DeleteAfter to object. An
// operator ends the conflict by a new incarnation (resolveStore).
type reignObject struct {
	Term   uint64 `json:"term"`
	Nonce  string `json:"nonce"`            // 32 hexadecimal digits
	Before *reign `json:"before,omitempty"` // the reign before, of its history
	Made   string `json:"made"`
	By     string `json:"by"` // for people
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
	// DefaultDeleteAfter is Config.DeleteAfter unless told otherwise: others look
	// every half minute.
	DefaultDeleteAfter = 2 * time.Minute
	// tellWithin is how long who wants a key waits for the store to take a reign's
	// object.
	tellWithin = 5 * time.Second
	// askWithin is how long the store has for it in all; one that refuses most
	// requests needs many.
	askWithin = 30 * time.Second
)

// owner is what a reign knows of whose the store is.
type owner struct {
	turn     chan struct{}          // held by who asks the store
	told     atomic.Bool            // the store has this reign's object
	since    atomic.Int64           // when it was told, by the clock's Mono
	searched bool                   // the store has no keys of later reigns, or had none in this reign
	conflict atomic.Pointer[string] // why nothing is removed; nil: there is none
	ours     map[string]bool        // names of objects that were read, and are of this history
	unswept  atomic.Int64           // blocks that the last sweep left, for nothing vouches for them
}

func (o *owner) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errTermTaken: this reign's keys may be another's, or are below those of others.
var errTermTaken = errors.New("the block store has blocks of later reigns, or of this one's term from another (was ZooKeeper, or the data folder, put back from a backup, or copied?)")

// errHeldBack: nothing is removed from the store now.
var errHeldBack = errors.New("nothing is deleted from the block store")

func (s *Server) reignName(what string) string {
	return fmt.Sprintf("%s%08d-%s", reignPrefix, s.mine.Load().Number, what)
}

// reignNames lists the objects that reigns of this incarnation have put, without
// what all their names begin with.
func (s *Server) reignNames(ctx context.Context) (names []string, err error) {
	prefix, after := s.reignName(""), ""
	for {
		const page = 1000
		infos, err := s.objects.ListNamed(ctx, prefix, after, page)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			after = info.Name
			names = append(names, strings.TrimPrefix(info.Name, prefix))
		}
		if len(infos) < page {
			return names, nil
		}
	}
}

// reignTerm is the term in a name of reignNames.
func reignTerm(name string) (uint64, bool) {
	term, err := strconv.ParseUint(name, 16, 64)
	return term, err == nil && len(name) == 16
}

// topReign is the highest term of a reign that has told of itself, or least.
func (s *Server) topReign(ctx context.Context, least uint64) (uint64, error) {
	if s.mine.Load() == nil {
		return least, nil
	}
	names, err := s.reignNames(ctx)
	for _, name := range names {
		if term, ok := reignTerm(name); ok {
			least = max(least, term)
		}
	}
	return least, err
}

// getObject reads a small object of JSON.
func (s *Server) getObject(ctx context.Context, name string, into any) error {
	r, err := s.objects.GetNamed(ctx, name, 0, -1)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	raw, err := io.ReadAll(io.LimitReader(r, marker.MaxBytes))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fserror.New(fserror.Damaged, "", "", "the object %s of namespace %x in the block store %s is damaged: put it back as it was, or if no other namenode uses the store, remove it", name, s.dir.ID, s.storeName())
	}
	return nil
}

// putObject puts a small object of JSON.
func putObject(ctx context.Context, objects blockstore.Objects, name string, of any) error {
	raw, err := json.Marshal(of)
	if err != nil {
		return err
	}
	return objects.PutNamed(ctx, name, strings.NewReader(string(raw)), int64(len(raw)), blockstore.CRC(raw))
}

// reignObject is this reign's.
func (s *Server) reignObject() reignObject {
	me := s.cfg.incarnation("")
	o := reignObject{Term: s.term, Nonce: s.nonce, Made: me.Made, By: me.By}
	for _, r := range s.reigns() {
		if r.Term < s.term {
			o.Before = &reign{r.Term, r.NonceText()}
		}
	}
	return o
}

// reigns are those of this history, the oldest first.
func (s *Server) reigns() []namespace.Reign {
	var all []namespace.Reign
	s.engine.Look(func(t *namespace.Tree) { all = t.Reigns() })
	return all
}

// inTurn calls do if the store is still this incarnation's: else the reign ends for
// good. One caller at a time asks the store whose it is. Nobody asks a store that
// only this namenode can use.
func (s *Server) inTurn(ctx context.Context, do func(context.Context) error) error {
	if s.private() {
		return nil
	}
	unlock, err := s.owner.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.checkIncarnation(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// ofIncarnation makes sure that the store is still this incarnation's.
func (s *Server) ofIncarnation(ctx context.Context) error {
	return s.inTurn(ctx, func(context.Context) error { return nil })
}

// tellOnce tells the store of this reign, once. A reign that cannot have its term to
// itself ends.
func (s *Server) tellOnce(ctx context.Context) error {
	if s.owner.told.Load() {
		return nil
	}
	return s.inTurn(ctx, s.tellLocked)
}

func (s *Server) tellLocked(ctx context.Context) error {
	if s.owner.told.Load() {
		return nil
	}
	top, err := s.term, error(nil)
	if !s.owner.searched { // once in a reign: what comes later is of who was told of this one
		if top, err = marker.TopTerm(ctx, s.store, s.term); err != nil {
			return err
		}
		s.owner.searched = top == s.term
	}
	name, mine := s.reignName(fmt.Sprintf("%016x", s.term)), s.reignObject()
	if top == s.term {
		err = putObject(ctx, s.objects, name, mine)
	}
	if errors.Is(err, fserror.Exists) {
		var there reignObject
		if err = s.getObject(ctx, name, &there); err == nil && there.Nonce != mine.Nonce { // else an answer was lost
			top++
		}
	}
	if err != nil {
		return err
	}
	if top > s.term {
		s.stepDown(errTermTaken)
		return errTermTaken
	}
	s.owner.since.Store(int64(s.cfg.Clock.Mono()))
	s.owner.told.Store(true)
	return nil
}

// tellStore tells the store of this reign as soon as it answers.
func (s *Server) tellStore(ctx context.Context) error {
	for warned := false; ; warned = true {
		short, cancel := context.WithTimeout(ctx, askWithin)
		err := s.checkStore(short)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			if warned {
				s.log.Info("the block store answers again", "store", s.storeName())
			}
			return nil
		case !warned:
			s.log.Warn("the block store does not take this reign's object; until it does, nothing is written there, and nothing deleted", "store", s.storeName(), "cause", err)
		}
		if pause(ctx, storePause) != nil {
			return nil
		}
	}
}

// mayMint refuses to hand out keys before the store knows of this reign.
func (s *Server) mayMint(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	err := s.tellOnce(short)
	if err == nil || ctx.Err() != nil || s.stopping.Err() != nil {
		return err
	}
	return &fserror.Error{Kind: fserror.Retry, Message: fmt.Sprintf("the block store does not answer this namenode, which has just become active: %v", err), RetryAfter: time.Second}
}

// checkStore makes sure that the store is still this incarnation's, and looks for
// reigns of another history. If the store is another incarnation's, the reign ends
// for good; a conflict is no error.
func (s *Server) checkStore(ctx context.Context) error { return s.inTurn(ctx, s.findOthers) }

// findOthers looks for reigns of another history, and remembers what it found.
func (s *Server) findOthers(ctx context.Context) error {
	if err := s.tellLocked(ctx); err != nil {
		return err
	}
	names, err := s.reignNames(ctx)
	if err != nil {
		return err
	}
	known := s.reigns()
	for _, name := range names {
		if name == conflictName {
			return s.noteConflict(ctx)
		}
		found, err := s.foreign(ctx, known, name)
		if err != nil {
			return err
		}
		if found == nil {
			continue
		}
		err = putObject(ctx, s.objects, s.reignName(conflictName), conflictObject{*found, s.reignObject()})
		if err != nil && !errors.Is(err, fserror.Exists) {
			return err
		}
		return s.noteConflict(ctx)
	}
	s.owner.conflict.Store(nil)
	return nil
}

// foreign reads the object of a reign and returns it if it is of another history.
func (s *Server) foreign(ctx context.Context, known []namespace.Reign, name string) (*reignObject, error) {
	term, ok := reignTerm(name)
	if !ok || term == s.term || s.owner.ours[name] {
		return nil, nil
	}
	var o reignObject
	if err := s.getObject(ctx, s.reignName(name), &o); err != nil {
		if errors.Is(err, fserror.NotFound) { // removed meanwhile, see forgetReigns
			return nil, nil
		}
		return nil, err
	}
	ours := forgotten(known, term)
	for _, r := range known {
		ours = ours || r.Term == term && r.NonceText() == o.Nonce
	}
	switch {
	case ours:
		if s.owner.ours == nil {
			s.owner.ours = map[string]bool{}
		}
		s.owner.ours[name] = true
		return nil, nil
	case term > s.term && s.shared.journal != nil:
		// It may be a successor's. Then this reign has ended, and finds that now.
		if err := s.shared.journal.Beat(ctx); err != nil {
			return nil, err
		}
	}
	return &o, nil
}

// noteConflict reads the object that says that there is a conflict.
func (s *Server) noteConflict(ctx context.Context) error {
	var c conflictObject
	if err := s.getObject(ctx, s.reignName(conflictName), &c); err != nil {
		return err
	}
	why := fmt.Sprintf("the block store %s is used by two copies of the namespace: reign %d of %s (since %s) is not of the same history as reign %d of %s",
		s.storeName(), c.Found.Term, c.Found.By, c.Found.Made, c.By.Term, c.By.By)
	if was := s.owner.conflict.Swap(&why); was == nil {
		s.log.Error("nothing is deleted until an operator has ended all but one of them, and has given the block store to that one: leasefs admin resolve", "conflict", why)
	}
	return nil
}

// heldBack is why nothing may be removed from the store now.
func (s *Server) heldBack() error {
	if why := s.owner.conflict.Load(); why != nil {
		return fserror.Wrap(fserror.Exists, "", "", fmt.Errorf("%w: %s; end all but one of them, then give the store to that one: leasefs admin resolve", errHeldBack, *why))
	}
	rest := time.Duration(s.owner.since.Load()) + s.cfg.DeleteAfter - s.cfg.Clock.Mono()
	if rest <= 0 {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Err: errHeldBack, RetryAfter: rest, Message: fmt.Sprintf("nothing is deleted from the block store for %s after a namenode has become active: others may object", s.cfg.DeleteAfter)}
}

// whileOurs does what removes objects from the store, if the store is this
// history's, and ends it before one that takes over relies on what is there.
func (s *Server) whileOurs(ctx context.Context, remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, marker.RemoveWithin)
	defer cancel()
	if !s.private() {
		if err := s.checkStore(ctx); err != nil {
			return err
		}
		if err := s.heldBack(); err != nil {
			return err
		}
	}
	return remove(ctx)
}

// forgotten reports whether a term is of so long ago that the tree does not know
// whose it was.
func forgotten(known []namespace.Reign, term uint64) bool {
	return len(known) == namespace.MaxReigns && term < known[0].Term
}

// vouched reports whether a key of an earlier reign was surely minted by this
// history: it is not above the highest one that a record of that reign names. What
// is above may have been minted by a copy that continues with that reign.
func (s *Server) vouched(reigns []namespace.Reign, k blockstore.Key) bool {
	for _, r := range reigns {
		if r.Term == k.Term {
			return s.private() || k.Seq <= r.Top // nobody has a copy of a folder's own blocks
		}
	}
	return false
}

// forgetReigns removes the objects of reigns so long ago that the tree does not
// know them any more.
func (s *Server) forgetReigns(ctx context.Context) error {
	names, err := s.reignNames(ctx)
	if err != nil {
		return err
	}
	known := s.reigns()
	var gone []string
	for _, name := range names {
		if term, ok := reignTerm(name); ok && forgotten(known, term) {
			gone = append(gone, s.reignName(name))
		}
	}
	return s.objects.DeleteNamed(ctx, gone...)
}

// resolveStore ends a conflict: the store becomes that of a new incarnation, which
// only this history knows of. The others find that out before they remove anything,
// and end. It reports whether there was a conflict.
func (s *Server) resolveStore(ctx context.Context) (bool, error) {
	if s.private() {
		return false, nil
	}
	if err := s.checkStore(ctx); err != nil || s.owner.conflict.Load() == nil {
		return false, err
	}
	unlock, err := s.owner.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	// Who knows the token comes first: should the store not take it, this can be
	// repeated, and a start says whom to take the store over from.
	token := marker.NewToken()
	if err := s.keepToken(ctx, token); err != nil {
		return false, err
	}
	me := s.cfg.incarnation(token)
	me.Replaces = s.token
	mine, _, err := s.incarnations().Claim(ctx, me, s.floorNow)
	if err != nil {
		return false, err
	}
	s.token = token
	s.mine.Store(&mine)
	s.owner.told.Store(false)
	s.owner.conflict.Store(nil)
	s.owner.ours = nil
	s.log.Warn("the block store was given to a new incarnation, which only this namenode's history knows of", "store", s.storeName(), "from", mine.Replaces, "incarnation", token)
	return true, s.tellLocked(ctx)
}

// floorNow is what the terms of a new incarnation have to be above.
func (s *Server) floorNow(ctx context.Context) (uint64, error) {
	last := s.engine.Facts().Term
	top, err := marker.TopTerm(ctx, s.store, last)
	if err != nil {
		return 0, err
	}
	return s.topReign(ctx, top)
}

// keepToken writes the token of a new incarnation where starts look for it.
func (s *Server) keepToken(ctx context.Context, token string) error {
	if s.cfg.HA == nil {
		s.dir.Info.Incarnation = token
		return s.dir.WriteVersion()
	}
	return s.onSession(ctx, func(sess *zkconn.Session) error {
		_, err := sess.Set(ctx, s.cfg.HA.Path("incarnation"), []byte(token), -1)
		return err
	})
}

// onSession does something with a ZooKeeper session of its own.
func (s *Server) onSession(ctx context.Context, do func(*zkconn.Session) error) error {
	sess, err := zkconn.Dial(ctx, s.zookeeper())
	if err != nil {
		return err
	}
	defer func() { _ = sess.Close() }()
	return sess.Retry(ctx, func() error { return do(sess) })
}
