package hadoop

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
)

// SnapshotLimit is how many snapshots a directory may have.
const SnapshotLimit = 1024

// What a report has at most that is made whole; a client that pages gets all.
const (
	maxReport      = 100_000  // changes
	maxReportBytes = 16 << 20 // of their paths, as JSON
)

// MaxReports is how many reports that are made whole a gateway has room for at once, until their clients
// have read them: each takes a few times maxReportBytes. Of these, one is kept for those who have few.
const MaxReports = 8

// ofSnapshots gives an error of a call about the snapshots of a directory the name that HDFS has for it.
func (f FS) ofSnapshots(ctx context.Context, dir string, err error) error {
	if fserror.ReasonOf(err) == fserror.ReasonNoSnapshots {
		return Refuse(SnapshotWrong, "Directory is not a snapshottable directory: %s", dir)
	}
	switch client.KindOf(err) {
	case client.ErrNotFound:
		if _, serr := f.Stat(ctx, dir); serr == nil { // it is the snapshot that there is not
			return Named(SnapshotWrong, err)
		}
	case client.ErrExists, client.ErrNotEmpty:
		return Named(SnapshotWrong, err)
	case client.ErrNotDirectory:
		return Named(NotDirectory, err)
	}
	return err
}

// AllowSnapshots says whether a directory may have snapshots.
func (f FS) AllowSnapshots(ctx context.Context, dir string, yes bool) error {
	if yes {
		return f.ofSnapshots(ctx, dir, snapshots.Allow(ctx, f.FS.FS, dir))
	}
	return f.ofSnapshots(ctx, dir, snapshots.Disallow(ctx, f.FS.FS, dir))
}

// MakeSnapshot makes a snapshot, and returns its path.
func (f FS) MakeSnapshot(ctx context.Context, dir, name string) (path string, err error) {
	if name, err = snapshots.Make(ctx, f.FS.FS, dir, name); err != nil {
		return "", f.ofSnapshots(ctx, dir, err)
	}
	return snapshots.Path(dir, name, ""), nil
}

// RenameSnapshot gives a snapshot another name.
func (f FS) RenameSnapshot(ctx context.Context, dir, name, newName string) error {
	return f.ofSnapshots(ctx, dir, snapshots.Rename(ctx, f.FS.FS, dir, name, newName))
}

// DeleteSnapshot deletes a snapshot.
func (f FS) DeleteSnapshot(ctx context.Context, dir, name string) error {
	return f.ofSnapshots(ctx, dir, snapshots.Delete(ctx, f.FS.FS, dir, name))
}

// Snapshots are the snapshots of a directory, the first one made first, as in HDFS.
func (f FS) Snapshots(ctx context.Context, dir string) (all []*snapshots.Snapshot, err error) {
	err = snapshots.List(ctx, f.FS.FS, dir, func(s *snapshots.Snapshot) error {
		all = append(all, s)
		return nil
	})
	slices.SortFunc(all, func(a, b *snapshots.Snapshot) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.Name, b.Name)) })
	return all, f.ofSnapshots(ctx, dir, err)
}

// SnapshotDirs lists the directories that may have snapshots and that the user owns; a superuser gets all.
func (f FS) SnapshotDirs(ctx context.Context) (all []snapshots.DirInfo, err error) {
	err = snapshots.Dirs(ctx, f.FS.FS, func(dir snapshots.DirInfo) error {
		all = append(all, dir)
		return nil
	})
	return all, err
}

// SnapshotChange is a line of a report: M, +, - or R.
type SnapshotChange struct {
	Label        string
	Path, Target string // below the directory; Target of R
}

// SnapshotReport is what changed from one snapshot of a directory to another, or to how it is (an empty
// name), in the order of HDFS: each directory that was modified, then what was made, removed and renamed
// in it. What is below a directory that was made or removed is left out.
func (f FS) SnapshotReport(ctx context.Context, dir, from, to string) ([]SnapshotChange, error) {
	var all report
	for more := true; more; more = all.Next != "" {
		page, err := f.SnapshotChanges(ctx, dir, from, to, all.Next, 0)
		if err != nil {
			return nil, err
		}
		if err := all.add(page); err != nil {
			return nil, err
		}
	}
	below := map[uint64][]SnapshotChange{} // a directory
	for _, c := range slices.Concat(all.Created, all.Deleted) {
		below[c.Parent] = append(below[c.Parent], SnapshotChange{labels[c.Type], c.Path, c.NewPath})
	}
	slices.SortFunc(all.Modified, func(a, b *snapshots.Change) int { return cmp.Compare(a.Path, b.Path) })
	lines := make([]SnapshotChange, 0, len(all.Modified)+len(all.Created)+len(all.Deleted))
	for _, m := range all.Modified {
		lines = append(lines, SnapshotChange{Label: "M", Path: m.Path})
		in := below[m.Inode]
		slices.SortFunc(in, func(a, b SnapshotChange) int {
			return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Path, b.Path))
		})
		lines = append(lines, in...)
	}
	return lines, nil
}

// report is what is known of a report that is made whole.
type report struct {
	SnapshotPage
	bytes int // of paths
}

// add adds a page, unless the report has too much then.
func (r *report) add(page SnapshotPage) error {
	for _, part := range [][]*snapshots.Change{page.Modified, page.Created, page.Deleted} {
		for _, c := range part {
			r.bytes += size(c.Path) + size(c.NewPath)
		}
	}
	r.Modified, r.Created, r.Deleted, r.Next = append(r.Modified, page.Modified...), append(r.Created, page.Created...), append(r.Deleted, page.Deleted...), page.Next
	if len(r.Modified)+len(r.Created)+len(r.Deleted) > maxReport || r.bytes > maxReportBytes {
		return Refuse(SnapshotWrong, "more than %d things changed, or their paths have more than %d bytes: ask for them in pages (getSnapshotDiffReportListing, GETSNAPSHOTDIFFLISTING by WebHDFS), or compare snapshots between which less has changed", maxReport, maxReportBytes)
	}
	return nil
}

// size is how many bytes a path takes at most, also as JSON.
func size(path string) (n int) {
	const escaped = len(`\u0000`)
	if !utf8.ValidString(path) {
		return escaped * len(path)
	}
	for _, c := range []byte(path) {
		switch {
		case c < ' ' || strings.IndexByte(`"\\<>&`, c) >= 0:
			n += escaped
		default:
			n++
		}
	}
	return n
}

var labels = map[snapshots.ChangeType]string{snapshots.Created: "+", snapshots.Deleted: "-", snapshots.Renamed: "R"}

// SnapshotPage is a page of changes as Hadoop's client wants them, which makes a report of all pages as
// SnapshotReport does: each directory that was modified is in one of them, once, and what was made,
// removed and renamed in it is told by its number.
type SnapshotPage struct {
	Modified, Created, Deleted []*snapshots.Change // Deleted has what was renamed, too
	Next                       string              // the cursor; empty at the end
}

// SnapshotChanges returns a page, made of what became of at most limit inodes (0: as many as there can
// be). All paths but that to which something was renamed are those that directories had at first, as in HDFS.
// What was below a directory that was removed and is elsewhere now was made there.
func (f FS) SnapshotChanges(ctx context.Context, dir, from, to, cursor string, limit int) (p SnapshotPage, err error) {
	list, next, err := snapshots.DiffPage(ctx, f.FS.FS, dir, from, to, cursor, limit)
	for _, c := range list {
		switch {
		case c.Type == snapshots.Created, c.Type == snapshots.Renamed && c.Gone:
			if c.Into != nil {
				p.Created = append(p.Created, made(c))
			}
			continue
		case c.Gone:
			continue
		case c.Type == snapshots.Deleted, c.Type == snapshots.Renamed:
			p.Deleted = append(p.Deleted, c)
		}
		if c.Type == snapshots.Modified || c.Changed {
			p.Modified = append(p.Modified, c)
		}
	}
	p.Next = next
	return p, f.ofSnapshots(ctx, dir, err)
}

// made is what was made in a directory that was there at first.
func made(c *snapshots.Change) *snapshots.Change {
	m := &snapshots.Change{Type: snapshots.Created, Kind: c.Kind, Path: c.Path, Inode: c.Inode, Parent: c.Parent}
	if c.Type == snapshots.Renamed {
		m.Path, m.Parent = c.NewPath, c.NewParent
	}
	m.Path = path.Join(*c.Into, path.Base(m.Path))
	return m
}
