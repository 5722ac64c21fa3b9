package namenode

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode/cachelease"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// errCached: sessions have cached what a change is about to change; wait.
var errCached = errors.New("cached elsewhere")

// recall takes back, for one change, what sessions have cached of it.
type recall struct {
	s      *Server
	change *cachelease.Change
	given  *cachelease.GivenUp
}

// givenUpKey is the context's key of what the caller has given up.
type givenUpKey struct{}

// maxGivenUp is how many keys a caller may give up with a call.
const maxGivenUp = 64

// withGivenUp hands what a session has given up to the change that it asks for.
func withGivenUp(ctx context.Context, session []byte, g *pb.CacheGivenUp) context.Context {
	if len(g.GetKeys()) == 0 || len(g.GetKeys()) > maxGivenUp || len(g.GetHeld()) > len(g.GetKeys()) || len(session) != len(cachelease.SessionID{}) {
		return ctx // it is asked as any other
	}
	given := &cachelease.GivenUp{Session: cachelease.SessionID(session), Stream: g.GetStream(), Keys: make([]cachelease.Key, 0, len(g.GetKeys()))}
	for _, k := range g.GetKeys() {
		if k.GetKind() > math.MaxUint8 {
			return ctx
		}
		given.Keys = append(given.Keys, cachelease.Key{Kind: uint8(k.GetKind()), Inode: k.GetInode(), Name: k.GetName()})
	}
	for _, i := range g.GetHeld() {
		if int(i) < len(given.Keys) {
			given.Held = append(given.Held, given.Keys[i])
		}
	}
	return context.WithValue(ctx, givenUpKey{}, given)
}

// noWaitKey is the context's key of that the change is refused if it would have to
// wait for sessions.
type noWaitKey struct{}

func withoutWaiting(ctx context.Context) context.Context {
	return context.WithValue(ctx, noWaitKey{}, true)
}

// caches returns errCached if sessions have to give something up before the
// record may be applied. What they have is marked, so that no session can cache
// it anew meanwhile. The caller holds the namespace lock.
func (r *recall) caches(op namespace.Op) error {
	if r.change == nil && r.s.caches.Idle() {
		return nil
	}
	keys := r.s.revokedBy(op)
	if len(keys) == 0 {
		return nil
	}
	if r.change == nil {
		if r.change = r.s.caches.RevokeGiven(keys, r.given); r.change == nil || !r.change.Pending() {
			return nil
		}
		return errCached
	}
	if r.change.More(keys) {
		return errCached
	}
	return nil
}

// revokedBy is what must not be kept over a change: what it changes, and the right
// to make files in the directories that it changes.
func (s *Server) revokedBy(op namespace.Op) []cachelease.Key {
	changes := s.tree.Affects(op)
	keys := cacheKeys(changes)
	for _, c := range changes {
		if c.Kind == namespace.ChangeEntries || c.Kind == namespace.ChangeAttr && s.tree.IsDir(c.Inode) {
			keys = append(keys, cachelease.Key{Kind: keyCreations, Inode: uint64(c.Inode)})
		}
	}
	return keys
}

// wait waits until the sessions have given up what is marked, or their terms
// are over.
func (r *recall) wait(ctx context.Context) error {
	if ctx.Value(noWaitKey{}) != nil {
		return fserror.New(fserror.Retry, "", "", "sessions that have cached what this changes are being asked for it; ask for this change alone, which waits for them")
	}
	back, err := r.s.park()
	if err != nil {
		return err
	}
	defer back()
	if err := r.change.Wait(ctx); err != nil {
		return err
	}
	return r.s.checkActive()
}

// done is called when the record is applied, or will not be. Until the record
// is durable, reads see that and are not cached either.
func (r *recall) done() { r.change.Done() }

func cacheKeys(changes []namespace.Change) []cachelease.Key {
	keys := make([]cachelease.Key, len(changes))
	for i, c := range changes {
		keys[i] = cachelease.Key{Kind: uint8(c.Kind), Inode: uint64(c.Inode), Name: c.Name}
	}
	return keys
}

// maxLooks is how much an answer that may be cached can depend on.
const maxLooks = 1024

// mayCache lends the caller's session what its answer was seen from, and
// returns it; nil if the answer may not be kept. It runs under the read lock
// under which the answer was made, so no change comes in between.
func (s *Server) mayCache(c *namespace.Call, session []byte) []*pb.CacheKey {
	if !c.Collect || len(c.Looks) > maxLooks || c.AsOf() > s.journal.Durable() || len(session) != len(cachelease.SessionID{}) {
		return nil
	}
	if !s.caches.Grant(cachelease.SessionID(session), cacheKeys(c.Looks)) {
		return nil
	}
	return wireKeys(c.Looks)
}

func wireKeys(looks []namespace.Change) []*pb.CacheKey {
	keys := make([]*pb.CacheKey, len(looks))
	for i, l := range looks {
		keys[i] = &pb.CacheKey{Kind: uint32(l.Kind), Inode: uint64(l.Inode), Name: l.Name}
	}
	return keys
}

// maxKeptEntries is how many entries of one page of a listing a session may keep.
const maxKeptEntries = 2000

// mayCacheEntries is mayCache for the entries of a directory that were listed:
// keep says which the session may keep as if it had asked for each, keys is what
// all depend on. An entry that depends on more may be revoked alone.
func (s *Server) mayCacheEntries(c *namespace.Call, session []byte, dir namespace.Attr, entries []namespace.Attr) (keys []*pb.CacheKey, keep []bool) {
	if !c.Collect || !c.MayList(dir) {
		return nil, nil // who may not search it may list it, but stat nothing in it
	}
	// Which other entries there are does not matter to one of them.
	c.Looks = slices.DeleteFunc(c.Looks[:min(c.DirLooks, len(c.Looks))], func(l namespace.Change) bool { return l.Kind == namespace.ChangeEntries })
	if keys = s.mayCache(c, session); keys == nil {
		return nil, nil
	}
	keep = make([]bool, min(len(entries), maxKeptEntries))
	for i := range keep {
		if a := entries[i]; a.Open == nil {
			keep[i] = s.caches.Grant(cachelease.SessionID(session), cacheKeys(entryLooks(dir.ID, a)))
		}
	}
	return keys, keep
}

// entryLooks is what the attributes of an entry depend on, besides its directory.
func entryLooks(dir namespace.InodeID, a namespace.Attr) []namespace.Change {
	looks := []namespace.Change{{Kind: namespace.ChangeName, Inode: dir, Name: a.Name}, {Kind: namespace.ChangeAttr, Inode: a.ID}}
	if a.Type == namespace.TypeDir {
		looks = append(looks, namespace.Change{Kind: namespace.ChangeEntries, Inode: a.ID})
	}
	return looks
}

// beginCaching makes a session that says Hello one that caches: that is
// journalled, so that a namenode that takes over knows whom to wait for. It
// returns nil if there are too many, or the Hello comes late.
func (s *Server) beginCaching(ctx context.Context, id namespace.SessionID, number uint64, line *sessionLine) (*cachelease.Stream, error) {
	var stream *cachelease.Stream
	_, err := s.own(ctx, func() (namespace.Op, error) {
		if err := s.checkActive(); err != nil {
			return nil, err
		}
		stream = s.caches.Connect(cachelease.SessionID(id), number, line.revoke)
		term := s.cfg.CacheTerm.Milliseconds()
		if stream == nil || s.tree.Caching(id) >= term {
			return nil, nil
		}
		return &namespace.OpCaching{Session: id, Term: term}, nil
	})
	return stream, err
}

// endCaching takes the journalled mark off sessions that have gone and whose
// terms are over.
func (s *Server) endCaching(ctx context.Context) error {
	for _, id := range s.caches.Gone(1000) {
		_, err := s.own(ctx, func() (namespace.Op, error) {
			if !s.caches.Forget(id) || s.tree.Caching(namespace.SessionID(id)) == 0 {
				return nil, nil
			}
			return &namespace.OpCaching{Session: namespace.SessionID(id)}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cacheMessage answers what a session says about its cache on its stream; cached
// is nil if it has none.
func (s *Server) cacheMessage(m *pb.SessionRequest, h namespace.Holder, cached *cachelease.Stream) (*pb.SessionResponse, error) {
	if ack := m.GetCacheAck(); ack != nil {
		if len(ack.GetDrafts()) > 0 { // before a change that waits goes on
			s.tellDrafts(h, ack.GetDrafts())
		}
		s.caches.Ack(cachelease.SessionID(h.Session), ack.GetSeq())
		return nil, nil
	}
	r := m.GetCacheRenew()
	if r == nil {
		return nil, fserror.New(fserror.InvalidArgument, "session", "", "an unknown message on the session stream; the client is newer than the namenode")
	}
	// Of a reign that is over no term may begin: the next one waits for those
	// that were asked for before it began, not for later ones.
	if err := s.checkActive(); err != nil {
		return nil, err
	}
	term := cached.Renew()
	return &pb.SessionResponse{Kind: &pb.SessionResponse_CacheTerm{CacheTerm: &pb.CacheTerm{Seq: r.GetSeq(), TermMs: term.Milliseconds()}}}, nil
}

// revocationOf is the wire form of a revocation.
func revocationOf(r cachelease.Revocation) *pb.SessionResponse {
	out := &pb.CacheRevocation{Seq: r.Seq, All: r.All}
	for _, k := range r.Keys {
		out.Keys = append(out.Keys, &pb.CacheKey{Kind: uint32(k.Kind), Inode: k.Inode, Name: k.Name})
	}
	return &pb.SessionResponse{Kind: &pb.SessionResponse_CacheRevocation{CacheRevocation: out}}
}
