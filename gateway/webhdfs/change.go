package webhdfs

import (
	"errors"
	"math"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
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
		return q.done(q.renameStrictly(to, overwrite))
	}
	ok, err := q.renameInto(to)
	if err != nil {
		return err
	}
	return q.yes(ok)
}

// renameInto is the older call: into the destination if that is a directory; no, if
// there is nothing to rename or the name is taken.
func (q change) renameInto(to string) (bool, error) {
	if q.path == "/" {
		return false, nil
	}
	err := q.fs.Rename(q.ctx, q.path, to, false)
	if client.KindOf(err) == client.ErrExists || err == nil && to == q.path || to == "/" {
		i, serr := q.fs.Stat(q.ctx, to)
		switch {
		case serr != nil:
			return false, orFalse(serr)
		case !i.IsDir():
			return to == q.path, nil
		}
		_, name := fspath.Split(q.path)
		_, err = q.fs.RenameAt(q.ctx, lowlevel.At(q.path), lowlevel.Ref{Base: i.Inode, Path: name}, false, lowlevel.Taken{})
	}
	if err != nil {
		return false, orFalse(err)
	}
	return true, nil
}

// orFalse forgets the errors for which HDFS's rename answers no.
func orFalse(err error) error {
	switch client.KindOf(err) {
	case client.ErrNotFound, client.ErrExists, client.ErrInvalidArgument, client.ErrNotEmpty:
		return nil
	default:
		return err
	}
}

// renameStrictly is the newer call: what cannot be done is an error.
func (q change) renameStrictly(to string, overwrite bool) error {
	switch {
	case q.path == to:
		return refuse(fileExists, "The source %s and destination %s are the same", q.path, to)
	case q.path == "/" || to == "/":
		return refuse(ioException, "the root cannot be renamed or replaced")
	}
	err := q.fs.Rename(q.ctx, q.path, to, overwrite)
	switch client.KindOf(err) {
	case client.ErrInvalidArgument:
		return refuse(ioException, "Rename destination %s is a directory or file under source %s", to, q.path)
	case client.ErrIsDirectory, client.ErrNotDirectory:
		if i, serr := q.fs.Lstat(q.ctx, to); serr == nil {
			if from, serr := q.fs.Lstat(q.ctx, q.path); serr == nil && from.IsDir() != i.IsDir() {
				return refuse(ioException, "Source %s and destination %s must both be directories, or both files", q.path, to)
			}
		}
	case client.ErrNotEmpty:
		return refuse(ioException, "rename destination directory is not empty: %s", to)
	}
	return err
}

func (q change) delete() error {
	recursive, err := q.params.flag("recursive", false)
	if err != nil {
		return err
	}
	if q.path == "/" {
		i, err := q.fs.Stat(q.ctx, q.path)
		if err == nil && !recursive && i.Entries > 0 {
			err = refuse(notEmpty, "`/ is non empty': Directory is not empty")
		}
		if err != nil {
			return err
		}
		return q.yes(false) // the root stays
	}
	if recursive {
		err = q.fs.RemoveTree(q.ctx, q.path)
	} else {
		err = q.fs.Remove(q.ctx, q.path)
	}
	if client.KindOf(err) == client.ErrNotFound {
		return q.yes(false)
	}
	if client.KindOf(err) == client.ErrNotEmpty {
		return refuse(notEmpty, "`%s is non empty': Directory is not empty", q.path)
	}
	if err != nil {
		return belowFile(accessControl, err)
	}
	return q.yes(true)
}

func (q change) setReplication() error {
	n, err := q.params.replication()
	if err != nil {
		return err
	}
	if n == 0 {
		n = defaultReplication
	}
	if n > maxReplication {
		return q.tooMany(n)
	}
	i, err := q.fs.Stat(q.ctx, q.path)
	if client.KindOf(err) == client.ErrNotFound || err == nil && !i.Mode().IsRegular() {
		return q.yes(false)
	}
	if err != nil {
		return err
	}
	a, err := q.attr(q.ctx, i)
	if err != nil {
		return err
	}
	a.replication = n
	if err := q.fs.XattrsInode(i.Inode).Set(q.ctx, hadoopXattr, a.encode(), client.XattrAny); err != nil {
		return err
	}
	return q.yes(true)
}

// maxReplication is HDFS's.
const maxReplication = 512

func (q *request) tooMany(replication int64) error {
	return refuse(ioException, "Requested replication factor of %d exceeds maximum of %d for %s", replication, maxReplication, q.path)
}

func (q change) setOwner() error {
	user, group := q.params.text("owner"), q.params.text("group")
	if user == "" && group == "" {
		return refuse(illegalArgument, "Both owner and group are empty.")
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
		return named(hadoopIllegal, err) // longer than it is
	}
	if err != nil {
		return err
	}
	return q.yes(true)
}

// maxSources is how many files one CONCAT takes.
const maxSources = 4096

func (q change) concat() error {
	list, err := q.params.needed("sources")
	if err != nil {
		return err
	}
	sources := strings.Split(list, ",")
	if len(sources) > maxSources {
		return refuse(hadoopIllegal, "concat: %d sources are too many; give at most %d at once", len(sources), maxSources)
	}
	seen := map[string]bool{}
	for n, s := range sources {
		s, err := fspath.Clean(s)
		if err != nil {
			return err
		}
		if s == q.path {
			return refuse(hadoopIllegal, "concat: the src file %s is the same with the target file %s", s, q.path)
		}
		if seen[s] {
			return refuse(hadoopIllegal, "concat: at least two of the source files are the same")
		}
		sources[n], seen[s] = s, true
	}
	return q.done(q.fs.Concat(q.ctx, q.path, sources...))
}

// held tells an error of a file that its user has open through this gateway in
// Hadoop's words rather than those of the library.
func (q transfer) held(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Kind == client.ErrHeld && e.Holder == nil {
		return refuse(alreadyBeingCreated, "%s: user %s has it open for write through this gateway; it ends when that request does", q.path, q.user.name)
	}
	return err
}
