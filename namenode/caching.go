package namenode

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/conns"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// errCached: sessions have cached what a change is about to change; wait.
var errCached = errors.New("cached elsewhere")

// recall takes back, for one change, what sessions have cached of it.
type recall struct {
	s      *Server
	change *readlease.Change
	given  *readlease.GivenUp
}

// givenUpKey is the context's key of what the caller has given up.
type givenUpKey struct{}

// maxGivenUp is how many keys a caller may give up with a call.
const maxGivenUp = 64

// withGivenUp hands what a session has given up to the change that it asks for.
func withGivenUp(ctx context.Context, session []byte, g *pb.CacheGivenUp) context.Context {
	if len(g.GetKeys()) == 0 || len(g.GetKeys()) > maxGivenUp || len(g.GetHeld()) > len(g.GetKeys()) || len(session) != len(readlease.SessionID{}) {
		return ctx // it is asked as any other
	}
	given := &readlease.GivenUp{Session: readlease.SessionID(session), Stream: g.GetStream(), Keys: make([]readlease.Key, 0, len(g.GetKeys()))}
	for _, k := range g.GetKeys() {
		if k.GetKind() > math.MaxUint8 {
			return ctx
		}
		given.Keys = append(given.Keys, readlease.Key{Kind: uint8(k.GetKind()), Inode: k.GetInode(), Name: k.GetName()})
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

// apply applies a record when sessions have given up what they have cached of what
// it changes, and returns errCached before that. No record is applied otherwise.
// The caller holds the namespace lock.
func (r *recall) apply(id namespace.CallID, op namespace.Op) (namespace.Result, error) {
	if err := r.caches(op); err != nil {
		return namespace.Result{}, err
	}
	if err := r.s.heldByDraft(id.Session, op); err != nil {
		return namespace.Result{}, err
	}
	return r.s.apply(id, op)
}

// caches returns errCached if sessions have to give something up before the
// record may be applied. What they have is marked, so that no session can cache
// it again meanwhile. The caller holds the namespace lock.
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
func (s *Server) revokedBy(op namespace.Op) []readlease.Key {
	changes := s.tree.Affects(op)
	keys := cacheKeys(changes)
	for _, c := range changes {
		if c.Kind == namespace.ChangeEntries || c.Kind == namespace.ChangeAttr && s.tree.IsDir(c.Inode) {
			keys = append(keys, readlease.Key{Kind: keyCreations, Inode: uint64(c.Inode)})
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
	back, err := r.s.park(ctx, nil)
	if err != nil {
		return err
	}
	defer back()
	// Who waits with a deadline is told in time what for, and asks again: no answer
	// would look like no namenode.
	patient, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		patient, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
	}
	defer cancel()
	switch err := r.change.Wait(patient); {
	case err == nil:
		return r.s.checkActive()
	case ctx.Err() != nil:
		return err
	}
	return fserror.New(fserror.Retry, "", "", "sessions that have cached what this changes are being asked for it, and have not answered yet; one that does not answer is waited for until its term of %s is over", r.s.cfg.CacheTerm)
}

// done is called when the record is applied, or will not be. Until the record
// is durable, reads see that and are not cached either.
func (r *recall) done() { r.change.Done() }

func cacheKeys(changes []namespace.Change) []readlease.Key {
	keys := make([]readlease.Key, len(changes))
	for i, c := range changes {
		keys[i] = readlease.Key{Kind: uint8(c.Kind), Inode: uint64(c.Inode), Name: c.Name}
	}
	return keys
}

// maxLooks is how much an answer that may be cached can depend on.
const maxLooks = 1024

// lend lends a session what an answer was seen from; false if it may not keep the
// answer. Nothing but the right to creations is lent otherwise. Files open for
// write are not lent, since each flush would have to wait for their readers; but
// to their holder with the answer to its own call, if own. The namespace is locked
// for reading, as it was when the answer was made, so no change comes in between.
func (s *Server) lend(session []byte, looks []namespace.Change, own bool) bool {
	if len(session) != len(readlease.SessionID{}) {
		return false
	}
	id := readlease.SessionID(session)
	for _, l := range looks {
		if l.Kind != namespace.ChangeAttr {
			continue
		}
		if f, open := s.tree.OpenFile(l.Inode); open && !(own && f.Holder.Session == id) {
			return false
		}
	}
	return s.caches.Grant(id, cacheKeys(looks))
}

// mayCache lends the caller's session what its answer was seen from, see lend, and
// returns it; nil if the answer may not be kept.
func (s *Server) mayCache(c *namespace.Call, session []byte, own bool) []*pb.CacheKey {
	if !c.Collect || len(c.Looks) > maxLooks || c.AsOf() > s.journal.Durable() || !s.lend(session, c.Looks, own) {
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
	if keys = s.mayCache(c, session, false); keys == nil {
		return nil, nil
	}
	keep = make([]bool, min(len(entries), maxKeptEntries))
	for i := range keep {
		keep[i] = s.lend(session, entryLooks(dir.ID, entries[i]), false)
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
func (s *Server) beginCaching(ctx context.Context, h namespace.Holder, number uint64, line *sessionLine) (*readlease.Stream, error) {
	id := h.Session
	var stream *readlease.Stream
	_, err := s.own(ctx, func() (namespace.Op, error) {
		if err := s.checkActive(); err != nil {
			return nil, err
		}
		stream = s.caches.Connect(readlease.SessionID(id), ownerOf(ctx, h.User), number, line.revoke)
		term := s.cfg.CacheTerm.Milliseconds()
		if stream == nil || s.tree.Caching(id) >= term {
			return nil, nil
		}
		return &namespace.OpCaching{Session: id, Term: term}, nil
	})
	return stream, err
}

// ownerOf names whose sessions are taken for one when a reader does not answer: a
// user's, from one machine (of IPv6, from one network). A client's name and its
// session's id can be anything; another user of the machine, and other machines
// of the user, are not to suffer.
func ownerOf(ctx context.Context, user string) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return user
	}
	from := p.Addr.String()
	if at, err := netip.ParseAddrPort(from); err == nil {
		from = conns.AddressName(at.Addr())
	}
	return user + "\x00" + from
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
func (s *Server) cacheMessage(m *pb.SessionRequest, h namespace.Holder, cached *readlease.Stream) (*pb.SessionResponse, error) {
	if ack := m.GetCacheAck(); ack != nil {
		if len(ack.GetDrafts()) > 0 { // before a change that waits continues
			s.tellDrafts(h, ack.GetDrafts())
		}
		s.caches.Ack(readlease.SessionID(h.Session), ack.GetSeq())
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
func revocationOf(r readlease.Revocation) *pb.SessionResponse {
	out := &pb.CacheRevocation{Seq: r.Seq, All: r.All}
	for _, k := range r.Keys {
		out.Keys = append(out.Keys, &pb.CacheKey{Kind: uint32(k.Kind), Inode: k.Inode, Name: k.Name})
	}
	return &pb.SessionResponse{Kind: &pb.SessionResponse_CacheRevocation{CacheRevocation: out}}
}
