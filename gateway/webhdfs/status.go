package webhdfs

import (
	"io/fs"
	"net/url"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
)

// fileStatus is Hadoop's description of a file; its fields are in HDFS's order.
type fileStatus struct {
	AccessTime       int64  `json:"accessTime"`
	ACLBit           bool   `json:"aclBit,omitempty"`
	BlockSize        int64  `json:"blockSize"`
	ChildrenNum      uint64 `json:"childrenNum"`
	FileID           uint64 `json:"fileId"`
	Group            string `json:"group"`
	Length           int64  `json:"length"`
	ModificationTime int64  `json:"modificationTime"`
	Owner            string `json:"owner"`
	PathSuffix       string `json:"pathSuffix"`
	Permission       string `json:"permission"`
	Replication      int64  `json:"replication"`
	SnapshotEnabled  bool   `json:"snapshotEnabled,omitempty"`
	StoragePolicy    int    `json:"storagePolicy"`
	Symlink          string `json:"symlink,omitempty"`
	Type             string `json:"type"`
}

// status describes a file under a name relative to what was asked for.
func status(i *client.FileInfo, name string) fileStatus {
	st := fileStatus{
		ChildrenNum: i.Entries, FileID: i.Inode, Owner: i.User, Group: i.Group,
		ModificationTime: i.ModTime().UnixMilli(), Permission: octal(i.Mode()), PathSuffix: name, ACLBit: i.HasACL || i.HasDefault, SnapshotEnabled: i.Snapshots,
	}
	switch i.Type() {
	case fs.ModeDir:
		st.Type = "DIRECTORY"
		return st
	case fs.ModeSymlink:
		st.Type, st.Symlink = "SYMLINK", i.LinkTarget
		return st
	}
	st.Type, st.Length, st.AccessTime = "FILE", i.Length, st.ModificationTime
	a := hadoop.AttrOf(i)
	st.Replication, st.BlockSize = a.Replication, a.BlockSize
	return st
}

// list describes the entries of a directory.
func list(entries []*client.FileInfo) []fileStatus {
	all := make([]fileStatus, len(entries))
	for n, i := range entries {
		all[n] = status(i, i.Name())
	}
	return all
}

// escape writes a path as part of a URL.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
