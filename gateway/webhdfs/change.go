package webhdfs

import (
	"math"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/fspath"
)

func (q change) mkdirs() error {
	mode, less, err := q.params.unmasked(0o755)
	if err != nil {
		return err
	}
	if err := q.fs.MkdirMasked(q.ctx, q.path, mode, less, true); err != nil {
		return err
	}
	return q.yes(true)
}

func (q change) createSymlink() error {
	target, err := q.params.needed("destination")
	if err != nil {
		return err
	}
	parents, err := q.params.flag("createparent", false)
	if err != nil {
		return err
	}
	if dir, _ := fspath.Split(q.path); parents {
		if err := q.fs.MkdirAll(q.ctx, dir, 0o755); err != nil {
			return err
		}
	}
	return q.done(q.fs.Symlink(q.ctx, target, q.path))
}

// rename has the rules of HDFS, of which there are two sets.
func (q change) rename() error {
	to, err := q.params.needed("destination")
	if err != nil {
		return err
	}
	if to, err = fspath.Clean(to); err != nil {
		return err
	}
	overwrite, strict, err := q.params.renameOptions()
	if err != nil {
		return err
	}
	if strict {
		return q.done(q.fs.RenameStrictly(q.ctx, q.path, to, overwrite))
	}
	ok, err := q.fs.RenameInto(q.ctx, q.path, to)
	if err != nil {
		return err
	}
	return q.yes(ok)
}

func (q change) delete() error {
	recursive, err := q.params.flag("recursive", false)
	if err != nil {
		return err
	}
	ok, err := q.fs.Delete(q.ctx, q.path, recursive)
	if err != nil {
		return err
	}
	return q.yes(ok)
}

func (q change) setReplication() error {
	n, err := q.params.replication()
	if err != nil {
		return err
	}
	ok, err := q.fs.SetReplication(q.ctx, q.path, n)
	if err != nil {
		return err
	}
	return q.yes(ok)
}

func (q change) setQuota() error {
	names, err := q.params.number("namespacequota", hadoop.KeepQuota, math.MinInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	space, err := q.params.number("storagespacequota", hadoop.KeepQuota, math.MinInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	return q.done(q.fs.SetQuota(q.ctx, q.path, names, space))
}

func (q change) setOwner() error {
	user, group := q.params.text("owner"), q.params.text("group")
	if user == "" && group == "" {
		return hadoop.Refuse(hadoop.IllegalArgument, "Both owner and group are empty.")
	}
	return q.done(q.fs.Chown(q.ctx, q.path, user, group))
}

func (q change) setPermission() error {
	mode, err := q.params.mode("permission", 0o755)
	if err != nil {
		return err
	}
	return q.done(q.fs.Chmod(q.ctx, q.path, mode))
}

// setTimes sets the time of modification. There is none of access.
func (q change) setTimes() error {
	mtime, ok, err := q.params.millis("modificationtime")
	if err != nil {
		return err
	}
	if _, _, err := q.params.millis("accesstime"); err != nil {
		return err
	}
	if ok {
		return q.done(q.fs.Chtimes(q.ctx, q.path, mtime))
	}
	_, err = q.fs.Stat(q.ctx, q.path)
	return q.done(err)
}

func (q change) truncate() error {
	if _, err := q.params.needed("newlength"); err != nil {
		return err
	}
	n, err := q.params.number("newlength", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	err = q.fs.Truncate(q.ctx, q.path, n)
	if client.KindOf(err) == client.ErrUnsupported {
		return hadoop.Named(hadoop.HadoopIllegal, err) // longer than it is
	}
	if err != nil {
		return err
	}
	return q.yes(true)
}

func (q change) concat() error {
	list, err := q.params.needed("sources")
	if err != nil {
		return err
	}
	return q.done(q.fs.Join(q.ctx, q.path, strings.Split(list, ",")))
}
