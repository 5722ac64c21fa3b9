package namenode

import (
	"context"
	"math"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/drafts"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxGivenUp is how many keys a caller may give up with a call.
const maxGivenUp = 64

// givenUp is what a session says with a change that it has dropped from its cache for that; nil
// if that cannot be relied on.
func givenUp(session []byte, g *pb.CacheGivenUp) *readlease.GivenUp {
	if len(g.GetKeys()) == 0 || len(g.GetKeys()) > maxGivenUp || len(g.GetHeld()) > len(g.GetKeys()) || len(session) != len(readlease.SessionID{}) {
		return nil
	}
	given := &readlease.GivenUp{Session: readlease.SessionID(session), Stream: g.GetStream(), Keys: make([]readlease.Key, 0, len(g.GetKeys()))}
	for _, k := range g.GetKeys() {
		if k.GetKind() > math.MaxUint8 {
			return nil
		}
		given.Keys = append(given.Keys, readlease.Key{Kind: uint8(k.GetKind()), Inode: k.GetInode(), Name: k.GetName()})
	}
	for _, i := range g.GetHeld() {
		if int(i) < len(given.Keys) {
			given.Held = append(given.Held, given.Keys[i])
		}
	}
	return given
}

// mayCache lends the caller's session what its answer was seen from, see
// engine.Tx.Lend, and returns it; nil if the answer may not be kept.
func mayCache(tx *engine.Tx, c *namespace.Call, session []byte, own bool) []*pb.CacheKey {
	if !tx.Lend(c, session, own) {
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

// beginCaching makes a session that says Hello one that caches: that is
// journalled, so that a namenode that takes over knows whom to wait for. It
// returns nil if there are too many, or the Hello comes late.
func (s *streams) beginCaching(ctx context.Context, h namespace.Holder, number uint64, revoke func(readlease.Revocation)) (*readlease.Stream, error) {
	id := h.Session
	var stream *readlease.Stream
	_, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := s.role.Active(); err != nil {
			return nil, err
		}
		if stream == nil { // not planned before
			stream = s.engine.Caches().Connect(readlease.SessionID(id), ownerOf(ctx, h.User), number, revoke)
		}
		term := s.cfg.CacheTerm.Milliseconds()
		if stream == nil || tx.Tree.Caching(id) >= term {
			return nil, nil
		}
		return &namespace.OpCaching{Session: id, Term: term}, nil
	}})
	if err != nil { // also that the client left before it was durable
		stream.Disconnect()
		return nil, err
	}
	return stream, nil
}

// ownerOf names whose sessions are taken for one when a reader does not answer: a
// user's, from one machine (of IPv6, from one network). A client's name and its
// session's id can be anything; another user of the machine, and other machines
// of the user, are not to suffer.
func ownerOf(ctx context.Context, user string) string {
	return strings.Join(append([]string{user}, taker(ctx, nil).Names...), "\x00")
}

// endCaching takes the journalled mark off sessions that have gone and whose
// terms are over.
func (s *streams) endCaching(ctx context.Context) error {
	for _, id := range s.engine.Caches().Gone(1000) {
		_, err := s.engine.Do(ctx, engine.Request{Plan: func(tx *engine.Tx) (namespace.Op, error) {
			if !s.engine.Caches().Forget(id) || tx.Tree.Caching(namespace.SessionID(id)) == 0 {
				return nil, nil
			}
			return &namespace.OpCaching{Session: namespace.SessionID(id)}, nil
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// cacheMessage answers what a session says about its cache on its stream; cached
// is nil if it has none.
func (s *streams) cacheMessage(m *pb.SessionRequest, h namespace.Holder, cached *readlease.Stream) (*pb.SessionResponse, error) {
	if ack := m.GetCacheAck(); ack != nil {
		if n := len(ack.GetDrafts()); n > 0 { // before a change that waits continues
			list := make([]drafts.Draft, n)
			for i, d := range ack.GetDrafts() {
				list[i] = drafts.Draft{Dir: namespace.InodeID(d.GetDir()), Name: d.GetName(), Inode: namespace.InodeID(d.GetInode())}
			}
			s.drafts.Tell(h, list)
		}
		s.engine.Caches().Ack(readlease.SessionID(h.Session), ack.GetSeq())
		return nil, nil
	}
	r := m.GetCacheRenew()
	if r == nil {
		return nil, fserror.New(fserror.InvalidArgument, "session", "", "an unknown message on the session stream; the client is newer than the namenode")
	}
	// Of a reign that is over no term may begin: the next one waits for those
	// that were asked for before it began, not for later ones.
	if err := s.role.Active(); err != nil {
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
