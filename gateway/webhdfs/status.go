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
	StoragePolicy    int    `json:"storagePolicy"`
	Symlink          string `json:"symlink,omitempty"`
	Type             string `json:"type"`
}

// status describes a file under a name relative to what was asked for.
func (q *request) status(i *client.FileInfo, name string) (fileStatus, error) {
	a, err := q.fs.Attr(q.ctx, i)
	return describe(i, name, a), err
}

func describe(i *client.FileInfo, name string, a hadoop.Attr) fileStatus {
	st := fileStatus{
		ChildrenNum: i.Entries, FileID: i.Inode, Owner: i.User, Group: i.Group,
		ModificationTime: i.ModTime().UnixMilli(), Permission: octal(i.Mode()), PathSuffix: name, ACLBit: i.HasACL || i.HasDefault,
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
	st.Replication, st.BlockSize = a.Replication, a.BlockSize
	return st
}

// statuses describes the entries of a directory.
func (q *request) statuses(entries []*client.FileInfo) ([]fileStatus, error) {
	attrs, err := q.fs.Attrs(q.ctx, entries)
	if err != nil {
		return nil, err
	}
	all := make([]fileStatus, len(entries))
	for n, i := range entries {
		all[n] = describe(i, i.Name(), attrs[n])
	}
	return all, nil
}

// escape writes a path as part of a URL.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
