package webhdfs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

func (q lookup) getFileStatus() error {
	i, err := q.fs.Stat(q.ctx, q.path)
	return q.oneStatus(i, err)
}

func (q lookup) getFileLinkStatus() error {
	i, err := q.fs.Lstat(q.ctx, q.path)
	return q.oneStatus(i, err)
}

func (q lookup) oneStatus(i *client.FileInfo, err error) error {
	if err != nil {
		return hadoop.BelowFile(hadoop.FileNotFound, err)
	}
	return q.json(map[string]fileStatus{"FileStatus": status(i, "")})
}

func (q lookup) getLinkTarget() error {
	target, err := q.fs.Readlink(q.ctx, q.path)
	if client.KindOf(err) == client.ErrInvalidArgument {
		return hadoop.Refuse(hadoop.IOException, "Path %s is not a symbolic link", q.path)
	}
	if err != nil {
		return err
	}
	return q.json(map[string]string{"Path": target})
}

// pageSize is how many entries of a directory are asked for at once.
const pageSize = 1000

// listStatus lists a directory of any size: what was listed is sent before the next
// page is asked for. The pages are of one directory, whatever takes its name.
func (q lookup) listStatus() error {
	dir, err := q.fs.Stat(q.ctx, q.path)
	if err != nil {
		return hadoop.BelowFile(hadoop.AccessControl, err)
	}
	if !dir.IsDir() {
		return q.json(map[string]any{"FileStatuses": map[string]any{"FileStatus": []fileStatus{status(dir, "")}}})
	}
	var out *bufio.Writer
	for after, more := "", true; more; {
		var entries []*client.FileInfo
		if entries, more, err = q.fs.ListAt(q.ctx, lowlevel.Inode(dir.Inode), after, pageSize); err != nil {
			return q.brokenOff(out != nil, err)
		}
		all := list(entries)
		if out == nil {
			q.w.Header().Set("Content-Type", "application/json")
			out = bufio.NewWriter(q.w)
			_, _ = out.WriteString(`{"FileStatuses":{"FileStatus":[`)
		} else if len(all) > 0 {
			_ = out.WriteByte(',')
		}
		for n, st := range all {
			if n > 0 {
				_ = out.WriteByte(',')
			}
			b, err := json.Marshal(st)
			if err != nil {
				return q.brokenOff(true, err)
			}
			if _, err := out.Write(b); err != nil {
				return q.brokenOff(true, err)
			}
		}
		if len(entries) > 0 {
			after = entries[len(entries)-1].Name()
		}
		q.patient(shortTime)
	}
	_, _ = out.WriteString("]}}\n")
	_ = out.Flush()
	return nil
}

// errCut says that an answer has begun and cannot be finished: the connection is closed,
// so the client sees that it is not whole.
var errCut = errors.New("the answer was broken off")

// brokenOff is err, or errCut if the answer has begun.
func (q *request) brokenOff(begun bool, err error) error {
	if !begun {
		return err
	}
	q.log.Warn("an answer was broken off", "from", q.r.RemoteAddr, "op", q.op, "path", q.path, "cause", err)
	return errCut
}

// patient gives a client so long again, for each of both directions.
func (q *request) patient(d time.Duration) { patient(q.w, d) }

func patient(w http.ResponseWriter, d time.Duration) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(d))
	_ = rc.SetWriteDeadline(time.Now().Add(d))
}

func (q lookup) listStatusBatch() error {
	i, err := q.fs.Stat(q.ctx, q.path)
	if err != nil {
		return hadoop.BelowFile(hadoop.AccessControl, err)
	}
	remaining := 0
	all := make([]fileStatus, 1)
	if i.IsDir() {
		entries, more, err := q.fs.ListAt(q.ctx, lowlevel.Inode(i.Inode), q.params.text("startafter"), pageSize)
		if err != nil {
			return err
		}
		if more {
			remaining = 1 // at least; nobody counts the rest
		}
		all = list(entries)
	} else {
		all[0] = status(i, "")
	}
	return q.json(map[string]any{"DirectoryListing": map[string]any{
		"partialListing":   map[string]any{"FileStatuses": map[string]any{"FileStatus": all}},
		"remainingEntries": remaining,
	}})
}

func (q lookup) getContentSummary() error {
	s, err := q.fs.Content(q.ctx, q.path)
	if err != nil {
		return err
	}
	policy := ""
	if s.Directories == 0 {
		policy = "Replicated" // what HDFS calls a file that is not erasure coded
	}
	return q.json(map[string]any{"ContentSummary": map[string]any{
		"directoryCount": s.Directories, "ecPolicy": policy, "fileCount": s.Files + s.Symlinks, "length": s.Length,
		"quota": s.Quota, "snapshotDirectoryCount": 0, "snapshotFileCount": 0, "snapshotLength": 0, "snapshotSpaceConsumed": 0,
		"spaceConsumed": s.Space, "spaceQuota": s.SpaceQuota, "typeQuota": map[string]any{},
	}})
}

func (q lookup) getQuotaUsage() error {
	s, err := q.fs.Content(q.ctx, q.path)
	if err != nil {
		return err
	}
	return q.json(map[string]any{"QuotaUsage": map[string]any{
		"fileAndDirectoryCount": s.Names, "quota": s.Quota,
		"spaceConsumed": s.Space, "spaceQuota": s.SpaceQuota, "typeQuota": map[string]any{},
	}})
}

func (q lookup) home() string { return "/user/" + q.user.User }

func (q lookup) getHomeDirectory() error {
	return q.json(map[string]string{"Path": q.home()})
}

func (q lookup) getTrashRoot() error {
	return q.json(map[string]string{"Path": path.Join(q.home(), ".Trash")})
}

func (q lookup) getTrashRoots() error {
	all := []fileStatus{}
	where := path.Join(q.home(), ".Trash")
	i, err := q.fs.Stat(q.ctx, where)
	switch {
	case err == nil && i.IsDir():
		all = append(all, status(i, where))
	case err != nil && client.KindOf(err) != client.ErrNotFound && client.KindOf(err) != client.ErrNotDirectory:
		return err
	}
	return q.json(map[string]any{"Paths": all})
}

func (q lookup) getServerDefaults() error {
	return q.json(map[string]any{"FsServerDefaults": map[string]any{
		"blockSize": hadoop.DefaultAttr.BlockSize, "bytesPerChecksum": 512, "checksumType": 2, "defaultStoragePolicyId": 7,
		"encryptDataTransfer": false, "fileBufferSize": 4096, "keyProviderUri": "", "replication": hadoop.DefaultAttr.Replication,
		"trashInterval": 0, "writePacketSize": 64 << 10,
	}})
}

// getStatus is what df shows.
func (q lookup) getStatus() error {
	u, err := q.fs.Usage(q.ctx)
	if err != nil {
		return err
	}
	return q.json(map[string]any{"FsStatus": map[string]int64{"capacity": u.Capacity, "remaining": u.Remaining, "used": u.Used}})
}

// hot is the one storage policy that there is, with the number and name that it has in HDFS.
var hot = map[string]any{
	"copyOnCreateFile": false, "creationFallbacks": []string{}, "id": 7, "name": "HOT",
	"replicationFallbacks": []string{"ARCHIVE"}, "storageTypes": []string{"DISK"},
}

func (q lookup) getStoragePolicy() error {
	if _, err := q.fs.Stat(q.ctx, q.path); err != nil {
		return err
	}
	return q.json(map[string]any{"BlockStoragePolicy": hot})
}

// getECPolicy answers as HDFS does for what is not erasure coded.
func (q lookup) getECPolicy() error {
	if _, err := q.fs.Stat(q.ctx, q.path); err != nil {
		return err
	}
	return q.json(nil)
}

func (q lookup) getAllStoragePolicy() error {
	return q.json(map[string]any{"BlockStoragePolicies": map[string]any{"BlockStoragePolicy": []any{hot}}})
}

// open sends the client to the inode that the path leads to now: however often it
// seeks, it reads the same file. There it gets the bytes.
func (q transfer) open() error {
	offset, err := q.params.number("offset", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	length, err := q.params.number("length", math.MaxInt64, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	inode, err := q.params.number("inode", 0, 1, math.MaxInt64)
	if err != nil {
		return err
	}
	if inode != 0 {
		return q.send(uint64(inode), offset, length)
	}
	r, err := q.fs.Open(q.ctx, q.path)
	if err != nil {
		return hadoop.BelowFile(hadoop.FileNotFound, err)
	}
	i, err := r.Stat()
	_ = r.Close() // it was only looked at
	if err != nil {
		return err
	}
	more := url.Values{"inode": {strconv.FormatUint(i.Inode, 10)}, "offset": {strconv.FormatInt(offset, 10)}}
	if length != math.MaxInt64 {
		more.Set("length", strconv.FormatInt(length, 10))
	}
	return q.redirect(more)
}

// redirect answers with where the second request goes.
func (q *request) redirect(more url.Values) error {
	no, err := q.params.flag("noredirect", false)
	if err != nil {
		return err
	}
	location := q.location(more)
	if no {
		return q.json(map[string]string{"Location": location})
	}
	q.w.Header().Set("Location", location)
	q.w.Header().Set("Content-Type", "application/octet-stream")
	q.w.Header().Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

// send answers with bytes of a file.
func (q transfer) send(inode uint64, offset, length int64) error {
	leave, err := q.streams.Enter(q.ctx, q.taker())
	if err != nil {
		return err
	}
	defer leave()
	r, _, err := q.fs.OpenInode(q.ctx, inode, q.path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it only read
	length = max(0, min(length, r.Length()-offset))
	q.w.Header().Set("Content-Type", "application/octet-stream")
	q.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	rc := http.NewResponseController(q.w)
	_ = rc.SetReadDeadline(time.Time{}) // the client has nothing more to say
	buf := make([]byte, min(length, 256<<10))
	for begun := false; length > 0; begun = true {
		n, err := r.ReadAtContext(q.ctx, buf[:min(length, int64(len(buf)))], offset, false)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = hadoop.Refuse(hadoop.Retriable, "the file is shorter than it was")
			}
			return q.brokenOff(begun, err)
		}
		_ = rc.SetWriteDeadline(time.Now().Add(q.cfg.Idle))
		if _, err := q.w.Write(buf[:n]); err != nil {
			return q.brokenOff(true, err)
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}

func (q lookup) checkAccess() error {
	text, err := q.params.needed("fsaction")
	if err != nil {
		return err
	}
	want, ok := hadoop.Access(0), len(text) == 3
	for n, c := range text {
		want <<= 1
		if n < 3 && c == rune("rwx"[n]) {
			want |= 1
		} else if c != '-' {
			ok = false
		}
	}
	if !ok {
		return &badParam{"fsaction", fmt.Sprintf("%.20q is no action such as r-x", text)}
	}
	return q.done(q.fs.CheckAccess(q.ctx, q.path, want))
}
