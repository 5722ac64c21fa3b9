package hadoop

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// RenameInto is the older call: into the destination if that is a directory; no, if
// there is nothing to rename or the name is taken.
func (f FS) RenameInto(ctx context.Context, from, to string) (bool, error) {
	if from == "/" {
		return false, nil
	}
	err := f.Rename(ctx, from, to, false)
	if client.KindOf(err) == client.ErrExists || err == nil && to == from || to == "/" {
		i, serr := f.Stat(ctx, to)
		switch {
		case serr != nil:
			return false, orFalse(serr)
		case !i.IsDir():
			return to == from, nil
		}
		_, name := fspath.Split(from)
		_, err = f.RenameAt(ctx, lowlevel.At(from), lowlevel.Ref{Base: i.Inode, Path: name}, false, lowlevel.Taken{})
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

// RenameStrictly is the newer call: what cannot be done is an error.
func (f FS) RenameStrictly(ctx context.Context, from, to string, overwrite bool) error {
	switch {
	case from == to:
		return Refuse(FileExists, "The source %s and destination %s are the same", from, to)
	case from == "/" || to == "/":
		return Refuse(IOException, "the root cannot be renamed or replaced")
	}
	err := f.Rename(ctx, from, to, overwrite)
	switch client.KindOf(err) {
	case client.ErrInvalidArgument:
		return Refuse(IOException, "Rename destination %s is a directory or file under source %s", to, from)
	case client.ErrIsDirectory, client.ErrNotDirectory:
		if i, serr := f.Lstat(ctx, to); serr == nil {
			if old, serr := f.Lstat(ctx, from); serr == nil && old.IsDir() != i.IsDir() {
				return Refuse(IOException, "Source %s and destination %s must both be directories, or both files", from, to)
			}
		}
	case client.ErrNotEmpty:
		if fserror.ReasonOf(err) == fserror.ReasonHasSnapshots {
			return err
		}
		return Refuse(IOException, "rename destination directory is not empty: %s", to)
	}
	return err
}

// Delete answers no if there is nothing, and never deletes the root.
func (f FS) Delete(ctx context.Context, path string, recursive bool) (bool, error) {
	notEmpty := func() error { return Refuse(NotEmpty, "`%s is non empty': Directory is not empty", path) }
	if path == "/" {
		i, err := f.Stat(ctx, path)
		if err == nil && !recursive && i.Entries > 0 {
			err = notEmpty()
		}
		return false, err
	}
	var err error
	if recursive {
		err = f.RemoveTree(ctx, path)
	} else {
		err = f.Remove(ctx, path)
	}
	switch client.KindOf(err) {
	case client.ErrNotFound:
		return false, nil
	case client.ErrNotEmpty:
		if fserror.ReasonOf(err) != fserror.ReasonHasSnapshots {
			err = notEmpty()
		}
		return false, err
	}
	return err == nil, BelowFile(AccessControl, err)
}

// File describes what has to be a file, by HDFS's words otherwise. NotFound, also for a directory.
func (f FS) File(ctx context.Context, op, path string) (*client.FileInfo, error) {
	i, err := f.Stat(ctx, path)
	switch {
	case fserror.KindOf(err) == fserror.NotFound && err != nil:
		return nil, fserror.New(fserror.NotFound, op, path, "File does not exist: %s", path)
	case err != nil:
		return nil, err
	case !i.Mode().IsRegular():
		return nil, fserror.New(fserror.NotFound, op, path, "Path is not a file: %s", path)
	}
	return i, nil
}

// MayFlush refuses a user without write permission: asking for a recovery that will be refused must
// not flush what others write.
func (f FS) MayFlush(ctx context.Context, inode uint64) error {
	return f.FS.Access(ctx, lowlevel.Inode(inode), uint32(Write))
}

// RecoverLease has the file at a path closed, whoever writes it. flush is told before that what is
// open, and can refuse; ended is told what has ended. The path may lead to another file, or the
// file may have another writer, from one of the calls to the next: what is looked at is what
// ends, or it is looked at once more. NotFound, also for a directory.
func (f FS) RecoverLease(ctx context.Context, path string, flush func(*client.FileInfo) error, ended func(*client.FileInfo)) error {
	for {
		i, err := f.File(ctx, "recover", path)
		if err != nil || i.Open == nil {
			return err
		}
		if err := flush(i); err != nil {
			return err
		}
		r, err := f.RecoverOpening(ctx, i.Inode, i.Open.Epoch, path)
		switch {
		case err != nil && fserror.KindOf(err) != fserror.NotFound:
			return err
		case err == nil && r.WasOpen:
			ended(i)
			return nil
		}
	}
}

// maxSources is how many files one Concat takes.
const maxSources = 4096

// Join is HDFS's concat: it appends the sources, paths as the client wrote them, to the
// target and removes them.
func (f FS) Join(ctx context.Context, target string, sources []string) error {
	if len(sources) > maxSources {
		return Refuse(HadoopIllegal, "concat: %d sources are too many; give at most %d at once", len(sources), maxSources)
	}
	clean := make([]string, len(sources))
	seen := map[string]bool{}
	for n, s := range sources {
		s, err := fspath.Clean(s)
		if err != nil {
			return err
		}
		if s == target {
			return Refuse(HadoopIllegal, "concat: the src file %s is the same with the target file %s", s, target)
		}
		if seen[s] {
			return Refuse(HadoopIllegal, "concat: at least two of the source files are the same")
		}
		clean[n], seen[s] = s, true
	}
	return f.Concat(ctx, target, clean...)
}

// NotCreated gives an error of a Create the name that HDFS has for it.
func (f FS) NotCreated(ctx context.Context, path string, err error) error {
	switch client.KindOf(err) {
	case client.ErrIsDirectory:
		return Named(FileExists, err)
	case client.ErrExists:
		i, serr := f.Stat(ctx, path)
		if serr == nil && i.Open != nil && !i.Open.SoftExpired {
			h := i.Open.Holder
			return Refuse(AlreadyBeingCreated, "%s: user %s (client %s on %s) is creating it", path, h.User, h.Client, h.Host)
		}
	}
	return f.Held(path, err)
}

// Held tells an error of a file that its user has open through this gateway in
// Hadoop's words rather than those of the library.
func (f FS) Held(path string, err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Kind == client.ErrHeld && e.Holder == nil {
		return Refuse(AlreadyBeingCreated, "%s: user %s has it open for write through this gateway; it ends when that request does", path, f.User)
	}
	return err
}

// Access is what somebody wants to do with a file: bits as those of a mode.
type Access uint32

// Bits of an Access.
const (
	Execute Access = 1 << iota
	Write
	Read
)

// CheckAccess asks the namenode whether its user may do that, by all of its rules.
func (f FS) CheckAccess(ctx context.Context, path string, want Access) error {
	if want > Read|Write|Execute {
		return Refuse(HadoopIllegal, "%d is no access; read, write and execute are 4, 2 and 1", want)
	}
	i, err := f.Stat(ctx, path)
	if err != nil {
		return err
	}
	err = f.FS.Access(ctx, lowlevel.Inode(i.Inode), uint32(want))
	if client.KindOf(err) == client.ErrPermission {
		return Refuse(AccessControl, "Permission denied: user=%s, access=%03b (read, write, execute), inode=%q:%s:%s:%s", f.User, want, path, i.User, i.Group, i.Mode())
	}
	return err
}

// Usage is what df shows, in bytes.
type Usage struct{ Capacity, Remaining, Used int64 }

// Usage returns that of the active namenode.
func (f FS) Usage(ctx context.Context) (Usage, error) {
	all, err := f.Status(ctx)
	if err != nil {
		return Usage{}, err
	}
	for _, st := range all {
		if st.Err == nil && st.Role == "active" {
			return Usage{st.DiskTotal, st.DiskFree, st.StoredBytes + st.GarbageBytes + st.TailBytes}, nil
		}
	}
	return Usage{}, Refuse(Retriable, "no namenode is active; try again later")
}

// Mode is a file's mode from Hadoop's bits, at most 01777.
func Mode(bits uint32) (fs.FileMode, error) {
	if bits > filemode.Most {
		return 0, Refuse(IllegalArgument, "%o are no permission bits; give octal 0 to 1777", bits)
	}
	return filemode.FromUnix(bits), nil
}

// XattrName is the library's name of an extended attribute, from HDFS's name space and
// the rest of the name.
func XattrName(space, rest string) (string, error) {
	switch {
	case rest == "":
		return "", Refuse(HadoopIllegal, "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'")
	case !strings.EqualFold(space, "user"):
		return "", Refuse(Unsupported, "leasefs keeps extended attributes of the namespace user only, not %.255q", space+"."+rest)
	case "user."+rest == AttrXattr:
		return "", Refuse(AccessControl, "%s is the gateway's own; set replication instead", AttrXattr)
	}
	return "user." + rest, nil
}

// VisibleXattrs are the extended attributes that clients see.
func (f FS) VisibleXattrs(ctx context.Context, path string) (visible []client.Xattr, err error) {
	all, err := f.Xattrs(path).All(ctx)
	for _, x := range all {
		if x.Name != AttrXattr {
			visible = append(visible, x)
		}
	}
	return visible, err
}

// NoXattr is HDFS's error for an extended attribute that is missing, or there already: an
// IOException, as opposed to a file's.
func NoXattr(err error) error {
	if client.IsNoXattr(err) || client.KindOf(err) == client.ErrExists {
		return Named(IOException, err)
	}
	return err
}
