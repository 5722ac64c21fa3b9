package client

import (
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// XattrMode says how SetXattr takes an extended attribute that is there, or is
// not.
type XattrMode int

// The modes.
const (
	XattrAny     XattrMode = iota // make or replace it
	XattrCreate                   // Exists if it is there
	XattrReplace                  // IsNoXattr if it is missing
)

// MaxXattrValue is how many bytes the value of an extended attribute may have.
const MaxXattrValue = 12 << 10

// noXattr is the reason of the NotFound error for an extended attribute that is
// missing, as opposed to the file.
const noXattr = "no such attribute"

// IsNoXattr tells whether an error says that a file, which is there, has no
// extended attribute of that name. It is of kind NotFound.
func IsNoXattr(err error) bool {
	var e *fserror.Error
	return errors.As(err, &e) && e.Kind == fserror.NotFound && e.Reason == noXattr
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string // "user." and more, at most 255 bytes
	Value []byte // at most MaxXattrValue; all of a file with their names at most 16 KiB
}

// GetXattr returns the value of an extended attribute of a file or directory,
// following a symbolic link. NotFound: see IsNoXattr.
func (f *FS) GetXattr(ctx context.Context, path, name string) ([]byte, error) {
	all, err := f.xattrs(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if x.Name == name {
			return x.Value, nil
		}
	}
	e := fserror.New(fserror.NotFound, "getxattr", path, "it has no extended attribute %q", name)
	e.Reason = noXattr
	return nil, e
}

// ListXattr returns the names of the extended attributes, in order.
func (f *FS) ListXattr(ctx context.Context, path string) ([]string, error) {
	all, err := f.xattrs(ctx, path, 0)
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.Name
	}
	return names, err
}

// Xattrs returns all extended attributes, in the order of names.
func (f *FS) Xattrs(ctx context.Context, path string) ([]Xattr, error) { return f.xattrs(ctx, path, 0) }

// XattrsInode is Xattrs for an inode, wherever it is.
func (f *FS) XattrsInode(ctx context.Context, inode uint64) ([]Xattr, error) {
	return f.xattrs(ctx, "", inode)
}

func (f *FS) xattrs(ctx context.Context, path string, inode uint64) ([]Xattr, error) {
	const op = "getxattr"
	if inode == 0 {
		var err error
		if path, err = clean(op, path); err != nil {
			return nil, err
		}
	}
	k := readKey{kind: readXattrs, path: path, inode: inode}
	v, ok := f.kept(k)
	if !ok {
		v.xattrs = new(pb.XattrsResponse)
		ticket := f.beginRead()
		req := &pb.XattrsRequest{Caller: f.callerIn(ctx), At: k.at(ctx), Cache: f.cache != nil}
		if err := f.call(ctx, &call{op: op, path: path}, pb.Namenode_Xattrs_FullMethodName, req, v.xattrs); err != nil {
			return nil, err
		}
		f.keep(ticket, k, v, v.xattrs.GetKeys())
	}
	all := make([]Xattr, len(v.xattrs.GetXattrs()))
	for i, x := range v.xattrs.GetXattrs() {
		all[i] = Xattr{Name: x.GetName(), Value: slices.Clone(x.GetValue())}
	}
	return all, nil
}

// SetXattr sets an extended attribute of a file or directory, following a
// symbolic link. Its name begins with "user.": else Unsupported. TooLarge: the
// name or the value is; NoSpace: all together are. Exists, NotFound: see
// XattrMode.
func (f *FS) SetXattr(ctx context.Context, path, name string, value []byte, mode XattrMode) error {
	return f.setXattr(ctx, path, &pb.SetXattrRequest{Name: name, Value: value, Action: xattrAction(mode)})
}

// SetXattrInode is SetXattr for an inode, wherever it is.
func (f *FS) SetXattrInode(ctx context.Context, inode uint64, name string, value []byte, mode XattrMode) error {
	return f.setXattr(ctx, "", &pb.SetXattrRequest{At: pb.Inode(inode), Name: name, Value: value, Action: xattrAction(mode)})
}

// RemoveXattr removes an extended attribute. NotFound: see IsNoXattr.
func (f *FS) RemoveXattr(ctx context.Context, path, name string) error {
	return f.setXattr(ctx, path, &pb.SetXattrRequest{Name: name, Action: pb.XattrAction_XATTR_ACTION_REMOVE})
}

// RemoveXattrInode is RemoveXattr for an inode, wherever it is.
func (f *FS) RemoveXattrInode(ctx context.Context, inode uint64, name string) error {
	return f.setXattr(ctx, "", &pb.SetXattrRequest{At: pb.Inode(inode), Name: name, Action: pb.XattrAction_XATTR_ACTION_REMOVE})
}

func xattrAction(mode XattrMode) pb.XattrAction {
	switch mode {
	case XattrCreate:
		return pb.XattrAction_XATTR_ACTION_CREATE
	case XattrReplace:
		return pb.XattrAction_XATTR_ACTION_REPLACE
	}
	return pb.XattrAction_XATTR_ACTION_SET
}

func (f *FS) setXattr(ctx context.Context, path string, req *pb.SetXattrRequest) error {
	const op = "setxattr"
	if req.At == nil {
		var err error
		if path, err = clean(op, path); err != nil {
			return err
		}
		req.At = follow(ctx, path)
	}
	if !utf8.ValidString(req.Name) {
		return fserror.New(fserror.InvalidArgument, op, path, "the name %q is not valid UTF-8; names here are", req.Name)
	}
	req.Call, req.Caller = f.ids.begin(), f.callerIn(ctx)
	return f.mutate(ctx, op, path, pb.Namenode_SetXattr_FullMethodName, req.Call, req)
}
