package hadoop

import (
	"context"
	"math"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
)

// KeepQuota is HDFS's word for a limit that stays as it is.
const KeepQuota = math.MaxInt64

// Content is what is below a path, itself included, as HDFS tells of it.
type Content struct {
	client.Summary
	Names             int64 // files, directories and links
	Space             int64 // bytes, counted as SpaceQuota is, if there is one
	Quota, SpaceQuota int64 // of names and bytes; -1: none
}

// Content counts what is below a path.
func (f FS) Content(ctx context.Context, path string) (Content, error) {
	s, err := f.Summary(ctx, path)
	if err != nil {
		return Content{}, err
	}
	c := Content{Summary: s, Names: int64(s.Files + s.Directories + s.Symlinks), Space: s.Stored, Quota: quota.None, SpaceQuota: quota.None} //nolint:gosec // a count
	q, err := quota.Of(ctx, f.FS.FS, path)
	if err != nil || q == nil {
		return c, err
	}
	if c.Quota, c.SpaceQuota = q.Names, q.Bytes; q.Bytes != quota.None {
		c.Space = q.UsedBytes
	}
	return c, nil
}

// SetQuota sets a directory's limits of names and of bytes: KeepQuota leaves one as it is, -1
// takes it away.
func (f FS) SetQuota(ctx context.Context, path string, names, space int64) error {
	if names < quota.None || space < quota.None {
		return Refuse(IllegalArgument, "Invalid values for quota: %d and %d", names, space)
	}
	if names == KeepQuota {
		names = quota.Keep
	}
	if space == KeepQuota {
		space = quota.Keep
	}
	return quota.Set(ctx, f.FS.FS, path, names, space)
}
