// Package drafts is the namenode's half of the delegations of directories, by which
// sessions make files without asking (docs/adr/0013-directory-delegations.md): who has
// told of which name, for as long as it counts, and what changes must not come in
// between. The other half is internal/delegation.
package drafts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// reason is the Reason of HELD if there is no file yet that could be waited for.
const reason = "draft"

const (
	// numbers is how many inode numbers are set aside for a session at once, which happens once in
	// reserveEvery at most, or in unusedEvery if those before are not used: they are never set aside again,
	// and there are not endlessly many.
	numbers      = 1024
	reserveEvery = 50 * time.Millisecond
	unusedEvery  = time.Minute
	// maxDrafts is how many drafts are known, of all sessions. A mount has a few at
	// a time. What is told beyond that is not held: a conflict shows at its close.
	maxDrafts = 64 << 10
	// maxTold is how many drafts one acknowledgement may name: as many as a session has numbers. They
	// are looked at a tellSlice at a time, and in between others get the namespace's lock.
	maxTold   = tables.MaxRanges * numbers
	tellSlice = 1000
	// maxReserved is for how many sessions numbers are set aside within unusedEvery.
	maxReserved = 64 << 10
)

// Table knows the drafts that have been told of. It is of one reign.
type Table struct {
	engine *engine.Engine
	clock  clock.Clock
	term   time.Duration // for how long a draft counts

	told atomic.Int64 // in byDir

	mu       sync.Mutex
	byDir    map[namespace.InodeID]map[string]*draft
	byNumber map[namespace.InodeID]*draft // the same by the number that the file will have
	swept    time.Duration
	reserved map[namespace.SessionID]time.Duration // when numbers were set aside last
}

// New returns a Table without drafts. A draft counts for as long as a session may
// answer from what it has read, the term.
func New(e *engine.Engine, c clock.Clock, term time.Duration) *Table {
	return &Table{
		engine: e, clock: c, term: term,
		byDir:    make(map[namespace.InodeID]map[string]*draft),
		byNumber: make(map[namespace.InodeID]*draft),
		reserved: make(map[namespace.SessionID]time.Duration),
	}
}

// Draft is a file that a session will make.
type Draft struct {
	Dir   namespace.InodeID
	Name  string
	Inode namespace.InodeID
}

type draft struct {
	Draft
	holder namespace.Holder
	since  time.Duration // by the clock's Mono
	until  time.Duration
}

// Tell takes in the drafts that a session names in an acknowledgement, before that
// is taken in: their directories are delegated to it yet. Of others it can say
// nothing, nor of a number that is not its own or is used: that file is made by now,
// or never can be. What is more than a session can have is not looked at.
func (t *Table) Tell(h namespace.Holder, list []Draft) {
	now := t.clock.Mono()
	t.sweep(now)
	for some := range slices.Chunk(list[:min(len(list), maxTold)], tellSlice) {
		t.engine.Look(func(tree *namespace.Tree) {
			for _, d := range some {
				if fspath.CheckName(d.Name) == nil && tree.Reserved(h.Session, d.Inode) && t.engine.Delegated(h.Session, d.Dir) {
					t.tell(draft{Draft: d, holder: h, since: now, until: now + t.term}, now)
				}
			}
		})
	}
}

// tell takes in a draft. A name that another session has told of stays that
// one's for as long as it counts; a number is of one name at a time, which with
// the few numbers of a session bounds what it can hold.
func (t *Table) tell(d draft, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byDir[d.Dir][d.Name]; old != nil {
		if old.holder.Session != d.holder.Session && now < old.until {
			return
		}
		t.drop(old)
	}
	if old := t.byNumber[d.Inode]; old != nil {
		t.drop(old)
	}
	if len(t.byNumber) >= maxDrafts {
		return
	}
	if t.byDir[d.Dir] == nil {
		t.byDir[d.Dir] = make(map[string]*draft)
	}
	d.Name = strings.Clone(d.Name) // it may be a piece of a whole message
	t.byDir[d.Dir][d.Name] = &d
	t.byNumber[d.Inode] = &d
	t.told.Add(1)
}

// drop forgets a draft. The caller holds mu.
func (t *Table) drop(d *draft) {
	delete(t.byNumber, d.Inode)
	delete(t.byDir[d.Dir], d.Name)
	if len(t.byDir[d.Dir]) == 0 {
		delete(t.byDir, d.Dir)
	}
	t.told.Add(-1)
}

// Applied is called with each record that was applied: who has made a file has no
// draft of that name any more.
func (t *Table) Applied(tx *engine.Tx, e namespace.Entry) {
	if t.told.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range tx.Tree.Affects(e.Op) {
		if d := t.byDir[c.Inode][c.Name]; d != nil && c.Kind == namespace.ChangeName && d.holder.Session == e.Call.Session {
			t.drop(d)
		}
	}
}

// Leave drops the drafts of a session that makes none of them into a file any more.
func (t *Table) Leave(id namespace.SessionID) {
	if t.told.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.byNumber {
		if d.holder.Session == id {
			t.drop(d)
		}
	}
}

// sweep drops, once a second at most, those that count no more.
func (t *Table) sweep(now time.Duration) {
	if t.told.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now < t.swept+time.Second {
		return
	}
	t.swept = now
	for _, d := range t.byNumber {
		if now >= d.until {
			t.drop(d)
		}
	}
}

// mayReserve tells whether numbers may be set aside for the session again, and
// notes that they are. spent says that it has used those before.
func (t *Table) mayReserve(id namespace.SessionID, spent bool, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	every := unusedEvery
	if spent {
		every = reserveEvery
	}
	if last, was := t.reserved[id]; was && now < last+every {
		return false
	}
	if len(t.reserved) >= maxReserved {
		maps.DeleteFunc(t.reserved, func(_ namespace.SessionID, last time.Duration) bool { return now >= last+unusedEvery })
		if len(t.reserved) >= maxReserved {
			return false
		}
	}
	t.reserved[id] = now
	return true
}

// find returns a draft by that name, or, without a name, any in the directory; but
// none of the session by.
func (t *Table) find(dir namespace.InodeID, name string, by namespace.SessionID, now time.Duration) (draft, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := func(d *draft) bool { return d != nil && now < d.until && d.holder.Session != by }
	if name != "" {
		if d := t.byDir[dir][name]; counts(d) {
			return *d, true
		}
		return draft{}, false
	}
	for _, d := range t.byDir[dir] {
		if counts(d) {
			return *d, true
		}
	}
	return draft{}, false
}

// Refuse refuses a change that would make a name, or remove a directory, in which a
// file is made just now, unless it is a session's making of that file: with the
// number of the draft, or without it if that is not set aside any more. All sessions
// have acknowledged the change.
func (t *Table) Refuse(tx *engine.Tx, caller namespace.SessionID, op namespace.Op) error {
	if t.told.Load() == 0 {
		return nil
	}
	for _, part := range namespace.Parts(op) {
		if err := t.refuse(tx, caller, part); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) refuse(tx *engine.Tx, caller namespace.SessionID, op namespace.Op) error {
	now := t.clock.Mono()
	var removes namespace.InodeID
	var by namespace.SessionID
	_, creates := op.(*namespace.OpCreate)
	switch op := op.(type) {
	case *namespace.OpCreateAs:
		by = caller
	case *namespace.OpDelete:
		removes = op.Inode
	case *namespace.OpRename:
		removes = op.Replace
	}
	for _, c := range tx.Tree.Affects(op) {
		if c.Kind != namespace.ChangeName && (c.Kind != namespace.ChangeAttr || c.Inode != removes) {
			continue
		}
		if d, ok := t.find(c.Inode, c.Name, by, now); ok && (!creates || d.holder.Session != caller || tx.Tree.Reserved(caller, d.Inode)) {
			return &fserror.Error{
				Kind: fserror.Held, TakeableIn: d.until - now, Reason: reason,
				Message: fmt.Sprintf("a file %q is being made there just now; try again in a moment", d.Name),
				Holder:  &fserror.Holder{User: d.holder.User, Client: d.holder.Client, Host: d.holder.Host, PID: d.holder.PID, Since: now - d.since, Idle: now - d.since},
			}
		}
	}
	return nil
}

// Refused reports whether an error is that of Refuse: there is no file yet in whose
// queue to wait.
func Refused(err error) bool {
	var fe *fserror.Error
	return errors.As(err, &fe) && fe.Kind == fserror.Held && fe.Reason == reason
}

// Delegate delegates a directory to a session and, if it wants them, sets n numbers
// aside for its drafts, from first on. That it does not is no error.
func (t *Table) Delegate(ctx context.Context, id namespace.SessionID, dir namespace.InodeID, wants bool) (delegated bool, first namespace.InodeID, n uint32) {
	spent := false
	if err := t.engine.Read(func(tx *engine.Tx) error {
		if !tx.Delegate(id, dir) {
			return nil
		}
		spent = tx.Tree.Spent(id)
		// To whom it was delegated before may not be done with it. That is looked for when
		// it is free: what its acknowledgement told of is known by then.
		_, others := t.find(dir, "", id, t.clock.Mono())
		delegated = !others
		return nil
	}); err != nil || !delegated || !wants || !t.mayReserve(id, spent, t.clock.Mono()) {
		return delegated, 0, 0
	}
	r, err := t.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if tx.Tree.Caching(id) == 0 {
			return nil, nil
		}
		return &namespace.OpReserve{Session: id, Count: numbers}, tx.RefuseInSafeMode(nil)
	}})
	if err != nil || r.Inode == 0 {
		return true, 0, 0
	}
	return true, r.Inode, numbers
}
