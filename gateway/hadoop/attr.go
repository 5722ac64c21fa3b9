package hadoop

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// AttrXattr is the extended attribute in which a file's Attr is kept, if it is not the
// default. Hadoop's clients do not see it.
const AttrXattr = "user.leasefs.hadoop"

// MaxReplication is HDFS's.
const MaxReplication = 512

// MaxBlockSize is the largest block, in bytes: each number that a block can have in its file leads to
// a place that there can be.
const MaxBlockSize = 1 << 38

// Attr is what Hadoop's clients say of a file, and are told again: how often it is kept,
// and its block size in bytes. Nothing of leasefs depends on it.
type Attr struct{ Replication, BlockSize int64 }

// DefaultAttr is what Hadoop's clients say when nobody has configured them. Files that
// were not given another have it.
var DefaultAttr = Attr{3, 128 << 20}

// Or fills in from b what a does not say.
func (a Attr) Or(b Attr) Attr {
	if a.Replication == 0 {
		a.Replication = b.Replication
	}
	if a.BlockSize == 0 {
		a.BlockSize = b.BlockSize
	}
	return a
}

// encode says what is not the default.
func (a Attr) encode() (text []byte) {
	if a.Replication != DefaultAttr.Replication {
		text = fmt.Appendf(text, "replication=%d ", a.Replication)
	}
	if a.BlockSize != DefaultAttr.BlockSize {
		text = fmt.Appendf(text, "blocksize=%d", a.BlockSize)
	}
	return bytes.TrimSpace(text)
}

// decodeAttr takes what somebody else may have written: what makes no sense is not said.
func decodeAttr(value []byte) (a Attr) {
	for word := range strings.FieldsSeq(string(value)) {
		name, v, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil || n < 1:
		case name == "replication" && n <= MaxReplication:
			a.Replication = n
		case name == "blocksize" && n <= MaxBlockSize:
			a.BlockSize = n
		}
	}
	return a
}

// FS is a user's session with the rules of HDFS. It is as cheap to copy as its fields.
type FS struct {
	lowlevel.FS
	User string
	Log  *slog.Logger // for what an operator should know of
}

// AttrOf returns that of a file, and the default of anything else. The FileInfo comes from
// a client whose Config.Xattr is AttrXattr. Who may not read a file sees the default.
func AttrOf(i *client.FileInfo) Attr {
	if !i.Mode().IsRegular() {
		return DefaultAttr
	}
	return decodeAttr(i.Xattr).Or(DefaultAttr)
}

// Make creates a file that has the Attr from the first moment, in one change. If the
// namenode has no room for it, the file has the default: nobody loses a byte by that.
func (f FS) Make(ctx context.Context, path string, a Attr, opts ...client.OpenOption) (*client.Writer, *client.FileInfo, error) {
	if a == DefaultAttr {
		return f.CreateSeen(ctx, path, opts...)
	}
	with := client.WithXattrs([]client.Xattr{{Name: AttrXattr, Value: a.encode()}})
	w, i, err := f.CreateSeen(ctx, path, append(slices.Clone(opts), with)...)
	if client.KindOf(err) != client.ErrNoSpace || fserror.OverQuota(err) {
		return w, i, err
	}
	cause := err
	if w, i, err = f.CreateSeen(ctx, path, opts...); err == nil {
		f.Log.Warn("no room for replication and block size; the file has the defaults", "path", path, "cause", cause)
	}
	return w, i, err
}

// TooMany refuses a replication of more than MaxReplication; else it is nil.
func TooMany(replication int64, path string) error {
	if replication <= MaxReplication {
		return nil
	}
	return Refuse(IOException, "Requested replication factor of %d exceeds maximum of %d for %s", replication, MaxReplication, path)
}

// SetReplication keeps a file's replication; 0 is the default. It answers no if there is
// no such file. Permission: also for who may not read it, and so does not know its block size.
func (f FS) SetReplication(ctx context.Context, path string, n int64) (bool, error) {
	if err := TooMany(n, path); err != nil {
		return false, err
	}
	i, err := f.Stat(ctx, path)
	if client.KindOf(err) == client.ErrNotFound || err == nil && !i.Mode().IsRegular() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a := AttrOf(i)
	if len(i.Xattr) == 0 { // none, or not for who may not read the file: he would set the block size back
		value, err := f.XattrsInode(i.Inode).Get(ctx, AttrXattr)
		if err != nil && !client.IsNoXattr(err) {
			return false, err
		}
		a = decodeAttr(value).Or(DefaultAttr)
	}
	if n == 0 {
		n = DefaultAttr.Replication
	}
	a.Replication = n
	err = f.XattrsInode(i.Inode).Set(ctx, AttrXattr, a.encode(), client.XattrAny)
	return err == nil, err
}
