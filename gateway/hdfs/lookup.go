package hdfs

import (
	"context"
	"math"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/fspath"
)

func (q lookup) getFileInfo(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	i, err := q.stat(ctx, m.GetSrc())
	return status(i, err)
}

func (q lookup) getFileLinkInfo(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	i, err := q.fs.Lstat(ctx, p)
	return status(i, err)
}

// stat follows symbolic links.
func (q *request) stat(ctx context.Context, src string) (*client.FileInfo, error) {
	p, err := q.path(ctx, src)
	if err != nil {
		return nil, err
	}
	return q.fs.Stat(ctx, p)
}

func (q lookup) getLinkTarget(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	target, err := q.fs.Readlink(ctx, p)
	if client.KindOf(err) == client.ErrInvalidArgument {
		return nil, hadoop.Refuse(hadoop.IOException, "Path %s is not a symbolic link", p)
	}
	if err != nil {
		return nil, err
	}
	return &pb.TextResponseProto{Text: &target}, nil
}

// Pages of a listing: as many entries as HDFS has in one, fewer if their blocks are told.
const (
	pageSize    = 1000
	locatedPage = 100
	atOnce      = 16 // files whose blocks are looked up at once
)

func (q lookup) getListing(ctx context.Context, m *pb.GetListingRequestProto) (proto.Message, error) {
	dir, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	page := pageSize
	if m.GetNeedLocation() {
		page = locatedPage
	}
	var all []*pb.HdfsFileStatusProto
	more := true
	for after := string(m.GetStartAfter()); more && len(all) == 0; { // no page is empty that has a next one: the client could not ask for that
		if all, more, after, err = q.listed(ctx, m, dir, after, page); err != nil {
			return nil, err
		}
	}
	if all == nil {
		return new(pb.GetListingResponseProto), nil
	}
	left := uint32(0)
	if more {
		left = 1 // at least; nobody counts the rest
	}
	return &pb.GetListingResponseProto{DirList: &pb.DirectoryListingProto{PartialListing: all, RemainingEntries: &left}}, nil
}

// listed is a page of a listing, and behind which name the next one begins. all is nil if there
// is no such directory.
func (q lookup) listed(ctx context.Context, m *pb.GetListingRequestProto, dir, after string, page int) (all []*pb.HdfsFileStatusProto, more bool, last string, err error) {
	name := (*client.FileInfo).Name
	last = after
	entries, more, err := q.fs.List(ctx, dir, after, page)
	if client.KindOf(err) == client.ErrNotDirectory { // a file is listed by the name ""
		name, entries = func(*client.FileInfo) string { return "" }, make([]*client.FileInfo, 1)
		if entries[0], err = q.fs.Stat(ctx, dir); err == nil && entries[0].IsDir() {
			return q.listed(ctx, m, dir, after, page) // it took the name just now
		}
	}
	if client.KindOf(err) == client.ErrNotFound {
		return nil, false, "", nil
	}
	if err != nil {
		return nil, false, "", hadoop.BelowFile(hadoop.AccessControl, err)
	}
	all = make([]*pb.HdfsFileStatusProto, len(entries))
	for n, e := range entries {
		all[n], last = describe(e, name(e), hadoop.AttrOf(e)), name(e)
	}
	if m.GetNeedLocation() && len(all) > 0 {
		kept, rest, err := q.locate(ctx, dir, entries, all)
		if err != nil {
			return nil, false, "", err
		}
		return append([]*pb.HdfsFileStatusProto{}, kept...), more || rest, last, nil
	}
	return all, more && len(all) > 0, last, nil
}

// locate adds the blocks of files to a listing, and leaves out what is gone. Once it has as
// many blocks as one file may have, as HDFS does, it leaves the rest to the next page.
func (q lookup) locate(ctx context.Context, dir string, entries []*client.FileInfo, all []*pb.HdfsFileStatusProto) (kept []*pb.HdfsFileStatusProto, more bool, err error) {
	blocks := 0
	var where []*files.Located
	for from := 0; from < len(all) && !more; from += atOnce {
		to := min(from+atOnce, len(all))
		some, found, err := q.locateSome(ctx, dir, entries[from:to], all[from:to])
		if err != nil {
			return nil, false, err
		}
		for n, st := range some {
			if more = blocks >= files.MaxLocated; more {
				break
			}
			if l := found[n]; l != nil {
				blocks += l.Blocks.Len()
			}
			kept, where = append(kept, st), append(where, found[n])
		}
	}
	if err := q.makeRoom(ctx, blocks); err != nil {
		return nil, false, err
	}
	block := q.describer(false)
	for n, l := range where {
		if l != nil {
			kept[n].Locations = located(*l, block)
		}
	}
	return kept, more, nil
}

// locateSome is locate for a few, which does not write down their blocks.
func (q lookup) locateSome(ctx context.Context, dir string, entries []*client.FileInfo, all []*pb.HdfsFileStatusProto) ([]*pb.HdfsFileStatusProto, []*files.Located, error) {
	errs, located := make([]error, len(all)), make([]*files.Located, len(all))
	var wg sync.WaitGroup
	for n, e := range entries {
		if !e.Mode().IsRegular() {
			continue
		}
		wg.Go(func() {
			p := dir
			if name := string(all[n].GetPath()); name != "" {
				p = fspath.Join(dir, name)
			}
			loc, err := q.files.Locate(ctx, q.user, p, 0, math.MaxInt64)
			if err != nil {
				errs[n] = err
				return
			}
			name := string(all[n].GetPath())
			all[n] = describe(loc.Info, name, loc.Attr)
			located[n] = &loc
		})
	}
	wg.Wait()
	kept, where := all[:0], located[:0]
	for n, st := range all {
		switch k := client.KindOf(errs[n]); {
		case errs[n] == nil:
		case k == client.ErrPermission: // who may not read a file sees it all the same
			located[n] = &files.Located{Info: entries[n]}
		case k == client.ErrNotFound || k == client.ErrIsDirectory:
			continue
		default:
			return nil, nil, errs[n]
		}
		kept, where = append(kept, st), append(where, located[n])
	}
	return kept, where, nil
}

func (q lookup) content(ctx context.Context, src string) (hadoop.Content, error) {
	p, err := q.path(ctx, src)
	if err != nil {
		return hadoop.Content{}, err
	}
	return q.fs.Content(ctx, p)
}

// limit is how HDFS tells of a quota: that there is none is the largest number.
func limit(n int64) *uint64 { return proto.Uint64(uint64(n)) } //nolint:gosec // as Java has it

func (q lookup) getContentSummary(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	s, err := q.content(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	policy := ""
	if s.Directories == 0 {
		policy = "Replicated" // what HDFS calls a file that is not erasure coded
	}
	return &pb.GetContentSummaryResponseProto{Summary: &pb.ContentSummaryProto{
		Length: size(s.Length), FileCount: proto.Uint64(s.Files + s.Symlinks), DirectoryCount: &s.Directories,
		Quota: limit(s.Quota), SpaceConsumed: size(s.Space), SpaceQuota: limit(s.SpaceQuota), ErasureCodingPolicy: &policy,
		SnapshotLength: proto.Uint64(0), SnapshotFileCount: proto.Uint64(0), SnapshotDirectoryCount: proto.Uint64(0), SnapshotSpaceConsumed: proto.Uint64(0),
	}}, nil
}

func (q lookup) getQuotaUsage(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	s, err := q.content(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return &pb.GetQuotaUsageResponseProto{Usage: &pb.QuotaUsageProto{
		FileAndDirectoryCount: size(s.Names), Quota: limit(s.Quota), SpaceConsumed: size(s.Space), SpaceQuota: limit(s.SpaceQuota),
	}}, nil
}

func (q lookup) getPreferredBlockSize(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	i, err := q.stat(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return &pb.GetPreferredBlockSizeResponseProto{Bsize: size(hadoop.AttrOf(i).BlockSize)}, nil
}

// getFsStats is what df shows.
func (q lookup) getFsStats(ctx context.Context, _ *pb.EmptyProto) (proto.Message, error) {
	u, err := q.fs.Usage(ctx)
	if err != nil {
		return nil, err
	}
	zero := proto.Uint64(0)
	return &pb.GetFsStatsResponseProto{
		Capacity: size(u.Capacity), Used: size(u.Used), Remaining: size(u.Remaining),
		UnderReplicated: zero, CorruptBlocks: zero, MissingBlocks: zero, MissingReplOneBlocks: zero, BlocksInFuture: zero, PendingDeletionBlocks: zero,
	}, nil
}

// Kinds of DataNodes that a report can be about.
const (
	allNodes  = 1
	liveNodes = 2
)

// getDatanodeReport tells of the one DataNode that there is, the gateway.
func (q lookup) getDatanodeReport(ctx context.Context, m *pb.GetDatanodeReportRequestProto) (proto.Message, error) {
	if m.GetType() != allNodes && m.GetType() != liveNodes {
		return new(pb.GetDatanodeReportResponseProto), nil
	}
	u, err := q.fs.Usage(ctx)
	if err != nil {
		return nil, err
	}
	n := q.node()
	n.Capacity, n.DfsUsed, n.Remaining, n.BlockPoolUsed = size(u.Capacity), size(u.Used), size(u.Remaining), size(u.Used)
	return &pb.GetDatanodeReportResponseProto{Di: []*pb.DatanodeInfoProto{n}}, nil
}

func (q lookup) getStoragePolicy(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	if _, err := q.stat(ctx, m.GetSrc()); err != nil {
		return nil, err
	}
	return &pb.GetStoragePolicyResponseProto{StoragePolicy: hot}, nil
}

func (q lookup) checkAccess(ctx context.Context, m *pb.CheckAccessRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetPath())
	if err != nil {
		return nil, err
	}
	return done(q.fs.CheckAccess(ctx, p, hadoop.Access(m.GetMode())))
}

// getGroupsForUser answers by which groups the namenode takes a user for what he is.
func (q lookup) getGroupsForUser(ctx context.Context, m *pb.GetGroupsForUserRequestProto) (proto.Message, error) {
	if m.GetUser() == "" {
		return nil, hadoop.Refuse(hadoop.IOException, "getGroupsForUser: it names no user")
	}
	groups, err := q.users.Groups(ctx, m.GetUser())
	return &pb.GetGroupsForUserResponseProto{Groups: groups}, err
}

func (q lookup) getXattrs(ctx context.Context, m *pb.XAttrsRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, x := range m.GetXAttrs() {
		name, err := hadoop.XattrName(x.GetNamespace().String(), x.GetName())
		if err != nil {
			return nil, err
		}
		wanted[name] = true
	}
	all, err := q.fs.VisibleXattrs(ctx, p)
	if err != nil {
		return nil, err
	}
	found := new(pb.XAttrsResponseProto)
	for _, x := range all {
		if len(wanted) == 0 || wanted[x.Name] {
			found.XAttrs = append(found.XAttrs, xattr(x.Name, x.Value))
		}
	}
	if len(found.GetXAttrs()) < len(wanted) {
		return nil, hadoop.Refuse(hadoop.XattrNotFound, "At least one of the attributes provided was not found.")
	}
	return found, nil
}

func (q lookup) listXattrs(ctx context.Context, m *pb.PathRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	all, err := q.fs.VisibleXattrs(ctx, p)
	if err != nil {
		return nil, err
	}
	list := new(pb.XAttrsResponseProto)
	for _, x := range all {
		list.XAttrs = append(list.XAttrs, xattr(x.Name, x.Value)) // as HDFS, with the value
	}
	return list, nil
}

// xattr is one of the name space user, the only one that there is.
func xattr(name string, value []byte) *pb.XAttrProto {
	return &pb.XAttrProto{Namespace: pb.XAttrProto_USER.Enum(), Name: proto.String(name[len("user."):]), Value: value}
}

// layout is the version of HDFS's layout that Hadoop 3.4 has.
const layout = -67

func (q lookup) versionRequest(context.Context, *pb.EmptyProto) (proto.Message, error) {
	pool := q.pool()
	return &pb.VersionResponseProto{Info: &pb.NamespaceInfoProto{
		BuildVersion: proto.String("leasefs"), Unused: proto.Uint32(0), BlockPoolID: &pool, SoftwareVersion: proto.String(softwareVersion),
		StorageInfo: &pb.StorageInfoProto{
			LayoutVersion: proto.Uint32(uint32(layout & math.MaxUint32)), NamespceID: proto.Uint32(1), ClusterID: &pool, CTime: proto.Uint64(0),
		},
	}}, nil
}

// softwareVersion is that of the Hadoop whose protocols these are.
const softwareVersion = "3.4.1"
