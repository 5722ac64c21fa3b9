package webhdfs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// What Hadoop's clients say when nobody has configured them; files that were not
// given others have these.
const (
	defaultReplication = 3
	defaultBlockSize   = 128 << 20
)

// hadoopXattr is the extended attribute in which a file's replication and block size
// are kept, if they are not the defaults. Clients of WebHDFS do not see it.
const hadoopXattr = "user.leasefs.hadoop"

// hadoopAttr are what Hadoop's clients say of a file, and are told again. Nothing of
// leasefs depends on them.
type hadoopAttr struct{ replication, blockSize int64 }

var defaultAttr = hadoopAttr{defaultReplication, defaultBlockSize}

// or fills in what is not said.
func (a hadoopAttr) or(b hadoopAttr) hadoopAttr {
	if a.replication == 0 {
		a.replication = b.replication
	}
	if a.blockSize == 0 {
		a.blockSize = b.blockSize
	}
	return a
}

// encode says what is not the default.
func (a hadoopAttr) encode() (text []byte) {
	if a.replication != defaultReplication {
		text = fmt.Appendf(text, "replication=%d ", a.replication)
	}
	if a.blockSize != defaultBlockSize {
		text = fmt.Appendf(text, "blocksize=%d", a.blockSize)
	}
	return bytes.TrimSpace(text)
}

// decodeAttr takes what somebody else may have written: what makes no sense is not said.
func decodeAttr(value []byte) (a hadoopAttr) {
	for word := range strings.FieldsSeq(string(value)) {
		name, v, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil || n < 1:
		case name == "replication" && n <= maxReplication:
			a.replication = n
		case name == "blocksize":
			a.blockSize = n
		}
	}
	return a
}

// attr are those of a file.
func (q *request) attr(ctx context.Context, i *client.FileInfo) (hadoopAttr, error) {
	if i.Xattrs == 0 || !i.Mode().IsRegular() {
		return defaultAttr, nil
	}
	value, err := q.fs.XattrsInode(i.Inode).Get(ctx, hadoopXattr)
	switch {
	case client.IsNoXattr(err) || lowlevel.IsGone(err):
		return defaultAttr, nil
	case client.KindOf(err) == client.ErrPermission:
		return defaultAttr, nil // who may not read a file sees it all the same
	case err != nil:
		return defaultAttr, err
	}
	return decodeAttr(value).or(defaultAttr), nil
}

// attrsAtOnce is how many files of a listing are asked about at once.
const attrsAtOnce = 16

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
func (q *request) status(ctx context.Context, i *client.FileInfo, name string) (fileStatus, error) {
	st := fileStatus{
		ChildrenNum: i.Entries, FileID: i.Inode, Owner: i.User, Group: i.Group,
		ModificationTime: i.ModTime().UnixMilli(), Permission: octal(i.Mode()), PathSuffix: name, ACLBit: i.HasACL || i.HasDefault,
	}
	switch i.Type() {
	case fs.ModeDir:
		st.Type = "DIRECTORY"
		return st, nil
	case fs.ModeSymlink:
		st.Type, st.Symlink = "SYMLINK", i.LinkTarget
		return st, nil
	}
	a, err := q.attr(ctx, i)
	st.Type, st.Length, st.AccessTime = "FILE", i.Length, st.ModificationTime
	st.Replication, st.BlockSize = a.replication, a.blockSize
	return st, err
}

// statuses describes the entries of a directory.
func (q *request) statuses(entries []*client.FileInfo) ([]fileStatus, error) {
	all, errs := make([]fileStatus, len(entries)), make([]error, len(entries))
	var wg sync.WaitGroup
	turns := make(chan struct{}, attrsAtOnce)
	for n, i := range entries {
		if i.Xattrs == 0 {
			all[n], errs[n] = q.status(q.ctx, i, i.Name())
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			all[n], errs[n] = q.status(q.ctx, i, i.Name())
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// escape writes a path as part of a URL.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
