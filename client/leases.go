package client

import (
	"context"
	"encoding/hex"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// LeaseID names a granted lease. It is not 0, and shown in hexadecimal.
type LeaseID uint64

// String is the id as the program shows and takes it.
func (id LeaseID) String() string { return strconv.FormatUint(uint64(id), 16) }

// ParseLeaseID is the inverse of LeaseID.String. InvalidArgument for anything
// that is no id.
func ParseLeaseID(s string) (LeaseID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || n == 0 || n >= 1<<63 {
		return 0, fserror.New(fserror.InvalidArgument, "lease", "", "%q is no id of a granted lease: hexadecimal, from 1 to 7fffffffffffffff", s)
	}
	return LeaseID(n), nil
}

// Leases are the leases of a namespace: granted ones, which have a time to live of
// their own, and in List those of sessions, too. It is safe for concurrent use.
type Leases struct{ fs *FS }

// Leases returns the calls about leases.
func (f *FS) Leases() *Leases { return &Leases{fs: f} }

// Granted is a lease as granted.
type Granted struct {
	ID   LeaseID
	Name string        // empty if it has none
	TTL  time.Duration // at least what was asked for: the namenode has a minimum
	// Outlives is true if a lease that is kept alive cannot be lost to a failover of the
	// namenodes, false if its TTL is shorter than a failover can take.
	Outlives bool
}

// TimeToLive is how a granted lease stands.
type TimeToLive struct {
	ID        LeaseID
	Name      string // empty if it has none
	TTL       time.Duration
	Remaining time.Duration // until its end, if nobody keeps it alive
	FileCount uint64        // attached
	Files     []string      // their paths, at most 1,000, if asked for
}

// Grant asks for a lease with a time to live of its own: it ends when nobody
// has kept it alive (KeepAlive) for as long, or when it is revoked, and with it
// all files that are attached to it are deleted. id 0 lets the namenode choose
// one. Exists if there is a lease of that id. It belongs to the user: any
// process of that user may use it.
func (l *Leases) Grant(ctx context.Context, ttl time.Duration, id LeaseID) (Granted, error) {
	return l.grant(ctx, &pb.GrantLeaseRequest{Id: uint64(id), TtlMs: ceilMS(ttl)})
}

// GrantNamed is Grant of a lease that has a name beside its id: 1 to 255 bytes of UTF-8
// without a slash, a space or a control character, that are no hexadecimal number. Exists,
// with the lease that has it, if another lease of the user has that name; it is free as soon
// as that one ends. Find finds the lease.
func (l *Leases) GrantNamed(ctx context.Context, ttl time.Duration, name string) (Granted, error) {
	return l.grant(ctx, &pb.GrantLeaseRequest{Name: name, TtlMs: ceilMS(ttl)})
}

func (l *Leases) grant(ctx context.Context, req *pb.GrantLeaseRequest) (Granted, error) {
	if err := checkLeaseName(req.GetName()); err != nil {
		return Granted{}, err
	}
	req.Call, req.Caller = l.fs.ids.Next(), l.fs.caller
	defer l.fs.ids.Retire(req.Call)
	r := new(pb.GrantLeaseResponse)
	if err := l.fs.nn.Do(ctx, &namecall.Call{Op: "lease grant", Mutates: true}, pb.Namenode_GrantLease_FullMethodName, req, r); err != nil {
		return Granted{}, err
	}
	return Granted{ID: LeaseID(r.GetId()), Name: req.GetName(), TTL: ms(r.GetTtlMs()), Outlives: r.GetTtlMs() >= r.GetFailoverMs()}, nil
}

// ceilMS is a duration in milliseconds, no shorter.
func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Revoke ends a granted lease, and deletes all that is attached to it in one step.
// NotFound if there is no such lease.
func (l *Leases) Revoke(ctx context.Context, id LeaseID) error {
	req := &pb.RevokeLeaseRequest{Call: l.fs.ids.Next(), Caller: l.fs.caller, Id: uint64(id)}
	defer l.fs.ids.Retire(req.Call)
	return l.fs.nn.Do(ctx, &namecall.Call{Op: "lease revoke", Mutates: true}, pb.Namenode_RevokeLease_FullMethodName, req, new(pb.RevokeLeaseResponse))
}

// TimeToLive tells how a granted lease stands, and with files what is
// attached to it. It does not keep it alive. NotFound if there is no such lease.
func (l *Leases) TimeToLive(ctx context.Context, id LeaseID, files bool) (TimeToLive, error) {
	return l.timeToLive(ctx, &pb.LeaseTimeToLiveRequest{Id: uint64(id), Files: files})
}

// Find returns the id of the user's lease that has a name. What is an id already
// (ParseLeaseID) it returns as it is, and asks nobody. NotFound if there is no such lease. A
// name that is given to another lease afterwards does no harm, since all calls go by id.
func (l *Leases) Find(ctx context.Context, nameOrID string) (LeaseID, error) {
	if id, err := ParseLeaseID(nameOrID); err == nil || strings.Trim(nameOrID, "0123456789abcdefABCDEF") == "" {
		return id, err // no name has only these
	}
	if err := checkLeaseName(nameOrID); err != nil {
		return 0, err
	}
	t, err := l.timeToLive(ctx, &pb.LeaseTimeToLiveRequest{Name: nameOrID})
	return t.ID, err
}

// checkLeaseName checks what the wire cannot carry; the namenode checks the rest.
func checkLeaseName(name string) error {
	if utf8.ValidString(name) {
		return nil
	}
	return fserror.New(fserror.InvalidArgument, "", "", "%q cannot be the name of a lease: choose one in valid UTF-8", name)
}

func (l *Leases) timeToLive(ctx context.Context, req *pb.LeaseTimeToLiveRequest) (TimeToLive, error) {
	r := new(pb.LeaseTimeToLiveResponse)
	req.Caller = l.fs.caller
	if err := l.fs.nn.Do(ctx, &namecall.Call{Op: "lease ttl"}, pb.Namenode_LeaseTimeToLive_FullMethodName, req, r); err != nil {
		return TimeToLive{}, err
	}
	return TimeToLive{ID: LeaseID(r.GetId()), Name: r.GetName(), TTL: ms(r.GetTtlMs()), Remaining: ms(r.GetRemainingMs()), FileCount: r.GetFileCount(), Files: r.GetFiles()}, nil
}

// Mkdir makes a directory that is attached to a granted lease: it is deleted with all that
// is below it when the lease ends. With parents, missing directories above it are made, too,
// and stay. Exists if the directory exists, also with parents, unless it is attached to that
// lease; NotFound if there is no such lease.
func (l *Leases) Mkdir(ctx context.Context, id LeaseID, path string, mode fs.FileMode, parents bool) error {
	_, err := l.fs.mkdir(ctx, door.At(path), &pb.MkdirRequest{Mode: filemode.Unix(mode), Parents: parents, Lease: uint64(id)})
	return err
}

// Symlink makes path a symbolic link to target that is attached to a granted lease.
// Errors as of FS.Symlink, and NotFound if there is no such lease.
func (l *Leases) Symlink(ctx context.Context, id LeaseID, target, path string) error {
	return l.fs.symlink(ctx, door.At(path), &pb.SymlinkRequest{Target: target, Lease: uint64(id)})
}

// Attach attaches a file, directory or link to a granted lease: it is deleted when the
// lease ends, a directory with all that is below it by then, whoever made that. If it is
// attached to another lease, it is taken from that one. NotFound if there is no such lease
// or file. Only its owner, with permission to delete it and all that is below it, or a
// superuser may attach it. TooLarge: there is too much below the directory for that
// permission to be checked. Several paths, at most MaxTxOps, are attached at once or not at all;
// none may be there twice.
func (l *Leases) Attach(ctx context.Context, id LeaseID, paths ...string) error {
	return l.each(ctx, "lease attach", paths, func(path string) error { return l.fs.attach(ctx, id, path, at(ctx, door.At(path))) },
		func(t *Tx, path string) { t.Attach(id, path) })
}

// each does one thing with one path, or, in a transaction, with several.
func (l *Leases) each(ctx context.Context, op string, paths []string, one func(path string) error, several func(t *Tx, path string)) error {
	if len(paths) == 1 {
		path, err := clean(op, paths[0])
		if err != nil {
			return err
		}
		return one(path)
	}
	if len(paths) > MaxTxOps {
		return fserror.New(fserror.InvalidArgument, op, "", "at most %d paths at once, not %d", MaxTxOps, len(paths))
	}
	t := NewTx(l.fs)
	t.name = op
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return fserror.New(fserror.InvalidArgument, op, path, "the path is given twice")
		}
		several(t, path)
	}
	_, err := t.Commit(ctx)
	return err
}

// attach attaches what a reference leads to; path is its name in errors.
func (f *engine) attach(ctx context.Context, id LeaseID, path string, r *pb.Ref) error {
	req := &pb.AttachLeaseRequest{Call: f.ids.Next(), Caller: f.by(ctx), Id: uint64(id), At: r}
	defer f.ids.Retire(req.Call)
	return f.nn.Do(ctx, &namecall.Call{Op: "lease attach", Path: path, Mutates: true}, pb.Namenode_AttachLease_FullMethodName, req, new(pb.MutateResponse))
}

// Detach detaches what a path names from its granted lease, so that it stays when the
// lease ends. It is no error if it is attached to none. Several paths are as of Attach.
func (l *Leases) Detach(ctx context.Context, paths ...string) error {
	return l.each(ctx, "lease detach", paths, func(path string) error { return l.fs.detach(ctx, path, at(ctx, door.At(path))) },
		func(t *Tx, path string) { t.Detach(path) })
}

func (f *engine) detach(ctx context.Context, path string, r *pb.Ref) error {
	req := &pb.DetachLeaseRequest{Call: f.ids.Next(), Caller: f.by(ctx), At: r}
	defer f.ids.Retire(req.Call)
	return f.nn.Do(ctx, &namecall.Call{Op: "lease detach", Path: path, Mutates: true}, pb.Namenode_DetachLease_FullMethodName, req, new(pb.MutateResponse))
}

// List yields the leases that match, a page at a time. In all orders but that of ids, the
// order is that of the moment at which the listing began; a lease that was renewed since
// then counts as not idle. It ends after the first error.
func (l *Leases) List(ctx context.Context, filter LeaseFilter) iter.Seq2[*Lease, error] {
	return func(yield func(*Lease, error) bool) {
		req := &pb.ListLeasesRequest{
			Caller: l.fs.caller, Limit: leasesAtOnce, Holder: filter.Holder, Expired: filter.Expired, Lease: filter.Lease, Path: filter.Path, Order: pb.LeaseOrder(filter.Order), Kind: leaseKinds[filter.Open], //nolint:gosec // the namenode checks it
		}
		listed, seen := 0, seenLeases{}
		for {
			if left := filter.Limit - listed; left > 0 {
				req.Limit = int32(min(left, leasesAtOnce)) //nolint:gosec // it fits
			}
			resp := new(pb.ListLeasesResponse)
			if err := l.fs.nn.Do(ctx, &namecall.Call{Op: "lease ls", Path: filter.Path}, pb.Namenode_ListLeases_FullMethodName, req, resp); err != nil {
				yield(nil, err)
				return
			}
			paged := req.Cursor != "" || resp.GetNextCursor() != ""
			for _, m := range resp.GetLeases() {
				if paged && !seen.add(m) {
					continue
				}
				if listed++; !yield(leaseOf(m), nil) || listed == filter.Limit {
					return
				}
			}
			if req.Cursor = resp.GetNextCursor(); req.Cursor == "" {
				return
			}
		}
	}
}

// leaseKinds are what LeaseFilter.Open chooses.
var leaseKinds = map[bool]pb.LeaseKind{true: pb.LeaseKind_LEASE_KIND_SESSION}

// leasesAtOnce is how many leases a page of List has.
const leasesAtOnce = 1000

// seenLeases are those that a listing has yielded: a namenode that took over
// gives leases new numbers, and lists them from the first on. A lease that holds
// files is known by them, which no two leases have.
type seenLeases map[string]struct{}

func (s seenLeases) add(l *pb.Lease) (isNew bool) {
	names := make([]string, 0, len(l.GetFiles())+1)
	for _, f := range l.GetFiles() {
		names = append(names, strconv.FormatUint(f.GetInode(), 36)+"/"+strconv.FormatUint(f.GetEpoch(), 36))
	}
	if l.GetGranted() {
		names = append(names, l.GetId())
	}
	if slices.ContainsFunc(names, func(n string) bool { _, ok := s[n]; return ok }) {
		return false
	}
	for _, n := range names {
		s[n] = struct{}{}
	}
	return true
}

func leaseOf(l *pb.Lease) *Lease {
	out := &Lease{
		ID: l.GetId(), Name: l.GetName(), Holder: wire.Holder(l.GetHolder()), Session: hex.EncodeToString(l.GetHolder().GetSession()),
		SoftExpired: l.GetSoftExpired(), HardExpired: l.GetHardExpired(), Connected: l.GetConnected(), FileCount: l.GetFileCount(), Attached: l.GetAttached(),
		Granted: l.GetGranted(), TTL: ms(l.GetTtlMs()), Remaining: ms(l.GetRemainingMs()), AttachedCount: l.GetAttachedCount(),
		Waiting: l.GetWaiting(), Overdue: ms(l.GetOverdueMs()), Ending: l.GetEnding(),
	}
	for _, e := range l.GetFiles() {
		out.Files = append(out.Files, LeaseFile{Path: e.GetPath(), Inode: e.GetInode(), Epoch: e.GetEpoch()})
	}
	for _, w := range l.GetWaiters() {
		out.Waiters = append(out.Waiters, LeaseWaiter{wire.Holder(w.GetWho()), w.GetInode()})
	}
	return out
}
