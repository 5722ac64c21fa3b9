package webhdfs

import (
	"io/fs"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/fspath"
)

func (q change) allowSnapshot() error    { return q.done(q.fs.AllowSnapshots(q.ctx, q.path, true)) }
func (q change) disallowSnapshot() error { return q.done(q.fs.AllowSnapshots(q.ctx, q.path, false)) }

func (q change) createSnapshot() error {
	made, err := q.fs.MakeSnapshot(q.ctx, q.path, q.params.maybe("snapshotname"))
	if err != nil {
		return err
	}
	return q.json(map[string]string{"Path": made})
}

func (q change) deleteSnapshot() error {
	name, err := q.params.needed("snapshotname")
	if err != nil {
		return err
	}
	return q.done(q.fs.DeleteSnapshot(q.ctx, q.path, name))
}

func (q change) renameSnapshot() error {
	name, err := q.params.needed("oldsnapshotname")
	if err != nil {
		return err
	}
	newName, err := q.params.needed("snapshotname")
	if err != nil {
		return err
	}
	return q.done(q.fs.RenameSnapshot(q.ctx, q.path, name, newName))
}

// snapshotDir is Hadoop's description of a directory that may have snapshots.
type snapshotDir struct {
	Status fileStatus `json:"dirStatus"`
	Parent string     `json:"parentFullPath"`
	Number int        `json:"snapshotNumber"`
	Quota  int        `json:"snapshotQuota"`
}

// getSnapshottableDirectoryList answers null if there are none, as HDFS does.
func (q lookup) getSnapshottableDirectoryList() error {
	dirs, err := q.fs.SnapshotDirs(q.ctx)
	if err != nil {
		return err
	}
	var all []snapshotDir
	for _, d := range dirs {
		parent, name := fspath.Split(d.Path)
		if d.Path == "/" {
			parent = ""
		}
		all = append(all, snapshotDir{status(d.FileInfo, name), parent, d.Snapshots, hadoop.SnapshotLimit})
	}
	return q.json(map[string]any{"SnapshottableDirectoryList": all})
}

// snapshotStatus is Hadoop's description of a snapshot.
type snapshotStatus struct {
	Deletion string     `json:"deletionStatus"`
	Status   fileStatus `json:"dirStatus"`
	Path     string     `json:"fullPath"` // of the directory
	ID       uint64     `json:"snapshotID"`
}

func (q lookup) getSnapshotList() error {
	list, err := q.fs.Snapshots(q.ctx, q.path)
	if err != nil {
		return err
	}
	all := make([]snapshotStatus, len(list))
	for n, s := range list {
		st := status(s.Info, s.Name)
		st.ModificationTime = s.Made.UnixMilli()
		all[n] = snapshotStatus{"ACTIVE", st, q.path, s.ID}
	}
	return q.json(map[string]any{"SnapshotList": all})
}

// snapshotChange is a line of a report.
type snapshotChange struct {
	Source string  `json:"sourcePath"`
	Target *string `json:"targetPath,omitempty"`
	Type   string  `json:"type"`
}

// changeTypes are Hadoop's names of labels.
var changeTypes = map[string]string{"M": "MODIFY", "+": "CREATE", "-": "DELETE", "R": "RENAME"}

func (q lookup) getSnapshotDiff() error {
	from, to := q.params.maybe("oldsnapshotname"), q.params.maybe("snapshotname")
	leave, err := q.reports.Enter(q.ctx, q.taker())
	if err != nil {
		return err
	}
	defer leave()
	lines, err := q.fs.SnapshotReport(q.ctx, q.path, from, to)
	if err != nil {
		return err
	}
	all := make([]snapshotChange, len(lines))
	for n, l := range lines {
		all[n] = snapshotChange{Source: l.Path, Type: changeTypes[l.Label]}
		if l.Label == "R" {
			all[n].Target = &l.Target
		}
	}
	return q.json(map[string]any{"SnapshotDiffReport": map[string]any{"snapshotRoot": q.path, "fromSnapshot": from, "toSnapshot": to, "diffList": all}})
}

// listedChange is one of a page of changes.
type listedChange struct {
	Dir       uint64  `json:"dirId"`
	File      uint64  `json:"fileId"`
	Reference bool    `json:"isReference"`
	Source    string  `json:"sourcePath"`
	Target    *string `json:"targetPath,omitempty"`
}

// getSnapshotDiffListing answers a page. The cursor stands in the place of a path, which clients
// only send back.
func (q lookup) getSnapshotDiffListing() error {
	page, err := q.fs.SnapshotChanges(q.ctx, q.path, q.params.maybe("oldsnapshotname"), q.params.maybe("snapshotname"), q.params.maybe("snapshotdiffstartpath"), 0)
	if err != nil {
		return err
	}
	list := func(changes []*snapshots.Change, one func(*snapshots.Change) listedChange) []listedChange {
		all := make([]listedChange, len(changes))
		for n, c := range changes {
			all[n] = one(c)
		}
		return all
	}
	entry := func(c *snapshots.Change) listedChange {
		l := listedChange{Dir: c.Parent, File: c.Inode, Source: c.Path}
		if c.Type == snapshots.Renamed {
			l.Reference, l.Target = true, &c.NewPath
		}
		return l
	}
	return q.json(map[string]any{"SnapshotDiffReportListing": map[string]any{
		"modifyList": list(page.Modified, func(c *snapshots.Change) listedChange {
			return listedChange{Dir: c.Inode, File: c.Inode, Reference: c.Kind == fs.ModeDir, Source: c.Path}
		}),
		"createList": list(page.Created, entry), "deleteList": list(page.Deleted, entry),
		"isFromEarlier": true, "lastPath": page.Next, "lastIndex": -1,
	}})
}
