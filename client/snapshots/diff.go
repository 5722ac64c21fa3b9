package snapshots

import (
	"context"
	"io/fs"
	"math"
	"slices"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// What became of something.
const (
	Created  = ChangeType(pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_CREATED)
	Deleted  = ChangeType(pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_DELETED)
	Modified = ChangeType(pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_MODIFIED) // its content, or its attributes
	Renamed  = ChangeType(pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_RENAMED)  // within the directory
)

// ChangeType is what became of something.
type ChangeType int

// String is the type in one lower-case word.
func (t ChangeType) String() string {
	switch t {
	case Created:
		return "created"
	case Deleted:
		return "deleted"
	case Modified:
		return "modified"
	case Renamed:
		return "renamed"
	}
	return "unknown"
}

// Change is what became of a file, a directory or a link from one moment to another. A directory in
// which something was made, deleted or renamed, or into which something was renamed, is modified, also
// if its attributes are the same; if such a directory was Renamed, that is told of it besides.
type Change struct {
	Type ChangeType
	Kind fs.FileMode // its type bits
	// Path is where it was, or where it is if it was Created, below the directory that is compared;
	// empty for that itself.
	Path    string
	NewPath string // where it is, if it was Renamed
	Changed bool   // it was Renamed, and modified, too
	Content bool   // of a file that was modified: its bytes are others now, not only its attributes
	Inode   uint64 // its live number
	Parent  uint64 // that of the directory in which it is at Path
	// NewParent is, of what was Renamed, that of the directory in which it is at NewPath.
	NewParent uint64
	// Into is where the directory in which it is now was, of what was Created or Renamed; nil if that,
	// or one that was above it, was not there or went.
	Into *string
	Gone bool // the directory in which it was went, or one that was above that
}

// Diff calls fn for what changed in a directory, and below, from one of its snapshots to another, or to
// how it is (an empty name), each directory that nothing but its entries modified before the first of
// these and all else in the order of inodes, until fn returns an error, which it returns. Of
// two snapshots, from can be the later one, and one of them can be how it is. What came or went with a
// directory above it is not told of, nor what the caller may not list: what was moved into a directory
// that he may not list is Deleted, what was moved out of one Created. It comes in pages: a change to
// how the directory is may be told as of any moment of the call. Errors: NotFound (the directory, a
// snapshot), NotDirectory, Unsupported (it may have no snapshots), Permission (who neither owns the
// directory nor is a superuser), InvalidArgument (no snapshot is named).
func Diff(ctx context.Context, fs *client.FS, dir, from, to string, fn func(*Change) error) error {
	_, err := Compare(ctx, fs, dir, from, to, fn)
	return err
}

// Compare is Diff, and returns the directories in which something was left out, below the directory: the
// caller may not list them, then or now. Of several above each other it has the topmost.
func Compare(ctx context.Context, fs *client.FS, dir, from, to string, fn func(*Change) error) (leftOut []string, err error) {
	for cursor := ""; ; {
		list, resp, err := diffPage(ctx, fs, dir, from, to, cursor, 0)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if err := fn(c); err != nil {
				return nil, err
			}
		}
		leftOut = append(leftOut, resp.GetLeftOut()...)
		if cursor = resp.GetNextCursor(); cursor == "" {
			slices.Sort(leftOut)
			return slices.Compact(leftOut), nil
		}
	}
}

// DiffPage returns a page of what Diff tells, and the cursor of the next one, which is empty at the end.
// A page may be empty before that. The cursor of the first one is empty. A page is made of what became
// of at most limit inodes (0: 1,000, which is the most).
func DiffPage(ctx context.Context, fs *client.FS, dir, from, to, cursor string, limit int) (list []*Change, next string, err error) {
	list, resp, err := diffPage(ctx, fs, dir, from, to, cursor, limit)
	return list, resp.GetNextCursor(), err
}

func diffPage(ctx context.Context, fs *client.FS, dir, from, to, cursor string, limit int) (list []*Change, resp *pb.DiffSnapshotsResponse, err error) {
	resp = new(pb.DiffSnapshotsResponse)
	err = lowlevel.Of(fs).Ask(ctx, "snapshot diff", dir, pb.Namenode_DiffSnapshots_FullMethodName, func(_ *pb.CallId, c *pb.Caller) any {
		return &pb.DiffSnapshotsRequest{Caller: c, At: pb.Follow(dir), From: from, To: to, Cursor: cursor, Limit: int32(min(limit, math.MaxInt32))} //nolint:gosec // bounded
	}, resp)
	for _, m := range resp.GetChanges() {
		list = append(list, &Change{
			Type: ChangeType(m.GetType()), Kind: kinds[m.GetOf()], Path: m.GetPath(), NewPath: m.GetNewPath(), Changed: m.GetChanged(), Content: m.GetContent(),
			Inode: m.GetInode(), Parent: m.GetParent(), NewParent: m.GetNewParent(), Into: m.Into, Gone: m.GetGone(),
		})
	}
	return list, resp, err
}

var kinds = map[pb.FileType]fs.FileMode{
	pb.FileType_FILE_TYPE_DIRECTORY: fs.ModeDir,
	pb.FileType_FILE_TYPE_SYMLINK:   fs.ModeSymlink,
}
