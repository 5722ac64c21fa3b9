package client

import (
	"context"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
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

// Granted is a lease as granted.
type Granted struct {
	ID  LeaseID
	TTL time.Duration // at least what was asked for: the namenode has a minimum
}

// TimeToLive is how a granted lease stands.
type TimeToLive struct {
	ID        LeaseID
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
func (f *FS) Grant(ctx context.Context, ttl time.Duration, id LeaseID) (Granted, error) {
	req := &pb.GrantLeaseRequest{Call: f.ids.begin(), Caller: f.caller, Id: uint64(id), TtlMs: ceilMS(ttl)}
	defer f.ids.end(req.Call)
	r := new(pb.GrantLeaseResponse)
	if err := f.call(ctx, &call{op: "lease grant", mutates: true}, pb.Namenode_GrantLease_FullMethodName, req, r); err != nil {
		return Granted{}, err
	}
	return Granted{ID: LeaseID(r.GetId()), TTL: ms(r.GetTtlMs())}, nil
}

// ceilMS is a duration in milliseconds, no shorter.
func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Revoke ends a granted lease. A few of its files are deleted with it, more of
// them soon after: remaining is how many. NotFound if there is no such lease.
func (f *FS) Revoke(ctx context.Context, id LeaseID) (remaining uint64, err error) {
	req := &pb.RevokeLeaseRequest{Call: f.ids.begin(), Caller: f.caller, Id: uint64(id)}
	defer f.ids.end(req.Call)
	r := new(pb.RevokeLeaseResponse)
	err = f.call(ctx, &call{op: "lease revoke", mutates: true}, pb.Namenode_RevokeLease_FullMethodName, req, r)
	return r.GetRemainingFiles(), err
}

// LeaseTimeToLive tells how a granted lease stands, and with files what is
// attached to it. It does not keep it alive. NotFound if there is no such lease.
func (f *FS) LeaseTimeToLive(ctx context.Context, id LeaseID, files bool) (TimeToLive, error) {
	r := new(pb.LeaseTimeToLiveResponse)
	req := &pb.LeaseTimeToLiveRequest{Caller: f.caller, Id: uint64(id), Files: files}
	if err := f.call(ctx, &call{op: "lease ttl"}, pb.Namenode_LeaseTimeToLive_FullMethodName, req, r); err != nil {
		return TimeToLive{}, err
	}
	return TimeToLive{ID: id, TTL: ms(r.GetTtlMs()), Remaining: ms(r.GetRemainingMs()), FileCount: r.GetFileCount(), Files: r.GetFiles()}, nil
}

// Attach attaches a file to a granted lease: it is deleted when the lease ends.
// If it is attached to another, it is taken from that one. NotFound if there is
// no such lease or file; it takes permission to delete the file, which must be the
// user's own, unless he is a superuser.
func (f *FS) Attach(ctx context.Context, id LeaseID, path string) error {
	path, err := clean("lease attach", path)
	if err != nil {
		return err
	}
	req := &pb.AttachLeaseRequest{Call: f.ids.begin(), Caller: f.caller, Id: uint64(id), Path: path}
	defer f.ids.end(req.Call)
	return f.call(ctx, &call{op: "lease attach", path: path, mutates: true}, pb.Namenode_AttachLease_FullMethodName, req, new(pb.MutateResponse))
}

// Detach takes a file from the granted lease that it is attached to, so that it
// stays. One that is attached to none is no error. NotFound if its lease has
// ended: it is being deleted.
func (f *FS) Detach(ctx context.Context, path string) error {
	path, err := clean("lease detach", path)
	if err != nil {
		return err
	}
	req := &pb.DetachLeaseRequest{Call: f.ids.begin(), Caller: f.caller, Path: path}
	defer f.ids.end(req.Call)
	return f.call(ctx, &call{op: "lease detach", path: path, mutates: true}, pb.Namenode_DetachLease_FullMethodName, req, new(pb.MutateResponse))
}
