package namenode

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// reasonDraft is the Reason of HELD if there is no file yet that could be waited
// for.
const reasonDraft = "draft"

const (
	// draftNumbers is how many inode numbers are set aside for a session at once,
	// which happens once in reserveEvery at most.
	draftNumbers = 1024
	reserveEvery = 50 * time.Millisecond
	// maxDrafts is how many drafts are known, of all sessions. A mount has a few at
	// a time. What is told beyond that is not held: a conflict shows at its close.
	maxDrafts = 64 << 10
)

// draftTable knows the drafts that have been told of. It is of one reign.
type draftTable struct {
	told atomic.Int64 // in byDir

	mu       sync.Mutex
	byDir    map[namespace.InodeID]map[string]*draft
	byNumber map[namespace.InodeID]*draft // the same by the number that the file will have
	swept    time.Duration
	reserved map[namespace.SessionID]time.Duration // when numbers were set aside last
}

// draftName is where a draft will be.
type draftName struct {
	dir  namespace.InodeID
	name string
}

type draft struct {
	draftName
	inode  namespace.InodeID
	holder namespace.Holder
	since  time.Duration // by the clock's Mono
	until  time.Duration
}

// reset forgets all: a reign begins.
func (t *draftTable) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byDir = make(map[namespace.InodeID]map[string]*draft)
	t.byNumber = make(map[namespace.InodeID]*draft)
	t.reserved = make(map[namespace.SessionID]time.Duration)
	t.swept = 0
	t.told.Store(0)
}

// tell takes in a draft. A name that another session has told of stays that
// one's for as long as it counts; a number is of one name at a time, which with
// the few numbers of a session bounds what it can hold.
func (t *draftTable) tell(d draft, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byDir[d.dir][d.name]; old != nil {
		if old.holder.Session != d.holder.Session && now < old.until {
			return
		}
		t.drop(old)
	}
	if old := t.byNumber[d.inode]; old != nil {
		t.drop(old)
	}
	if len(t.byNumber) >= maxDrafts {
		return
	}
	if t.byDir[d.dir] == nil {
		t.byDir[d.dir] = make(map[string]*draft)
	}
	d.name = strings.Clone(d.name) // it may be a piece of a whole message
	t.byDir[d.dir][d.name] = &d
	t.byNumber[d.inode] = &d
	t.told.Add(1)
}

// drop forgets a draft. The caller holds mu.
func (t *draftTable) drop(d *draft) {
	delete(t.byNumber, d.inode)
	delete(t.byDir[d.dir], d.name)
	if len(t.byDir[d.dir]) == 0 {
		delete(t.byDir, d.dir)
	}
	t.told.Add(-1)
}

// made is called when a session has made a file: its draft of that name is no more.
func (t *draftTable) made(by namespace.SessionID, op *namespace.OpCreate) {
	if t.told.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.byDir[op.Parent][op.Name]; d != nil && d.holder.Session == by {
		t.drop(d)
	}
}

// leave drops the drafts of a session that makes none of them into a file any more.
func (t *draftTable) leave(id namespace.SessionID) {
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
func (t *draftTable) sweep(now time.Duration) {
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
// notes that they are.
func (t *draftTable) mayReserve(id namespace.SessionID, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, was := t.reserved[id]; was && now < last+reserveEvery {
		return false
	}
	if len(t.reserved) >= 1024 {
		maps.DeleteFunc(t.reserved, func(_ namespace.SessionID, last time.Duration) bool { return now >= last+reserveEvery })
	}
	t.reserved[id] = now
	return true
}

// tellDrafts takes in the drafts that a session names in an acknowledgement,
// before that is taken in: it holds the creations of their directories yet. Of
// others it can say nothing, nor of a number that is not its own or is used: that
// file is made by now, or never can be.
func (s *Server) tellDrafts(h namespace.Holder, list []*pb.Draft) {
	now := s.cfg.Clock.Mono()
	s.drafts.sweep(now)
	s.engine.Look(func(t *namespace.Tree) {
		for _, p := range list {
			d := draft{
				draftName: draftName{namespace.InodeID(p.GetDir()), p.GetName()}, inode: namespace.InodeID(p.GetInode()),
				holder: h, since: now, until: now + s.cfg.CacheTerm,
			}
			if fspath.CheckName(d.name) == nil && t.Reserved(h.Session, d.inode) &&
				s.engine.HasCreations(h.Session, d.dir) {
				s.drafts.tell(d, now)
			}
		}
	})
}

// find returns a draft by that name, or, without a name, any in the directory; but
// none of the session by.
func (t *draftTable) find(at draftName, by namespace.SessionID, now time.Duration) (draft, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := func(d *draft) bool { return d != nil && now < d.until && d.holder.Session != by }
	if at.name != "" {
		if d := t.byDir[at.dir][at.name]; counts(d) {
			return *d, true
		}
		return draft{}, false
	}
	for _, d := range t.byDir[at.dir] {
		if counts(d) {
			return *d, true
		}
	}
	return draft{}, false
}

// heldByDraft refuses a change that would make a name, or remove a directory, in
// which a file is made just now, unless it is a session's making of that file:
// with the number of the draft, or without it if that is not set aside any more.
// The namespace is locked, and all sessions have acknowledged the change.
func (s *Server) heldByDraft(tx *engine.Tx, caller namespace.SessionID, op namespace.Op) error {
	if s.drafts.told.Load() == 0 {
		return nil
	}
	now := s.cfg.Clock.Mono()
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
		if d, ok := s.drafts.find(draftName{c.Inode, c.Name}, by, now); ok && (!creates || d.holder.Session != caller || tx.Tree.Reserved(caller, d.inode)) {
			return &fserror.Error{
				Kind: fserror.Held, TakeableIn: d.until - now, Reason: reasonDraft,
				Message: fmt.Sprintf("a file %q is being made there just now; try again in a moment", d.name),
				Holder:  &fserror.Holder{User: d.holder.User, Client: d.holder.Client, Host: d.holder.Host, PID: d.holder.PID, Since: now - d.since, Idle: now - d.since},
			}
		}
	}
	return nil
}

// lendCreations adds to the answer of a Create that asks for it the right to the
// creations of its directory, and numbers for them. That it does not is no error.
func (s *Server) lendCreations(ctx context.Context, id namespace.SessionID, numbers bool, resp *pb.OpenResponse) {
	dir := resp.GetParent().GetInode()
	if len(resp.GetParentKeys()) == 0 {
		return
	}
	var granted bool
	if err := s.engine.Read(func(tx *engine.Tx) error {
		if !tx.LendCreations(id, namespace.InodeID(dir)) {
			return nil
		}
		// Who had the right before may not be done with it. That is looked for when
		// it is free: what its acknowledgement told of is known by then.
		_, others := s.drafts.find(draftName{dir: namespace.InodeID(dir)}, id, s.cfg.Clock.Mono())
		granted = !others
		return nil
	}); err != nil || !granted {
		return
	}
	resp.Creations = true
	if !numbers || !s.drafts.mayReserve(id, s.cfg.Clock.Mono()) {
		return
	}
	r, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if tx.Tree.Caching(id) == 0 {
			return nil, nil
		}
		return &namespace.OpReserve{Session: id, Count: draftNumbers}, tx.RefuseInSafeMode(nil)
	}})
	if err == nil && r.Inode != 0 {
		resp.FirstInode, resp.Inodes = uint64(r.Inode), draftNumbers
	}
}
