package hdfs

import (
	"context"
	"io/fs"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/fspath"
)

// allowSnapshots is the method of that name, or its opposite.
func allowSnapshots(yes bool) method {
	return changes(func(q change, ctx context.Context, m *pb.SnapshotRequestProto) (proto.Message, error) {
		p, err := q.path(ctx, m.GetSnapshotRoot())
		if err != nil {
			return nil, err
		}
		return done(q.fs.AllowSnapshots(ctx, p, yes))
	})
}

func (q change) createSnapshot(ctx context.Context, m *pb.SnapshotRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	made, err := q.fs.MakeSnapshot(ctx, p, m.GetSnapshotName())
	return &pb.CreateSnapshotResponseProto{SnapshotPath: &made}, err
}

func (q change) deleteSnapshot(ctx context.Context, m *pb.SnapshotRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	return done(q.fs.DeleteSnapshot(ctx, p, m.GetSnapshotName()))
}

func (q change) renameSnapshot(ctx context.Context, m *pb.RenameSnapshotRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	return done(q.fs.RenameSnapshot(ctx, p, m.GetSnapshotOldName(), m.GetSnapshotNewName()))
}

// getSnapshottableDirListing answers nothing if there are none, as HDFS does.
func (q lookup) getSnapshottableDirListing(ctx context.Context, _ *pb.EmptyProto) (proto.Message, error) {
	dirs, err := q.fs.SnapshotDirs(ctx)
	resp := new(pb.GetSnapshottableDirListingResponseProto)
	if err != nil || len(dirs) == 0 {
		return resp, err
	}
	resp.SnapshottableDirList = new(pb.SnapshottableDirectoryListingProto)
	for _, d := range dirs {
		parent, name := fspath.Split(d.Path)
		if d.Path == "/" {
			parent = ""
		}
		resp.SnapshottableDirList.SnapshottableDirListing = append(resp.SnapshottableDirList.SnapshottableDirListing, &pb.SnapshottableDirectoryStatusProto{
			DirStatus: describe(d.FileInfo, name, hadoop.Attr{}), ParentFullpath: []byte(parent),
			SnapshotQuota: proto.Uint32(hadoop.SnapshotLimit), SnapshotNumber: proto.Uint32(uint32(d.Snapshots)), //nolint:gosec // there are far fewer
		})
	}
	return resp, nil
}

func (q lookup) getSnapshotListing(ctx context.Context, m *pb.SnapshotRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	all, err := q.fs.Snapshots(ctx, p)
	if err != nil {
		return nil, err
	}
	list := new(pb.SnapshotListingProto)
	for _, s := range all {
		st := describe(s.Info, s.Name, hadoop.Attr{})
		st.ModificationTime = proto.Uint64(uint64(s.Made.UnixMilli())) //nolint:gosec // not negative
		list.SnapshotListing = append(list.SnapshotListing, &pb.SnapshotStatusProto{
			DirStatus: st, SnapshotID: proto.Uint32(uint32(s.ID)), ParentFullpath: []byte(p), IsDeleted: proto.Bool(false), //nolint:gosec // it has 19 bits
		})
	}
	return &pb.GetSnapshotListingResponseProto{SnapshotList: list}, nil
}

func (q lookup) getSnapshotDiffReport(ctx context.Context, m *pb.SnapshotDiffRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	leave, err := q.reports.Enter(ctx, q.call.Taker)
	if err != nil {
		return nil, err
	}
	q.call.Answered(leave)
	lines, err := q.fs.SnapshotReport(ctx, p, m.GetFromSnapshot(), m.GetToSnapshot())
	if err != nil {
		return nil, err
	}
	report := &pb.SnapshotDiffReportProto{SnapshotRoot: &p, FromSnapshot: proto.String(m.GetFromSnapshot()), ToSnapshot: proto.String(m.GetToSnapshot())}
	for _, l := range lines {
		e := &pb.SnapshotDiffReportEntryProto{Fullpath: []byte(l.Path), ModificationLabel: proto.String(l.Label)}
		if l.Label == "R" {
			e.TargetPath = []byte(l.Target)
		}
		report.DiffReportEntries = append(report.DiffReportEntries, e)
	}
	return &pb.GetSnapshotDiffReportResponseProto{DiffReport: report}, nil
}

// getSnapshotDiffReportListing is the same in pages. The cursor stands in the place of a path, which
// clients only send back.
func (q lookup) getSnapshotDiffReportListing(ctx context.Context, m *pb.SnapshotDiffRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSnapshotRoot())
	if err != nil {
		return nil, err
	}
	page, err := q.fs.SnapshotChanges(ctx, p, m.GetFromSnapshot(), m.GetToSnapshot(), string(m.GetCursor().GetStartPath()), 0)
	if err != nil {
		return nil, err
	}
	list := &pb.SnapshotDiffReportListingProto{
		IsFromEarlier: proto.Bool(true), // what is made is made from the first to the second, whichever is older
		Cursor:        &pb.SnapshotDiffReportCursorProto{StartPath: []byte(page.Next), Index: proto.Int32(-1)},
	}
	for _, c := range page.Modified {
		list.ModifiedEntries = append(list.ModifiedEntries, &pb.SnapshotDiffReportListingEntryProto{
			Fullpath: []byte(c.Path), DirId: &c.Inode, FileId: &c.Inode, IsReference: proto.Bool(c.Kind == fs.ModeDir),
		})
	}
	for _, c := range page.Created {
		list.CreatedEntries = append(list.CreatedEntries, listed(c))
	}
	for _, c := range page.Deleted {
		list.DeletedEntries = append(list.DeletedEntries, listed(c))
	}
	return &pb.GetSnapshotDiffReportListingResponseProto{DiffReport: list}, nil
}

// listed is something that was made, removed or renamed.
func listed(c *snapshots.Change) *pb.SnapshotDiffReportListingEntryProto {
	e := &pb.SnapshotDiffReportListingEntryProto{Fullpath: []byte(c.Path), DirId: &c.Parent, FileId: &c.Inode, IsReference: proto.Bool(c.Type == snapshots.Renamed)}
	if c.Type == snapshots.Renamed {
		e.TargetPath = []byte(c.NewPath)
	}
	return e
}
