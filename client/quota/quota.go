// Package quota sets the quotas of directories, and tells how much of them is used.
//
// A quota limits how many names there may be in a directory and below, and how many bytes the
// files have there. What would exceed it fails with client.ErrNoSpace, and an error that names the
// directory; in a mount with EDQUOT. Superusers set quotas.
package quota

import (
	"context"
	"errors"
	"math"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// In the place of a limit: there is none, or what there is stays.
const (
	None = -1
	Keep = -2
)

// Quota is the quota of a directory.
type Quota struct {
	Path      string // of the directory
	Names     int64  // how many files, directories and links may be in it and below, itself included; or None
	Bytes     int64  // how many bytes files may have in it and below; or None
	UsedNames int64  // how many there are
	UsedBytes int64
	// SnapshotBytes are those of blocks that only snapshots of directories in it have. They count in no
	// quota, but while they are more than Bytes no more snapshots are made there.
	SnapshotBytes int64
}

// Left is how many names and bytes there is room for, 0 if there are as many or more; math.MaxInt64
// where there is no limit.
func (q *Quota) Left() (names, bytes int64) {
	left := func(limit, used int64) int64 {
		if limit == None {
			return math.MaxInt64
		}
		return max(0, limit-used)
	}
	return left(q.Names, q.UsedNames), left(q.Bytes, q.UsedBytes)
}

func of(m *pb.Quota) *Quota {
	return &Quota{Path: m.GetPath(), Names: m.GetNames(), Bytes: m.GetBytes(), UsedNames: m.GetUsedNames(), UsedBytes: m.GetUsedBytes(), SnapshotBytes: m.GetSnapshotBytes()}
}

// Set gives a directory a quota, each limit 0 or more, None or Keep; with None twice it takes the
// quota. A limit may be below what there is: then nothing more comes in. Setting the first quota of
// a directory takes a walk of what is below it, for which the namenode does nothing else. Errors:
// NotFound, NotDirectory, Permission (who is no superuser), InvalidArgument (a limit).
func Set(ctx context.Context, fs *client.FS, path string, names, bytes int64) error {
	return lowlevel.Of(fs).Ask(ctx, "quota set", path, pb.Namenode_SetQuota_FullMethodName, func(call *pb.CallId, c *pb.Caller) any {
		return &pb.SetQuotaRequest{Call: call, Caller: c, At: pb.Follow(path), Names: &names, Bytes: &bytes}
	}, new(pb.MutateResponse))
}

// Above returns the quotas that what is at a path counts in: that of the directory itself, if it
// has one, and those of the directories above it, the nearest first. Errors: NotFound, Permission.
func Above(ctx context.Context, fs *client.FS, path string) ([]*Quota, error) {
	list, _, err := above(ctx, fs, path, pb.Follow(path))
	return list, err
}

// Of returns the quota of a directory, nil if it has none. Errors: NotFound, Permission.
func Of(ctx context.Context, fs *client.FS, path string) (*Quota, error) {
	list, own, err := above(ctx, fs, path, pb.Follow(path))
	if !own {
		return nil, err
	}
	return list[0], err
}

// AboveInode is Above of an inode.
func AboveInode(ctx context.Context, fs *client.FS, inode uint64) ([]*Quota, error) {
	list, _, err := above(ctx, fs, "", pb.Inode(inode))
	return list, err
}

func above(ctx context.Context, fs *client.FS, path string, at *pb.Ref) (list []*Quota, own bool, err error) {
	resp := new(pb.GetQuotaResponse)
	err = lowlevel.Of(fs).Ask(ctx, "quota show", path, pb.Namenode_GetQuota_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
		return &pb.GetQuotaRequest{Caller: c, At: at}
	}, resp)
	if errors.Is(err, client.ErrUnsupported) { // a namenode of a release without quotas has none
		return nil, false, nil
	}
	for _, m := range resp.GetQuotas() {
		list = append(list, of(m))
	}
	return list, resp.GetOwn(), err
}

// List calls fn for the quotas of all directories that the caller may stat, those made first
// first, until fn returns an error, which it returns.
func List(ctx context.Context, fs *client.FS, fn func(*Quota) error) error {
	req := new(pb.ListQuotasRequest)
	for {
		resp := new(pb.ListQuotasResponse)
		err := lowlevel.Of(fs).Ask(ctx, "quota ls", "", pb.Namenode_ListQuotas_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
			req.Caller = c
			return req
		}, resp)
		if err != nil {
			return err
		}
		for _, m := range resp.GetQuotas() {
			if err := fn(of(m)); err != nil {
				return err
			}
		}
		if req.After = resp.GetNext(); req.After == 0 {
			return nil
		}
	}
}
