package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// userXattrs is the name space that is copied: the others are the system's.
const userXattrs = "user."

// xattrNames are the names of a local file's extended attributes user.*. A file
// system that keeps none has none.
func xattrNames(f *os.File) ([]string, error) {
	raw, err := grown(func(buf []byte) (int, error) { return unix.Flistxattr(int(f.Fd()), buf) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("extended attributes cannot be listed: %w", err)
	}
	var names []string
	for name := range strings.SplitSeq(string(raw), "\x00") {
		if strings.HasPrefix(name, userXattrs) {
			names = append(names, name)
		}
	}
	return names, nil
}

// readXattrs are a local file's extended attributes user.*.
func readXattrs(f *os.File) ([]client.Xattr, error) {
	names, err := xattrNames(f)
	if err != nil {
		return nil, err
	}
	all := make([]client.Xattr, 0, len(names))
	for _, name := range names {
		value, err := grown(func(buf []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), name, buf) })
		if errors.Is(err, unix.ENODATA) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("extended attribute %q cannot be read: %w", name, err)
		}
		all = append(all, client.Xattr{Name: name, Value: value})
	}
	return all, nil
}

// grown calls what fills a buffer, and says how large it must be, until it fits:
// what is read may grow meanwhile. The kernel's limit is 64 KiB.
func grown(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := fill(nil)
		if n <= 0 || err != nil {
			return nil, err
		}
		buf := make([]byte, n)
		n, err = fill(buf)
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		return buf[:max(n, 0)], err
	}
}

// dirXattrs gives a directory that was made the attributes of the local one.
func (p *putter) dirXattrs(ctx context.Context, e entry, inode uint64) error {
	if !p.opts.Xattrs {
		return nil
	}
	d, err := p.root.Open(e.below)
	if err != nil {
		return LocalError("put", e.local, err)
	}
	all, err := readXattrs(d)
	if err = errors.Join(err, d.Close()); err != nil {
		return LocalError("put", e.local, err)
	}
	for _, x := range all {
		if err := p.fs.XattrsInode(inode).Set(ctx, x.Name, x.Value, client.XattrAny); err != nil {
			return xattrError(err, "put", e.remote, x.Name)
		}
	}
	return nil
}

// xattrError says of which attribute an error of the namespace is.
func xattrError(err error, op, path, name string) error {
	var e *fserror.Error
	if !errors.As(err, &e) {
		return fserror.With(err, op, path)
	}
	c := *e
	c.Op, c.Path, c.Message = op, path, fmt.Sprintf("extended attribute %q: %s", name, e.Message)
	return &c
}

// dirXattrs gives a local directory that was made the attributes of the one in
// the namespace.
func (g *getter) dirXattrs(ctx context.Context, it item) error {
	if !g.opts.Xattrs || it.info.Xattrs == 0 {
		return nil
	}
	d, err := g.root.Open(it.local)
	if err != nil {
		return g.localError(it.local, err)
	}
	defer func() { _ = d.Close() }() // nothing is written by it
	return g.xattrs(ctx, d, it)
}

// xattrs gives a local file or directory the attributes of the one in the
// namespace.
func (g *getter) xattrs(ctx context.Context, f *os.File, it item) error {
	if !g.opts.Xattrs || it.info.Xattrs == 0 {
		return nil
	}
	all, err := g.fs.XattrsInode(it.info.Inode).All(ctx)
	if err != nil {
		return fserror.With(err, "get", it.remote)
	}
	for _, x := range all {
		if err := unix.Fsetxattr(int(f.Fd()), x.Name, x.Value, 0); err != nil {
			return localXattrError(g.local(it.local), x, err)
		}
	}
	return nil
}

// localXattrError is why a local file could not get an attribute.
func localXattrError(path string, x client.Xattr, err error) error {
	what := fmt.Sprintf("extended attribute %q of %d bytes", x.Name, len(x.Value))
	switch {
	case errors.Is(err, unix.ENOTSUP):
		return fserror.New(fserror.Unsupported, "get", path, "%s: the local file system keeps no such attributes", what).Because(fserror.ReasonAttributeLost)
	case vfs.Full(err), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE):
		return fserror.New(fserror.NoSpace, "get", path, "%s: the local file system has no room for it (%v)", what, err).Because(fserror.ReasonAttributeLost)
	}
	return LocalError("get", path, fmt.Errorf("%s: %w", what, err))
}
