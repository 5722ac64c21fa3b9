package namenode

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/sessions"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxRenewSet bounds the open set that one renewal may list.
const maxRenewSet = 200_000

// Session serves one client process: Hello, then renewals, until it ends. It takes one
// goroutine: what the client has to be told is sent by others, which end with that.
func (s *streams) Session(stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) (err error) {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return fserror.New(fserror.InvalidArgument, "session", "", "the first message must be Hello")
	}
	if err := s.role.Active(); err != nil {
		return err
	}
	if _, err := s.caller(ctx, hello.GetCaller()); err != nil {
		return err
	}
	h, err := s.holder(hello.GetCaller())
	if err != nil {
		return err
	}
	lh := leases.HolderOf(h)
	line := s.sessions.Connect(h.Session, hello.GetStream(), hello.GetRelease(), func() { s.leases.Connect(lh) })
	if line == nil {
		return fserror.New(fserror.Unavailable, "session", "", "the client has opened another stream since")
	}
	defer line.Disconnect(func() { s.leases.Disconnect(lh.Session) })
	send := oneAtATime(stream.Send)
	welcome := s.welcome(lh)
	var cached *readlease.Stream
	if hello.GetCache() && s.cfg.CacheTerm > 0 {
		var err error
		cached, err = s.beginCaching(ctx, h, hello.GetStream(), line.Revoke)
		if err != nil {
			return err
		}
		defer cached.Disconnect()
		if welcome.CacheFull = cached == nil; cached != nil {
			welcome.CacheTermMs = s.cfg.CacheTerm.Milliseconds()
		}
	}
	if err := s.role.Active(); err != nil {
		return err
	}
	if err := send(&pb.SessionResponse{Kind: &pb.SessionResponse_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	defer line.Stop(func() bool { return serve.Interrupt(ctx, err) })
	line.Begin(func(revoked []readlease.Revocation, loss *sessions.Loss) bool {
		return serve.Guard(ctx, func() error { return s.tell(ctx, revoked, loss, send) }) == nil
	})
	// The stream must end with the namenode, also while nothing is received.
	defer context.AfterFunc(ctx, func() {
		_ = serve.Guard(ctx, func() error { // it interrupts the stream
			why := context.Cause(ctx)
			if s.loops.Err() != nil {
				why = cmp.Or(s.role.Active(), why)
			}
			return why
		})
	})()
	// Guarded, so that err says of a panic what it was when the line stops.
	err = serve.Guard(ctx, func() error {
		err := s.serveSession(stream, send, h, cached)
		if err == nil { // the client closed its side, which it does when it leaves
			s.drafts.Leave(h.Session)
			cached.Leave()
		}
		return err
	})
	return err
}

// tell sends a session what it has to be told. A loss is told at once, so that an idle
// writer need not wait for its next renewal; it renews nothing.
func (s *streams) tell(ctx context.Context, revoked []readlease.Revocation, loss *sessions.Loss, send func(*pb.SessionResponse) error) error {
	for _, r := range revoked {
		if err := send(revocationOf(r)); err != nil {
			return err
		}
	}
	if loss == nil {
		return nil
	}
	if err := s.engine.WaitDurable(ctx, loss.TxID); err != nil {
		return err
	}
	return send(&pb.SessionResponse{Kind: &pb.SessionResponse_Renewed{Renewed: &pb.RenewLeaseResponse{Lost: []*pb.LostFile{lossOf(loss)}}}})
}

// oneAtATime is send for several senders, of which gRPC wants one at a time.
func oneAtATime(send func(*pb.SessionResponse) error) func(*pb.SessionResponse) error {
	var mu sync.Mutex
	return func(m *pb.SessionResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return send(m)
	}
}

// lossOf is what the session that had a file is told.
func lossOf(l *sessions.Loss) *pb.LostFile {
	f := &pb.LostFile{Inode: uint64(l.Inode), Epoch: l.Epoch, Reason: l.Reason}
	if l.By != nil {
		f.NewHolder = holderInfo(leases.HolderOf(*l.By), 0, 0)
	}
	return f
}

func (s *streams) serveSession(stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse], send func(*pb.SessionResponse) error, h namespace.Holder, cached *readlease.Stream) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := cmp.Or(err, context.Cause(stream.Context())); err != nil { // its end need not have ended Recv yet
			return err
		}
		r := m.GetRenew()
		if r == nil {
			resp, err := s.cacheMessage(m, h, cached)
			if err == nil && resp != nil {
				err = send(resp)
			}
			if err != nil {
				return err
			}
			continue
		}
		r.Session = h.Session[:] // a stream speaks for its own session only
		resp := &pb.SessionResponse{}
		if out, err := s.renew(stream.Context(), r); err != nil {
			resp.Kind = &pb.SessionResponse_Error{Error: wire.Detail(fserror.With(err, "renew", ""))}
		} else {
			resp.Kind = &pb.SessionResponse_Renewed{Renewed: out}
		}
		if err := send(resp); err != nil {
			return err
		}
	}
}

func (s *streams) welcome(h leasemanager.Holder) *pb.Welcome {
	soft, hard, every := s.leases.Limits()
	if h.TTL > 0 {
		soft, every = h.TTL, min(h.TTL, hard)/2
	}
	every = min(every, s.role.RenewWithin(soft))
	return &pb.Welcome{
		NamespaceId: hex.EncodeToString(s.dir.ID[:]), Term: s.role.Term(),
		SoftLimitMs: soft.Milliseconds(), HardLimitMs: hard.Milliseconds(), RenewEveryMs: every.Milliseconds(),
		BlockSize: s.cfg.BlockSize, MaxTail: int64(s.cfg.MaxTail), MaxMessage: serve.MaxMessage, SmallFile: SmallFile,
		FailoverMs: s.role.OutlivesFailover().Milliseconds(),
	}
}

// RenewLease renews all open files of a session in one call.
func (s *streams) RenewLease(ctx context.Context, r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	if who := identity.Of(ctx); who != nil {
		if _, err := s.caller(ctx, r.GetCaller()); err != nil {
			return nil, err
		}
		if err := s.ownSession(who, r.GetSession(), pb.SessionUser(r.GetCaller())); err != nil {
			return nil, err
		}
	}
	return s.renew(ctx, r)
}

func (s *streams) renew(ctx context.Context, r *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	req := leasemanager.Renewal{Version: r.GetVersion(), HasSet: r.GetHasSet()}
	if len(r.GetSession()) != len(req.Session) {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request's session id has %d bytes, not %d", len(r.GetSession()), len(req.Session))
	}
	copy(req.Session[:], r.GetSession())
	if len(r.GetOpen()) > maxRenewSet {
		return nil, fserror.New(fserror.TooLarge, "", "", "a session has at most %d open files, not %d", maxRenewSet, len(r.GetOpen()))
	}
	if r.GetHasSet() {
		req.Open = make([]leasemanager.Ref, len(r.GetOpen()))
		for i, o := range r.GetOpen() {
			req.Open[i] = leasemanager.Ref{Inode: o.GetInode(), Epoch: o.GetEpoch()}
		}
	}
	out := s.leases.Renew(req)
	if len(out.Unknown) > 0 && s.leases.RepairRenewed(req.Session, out.Unknown) {
		out = s.leases.Renew(req)
	}
	if out.Ending {
		return nil, leases.ErrEnding()
	}
	resp := &pb.RenewLeaseResponse{
		UnknownSession: out.UnknownSession, WantSet: out.WantSet, NextRenewalMs: min(out.Next, s.role.RenewWithin(out.Soft)).Milliseconds(),
		SoftLimitMs: out.Soft.Milliseconds(), HardLimitMs: out.Hard.Milliseconds(), Seq: r.GetSeq(),
	}
	for _, u := range out.Unknown {
		resp.Unknown = append(resp.Unknown, &pb.OpenRef{Inode: u.Inode, Epoch: u.Epoch})
	}
	for _, l := range out.Lost {
		f := &pb.LostFile{Inode: l.Inode, Epoch: l.Epoch, Reason: l.Reason}
		if l.By != nil {
			f.NewHolder = holderInfo(*l.By, 0, 0)
		}
		resp.Lost = append(resp.Lost, f)
	}
	if len(resp.Lost) == 0 && len(resp.Unknown) == 0 {
		return resp, s.role.Active() // still: a successor may have ended it
	}
	// A loss is told only when the record that made it is durable.
	return resp, s.engine.WaitDurable(ctx, s.engine.Facts().Last)
}

// ListLeases lists leases in the order that the request names.
func (s *granted) ListLeases(ctx context.Context, r *pb.ListLeasesRequest) (*pb.ListLeasesResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	f, err := s.leaseFilter(ctx, c, r)
	if err != nil {
		return nil, err
	}
	if f.LeaseID == 0 && (r.GetOrder() != pb.LeaseOrder_LEASE_ORDER_ID || f.Selects()) { // it may look at all there are
		if err := s.looks.Begin(ctx, c.User); err != nil {
			return nil, err
		}
		defer s.looks.End(c.User)
	}
	infos, more, cursor, err := s.leasePage(ctx, c, r, f)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListLeasesResponse{}
	if more {
		resp.NextCursor = cursor(infos[len(infos)-1])
	}
	var last uint64
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		files, most := maxListedFiles, clampLimit(r.GetMaxFiles(), maxLeaseFiles, maxLeaseFiles)
		for i, in := range infos {
			resp.Leases = append(resp.Leases, s.lease(tx, c, in, most, &files))
			if files <= 0 && i < len(infos)-1 {
				resp.NextCursor = cursor(in) // the rest is another page
				break
			}
		}
		last, _ = tx.Tree.Last()
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The lease table does not know which of its changes are durable.
	return resp, s.engine.WaitDurable(ctx, last)
}

// maxLeaseFiles is how many files are listed of one lease, maxListedFiles about how
// many in one answer, which is made under the namespace lock: fewer if their paths are long.
const maxLeaseFiles, maxListedFiles = 1000, 10_000

// listedCost is as how many files one with this path counts: calls.PageBytes of paths are maxListedFiles.
func listedCost(path string) int { return 1 + len(path)*maxListedFiles/calls.PageBytes }

func (s *granted) leaseFilter(ctx context.Context, c *namespace.Call, r *pb.ListLeasesRequest) (leasemanager.Filter, error) {
	f := leasemanager.Filter{Limit: clampLimit(r.GetLimit(), 100, 1000), SoftExpired: r.GetExpired(), MaxFiles: maxLeaseFiles}
	switch kind := r.GetKind(); {
	case pb.LeaseKind_name[int32(kind)] == "":
		return f, fserror.New(fserror.InvalidArgument, "", "", "%d is no kind of leases that this namenode knows", kind)
	case kind != pb.LeaseKind_LEASE_KIND_UNSPECIFIED:
		granted := kind == pb.LeaseKind_LEASE_KIND_GRANTED
		f.Of = func(k leasemanager.Kind) bool { return granted == (k == leasemanager.KindGranted) }
	}
	if text := strings.ToLower(r.GetText()); text != "" {
		f.Match = func(h leasemanager.Holder) bool {
			return strings.Contains(strings.ToLower(h.Client+"\n"+h.User+"\n"+h.Host), text)
		}
	}
	if r.GetLease() != "" {
		n, err := strconv.ParseUint(r.GetLease(), 16, 64)
		if err != nil || n == 0 {
			return f, fserror.New(fserror.InvalidArgument, "", "", "%q is no lease id", r.GetLease())
		}
		f.LeaseID = n
	}
	if r.GetPath() != "" {
		id, err := s.inodeOf(ctx, c, namespace.Follow(r.GetPath()))
		if err != nil {
			return f, err
		}
		if f.LeaseID, err = s.leaseOfFile(ctx, c, id, r.GetPath()); err != nil {
			return f, err
		}
	}
	if h := r.GetHolder(); h != "" {
		text := f.Match
		var session func(leasemanager.Holder) bool
		if f.Client, session = holderFilter(h); session != nil {
			f.Match = func(h leasemanager.Holder) bool { return session(h) && (text == nil || text(h)) }
		}
	}
	return f, nil
}

// leaseOfFile is the lease that has a file open or, if nobody has, the granted
// one that it is attached to.
func (s *granted) leaseOfFile(ctx context.Context, c *namespace.Call, id namespace.InodeID, path string) (lease uint64, err error) {
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if st, ok := s.leases.State(uint64(id)); ok {
			lease = st.LeaseID
			return nil
		}
		a, err := tx.Tree.Stat(c, namespace.Inode(id))
		if err == nil && a.Lease == 0 {
			err = fserror.New(fserror.NotFound, "", path, "nobody has it open for write, and it is attached to no lease").Because(fserror.ReasonNoLease)
		}
		lease = uint64(a.Lease)
		return err
	})
	return lease, err
}

// lease is the wire form of a lease, with at most so many of its files, and as many as left
// allows, from which they are taken. The namespace is locked.
func (s *granted) lease(tx *engine.Tx, c *namespace.Call, in leasemanager.Info, most int, left *int) *pb.Lease {
	out := &pb.Lease{
		Id: leases.Name(in.ID), Holder: holderInfo(in.Holder, in.Since, in.Idle),
		SoftExpired: in.SoftExpired, HardExpired: in.HardExpired, Connected: in.Connected, FileCount: uint64(max(in.Files, 0)),
		RemainingMs: in.TakeableIn.Milliseconds(), Ending: in.Ending,
	}
	_, limit, _ := s.leases.Limits()
	if in.Kind == leasemanager.KindGranted {
		limit = in.TTL
	}
	out.OverdueMs = max(0, in.Idle-limit).Milliseconds()
	if in.Kind == leasemanager.KindGranted {
		out.Holder.Session = nil // it is its user's
		out.Granted, out.TtlMs, out.RemainingMs = true, in.TTL.Milliseconds(), in.Remaining.Milliseconds()
		if l, ok := tx.Tree.Lease(nil, namespace.LeaseID(in.ID)); ok {
			out.AttachedCount, out.Name = uint64(l.Files), l.Name //nolint:gosec // a count
			out.Attached = leaseFiles(tx, c, l, min(most, max(*left, 1)), left)
		}
		return out
	}
	now := s.cfg.Clock.Mono()
	for _, ref := range in.Refs {
		id := namespace.InodeID(ref.Inode)
		s.waits.Tell(out, id, now)
		if *left <= 0 || len(out.Files) == most {
			continue
		}
		path, ok := tx.Tree.Path(id)
		switch {
		case !ok:
			path = "(deleted)"
		case !c.Owns(in.Holder.User) && !namespace.MayName(tx.Tree, c, id):
			path = "(in a directory that you may not list)"
		}
		*left -= listedCost(path)
		out.Files = append(out.Files, &pb.LeaseFile{Path: path, Inode: ref.Inode, Epoch: ref.Epoch})
	}
	return out
}

// sessionName is how a session is shown to clients, hexadecimal.
func sessionName(id namespace.SessionID) string { return hex.EncodeToString(pb.SessionName(id[:])) }
